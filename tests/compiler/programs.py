"""Random programs for ``tintype.compile``: breaks, side effects, globals that change, aliases, sizes.

python -m tests.compiler.programs --count 500 [--seed 0] [--backend eager]
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import random
import sys
import types
from typing import Any

import torch

import tintype

HEAD = """
import random, torch
G = 2
H = [1.0, 2.0]
D = {"k": 3}
LOG = []

class State:
    total = 0.5
    def __init__(self):
        self.n = 1
        self.items = []
        self.seen = None
    def bump(self, by):
        self.n += by
        return self.n

S = State()

def helper(x, k=1):
    if k > 2:
        return x * k
    return (x + k).sin()

def pairs(xs):
    for i, x in enumerate(xs):
        yield i, x

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 4))
        self.register_buffer("count", torch.zeros(()))
        self.scale = 2.0
        self.drop = torch.nn.Dropout(0.5)
    def forward(self, x):
        self.count += 1
        if self.training:
            x = self.drop(x)
        return x * self.weight * self.scale

L = Layer()
"""


class Writer:
    """Writes one function."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.lines: list[str] = []
        self.tensors = ["a", "b"]
        self.count = 0

    def tensor(self) -> str:
        return self.choose.choice(self.tensors)

    def new(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def emit(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def expression(self) -> str:
        x, y, c = self.tensor(), self.tensor(), self.choose
        return c.choice(
            [
                f"{x} + {y}",
                f"{x} * {c.randint(1, 3)}",
                f"torch.relu({x})",
                f"{x}.sin()",
                f"torch.stack([{x}, {y}]).sum(0)",
                f"helper({x}, k={c.randint(0, 4)})",
                f"helper({x}, G)",
                f"L({x})",
                f"{x} * S.n",
                f"{x} + S.total",
                f"{x} * H[0]",
                f"{x} - D['k']",
                f"{x}.view(-1, 4).sum(1, keepdim=True) + {x}",
                f"{x}.reshape({x}.shape)",
                f"torch.where({x} > 0, {x}, {y})",
                f"torch.cat([{x}, {y}])[: {x}.shape[0]]",
                f"sum([{x}, {y}])",
                f"max([{x}, {y}], key=lambda v: v.shape[0])",
                f"{x} * random.random()",
                f"{x} + torch.rand(4)",
                f"torch.nn.functional.dropout({x}, 0.5)",
                f"(lambda v: v * G)({x})",
                f"[{x}, {y}][{c.randint(0, 1)}].clone()",
                f"{x}.detach()",
                f"{x}.float().to(torch.float64).float()",
                f"{x} * len(S.items)",
                f"{x} / (1 + {x}.shape[0])",
            ]
        )

    def statement(self, depth: int, budget: int) -> None:
        c, x = self.choose, self.tensor()
        kind = c.randint(0, 23)
        if kind < 8 or budget <= 0:
            expression = self.expression()
            name = self.new()
            self.emit(depth, f"{name} = {expression}")
            if depth == 1:
                self.tensors.append(name)
        elif kind == 8:
            self.branch(
                depth,
                budget,
                c.choice([f"{x}.sum() > 0", "S.n % 2", "G > 2", f"{x}.shape[0] > 4", f"bool({x}.mean() < 0.1)"]),
            )
        elif kind == 9:
            self.emit(depth, f"for i in range({c.randint(1, 3)}):")
            self.statement(depth + 1, budget - 1)
            self.emit(depth + 1, f"{x} = {x} + i")
        elif kind == 10:
            self.emit(
                depth, c.choice([f"LOG.append({x})", "LOG.append(S.n)", f"S.items.append({x}.sum())", "D['k'] += 1"])
            )
        elif kind == 11:
            self.emit(
                depth,
                c.choice(["S.n += 1", f"S.seen = {x}", "S.bump(2)", f"S.total = {x}.shape[0]", "L.scale += 0.5"]),
            )
        elif kind == 12:
            self.emit(depth, c.choice(["G = G + 1", "H = [H[1], H[0]]"]))
        elif kind == 13:
            self.emit(depth, f"print({x}.shape, round(float({x}.detach().sum()), 3))")
        elif kind == 14:
            self.emit(depth, "with torch.no_grad():")
            self.statement(depth + 1, budget - 1)
            self.emit(depth + 1, f"{x} = {x} * 2")
        elif kind == 15:
            self.emit(depth, "try:")
            self.statement(depth + 1, budget - 1)
            self.emit(
                depth + 1,
                c.choice([f"{x} = {x} + torch.ones({c.randint(3, 5)})", "raise ValueError(S.n)", f"{x}.view(3, -1)"]),
            )
            self.emit(depth, "except (RuntimeError, ValueError) as error:")
            self.emit(depth + 1, "LOG.append(type(error).__name__)")
        elif kind == 16:
            self.emit(depth, f"for i, v in pairs([{x}, {self.tensor()}]):")
            self.emit(depth + 1, f"{x} = {x} + v * i")
        elif kind == 17:
            self.emit(depth, f"{x} = [v * 2 for v in ({x}, {self.tensor()})][0]")
        elif kind == 18:
            name = self.new()
            self.emit(depth, f"{name} = {x}.clone()")
            self.emit(
                depth, c.choice([f"{name}.add_(1)", f"{name}[0] = 0", f"{name}.mul_({self.tensor()}.detach())"])
            )
            if depth == 1:
                self.tensors.append(name)
        elif kind == 19:
            self.emit(depth, f"{x} = {x} * {x}.detach().abs().max().item()")
        elif kind == 20:
            self.emit(depth, c.choice(["n.add_(1)", "n[0] += 1", "torch.add(n, 1, out=n)"]))
        elif kind == 21:
            self.emit(depth, "tintype.compile.graph_break()")
        elif kind == 22:
            self.emit(depth, f"{x} = torch.from_numpy({x}.detach().numpy() * 2)")
        else:
            self.emit(depth, f"inner = lambda v: v + S.n + {x}.shape[-1]")
            self.emit(depth, f"{x} = inner({x})")

    def branch(self, depth: int, budget: int, condition: str) -> None:
        self.emit(depth, f"if {condition}:")
        self.statement(depth + 1, budget - 1)
        self.emit(depth, "else:")
        self.statement(depth + 1, budget - 1)

    def write(self) -> str:
        self.emit(0, "def program(a, b, n, flag=True, *rest, **named):")
        self.emit(1, "global G, H")
        for _ in range(self.choose.randint(3, 10)):
            self.statement(1, 2)
        result = self.choose.choice(
            ["{x}", "({x}, [{y}])", "{{'x': {x}, 'n': S.n}}", "[{x}, a, {y}]", "({x}, n)", "{x}, {x}.shape"]
        )
        self.emit(1, "return " + result.format(x=self.tensor(), y=self.tensor()))
        return HEAD + "\n".join(self.lines) + "\n"


def module_of(source: str, name: str = "a_program") -> types.ModuleType:
    module = types.ModuleType(name)
    module.tintype = tintype  # type: ignore[attr-defined]
    exec(compile(source, "<a program>", "exec"), module.__dict__)
    return module


def inputs(seed: int, call: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed * 10 + call)
    rows = [4, 4, 8, 4, 12, 8][call] // 4
    a = (
        torch.randn(rows * 4, generator=generator).view(rows, 4).sum(0)
        if seed % 3
        else torch.randn(rows, 4, generator=generator)
    )
    b = torch.randn(4, generator=generator)
    a.requires_grad_(call % 2 == 0)
    b.requires_grad_(seed % 2 == 0)
    n = torch.zeros(3)
    if seed % 5 == 0 and call in (2, 4):
        b = a
    return a, b, n


def between(module: Any, call: int) -> None:
    """What the surroundings do between calls."""
    if call == 2:
        module.G = 5
    if call == 3:
        module.L.eval()
        module.H[0] = 4.0
    if call == 4:
        module.State.total = 0.25
        module.L.weight.data = module.L.weight.data * 2
    if call == 5:
        module.S = module.State()


def outcome(module: Any, function: Any, seed: int, call: int) -> Any:
    torch.manual_seed(seed)
    random.seed(seed)
    a, b, n = inputs(seed, call)
    printed = io.StringIO()
    module.L.zero_grad()
    with contextlib.redirect_stdout(printed):
        try:
            result = function(a, b, n, call % 2 == 0, **({"more": 1} if call == 3 else {}))
        except (RuntimeError, ValueError, IndexError, TypeError, ZeroDivisionError) as error:
            result = (type(error).__name__, str(error))
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    loss = [leaf.sum() for leaf in leaves if leaf.requires_grad]
    if loss:
        sum(loss).backward()  # type: ignore[union-attr]
    state = (module.G, module.H, module.D, module.LOG, vars(module.S), module.L.scale, module.L.count.clone())
    same = [x is y for x in [*leaves, a, b, n] for y in [*leaves, a, b, n]]
    return (
        result, copy.deepcopy(detached(state)), printed.getvalue(), a.grad, b.grad, n, module.L.weight.grad, same,
        torch.rand(1), random.random(), torch.is_grad_enabled(), [leaf.requires_grad for leaf in leaves],
    )  # fmt: skip


def detached(value: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, value)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and torch.equal(one.detach().nan_to_num(7.5), other.detach().nan_to_num(7.5))
        )
    if isinstance(one, dict):
        return (
            isinstance(other, dict) and list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
        )
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and bool(one == other)


def check(seed: int, backend: Any = "eager") -> tuple[str | None, Any]:
    """None, or what differs; and the compiled function."""
    source = Writer(seed).write()
    eager, ours = module_of(source), module_of(source)
    compiled = tintype.compile(ours.program, backend=backend)
    for call in range(6):
        between(eager, call)
        between(ours, call)
        expected = outcome(eager, eager.program, seed, call)
        try:
            found = outcome(ours, compiled, seed, call)
        except Exception as error:
            return f"call {call} raises {type(error).__name__}: {error}\n{source[len(HEAD) :]}", compiled
        if not equal(expected, found):
            parts = [i for i, pair in enumerate(zip(expected, found, strict=True)) if not equal(*pair)]
            detail = "\n".join(f"  {i}: {expected[i]}\n  {' ' * len(str(i))}  {found[i]}" for i in parts)
            return f"call {call} differs\n{detail}\n{source[len(HEAD) :]}", compiled
    return None, compiled


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--stop", type=int, default=3)
    options = parser.parse_args()
    wrong, eager = 0, 0
    reasons: dict[str, list[int]] = {}
    for seed in range(options.seed, options.seed + options.count):
        problem, compiled = check(seed, options.backend)
        if problem is not None:
            wrong += 1
            print(f"seed {seed}: {problem}")
            if wrong >= options.stop:
                break
        if compiled.engine.is_eager or compiled.engine.given_up:
            eager += 1
            for reason, _ in compiled.engine.given_up[:1] or [(compiled.engine.why_eager, None)]:
                reasons.setdefault(reason, []).append(seed)
    print(f"{options.count} programs, {wrong} wrong, {eager} gave up somewhere")
    for reason, count in sorted(reasons.items(), key=lambda pair: -len(pair[1]))[:20]:
        print(f"  {len(count):4} {reason} (seed {count[0]})")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
