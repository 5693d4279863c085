"""Writing by index, functionally: the result is a copy of the tensor with some elements replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.fake.info import TensorInfo, preserved_strides
from tintype.fake.rules.elementwise import broadcast
from tintype.fake.rules.indexing import index as index_rule
from tintype.fake.rules.indexing import require_index
from tintype.fake.rules.parts import diagonal
from tintype.fake.rules.registry import rule
from tintype.fake.rules.views import require_expandable, select, slice_tensor, wrap_dimension
from tintype.symbolic import Size
from tintype.symbolic.sizes import contiguous_strides, decided_one, is_one, is_zero, product, require_same


def _copy(self: TensorInfo) -> TensorInfo:
    return TensorInfo(self.sizes, preserved_strides(self.sizes, self.strides), self.dtype, self.device)


def _contiguous_copy(self: TensorInfo) -> TensorInfo:
    return TensorInfo(self.sizes, contiguous_strides(self.sizes), self.dtype, self.device)


# --- along one dimension ---------------------------------------------------------------------------------


@rule("scatter.value", "scatter.src", "scatter.reduce", "scatter.value_reduce", "scatter_add")
def scatter(self: TensorInfo, dim: int, index: TensorInfo, source: Any, *, reduce: str | None = None) -> TensorInfo:
    wrap_dimension(dim, self.dim)
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError("scatter(): Expected dtype int64 for index")
    if type(source) is TensorInfo and source.dtype is not self.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    return _contiguous_copy(self)


@rule("scatter_reduce.two")
def scatter_reduce(
    self: TensorInfo,
    dim: int,
    index: TensorInfo,
    src: TensorInfo,
    reduce: str,
    *,
    include_self: bool = True,
) -> TensorInfo:
    return scatter(self, dim, index, src)


@rule("index_add")
def index_add(self: TensorInfo, dim: int, index: TensorInfo, source: TensorInfo, *, alpha: Any = 1) -> TensorInfo:
    wrap_dimension(dim, self.dim)
    require_index(index, "index_add")
    if self.dtype is not source.dtype:
        raise RuntimeError("index_add_(): self and source expected to have the same dtype")
    return _contiguous_copy(self)


@rule("index_reduce")
def index_reduce(
    self: TensorInfo,
    dim: int,
    index: TensorInfo,
    source: TensorInfo,
    reduce: str,
    *,
    include_self: bool = True,
) -> TensorInfo:
    return index_add(self, dim, index, source)


@rule("put")
def put(self: TensorInfo, index: TensorInfo, source: TensorInfo, accumulate: bool = False) -> TensorInfo:
    return _copy(self)


@rule("index_copy")
def index_copy(self: TensorInfo, dim: int, index: TensorInfo, source: TensorInfo) -> TensorInfo:
    wrap_dimension(dim, self.dim)
    if index.dim > 1:
        raise IndexError(f"index_copy_(): Index should have dimension 1 or 0 (got {index.dim})")
    if self.dtype is not source.dtype:
        raise RuntimeError("index_copy_(): self and source expected to have the same dtype")
    return _contiguous_copy(self)


@rule("index_fill.int_Tensor", "index_fill.int_Scalar")
def index_fill(self: TensorInfo, dim: int, index: TensorInfo, value: Any) -> TensorInfo:
    wrap_dimension(dim, self.dim)
    return _copy(self)


# --- advanced indexing -----------------------------------------------------------------------------------


def _is_masked_fill(indices: Sequence[TensorInfo | None], values: TensorInfo) -> bool:
    """Whether eager mode fills through a mask instead, which converts the value."""
    given = [index for index in indices if index is not None]
    return (
        len(given) == 1
        and given[0].dtype in (torch.bool, torch.uint8)
        and decided_one(product(values.sizes), "a value of another dtype is one number")
    )


@rule("index_put", "_unsafe_index_put")
def index_put(
    self: TensorInfo, indices: Sequence[TensorInfo | None], values: TensorInfo, accumulate: bool = False
) -> TensorInfo:
    if self.dtype is not values.dtype and (accumulate or not _is_masked_fill(indices, values)):
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {self.dtype} for the "
            f"destination and {values.dtype} for the source."
        )
    if any(position is not None for position in indices) and all(
        position is None or position.dtype not in (torch.bool, torch.uint8) for position in indices
    ):
        target = index_rule(self, indices).sizes
        if target != values.sizes:
            require_expandable(
                _without_leading_ones(values.sizes, len(target)),
                target,
                lambda: (
                    f"shape mismatch: value tensor of shape {list(values.sizes)} cannot be broadcast to indexing "
                    f"result of shape {list(target)}"
                ),
            )
    return _copy(self)


def _without_leading_ones(sizes: tuple[Size, ...], count: int) -> tuple[Size, ...]:
    """The last sizes, where those before them are 1."""
    while len(sizes) > count and is_one(sizes[0]):
        sizes = sizes[1:]
    return sizes


@rule("masked_scatter")
def masked_scatter(self: TensorInfo, mask: TensorInfo, source: TensorInfo) -> TensorInfo:
    if self.dtype is not source.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {self.dtype} and {source.dtype}"
        )
    sizes = broadcast([self.sizes, mask.sizes])
    return TensorInfo(sizes, contiguous_strides(sizes), self.dtype, self.device)


# --- into a view -----------------------------------------------------------------------------------------


def _scattered(self: TensorInfo, view: TensorInfo, source: TensorInfo, operator: str) -> TensorInfo:
    def message() -> str:
        return (
            f"expected src to have a size equal to the slice of self. src size = {list(source.sizes)}, slice "
            f"size = {list(view.sizes)}"
        )

    if view.sizes != source.sizes:
        if len(view.sizes) != len(source.sizes):
            raise RuntimeError(message())
        for size, wanted in zip(source.sizes, view.sizes, strict=True):
            require_same(size, wanted, message)
    return _copy_with_gaps(self)


def _copy_with_gaps(self: TensorInfo) -> TensorInfo:
    """A copy of a tensor and of the memory around it, so that other views of it keep their meaning; only
    where elements share memory it is a plain copy."""
    if any(is_zero(stride) and not is_one(size) for size, stride in zip(self.sizes, self.strides, strict=True)):
        return _copy(self)
    return TensorInfo(self.sizes, self.strides, self.dtype, self.device, self.offset)


@rule("copy")
def copy(self: TensorInfo, src: TensorInfo, non_blocking: bool = False) -> TensorInfo:
    if type(src) is not TensorInfo:  # copy_(2) arrives with a plain number
        return _copy_with_gaps(self)
    if src.sizes != self.sizes:
        require_expandable(
            src.sizes,
            self.sizes,
            lambda: f"output with shape {list(self.sizes)} doesn't match the broadcast shape of {list(src.sizes)}",
        )
    return _copy_with_gaps(self)


@rule("select_scatter")
def select_scatter(self: TensorInfo, src: TensorInfo, dim: int, index: Size) -> TensorInfo:
    return _scattered(self, select(self, dim, index), src, "select_scatter")


@rule("slice_scatter")
def slice_scatter(
    self: TensorInfo,
    src: TensorInfo,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> TensorInfo:
    return _scattered(self, slice_tensor(self, dim, start, end, step), src, "slice_scatter")


@rule("diagonal_scatter")
def diagonal_scatter(self: TensorInfo, src: TensorInfo, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorInfo:
    return _scattered(self, diagonal(self, offset, dim1, dim2), src, "diagonal_scatter")


@rule("as_strided_scatter")
def as_strided_scatter(
    self: TensorInfo,
    src: TensorInfo,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> TensorInfo:
    return _copy_with_gaps(self)
