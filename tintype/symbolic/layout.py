"""Memory layout of a tensor with symbolic sizes and strides.

Each question is answered with what is certain when every symbol is taken as
general (neither 0 nor 1).  "No" therefore also means "not for every size", the
answer on which an operator takes its general path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .expression import Expr, Size
from .extrema import maximum
from .relations import Condition, eq, ge
from .sizes import is_one, is_zero

CHANNELS_LAST_2D = (1, 3, 2, 0)
CHANNELS_LAST_3D = (1, 4, 3, 2, 0)


def certainly(condition: Condition) -> bool:
    """Whether the condition holds whatever the sizes are."""
    if isinstance(condition, bool):
        return condition
    return condition.environment.known(condition) is True


def is_contiguous(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether elements lie in row-major order without gaps; a tensor without elements does."""
    if any(type(size) is int and size == 0 for size in sizes):
        return True
    return _packed_in_order(sizes, strides, range(len(sizes) - 1, -1, -1))


def is_channels_last_contiguous_2d(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether an NCHW tensor lies without gaps, channels innermost."""
    return len(sizes) == 4 and _packed_in_order(sizes, strides, CHANNELS_LAST_2D)


def is_channels_last_contiguous_3d(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether an NCDHW tensor lies without gaps, channels innermost."""
    return len(sizes) == 5 and _packed_in_order(sizes, strides, CHANNELS_LAST_3D)


def _packed_in_order(sizes: Sequence[Size], strides: Sequence[Size], order: Sequence[int]) -> bool:
    expected: Any = 1
    for dimension in order:
        size, stride = sizes[dimension], strides[dimension]
        if is_one(size):
            continue
        if stride is not expected and not certainly(eq(stride, expected)):
            return False
        expected = expected * size
    return True


def is_channels_last_strides_2d(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether an NCHW tensor's strides grow from channels outwards."""
    return len(sizes) == 4 and _grows_in_order(sizes, strides, CHANNELS_LAST_2D)


def is_channels_last_strides_3d(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether an NCDHW tensor's strides grow from channels outwards."""
    return len(sizes) == 5 and _grows_in_order(sizes, strides, CHANNELS_LAST_3D)


def _grows_in_order(sizes: Sequence[Size], strides: Sequence[Size], order: Sequence[int]) -> bool:
    if is_zero(strides[1]):
        return False
    least: Any = 0
    for dimension in order:
        size, stride = sizes[dimension], strides[dimension]
        if is_zero(size) or not certainly(ge(stride, least)):
            return False
        # N111 tensors could be either; the plain layout wins, as in eager mode.
        if dimension == 0 and certainly(eq(least, strides[1])):
            return False
        least = stride * (maximum(size, 1) if type(size) is int else size)
    return True


def is_non_overlapping_and_dense(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether the elements fill their memory without gaps or overlap, in some order of dimensions."""
    if any(type(size) is int and size == 0 for size in sizes):
        return True
    remaining = [pair for pair in zip(sizes, strides) if not is_one(pair[0])]
    expected: Any = 1
    while remaining:
        found = _first(remaining, lambda pair: certainly(eq(pair[1], expected)))  # noqa: B023
        if found is None:
            return False
        expected = expected * remaining.pop(found)[0]
    return True


def _first(pairs: list[tuple[Size, Size]], test: Callable[[tuple[Size, Size]], bool]) -> int | None:
    for position, pair in enumerate(pairs):
        if test(pair):
            return position
    return None


def is_symbolic(sizes: Sequence[Size]) -> bool:
    """Whether a symbol occurs among the sizes."""
    return any(isinstance(size, Expr) for size in sizes)
