"""What is known of a tensor when its data is not there.

A :class:`TensorInfo` describes one tensor. Shape rules are plain functions from the infos of an operator's
arguments to the infos of its results: no torch object is made while a rule runs. Sizes are integers or
symbolic expressions (:mod:`tintype.symbolic`); a rule must not assume that a size is an ``int``.

A :class:`Storage` stands for the memory behind tensors. Two infos with the same storage object alias each
other; a rule gives a view its base's storage, and leaves the storage of a fresh result to be made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tintype.symbolic.expression import Expr, Size
from tintype.symbolic.extrema import maximum
from tintype.symbolic.facts import Facts
from tintype.symbolic.sizes import certainly_same, contiguous_strides, is_one, is_zero, same, usually_less


class Storage:
    """The identity of a piece of memory, and what is known of its history.

    ``frozen`` storages hold the result of a conversion that changed nothing: in eager mode they would be an
    alias of the source, in a captured program they are a copy, so nobody may write to them.
    """

    __slots__ = ("frozen", "others", "source", "split", "written")

    def __init__(
        self,
        *,
        frozen: bool = False,
        source: Storage | None = None,
        others: tuple[Storage, ...] = (),
        split: object | None = None,
    ) -> None:
        self.frozen = frozen
        self.source = source
        # further ones, where a branch decides which it is
        self.others = others
        # the same for parts of the source that don't overlap: no write to one of them is seen in another one
        self.split = split
        self.written = False

    @property
    def sources(self) -> tuple[Storage, ...]:
        """All memory that this may be an alias of in eager mode."""
        return self.others if self.source is None else (self.source, *self.others)


class TensorInfo:
    """Everything about a tensor but its data. Immutable by convention: an operator makes a new one."""

    __slots__ = (
        "conjugate",
        "device",
        "dtype",
        "negative",
        "offset",
        "requires_grad",
        "sizes",
        "storage",
        "strides",
    )

    # None only between a rule's return and the making of the tensor it describes
    storage: Storage

    def __init__(
        self,
        sizes: tuple[Size, ...],
        strides: tuple[Size, ...],
        dtype: torch.dtype,
        device: torch.device,
        offset: Size = 0,
        storage: Storage | None = None,
        requires_grad: bool = False,
        conjugate: bool = False,
        negative: bool = False,
    ) -> None:
        self.sizes = sizes
        self.strides = strides
        self.dtype = dtype
        self.device = device
        self.offset = offset
        self.storage = storage  # type: ignore[assignment]
        self.requires_grad = requires_grad
        self.conjugate = conjugate
        self.negative = negative

    @property
    def dim(self) -> int:
        """The number of dimensions."""
        return len(self.sizes)

    def key(self) -> tuple[Any, ...]:
        """A hashable summary: equal keys make every operator behave alike."""
        return (
            self.sizes,
            self.strides,
            self.dtype,
            self.device,
            self.offset,
            self.conjugate,
            self.negative,
        )

    def fresh(
        self,
        sizes: Sequence[Size] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> TensorInfo:
        """A new contiguous tensor like this one."""
        new_sizes = self.sizes if sizes is None else tuple(sizes)
        return TensorInfo(new_sizes, contiguous_strides(new_sizes), dtype or self.dtype, device or self.device)

    def view(self, sizes: Sequence[Size], strides: Sequence[Size], offset: Size | None = None) -> TensorInfo:
        """A view of this tensor: the same storage, dtype and bits, another geometry."""
        return TensorInfo(
            tuple(sizes),
            tuple(strides),
            self.dtype,
            self.device,
            self.offset if offset is None else offset,
            self.storage,
            self.requires_grad,
            self.conjugate,
            self.negative,
        )

    def with_storage(self, storage: Storage | None) -> TensorInfo:
        """The same description over another storage; None for one that is still to be made."""
        return TensorInfo(
            self.sizes,
            self.strides,
            self.dtype,
            self.device,
            self.offset,
            storage,
            self.requires_grad,
            self.conjugate,
            self.negative,
        )

    def translated(self, translate: Callable[[Any], Any]) -> TensorInfo:
        """The same description, and storage, in terms of another environment's symbols."""
        return TensorInfo(
            tuple([translate(size) for size in self.sizes]),
            tuple([translate(stride) for stride in self.strides]),
            self.dtype,
            self.device,
            translate(self.offset),
            self.storage,
            self.requires_grad,
            self.conjugate,
            self.negative,
        )

    def use_equalities(self, facts: Facts) -> None:
        """Write a new description in the symbols that others are known to be equal to: then what is equal is the same
        object, and nobody has to work it out."""
        known = facts.replaced_sizes
        self.sizes = known.get(self.sizes) or facts.replace_sizes(self.sizes)
        self.strides = known.get(self.strides) or facts.replace_sizes(self.strides)
        if type(self.offset) is not int:
            self.offset = facts.replace(self.offset)

    def lies_like(self, other: TensorInfo, replace: Callable[[Any], Any]) -> bool:
        """Whether a tensor of the same size has the same strides, by whatever symbols these are written."""
        if self.strides == other.strides:
            return True
        return [replace(stride) for stride in self.strides] == [replace(stride) for stride in other.strides]

    def is_contiguous(self) -> bool:
        """Whether the elements lie in memory in the order of the indices, without gaps."""
        return has_contiguous_strides(self.sizes, self.strides)

    def __repr__(self) -> str:
        return f"TensorInfo({list(self.sizes)}, strides={list(self.strides)}, {self.dtype}, {self.device})"


def fresh(
    sizes: Sequence[Size],
    dtype: torch.dtype,
    device: torch.device,
    strides: Sequence[Size] | None = None,
) -> TensorInfo:
    """A new tensor, contiguous unless strides are given."""
    sizes = tuple(sizes)
    return TensorInfo(sizes, contiguous_strides(sizes) if strides is None else tuple(strides), dtype, device)


def has_contiguous_strides(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> bool:
    """Whether strides are those of a contiguous tensor; strides of dimensions of size one don't count."""
    if strides == contiguous_strides(sizes):
        return True
    expected: Size = 1
    outer = len(sizes)
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        outer -= 1
        if is_one(size):
            continue
        if is_zero(size):
            return True
        if not same(stride, expected):
            return False
        if outer:
            expected = expected * size
    return True


def told_strides(info: TensorInfo) -> tuple[Size, ...]:
    """The strides that a tensor tells a program that asks. Rules take no notice of a size of 0, as strides mean
    nothing there; torch counts it as 1, which is seen where the example has one."""
    empty = any(isinstance(size, Expr) and size.environment.hint(size) == 0 for size in info.sizes)
    if not empty or info.strides != contiguous_strides(info.sizes):
        return info.strides
    return contiguous_strides([maximum(size, 1) for size in info.sizes])


def same_strides(sizes: Sequence[Size], strides: Sequence[Size], others: Sequence[Size]) -> bool:
    """Whether two tensors of a size lie alike in memory; strides of dimensions of size one don't count."""
    pairs = zip(sizes, strides, others, strict=True)
    return all(is_one(size) or same(stride, other) for size, stride, other in pairs)


CHANNELS_LAST_ORDER = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}


def strides_in_order(sizes: Sequence[Size], order: Sequence[int]) -> tuple[Size, ...]:
    """Strides of a dense tensor whose dimensions lie in memory in the given order, outermost first."""
    strides: list[Size] = [1] * len(sizes)
    step: Size = 1
    for place in range(len(order) - 1, 0, -1):  # the product of all sizes is no stride
        dimension = order[place]
        strides[dimension] = step
        size = sizes[dimension]
        step = step * (1 if is_zero(size) else size)
    if order:
        strides[order[0]] = step
    return tuple(strides)


def strides_for_format(info: TensorInfo, memory_format: torch.memory_format | None) -> tuple[Size, ...]:
    """The strides of a copy of a tensor in a memory format (``None``: preserve)."""
    if memory_format is None or memory_format is torch.preserve_format:
        return preserved_strides(info.sizes, info.strides)
    if memory_format is torch.contiguous_format:
        return contiguous_strides(info.sizes)
    wanted = 4 if memory_format is torch.channels_last else 5
    if info.dim != wanted:
        raise RuntimeError(f"required rank {wanted} tensor to use {memory_format} format")
    return strides_in_order(info.sizes, CHANNELS_LAST_ORDER[wanted])


def is_channels_last(info: TensorInfo) -> bool:
    """Whether a 4- or 5-dimensional tensor lies in channels-last order (and not in contiguous order)."""
    order = CHANNELS_LAST_ORDER.get(info.dim)
    if order is None:
        return False
    expected: Size = 1
    for dimension in reversed(order):
        size, stride = info.sizes[dimension], info.strides[dimension]
        if is_one(size):
            continue
        if not same(stride, expected):
            return False
        expected = expected * size
    return not info.is_contiguous()


def is_dense(sizes: Sequence[Size], strides: Sequence[Size], equal: Callable[[Size, Size], bool] = same) -> bool:
    """Whether a tensor covers its memory without gaps or overlap, in whatever order."""
    try:
        steps = sorted(zip(strides, sizes, strict=True))
    except TypeError:  # symbolic sizes have no order
        return _is_dense_symbolically(sizes, strides, equal)
    expected = 1
    for stride, size in steps:
        if size == 1:
            continue
        if stride != expected:
            return 0 in sizes
        expected = expected * size
    return True


def _is_dense_symbolically(
    sizes: Sequence[Size], strides: Sequence[Size], equal: Callable[[Size, Size], bool]
) -> bool:
    pairs = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if not is_one(size)]
    if any(is_zero(size) for size, _ in pairs):
        return True
    expected: Size = 1
    while pairs:
        for pair in pairs:
            if equal(pair[1], expected):
                pairs.remove(pair)
                if pairs:
                    expected = expected * pair[0]
                break
        else:
            return False
    return True


def preserved_strides(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> tuple[Size, ...]:
    """The strides that a result takes over from an argument of the same size: its own if it is dense,
    otherwise dense ones in the same order of dimensions."""
    contiguous = contiguous_strides(sizes)
    # where it is not certain that there are no gaps, dense strides in the same order are the same if there are none
    if strides == contiguous or is_dense(sizes, strides, certainly_same):
        return strides
    return strides_in_order(sizes, memory_order(sizes, [strides]))


def strides_by_operands(sizes: tuple[Size, ...], operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The strides that an elementwise kernel gives its result: dense, in the order of its operands' dimensions."""
    contiguous = contiguous_strides(sizes)
    for strides in operands:
        if strides != contiguous:
            return strides_in_order(sizes, memory_order(sizes, operands))
    return contiguous  # in that order they are: nobody needs to compare them


def memory_order(sizes: Sequence[Size], operands: Sequence[Sequence[Size]]) -> list[int]:
    """The order of dimensions, outermost first, that an elementwise kernel gives its result.

    It sorts dimensions by the strides of the operands: the first operand that tells two dimensions apart
    decides; a stride of zero (a broadcast dimension) tells nothing.
    """
    order = list(reversed(range(len(sizes))))  # innermost first

    def must_swap(inner: int, outer: int) -> int:
        for strides in operands:
            a, b = strides[inner], strides[outer]
            if is_zero(a) or is_zero(b):
                continue
            if type(b) is not int and _lies_around(b, a, sizes[inner]):
                return -1
            if certainly_same(a, b):
                if _greater(sizes[inner], sizes[outer]):
                    return 1
                continue
            return 1 if _greater(a, b) else -1
        return 0

    for i in range(1, len(order)):
        here = i
        for j in range(i - 1, -1, -1):
            verdict = must_swap(order[j], order[here])
            if verdict > 0:
                order[j], order[here] = order[here], order[j]
                here = j
            elif verdict < 0:
                break
    order.reverse()
    return order


def _lies_around(outer: Size, inner: Size, size: Size) -> bool:
    """Whether a stride is one that a dense tensor has around a dimension of this stride and size. It is the larger
    one, whatever the sizes are: those that are certainly 1 have no stride, and tensors of nothing have no order."""
    return type(size) is not int and outer is inner * size and not is_one(size)


def _greater(a: Size, b: Size) -> bool:
    """For strides: those of a dimension of size 1, or of a tensor without elements, have no say in the order."""
    if type(a) is int and type(b) is int:
        return a > b
    return usually_less(b, a)
