"""Reading by index: gathering, embedding, advanced indexing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.fake.info import TensorInfo, memory_order, strides_in_order
from tintype.fake.rules.elementwise import broadcast
from tintype.fake.rules.registry import rule
from tintype.fake.rules.views import wrap_dimension
from tintype.symbolic import Size
from tintype.symbolic.sizes import contiguous_strides, is_one, is_zero, product

_INDEX_DTYPES = frozenset({torch.int64, torch.int32, torch.int16, torch.int8})


def _fresh(self: TensorInfo, sizes: tuple[Size, ...], dtype: torch.dtype | None = None) -> TensorInfo:
    return TensorInfo(sizes, contiguous_strides(sizes), dtype or self.dtype, self.device)


# --- advanced indexing -----------------------------------------------------------------------------------


@rule("index.Tensor", "_unsafe_index.Tensor")
def index(self: TensorInfo, indices: Sequence[TensorInfo | None]) -> TensorInfo:
    if len(indices) > self.dim:
        raise IndexError(f"too many indices for tensor of dimension {self.dim} (got {len(indices)})")
    for position in indices:
        if position is not None:
            if position.dtype in (torch.bool, torch.uint8):
                raise NotImplementedError("a mask: the size of the result depends on data")
            if position.dtype not in _INDEX_DTYPES:
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    where = [i for i, position in enumerate(indices) if position is not None]
    if not where:
        raise NotImplementedError("nothing to index by")
    chosen = [position for position in indices if position is not None]
    try:
        replacement = chosen[0].sizes if len(chosen) == 1 else broadcast([c.sizes for c in chosen])
    except RuntimeError as error:
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            + ", ".join(str(list(c.sizes)) for c in chosen)
        ) from error
    taken = set(where)
    # indexed dimensions that are not adjacent come first in the result
    start = where[0] if where[-1] - where[0] == len(where) - 1 else 0
    rest = [i for i in range(self.dim) if i not in taken]
    before, after = rest[:start], rest[start:]
    sizes = (
        *[self.sizes[i] for i in before],
        *replacement,
        *[self.sizes[i] for i in after],
    )
    return TensorInfo(sizes, _index_strides(self, chosen, replacement, before, after, sizes), self.dtype, self.device)


def _index_strides(
    self: TensorInfo,
    chosen: Sequence[TensorInfo],
    replacement: tuple[Size, ...],
    before: Sequence[int],
    after: Sequence[int],
    sizes: tuple[Size, ...],
) -> tuple[Size, ...]:
    """The kernel is an elementwise one: over the tensor, in which the indexed dimensions don't move, and over
    the indices, which only move in their own dimensions."""
    contiguous = contiguous_strides(sizes)
    if self.strides == contiguous_strides(self.sizes) and all(
        position.strides == contiguous_strides(position.sizes) for position in chosen
    ):
        return contiguous
    source = (
        *[self.strides[i] for i in before],
        *(0,) * len(replacement),
        *[self.strides[i] for i in after],
    )
    operands = [source]
    for position in chosen:
        shift = len(replacement) - len(position.sizes)
        own = [
            0 if is_one(size) and not is_one(full) else stride
            for size, stride, full in zip(position.sizes, position.strides, replacement[shift:], strict=True)
        ]
        operands.append((*(0,) * (len(before) + shift), *own, *(0,) * len(after)))
    return strides_in_order(sizes, memory_order(sizes, operands))


# --- along one dimension ---------------------------------------------------------------------------------


def require_index(index: TensorInfo, operator: str) -> None:
    """Raise unless a tensor can be an index."""
    if is_zero(product(index.sizes)):
        return
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(f"{operator}(): Expected dtype int32/int64 for index, got {index.dtype}")


@rule("gather")
def gather(self: TensorInfo, dim: int, index: TensorInfo, *, sparse_grad: bool = False) -> TensorInfo:
    wrap_dimension(dim, self.dim)
    require_index(index, "gather")
    if max(self.dim, 1) != max(index.dim, 1) and not is_zero(product(index.sizes)):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    return _fresh(self, index.sizes)


@rule("index_select")
def index_select(self: TensorInfo, dim: int, index: TensorInfo) -> TensorInfo:
    where = wrap_dimension(dim, self.dim)
    if index.dim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    require_index(index, "index_select")
    if not self.sizes:
        return _fresh(self, ())
    return _fresh(self, (*self.sizes[:where], product(index.sizes), *self.sizes[where + 1 :]))


@rule("take")
def take(self: TensorInfo, index: TensorInfo) -> TensorInfo:
    return TensorInfo(index.sizes, contiguous_strides(index.sizes), self.dtype, self.device)


@rule("take_along_dim")
def take_along_dimension(self: TensorInfo, indices: TensorInfo, dim: int | None = None) -> TensorInfo:
    if dim is None:
        return _fresh(self, (product(indices.sizes),))
    if self.dim != indices.dim:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{self.dim} dimensions for input, and {indices.dim} dimensions for indices"
        )
    where = wrap_dimension(dim, self.dim)
    one: tuple[Size, ...] = (1,)
    common = broadcast(
        [
            self.sizes[:where] + one + self.sizes[where + 1 :],
            indices.sizes[:where] + one + indices.sizes[where + 1 :],
        ]
    )
    return _fresh(self, (*common[:where], indices.sizes[where], *common[where + 1 :]))


# --- embedding -------------------------------------------------------------------------------------------


@rule("embedding")
def embedding(
    weight: TensorInfo,
    indices: TensorInfo,
    padding_idx: Size = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> TensorInfo:
    if len(weight.sizes) != 2:
        raise RuntimeError("'weight' must be 2-D")
    if indices.dtype is not torch.int64 and indices.dtype is not torch.int32:
        raise RuntimeError(
            f"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, "
            f"Int; but got {indices.dtype} instead (while checking arguments for embedding)"
        )
    sizes = (*indices.sizes, weight.sizes[1])
    return TensorInfo(sizes, contiguous_strides(sizes), weight.dtype, weight.device)


@rule("one_hot")
def one_hot(self: TensorInfo, num_classes: int = -1) -> TensorInfo:
    if type(num_classes) is int and num_classes < 0:
        raise NotImplementedError("the number of classes depends on data")
    if self.dtype is not torch.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    return _fresh(self, (*self.sizes, num_classes))


@rule("searchsorted.Tensor")
def searchsorted(
    sorted_sequence: TensorInfo,
    self: TensorInfo,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: TensorInfo | None = None,
) -> TensorInfo:
    return _fresh(self, self.sizes, torch.int32 if out_int32 else torch.int64)


@rule("searchsorted.Scalar")
def searchsorted_number(
    sorted_sequence: TensorInfo, self: Any, *, out_int32: bool = False, **options: Any
) -> TensorInfo:
    return _fresh(sorted_sequence, (), torch.int32 if out_int32 else torch.int64)


@rule("bucketize.Tensor")
def bucketize(
    self: TensorInfo, boundaries: TensorInfo, *, out_int32: bool = False, right: bool = False
) -> TensorInfo:
    return _fresh(self, self.sizes, torch.int32 if out_int32 else torch.int64)


@rule("bucketize.Scalar")
def bucketize_number(
    self: Any, boundaries: TensorInfo, *, out_int32: bool = False, right: bool = False
) -> TensorInfo:
    return _fresh(boundaries, (), torch.int32 if out_int32 else torch.int64)
