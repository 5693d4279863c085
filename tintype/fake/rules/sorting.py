"""Order: sorting, selecting, turning round; and drawing at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.fake.info import TensorInfo, preserved_strides
from tintype.fake.rules.elementwise import broadcast
from tintype.fake.rules.registry import rule
from tintype.fake.rules.views import transpose, wrap_dimension
from tintype.symbolic import Size, ge
from tintype.symbolic.sizes import contiguous_strides, require, require_same


def _fresh(self: TensorInfo, sizes: tuple[Size, ...], dtype: torch.dtype | None = None) -> TensorInfo:
    return TensorInfo(sizes, contiguous_strides(sizes), dtype or self.dtype, self.device)


def _like(self: TensorInfo, dtype: torch.dtype | None = None) -> TensorInfo:
    return TensorInfo(self.sizes, preserved_strides(self.sizes, self.strides), dtype or self.dtype, self.device)


@rule("topk")
def topk(
    self: TensorInfo, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[TensorInfo, TensorInfo]:
    where = wrap_dimension(dim, self.dim)
    available = self.sizes[where] if self.sizes else 1
    if type(k) is int and type(available) is int:
        if not 0 <= k <= available:
            raise RuntimeError("selected index k out of range")
    else:
        require(ge(available, k), "selected index k out of range")
    sizes = (*self.sizes[:where], k, *self.sizes[where + 1 :]) if self.sizes else ()
    return _fresh(self, sizes), _fresh(self, sizes, torch.int64)


@rule("sort")
def sort(self: TensorInfo, dim: int = -1, descending: bool = False) -> tuple[TensorInfo, TensorInfo]:
    wrap_dimension(dim, self.dim)
    return _like(self), _like(self, torch.int64)


@rule("sort.stable")
def sort_stable(
    self: TensorInfo, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[TensorInfo, TensorInfo]:
    return sort(self, dim, descending)


@rule("argsort")
def argsort(self: TensorInfo, dim: int = -1, descending: bool = False) -> TensorInfo:
    wrap_dimension(dim, self.dim)
    return _like(self, torch.int64)


@rule("argsort.stable")
def argsort_stable(self: TensorInfo, *, stable: bool, dim: int = -1, descending: bool = False) -> TensorInfo:
    return argsort(self, dim, descending)


@rule("flip")
def flip(self: TensorInfo, dims: Sequence[int]) -> TensorInfo:
    wrapped = [wrap_dimension(d, self.dim) for d in dims]
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError(f"dim appears multiple times in the list of dims {list(dims)}")
    return _like(self)


@rule("multinomial")
def multinomial(
    self: TensorInfo, num_samples: Size, replacement: bool = False, *, generator: Any = None
) -> TensorInfo:
    if self.dim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    return _fresh(self, (*self.sizes[:-1], num_samples), torch.int64)


@rule("bernoulli", "bernoulli.p")
def bernoulli(self: TensorInfo, p: float | None = None, *, generator: Any = None) -> TensorInfo:
    return self.fresh()


@rule("bernoulli.Tensor")
def bernoulli_with(self: TensorInfo, p: Any, *, generator: Any = None) -> TensorInfo:
    return _like(self)


@rule("binomial")
def binomial(count: TensorInfo, prob: TensorInfo, generator: Any = None) -> TensorInfo:
    if count.dtype is not prob.dtype:
        raise RuntimeError(f"Found dtype {prob.dtype} but expected {count.dtype}")
    sizes = broadcast([count.sizes, prob.sizes])
    message = f"output with shape {list(count.sizes)} doesn't match the broadcast shape {list(sizes)}"
    if len(sizes) != count.dim:
        raise RuntimeError(message)
    for wanted, size in zip(sizes, count.sizes, strict=True):
        require_same(wanted, size, message)
    return _fresh(count, count.sizes, count.dtype)


@rule("_sample_dirichlet")
def sample_dirichlet(self: TensorInfo, generator: Any = None) -> TensorInfo:
    return _fresh(self, self.sizes, self.dtype)


@rule("fliplr", "flipud")
def flip_one(self: TensorInfo) -> TensorInfo:
    return _like(self)


@rule("rot90")
def rotate(self: TensorInfo, k: int = 1, dims: Sequence[int] = (0, 1)) -> TensorInfo:
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    quarters = k % 4
    if quarters == 0:
        return self.fresh()
    flipped = _like(self)
    if quarters == 2:
        return flipped
    turned = transpose(flipped, dims[0], dims[1])
    return TensorInfo(turned.sizes, turned.strides, self.dtype, self.device)


@rule("msort")
def sort_rows(self: TensorInfo) -> TensorInfo:
    return _like(self)


@rule("normal.Tensor_float")
def normal(mean: TensorInfo, std: float = 1.0, *, generator: Any = None) -> TensorInfo:
    return mean.fresh()


@rule("poisson")
def poisson(self: TensorInfo, generator: Any = None) -> TensorInfo:
    return self.fresh()


@rule("isin.Tensor_Tensor", "isin.Tensor_Scalar")
def is_among(
    elements: TensorInfo, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> TensorInfo:
    return elements.fresh(dtype=torch.bool)


@rule("nonzero_static")
def nonzero_static(self: TensorInfo, *, size: Size, fill_value: int = -1) -> TensorInfo:
    sizes = (size, self.dim)
    # on a GPU the positions along one dimension lie together
    strides = (1, size) if self.device.type == "cuda" else contiguous_strides(sizes)
    return TensorInfo(sizes, strides, torch.int64, self.device)
