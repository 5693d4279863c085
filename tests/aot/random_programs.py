"""Random differentiable programs with mutation, views and shared inputs, as Python source.

A program is made line by line; each line is tried in eager mode, on tensors such as the program will get, and left
out if that refuses it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch

Item = TypeVar("Item")


class Chooser(Protocol):
    """Makes the decisions that a program consists of."""

    def one_of(self, items: Sequence[Item]) -> Item: ...

    def number(self, low: int, high: int) -> int: ...


# Ways to make the tensors that a program is called with. ``leaf(...)`` makes one whose gradient is compared.
INPUTS = [
    "x0, x1 = leaf(3, 4), leaf(3, 4)",
    "x0, x1 = leaf(3, 4) * 1, leaf(3, 4) * 1",
    "x0, x1 = plain(3, 4), leaf(3, 4) * 1",
    "x0, x1 = plain(3, 4), leaf(4)",
    "x0 = leaf(3, 4) * 1; x1 = x0",
    "x0 = leaf(6, 4) * 1; x0, x1 = x0[:3], x0[3:]",
    "x0 = leaf(5, 4) * 1; x0, x1 = x0[:3], x0[2:]",
    "x0 = leaf(3, 4) * 1; x1 = x0[1]",
    "x0 = leaf(3, 4) * 1; x1 = x0.t()",
    "x0 = plain(24); x0, x1 = x0[:12].view(3, 4), x0[6:18].view(3, 4)",
    "x0 = plain(3, 4); x1 = x0.view(-1)[4:8]",
    "x0 = leaf(3, 4); x1 = x0[1]",
    "x0, x1 = (leaf(4, 3) * 1).t(), leaf(1, 4) * 1",
    "x0, x1 = leaf(3, 4) * 1, plain(3, 4)",
    "x0 = leaf(3, 4); x1 = x0",
    "x0, x1 = leaf(4)[None].expand(3, 4) * 1, plain(4).expand(3, 4)",
]

PURE = [
    "{a}.sin()", "{a}.tanh()", "{a} * {b}", "{a} + {b}", "{a} - 0.5", "{a} * 2", "{a}.sum()", "{a}.sum(0)",
    "{a}.relu()", "torch.softmax({a}, -1)", "torch.where({a} > 0, {a}, {b})", "torch.cat([{a}, {b}])",
    "{a}.clone()", "{a}.detach()", "{a}.sigmoid()", "torch.maximum({a}, {b})", "{a} @ {b}.t()",
    "{a}.mean(-1, keepdim=True)", "{a}.cumsum(0)", "{a}.contiguous()", "{a}.reshape(-1)", "torch.zeros_like({a})",
    "{a}.new_ones(3, 4)", "{a}.float().double()", "{a}.index_select(0, torch.tensor([0, 0]))",
    "torch.nn.functional.dropout({a}, 0.5)", "torch.exp(-{a}.square())", "{a}.amax(0)", "{a} / ({b}.square() + 1)",
    "{a}.flip(0)", "{a}.double()", "Doubled.apply({a})",
]  # fmt: skip
VIEWS = [
    "{a}.view(-1)", "{a}.t()", "{a}[0]", "{a}[1:]", "{a}[:, 1]", "{a}[::2]", "{a}.unsqueeze(0)", "{a}.squeeze(0)",
    "{a}.expand(3, 4)", "{a}.narrow(0, 0, 2)", "{a}.transpose(0, -1)", "{a}.diagonal()", "{a}.view(4, 3)",
    "{a}.view(2, 6)", "{a}.unbind(0)[0]", "{a}.chunk(2)[0]", "{a}.view_as({a})", "{a}.detach()",
    "{a}.as_strided((2, 2), (2, 1))", "{a}.permute(1, 0)",
]  # fmt: skip
# detach_() is left out: with views of the tensor about, it trips an assertion inside of torch's own autograd
WRITES = [
    "{a}.mul_(2)", "{a}.add_({b})", "{a}.copy_({b})", "{a}.zero_()", "{a}.sin_()", "{a}.tanh_()", "{a}.relu_()",
    "{a}[0] = {b}", "{a}[0] = 1.5", "{a}[..., 0] *= 2", "{a}.fill_(0.5)", "{a}.sub_({b}.detach())", "{a}.mul_({b})",
    "{a}.clamp_(-1, 1)", "{a}[1:].add_(1)", "{a}.index_add_(0, torch.tensor([0]), {b}[:1])", "{a}.neg_()",
    "{a}.masked_fill_({a} > 1, 0.25)", "{a}.addcmul_({b}, {b})", "{a}.uniform_()", "{a}.square_()",
]  # fmt: skip


class Doubled(torch.autograd.Function):
    """A function whose gradient is not that of what it does."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x


@dataclasses.dataclass
class Program:
    """The source of a function of two tensors, and of the tensors."""

    inputs: str
    lines: list[str]
    result: str

    def source(self) -> str:
        """The function ``program``."""
        return "\n".join(
            ["def program(x0, x1):", *(f"    {line}" for line in [*self.lines, f"return {self.result}"])]
        )

    def build(self) -> Callable[..., Any]:
        """The function."""
        namespace: dict[str, Any] = {"torch": torch, "Doubled": Doubled}
        exec(self.source(), namespace)
        return namespace["program"]

    def arguments(self) -> Any:
        """Fresh arguments, and the leaves that they come from."""
        return make_arguments(self.inputs)

    def __repr__(self) -> str:
        return f"a program for the arguments {self.inputs}\n{self.source()}\n"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis shows a program that fails."""
        printer.text(repr(self))


def make_arguments(source: str) -> tuple[tuple[torch.Tensor, torch.Tensor], list[torch.Tensor]]:
    """The tensors that a line of :data:`INPUTS` makes."""
    generator = torch.Generator().manual_seed(1)
    leaves: list[torch.Tensor] = []

    def plain(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    def leaf(*size: int) -> torch.Tensor:
        leaves.append(plain(*size).requires_grad_())
        return leaves[-1]

    namespace: dict[str, Any] = {"plain": plain, "leaf": leaf}
    exec(source, namespace)
    return (namespace["x0"], namespace["x1"]), leaves


def write_program(choose: Chooser) -> Program:
    """A program of up to nine lines."""
    inputs = choose.one_of(INPUTS)
    (x0, x1), _ = make_arguments(inputs)
    values: dict[str, Any] = {"x0": x0, "x1": x1}
    lines: list[str] = []
    for _ in range(choose.number(1, 9)):
        line = _line(choose, {name: value for name, value in values.items() if isinstance(value, torch.Tensor)})
        if line is None:
            continue
        trial = {"torch": torch, "Doubled": Doubled, **values}
        try:
            exec(line, trial)
        except (RuntimeError, IndexError, ValueError):
            continue
        lines.append(line)
        values.update({name: value for name, value in trial.items() if name.startswith("v")})
    names = list(values)
    chosen = [choose.one_of(names) for _ in range(choose.number(1, 4))]
    return Program(inputs, lines, f"({', '.join(chosen)},)")


def _line(choose: Chooser, values: dict[str, torch.Tensor]) -> str | None:
    kind = choose.number(0, 9)
    templates = PURE if kind < 4 else VIEWS if kind < 6 else WRITES
    names = list(values)
    a, b = _name(choose, names), _name(choose, names)
    template = choose.one_of(templates)
    without = choose.number(0, 7) == 0
    if templates is WRITES and "{b}" in template and _share_memory(values[a], values[b]):
        return None  # what is read may be written before, in an order that is nobody's promise
    text = template.format(a=a, b=b)
    line = text if templates is WRITES else f"v{len(names)} = {text}"
    return f"with torch.no_grad(): {line}" if without else line


def _share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def _name(choose: Chooser, names: list[str]) -> str:
    # later tensors are more interesting
    return choose.one_of([*names, *names[-2:]])
