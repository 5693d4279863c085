"""Views of parts of a tensor: pieces, diagonals, windows."""

from __future__ import annotations

from collections.abc import Sequence

from tintype.fake.info import TensorInfo
from tintype.fake.rules.registry import rule
from tintype.fake.rules.views import select, slice_tensor, wrap_dimension
from tintype.symbolic import Expr, Size, ceil_div, choose, eq, ge, gt, le, maximum, minimum
from tintype.symbolic.sizes import (
    at_least,
    certainly_at_least,
    decided_zero,
    require,
    require_same,
)


@rule("unbind.int")
def unbind(self: TensorInfo, dim: int = 0) -> list[TensorInfo]:
    where = wrap_dimension(dim, self.dim)
    size = self.sizes[where] if self.sizes else 0
    if not self.sizes:
        raise RuntimeError("Dimension specified as 0 but tensor has no dimensions")
    count = _concrete(size, "unbind")
    return [select(self, where, i) for i in range(count)]


def _concrete(size: Size, operator: str) -> int:
    """The number of results an operator has must be known: a dimension that decides it is fixed here."""
    if type(size) is int:
        return size
    from tintype.symbolic.bridge import to_torch

    return to_torch(size).node.guard_int(operator, 0)


@rule("split.Tensor")
def split(self: TensorInfo, split_size: Size, dim: int = 0) -> list[TensorInfo]:
    where = wrap_dimension(dim, self.dim)
    size = self.sizes[where]
    if type(split_size) is int and split_size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={split_size}")
    if decided_zero(split_size):
        require_same(size, 0, "split_size can only be 0 if dimension size is 0")
        return [slice_tensor(self, where, 0, size)]
    count = _piece_count(size, split_size)
    cuts = [i * split_size for i in range(count)]
    ends = [*cuts[1:], size]
    return [slice_tensor(self, where, low, high) for low, high in zip(cuts, ends, strict=True)]


def _piece_count(size: Size, piece: Size) -> int:
    """How many pieces a dimension is split into. Of a size that varies the example tells, and the size must lie
    within the bounds between which there are as many."""
    quotient = ceil_div(size, piece)
    if isinstance(quotient, Expr):
        quotient = quotient.environment.simplify(quotient)
    if not isinstance(quotient, Expr):
        return max(quotient, 1)
    environment = quotient.environment
    count = environment.hint(quotient)
    if count is None:
        return max(_concrete(quotient, "split"), 1)
    count = max(count, 1)
    if count == 2 and isinstance(piece, Expr) and piece.operation == "floordiv" and type(piece.arguments[1]) is int:
        # size > floor(a / d) in a form without the floor, for chunk(2)
        environment.guard(gt(size * piece.arguments[1], piece.arguments[0]))
    elif count > 1:
        environment.guard(gt(size, (count - 1) * piece))
    environment.guard(le(size, count * piece))
    return count


@rule("split_with_sizes")
def split_with_sizes(self: TensorInfo, split_sizes: Sequence[Size], dim: int = 0) -> list[TensorInfo]:
    where = wrap_dimension(dim, self.dim)
    total: Size = 0
    parts = []
    strides = self.strides
    for size in split_sizes:
        sizes = list(self.sizes)
        sizes[where] = size
        parts.append(self.view(sizes, strides, self.offset + total * strides[where]))
        total = total + size
    require_same(
        total,
        self.sizes[where],
        f"split_with_sizes expects split_sizes to sum exactly to {self.sizes[where]} "
        f"(input tensor's size at dimension {where}), but got split_sizes={list(split_sizes)}",
    )
    return parts


@rule("diagonal")
def diagonal(self: TensorInfo, offset: Size = 0, dim1: int = 0, dim2: int = 1) -> TensorInfo:
    a, b = wrap_dimension(dim1, self.dim), wrap_dimension(dim2, self.dim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, columns = self.sizes[a], self.sizes[b]
    if at_least(offset, 0):
        length = maximum(minimum(rows, columns - offset), 0)
        start = self.offset + offset * self.strides[b]
    else:
        length = maximum(minimum(rows + offset, columns), 0)
        start = self.offset - offset * self.strides[a]
    if (type(offset) is not int or offset) and not certainly_at_least(
        length, 1
    ):  # one without elements begins where the tensor does
        start = choose(eq(length, 0), self.offset, start)
    keep = [d for d in range(self.dim) if d not in (a, b)]
    return self.view(
        [*(self.sizes[d] for d in keep), length],
        [*(self.strides[d] for d in keep), self.strides[a] + self.strides[b]],
        start,
    )


@rule("as_strided")
def as_strided(
    self: TensorInfo, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None = None
) -> TensorInfo:
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    return self.view(size, stride, self.offset if storage_offset is None else storage_offset)


@rule("unfold")
def unfold(self: TensorInfo, dimension: int, size: Size, step: Size) -> TensorInfo:
    where = wrap_dimension(dimension, self.dim)
    length, stride = (self.sizes[where], self.strides[where]) if self.sizes else (1, 1)
    require(
        ge(length, size),
        f"maximum size for tensor at dimension {where} is {length} but size is {size}",
    )
    for number, least, name in ((size, 0, "size"), (step, 1, "step")):
        if type(number) is not int:
            require(ge(number, least), f"{name} is {number} but must be >= {least}")
    sizes, strides = list(self.sizes), list(self.strides)
    if sizes:
        sizes[where] = (length - size) // step + 1
        strides[where] = stride * step
    return self.view([*sizes, size], [*strides, stride])
