"""Random programs of in-place operations, views and aliases, as Python source.

A program is made line by line. Every line is tried in eager mode while the program is written, on tensors of the
sizes it will have, so that shapes fit and lines that eager mode refuses are left out. What chooses is a
:class:`Chooser`: hypothesis in the test, :mod:`random` for a quick search.
"""

from __future__ import annotations

import dataclasses
import math
import random
import re
import types
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch
import torch.nn.functional as F

Item = TypeVar("Item")


class Chooser(Protocol):
    """Makes the decisions that a program consists of."""

    def one_of(self, items: Sequence[Item]) -> Item: ...

    def number(self, low: int, high: int) -> int: ...


class RandomChooser:
    """Decisions by a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one_of(self, items: Sequence[Item]) -> Item:
        return self._random.choice(items)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class Values:
    """Tensors of small numbers that are exact in every dtype, so that the order of additions does not matter."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def integers(self, *size: int) -> torch.Tensor:
        """Integers from -4 to 3."""
        return torch.randint(-4, 4, size, generator=self._generator)

    def floats(self, *size: int) -> torch.Tensor:
        """Multiples of a quarter from -2 to 1.75."""
        return torch.randint(-8, 8, size, generator=self._generator) / 4

    def complexes(self, *size: int) -> torch.Tensor:
        """Complex numbers of such parts."""
        return torch.complex(self.floats(*size), self.floats(*size))


@dataclasses.dataclass
class Program:
    """The source of a module and of its inputs."""

    inputs: list[str]
    buffers: list[tuple[str, bool]]
    lines: list[str]
    result: str

    def module_source(self) -> str:
        """The class ``Program``."""
        arguments = ", ".join(f"x{i}" for i in range(len(self.inputs)))
        setup = [
            f"self.register_buffer('b{i}', {source}, persistent={persistent})"
            for i, (source, persistent) in enumerate(self.buffers)
        ]
        return "\n".join(
            [
                "class Program(torch.nn.Module):",
                "    def __init__(self):",
                "        super().__init__()",
                "        make = Values(0)",
                *(f"        {line}" for line in setup),
                f"    def forward(self, {arguments}):",
                *(f"        {line}" for line in self.lines),
                f"        return {self.result}",
            ]
        )

    def source(self) -> str:
        """A script that repeats the comparison."""
        inputs = "".join(f"{source}, " for source in self.inputs)
        return "\n".join(
            [
                "import torch",
                "import torch.nn.functional as F",
                "from tests.transforms.comparison import compare",
                "from tests.transforms.mutation_programs import Values",
                self.module_source(),
                f"compare(Program, lambda make: ({inputs}))  # but for the memory of conversions that change nothing",
            ]
        )

    def build(self) -> tuple[Callable[[], torch.nn.Module], Callable[[Values], tuple[torch.Tensor, ...]]]:
        """The class, and the function that makes inputs."""
        inputs = "".join(f"{source}, " for source in self.inputs)
        return self._compile(self.module_source()), eval(f"lambda make: ({inputs})", {"torch": torch})

    def build_with_copies(self) -> Callable[[], torch.nn.Module] | None:
        """The class with every conversion a copy, as they are in captured programs; None if it has none."""
        source = self.module_source()
        with_copies = CONVERSION.sub(lambda match: f".to({DTYPES[match[1]]}, copy=True)", source)
        return None if with_copies == source else self._compile(with_copies)

    def assigns_buffers(self) -> bool:
        """Whether it gives the module other tensors for buffers, which only eager mode does."""
        return any(re.match(r"self\.b\d = ", line) for line in self.lines)

    @staticmethod
    def _compile(source: str) -> Callable[[], torch.nn.Module]:
        namespace: dict[str, Any] = {"torch": torch, "F": F, "Values": Values}
        exec(source, namespace)
        return namespace["Program"]

    def __repr__(self) -> str:
        return f"a program\n{self.source()}\n"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis shows a program that fails."""
        printer.text(repr(self))


# conversions as programs spell them, and the dtypes they convert to
DTYPES = {
    "to(torch.float32)": "torch.float32",
    "to(torch.float64)": "torch.float64",
    "double()": "torch.float64",
    "float()": "torch.float32",
    "long()": "torch.int64",
    "int()": "torch.int32",
    "type_as(x0)": "x0.dtype",
}
CONVERSION = re.compile(r"\.(" + "|".join(re.escape(text) for text in DTYPES) + ")")

FLOAT_INPUTS = [
    "make.floats(4, 6)",
    "make.floats(6)",
    "make.floats(2, 3, 4)",
    "make.floats(6, 4).t()",
    "make.floats(8, 6)[::2]",
    "make.floats(4, 9)[:, 1:7]",
    "make.floats(4, 1).expand(4, 6)",
    "make.floats()",
    "make.floats(0, 6)",
    "make.floats(1, 6)",
    "make.floats(6, 6)",
    "make.floats(4, 2, 3).permute(1, 2, 0)",
    "make.floats(2, 3, 2, 2).to(memory_format=torch.channels_last)",
]
OTHER_INPUTS = [
    "make.integers(4, 6)",
    "make.integers(6)",
    "make.integers(2, 6).t()",
    "make.integers(4, 6) > 0",
    "make.floats(4, 6).double()",
    "make.complexes(4, 6)",
    "make.complexes(6)",
]
BUFFERS = [
    "make.floats(6)",
    "make.floats(6)",
    "make.floats(4, 6)",
    "make.floats(2, 3, 4)",
    "make.floats()",
    "make.integers(6)",
    "make.floats(6, 4).t()",
    "make.complexes(6)",
]


def elements_overlap(tensor: torch.Tensor) -> bool:
    """Whether elements of a tensor share memory: what a write leaves there depends on its order."""
    room = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    if tensor.numel() == 0:
        return False
    return torch.arange(room).as_strided(tensor.shape, tensor.stride()).unique().numel() < tensor.numel()


class Author:
    """Writes one program, running its lines as they are written."""

    def __init__(self, choose: Chooser, steps: int) -> None:
        self.choose = choose
        self.steps = steps
        self.lines: list[str] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.scope: dict[str, Any] = {"torch": torch, "F": F, "make": Values(0)}
        self.expanded: list[torch.Tensor] = []
        self.count = 0

    def write(self) -> Program:
        """The program."""
        inputs = [self._input() for _ in range(self.choose.number(1, 3))]
        kept = types.SimpleNamespace()
        buffers = [
            (self.choose.one_of(BUFFERS), self.choose.number(0, 2) > 0) for _ in range(self.choose.number(0, 2))
        ]
        for index, source in enumerate(inputs):
            self.scope[f"x{index}"] = self.tensors[f"x{index}"] = eval(source, self.scope)
        # a program can't write to such an input, since its new value can't be copied into it
        self.expanded = [tensor for tensor in self.tensors.values() if elements_overlap(tensor)]
        for index, (source, _) in enumerate(buffers):
            setattr(kept, f"b{index}", eval(source, self.scope))
            self.tensors[f"self.b{index}"] = getattr(kept, f"b{index}")
        self.scope["self"] = kept
        for _ in range(self.choose.number(3, self.steps)):
            self._step()
        self._write()
        return Program(inputs, buffers, self.lines, self._result())

    def _input(self) -> str:
        return self.choose.one_of(FLOAT_INPUTS if self.choose.number(0, 3) else OTHER_INPUTS)

    def _step(self) -> None:
        views, others = [self._view] * 4, [self._several, self._pure, self._pure]
        self.choose.one_of([*views, *others, *[self._write] * 5])()

    def run(self, line: str) -> bool:
        """Add a line, unless eager mode refuses it."""
        try:
            exec(line, self.scope)
        except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
            return False
        self.lines.append(line)
        return True

    def _tensor(self) -> tuple[str, torch.Tensor]:
        names = list(self.tensors)
        if self.choose.number(0, 1):  # prefer what is new: chains of views are where the difficulties are
            names = names[-3:]
        name = self.choose.one_of(names)
        return name, self.tensors[name]

    def _bind(self, expression: str) -> None:
        name = f"v{self.count}"
        if self.run(f"{name} = {expression}"):
            self.count += 1
            if isinstance(self.scope[name], torch.Tensor):
                self.tensors[name] = self.scope[name]

    def _dimension(self, tensor: torch.Tensor) -> int:
        count = max(tensor.dim(), 1)
        return self.choose.number(-count, count - 1)

    def _result(self) -> str:
        names = [self._tensor()[0] for _ in range(self.choose.number(1, 4))]
        shape = self.choose.number(0, 3)
        if shape == 0 and len(names) == 1:
            return names[0]
        if shape == 1:
            return "{" + ", ".join(f"'k{i}': {name}" for i, name in enumerate(names)) + "}"
        if shape == 2:
            return f"[{names[0]}, ({', '.join(names[1:])}{',' if names[1:] else ''})]"
        return f"({', '.join(names)},)"

    # --- views -----------------------------------------------------------------------------------------------

    def _view(self) -> None:
        name, tensor = self._tensor()
        make = self.choose.one_of(VIEWS)
        expression = make(self, name, tensor)
        if expression is not None:
            self._bind(expression)

    def _several(self) -> None:
        name, tensor = self._tensor()
        dimension = self._dimension(tensor)
        size = tensor.shape[dimension] if tensor.dim() else 0
        cut = self.choose.number(0, size)
        call = self.choose.one_of(
            [
                f"unbind({dimension})",
                f"split({self.choose.number(1, 3)}, {dimension})",
                f"split([{cut}, {size - cut}], {dimension})",
                f"split_with_sizes([{cut}, {size - cut}], {dimension})",
                f"chunk({self.choose.number(1, 3)}, {dimension})",
                f"tensor_split({self.choose.number(1, 3)}, {dimension})",
            ]
        )
        results = f"v{self.count}"
        if not self.run(f"{results} = {name}.{call}"):
            return
        self.count += 1
        for index in sorted({0, self.choose.number(0, 3)}):
            if index < len(self.scope[results]):
                self.tensors[f"{results}[{index}]"] = self.scope[results][index]

    def subscript(self, tensor: torch.Tensor, advanced: str = "no") -> str:
        """What stands in the brackets of ``x[...]``."""
        parts: list[str] = []
        for size in tensor.shape:
            kind = self.choose.number(0, {"no": 6, "read": 7, "write": 8}[advanced])
            if kind == 0:
                parts.append(str(self.choose.number(-size, max(size - 1, 0))))
            elif kind in (1, 2):
                parts.append(self._slice(size))
            elif kind == 3:
                parts.append(":")
            elif kind == 4:
                parts.append("None")
                continue
            elif kind == 5 and "..." not in parts:
                parts.append("...")
                break
            elif kind == 6:
                break
            elif kind == 7:
                parts.append(f"torch.tensor([{', '.join(str(i) for i in self._indices(size))}])")
            elif kind == 8:
                flags = [self.choose.number(0, 1) == 1 for _ in range(size)]
                parts.append(f"torch.tensor({flags})")
        return ", ".join(parts) if parts else "..."

    def _slice(self, size: int) -> str:
        bounds = [self.choose.one_of(["", str(self.choose.number(-size, size))]) for _ in range(2)]
        step = self.choose.one_of(["", "", "2", "3"])
        return f"{bounds[0]}:{bounds[1]}" + (f":{step}" if step else "")

    def _indices(self, size: int) -> list[int]:
        # no index twice: which of several writes wins is not defined
        count = self.choose.number(0, min(size, 3))
        start = self.choose.number(0, max(size - 1, 0))
        return [(start + i) % size for i in range(count)]

    # --- computations ----------------------------------------------------------------------------------------

    def other(self, tensor: torch.Tensor) -> str:
        """A second operand: a number, or a tensor that may or may not fit."""
        if self.choose.number(0, 2) == 0:
            return self.choose.one_of(["1", "2", "-1", "0.5"])
        fitting = [
            name
            for name, candidate in self.tensors.items()
            if candidate.dim() <= tensor.dim()
            and all(a in (1, b) for a, b in zip(reversed(candidate.shape), reversed(tensor.shape), strict=False))
        ]
        return self.choose.one_of(fitting) if fitting else "1"

    def apart(self, name: str, target: torch.Tensor) -> str:
        """An operand of a write: a copy where it overlaps with what is written to, since eager mode then reads
        some elements before and some after it wrote to them."""
        tensor = self.tensors.get(name)
        if tensor is None or tensor is target or not shares_memory(tensor, target):
            return name
        return f"{name}.clone()"

    def _pure(self) -> None:
        name, tensor = self._tensor()
        make = self.choose.one_of(COMPUTATIONS)
        self._bind(make(self, name, tensor))

    # --- writes ----------------------------------------------------------------------------------------------

    def may_write(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor does not lie in an input whose elements share memory."""
        return not any(shares_memory(tensor, given) for given in self.expanded)

    def _write(self) -> None:
        name, tensor = self._tensor()
        if not self.may_write(tensor):
            return
        make = self.choose.one_of([_fill] if elements_overlap(tensor) else WRITES)
        line = make(self, name, tensor)
        if line is not None:
            self.run(line)


Maker = Callable[[Author, str, torch.Tensor], str | None]


def shares_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors lie in the same storage."""
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def _shape_of(author: Author, tensor: torch.Tensor) -> list[int]:
    """Some shape with as many elements."""
    total = tensor.numel()
    shape = []
    for factor in (2, 3, 1):
        if total and total % factor == 0 and author.choose.number(0, 1):
            shape.append(factor)
            total //= factor
    return [*shape, -1 if tensor.numel() and author.choose.number(0, 1) else total]


def _view_by_shape(author: Author, name: str, tensor: torch.Tensor) -> str:
    return f"{name}.{author.choose.one_of(['view', 'reshape'])}({_shape_of(author, tensor)})"


def _permutation(author: Author, name: str, tensor: torch.Tensor) -> str:
    order = list(range(tensor.dim()))
    for i in reversed(range(1, len(order))):
        j = author.choose.number(0, i)
        order[i], order[j] = order[j], order[i]
    return f"{name}.permute({order})"


def _two_dimensions(*methods: str) -> Maker:
    def make(author: Author, name: str, tensor: torch.Tensor) -> str:
        method = author.choose.one_of(methods)
        return f"{name}.{method}({author._dimension(tensor)}, {author._dimension(tensor)})"

    return make


def _without_arguments(*endings: str) -> Maker:
    return lambda author, name, tensor: name + author.choose.one_of(endings)


def _select(author: Author, name: str, tensor: torch.Tensor) -> str:
    dimension = author._dimension(tensor)
    size = tensor.shape[dimension] if tensor.dim() else 1
    return f"{name}.select({dimension}, {author.choose.number(-size, max(size - 1, 0))})"


def _narrow(author: Author, name: str, tensor: torch.Tensor) -> str:
    dimension = author._dimension(tensor)
    size = tensor.shape[dimension] if tensor.dim() else 1
    start = author.choose.number(0, size)
    return f"{name}.narrow({dimension}, {start}, {author.choose.number(0, size - start)})"


def _expand(author: Author, name: str, tensor: torch.Tensor) -> str:
    sizes = [3 if size == 1 and author.choose.number(0, 1) else size for size in tensor.shape]
    if author.choose.number(0, 1):
        sizes.insert(0, author.choose.number(1, 2))
    return f"{name}.expand({sizes})"


def _diagonal(author: Author, name: str, tensor: torch.Tensor) -> str:
    offset = author.choose.number(-2, 2)
    return f"{name}.diagonal({offset}, {author._dimension(tensor)}, {author._dimension(tensor)})"


def _as_strided(author: Author, name: str, tensor: torch.Tensor) -> str | None:
    if not tensor.is_contiguous() or (tensor._base is not None and not tensor._base.is_contiguous()):
        return None
    step, size = author.choose.number(1, 3), author.choose.number(1, 3)
    room = max(tensor.numel() - 1, 0) - step * (size - 1)
    if tensor.numel() == 0 or room < 0:
        return None
    start = tensor.storage_offset() + author.choose.number(0, room)
    if author.choose.number(0, 1) and room >= 1 and start > tensor.storage_offset():
        return f"{name}.as_strided([{size}], [{step}], {start})"
    return f"torch.as_strided({name}, [{size}, 1], [{step}, 1], {start})"


def _unfold(author: Author, name: str, tensor: torch.Tensor) -> str:
    dimension = author._dimension(tensor)
    return f"{name}.unfold({dimension}, {author.choose.number(1, 2)}, {author.choose.number(1, 3)})"


def _unflatten(author: Author, name: str, tensor: torch.Tensor) -> str:
    return f"{name}.unflatten({author._dimension(tensor)}, {author.choose.one_of([(2, -1), (-1, 3), (1, -1)])})"


def _reinterpret(author: Author, name: str, tensor: torch.Tensor) -> str:
    if tensor.is_complex():
        return author.choose.one_of(
            [f"torch.view_as_real({name})", f"{name}.real", f"{name}.imag", f"{name}.conj()", f"{name}.conj().imag"]
        )
    if tensor.dtype is torch.float32:
        return author.choose.one_of([f"{name}.view(torch.int32)", f"torch.view_as_complex({name})"])
    return f"{name}.view({author.choose.one_of(['torch.int32', 'torch.float32', 'torch.int64'])})"


def _like_other(author: Author, name: str, tensor: torch.Tensor) -> str:
    other = author._tensor()[0]
    return f"{name}.{author.choose.one_of(['view_as', 'expand_as', 'reshape_as'])}({other})"


def _movedim(author: Author, name: str, tensor: torch.Tensor) -> str:
    return f"torch.movedim({name}, {author._dimension(tensor)}, {author._dimension(tensor)})"


VIEWS: list[Maker] = [
    _view_by_shape,
    _view_by_shape,
    _permutation,
    _two_dimensions("transpose", "swapaxes", "movedim"),
    _without_arguments(".t()", ".mT", ".squeeze()", ".flatten()", ".ravel()", ""),
    _without_arguments(".detach()", ".data", ".view_as(x0)"),
    _select,
    _narrow,
    lambda author, name, tensor: f"{name}[{author.subscript(tensor)}]",
    lambda author, name, tensor: f"{name}[{author.subscript(tensor)}]",
    lambda author, name, tensor: f"{name}.unsqueeze({author._dimension(tensor)})",
    lambda author, name, tensor: f"{name}.squeeze({author._dimension(tensor)})",
    lambda author, name, tensor: f"{name}.flatten({author.choose.number(0, 1)}, -1)",
    lambda author, name, tensor: f"{name}.unbind({author._dimension(tensor)})[0]",
    _expand,
    _diagonal,
    _as_strided,
    _unfold,
    _unflatten,
    _reinterpret,
    _like_other,
    _movedim,
]


def _binary(author: Author, name: str, tensor: torch.Tensor) -> str:
    return f"{name} {author.choose.one_of('+-*')} {author.other(tensor)}"


def _cat(author: Author, name: str, tensor: torch.Tensor) -> str:
    return f"torch.cat([{name}, {author.other(tensor)}], {author._dimension(tensor)})"


def _conversion(author: Author, name: str, tensor: torch.Tensor) -> str:
    return f"{name}.{author.choose.one_of(list(DTYPES))}"


def _dropout(author: Author, name: str, tensor: torch.Tensor) -> str:
    # torch resolves the conjugate before an operator can be recorded, so that it is no alias any more
    return f"{name}.clone()" if tensor.is_conj() else f"F.dropout({name}, 0.5, False)"


COMPUTATIONS: list[Maker] = [
    _binary,
    _binary,
    _binary,
    _cat,
    _conversion,
    _without_arguments(".clone()", ".contiguous()", ".relu()", ".sum()", ".neg()", ".abs()"),
    _without_arguments(".sum(0)", ".sum(-1, keepdim=True)", ".cumsum(0)", ".flip(0)", ".resolve_conj()"),
    lambda author, name, tensor: f"torch.where({name} > 0, {name}, {author.other(tensor)})",
    lambda author, name, tensor: f"torch.matmul({name}, {author._tensor()[0]})",
    _dropout,
    lambda author, name, tensor: f"torch.zeros_like({name})",
    lambda author, name, tensor: f"{name}.new_ones({list(tensor.shape)})",
    lambda author, name, tensor: f"torch.tensor([{', '.join('123456'[: author.choose.number(1, 6)])}])",
    lambda author, name, tensor: f"{name}[{author.subscript(tensor, 'read')}]",
    lambda author, name, tensor: f"torch.einsum('ij->ji', {name})",
    lambda author, name, tensor: f"F.pad({name}, (0, {author.choose.number(0, 1)}))",
]


def _fill(author: Author, name: str, tensor: torch.Tensor) -> str:
    return name + author.choose.one_of([".zero_()", ".fill_(3)", ".fill_(torch.tensor(2))"])


def _in_place(author: Author, name: str, tensor: torch.Tensor) -> str:
    method = author.choose.one_of(["add_", "mul_", "sub_", "copy_", "fill_", "div_", "clamp_min_"])
    if method == "div_":  # by a power of two: a rounding error could grow to any size
        return f"{name}.div_({author.choose.one_of(['2', '-4'])})"
    return f"{name}.{method}({author.apart(author.other(tensor), tensor)})"


def _augmented(author: Author, name: str, tensor: torch.Tensor) -> str | None:
    # on a local name this binds it again, to the same tensor; on a part of a tuple Python refuses afterwards
    if "[" in name:
        return None
    return f"{name} {author.choose.one_of(['+=', '*=', '-='])} {author.apart(author.other(tensor), tensor)}"


def _assignment(author: Author, name: str, tensor: torch.Tensor) -> str:
    subscript = author.subscript(tensor, "write")
    try:
        target = eval(f"{name}[{subscript}]", author.scope)
    except (RuntimeError, IndexError, TypeError, ValueError):
        target = tensor
    return f"{name}[{subscript}] = {author.apart(author.other(target), tensor)}"


def _masked(author: Author, name: str, tensor: torch.Tensor) -> str | None:
    if tensor.dim() == 0:  # torch asks for the value of a mask without dimensions
        return None
    value = author.apart(author.other(torch.empty(())), tensor)
    if value in author.tensors and author.tensors[value].is_complex() and not tensor.is_complex():
        value = "1"  # eager mode converts some complex numbers
    number = f"2, dtype={tensor.dtype}"
    return author.choose.one_of(
        [
            f"{name}.masked_fill_({name} > 0, {value})",
            f"{name}[{name} > 0] = {value}",
            f"{name}.masked_fill_({author.apart(author.other(tensor), tensor)} > 0, {value})",
            f"{name}.index_put_(({name} > 0,), torch.tensor({number}))",
        ]
    )


def _along_dimension(author: Author, name: str, tensor: torch.Tensor) -> str:
    dimension = author._dimension(tensor)
    size = tensor.shape[dimension] if tensor.dim() else 1
    indices = author._indices(size)
    index = f"torch.tensor({indices}, dtype=torch.int64)"
    shape = list(tensor.shape)
    if shape:
        shape[dimension] = len(indices)
    whole = math.prod(shape)
    pattern = [indices[i % len(indices)] if indices else 0 for i in range(whole)]
    return author.choose.one_of(
        [
            f"{name}.index_fill_({dimension}, {index}, 2)",
            f"{name}.index_copy_({dimension}, {index}, {name}.index_select({dimension}, {index}) + 1)",
            f"{name}.index_add_({dimension}, {index}, {name}.index_select({dimension}, {index}))",
            f"{name}.scatter_({dimension}, torch.tensor({pattern}, dtype=torch.int64).reshape({shape}), 3)",
        ]
    )


def _out(author: Author, name: str, tensor: torch.Tensor) -> str:
    function = author.choose.one_of(["add", "mul", "sub"])
    fitting = [other for other, candidate in author.tensors.items() if candidate.shape == tensor.shape]
    first = author.apart(author.choose.one_of(fitting), tensor)
    return f"torch.{function}({first}, {author.apart(author.other(tensor), tensor)}, out={name})"


def _metadata(author: Author, name: str, tensor: torch.Tensor) -> str | None:
    if not name.startswith("v") or "[" in name:
        return None  # of the program's own tensors only: a program can't change what its caller holds
    first, second = author._dimension(tensor), author._dimension(tensor)
    return f"{name}." + author.choose.one_of(
        [
            f"transpose_({first}, {second})",
            "t_()",
            f"unsqueeze_({first})",
            f"squeeze_({first})",
            "squeeze_()",
            f"resize_({list(tensor.shape)})",
            "detach_()",
            "requires_grad_(False)",
        ]
    )


def _batch_norm(author: Author, name: str, tensor: torch.Tensor) -> str | None:
    images = [
        other
        for other, candidate in author.tensors.items()
        if candidate.dim() > 1 and candidate.dtype is torch.float32
    ]
    if not images:
        return None
    name = author.choose.one_of(images)
    tensor = author.tensors[name]
    sized = [
        other
        for other, candidate in author.tensors.items()
        if candidate.shape == tensor.shape[1:2]
        and candidate.dtype is tensor.dtype
        and not shares_memory(candidate, tensor)
    ]
    statistics = [author.choose.one_of(sized) if sized else f"torch.ones({tensor.shape[1]})" for _ in range(2)]
    if statistics[0] == statistics[1] or len({author.tensors.get(statistic) for statistic in statistics}) < 2:
        statistics[1] = f"torch.ones({tensor.shape[1]})"
    if all(statistic in author.tensors for statistic in statistics) and shares_memory(
        author.tensors[statistics[0]], author.tensors[statistics[1]]
    ):
        return None
    author._bind(f"F.batch_norm({name}, {', '.join(statistics)}, training=True, momentum=0.5)")
    return None


def _lists(author: Author, name: str, tensor: torch.Tensor) -> str | None:
    other, second = author._tensor()
    if shares_memory(tensor, second) or elements_overlap(second) or not author.may_write(second):
        return None
    return author.choose.one_of(
        [f"torch._foreach_add_([{name}, {other}], 1)", f"torch._foreach_mul_([{name}, {other}], [2.0, 3.0])"]
    )


def _swap(author: Author, name: str, tensor: torch.Tensor) -> str | None:
    other, second = author._tensor()
    if elements_overlap(second) or not author.may_write(second):
        return None
    return f"held = {name}.clone(); {name}.copy_({author.apart(other, tensor)}); {other}.copy_(held)"


def _assign_buffer(author: Author, name: str, tensor: torch.Tensor) -> str | None:
    """A new tensor that lies in memory as the old one: what views mean in the next call depends on that."""
    names = [name for name in author.tensors if name.startswith("self.") and author.tensors[name].is_contiguous()]
    if not names:
        return None
    buffer = author.choose.one_of(names)
    old = author.tensors[buffer]
    fitting = [
        other
        for other, candidate in author.tensors.items()
        if candidate.shape == old.shape and candidate.dtype is old.dtype and not candidate.is_conj()
    ]
    value = author.choose.one_of(fitting)
    if author.run(f"{buffer} = {value}.clone(memory_format=torch.contiguous_format)"):
        author.tensors[buffer] = eval(buffer, author.scope)
    return None


WRITES: list[Maker] = [
    _assign_buffer,
    _in_place,
    _in_place,
    _in_place,
    _in_place,
    _augmented,
    _assignment,
    _assignment,
    _assignment,
    _masked,
    _along_dimension,
    _out,
    _metadata,
    _batch_norm,
    _lists,
    _swap,
    _without_arguments(".zero_()", ".relu_()", ".neg_()", ".abs_()", ".clamp_(-1, 1)", ".sqrt_()", ".fill_(3)"),
]


def write_program(choose: Chooser, steps: int = 14) -> Program:
    """A program by somebody's choices."""
    return Author(choose, steps).write()
