"""Reductions over dimensions, and running reductions along one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.fake.info import TensorInfo
from tintype.fake.promotion import real_of, result_type
from tintype.fake.rules.elementwise import broadcast
from tintype.fake.rules.registry import rule
from tintype.fake.rules.views import wrap_dimension
from tintype.symbolic import Size, ge
from tintype.symbolic.sizes import contiguous_strides, is_zero, refuse_zero, require

Dimensions = int | Sequence[int] | None


def _fresh(self: TensorInfo, sizes: tuple[Size, ...], dtype: torch.dtype | None = None) -> TensorInfo:
    return TensorInfo(sizes, contiguous_strides(sizes), dtype or self.dtype, self.device)


def reduced_sizes(sizes: tuple[Size, ...], dim: Dimensions, keepdim: bool) -> tuple[Size, ...]:
    """The sizes that a reduction over some dimensions (none named: all) leaves."""
    count = len(sizes)
    if dim is None or (not isinstance(dim, int) and not dim):
        return (1,) * count if keepdim else ()
    dims = (dim,) if isinstance(dim, int) else dim
    if len(dims) == 1:
        where = wrap_dimension(dims[0], count)
        if not sizes:
            return ()
        return (*sizes[:where], 1, *sizes[where + 1 :]) if keepdim else (*sizes[:where], *sizes[where + 1 :])
    gone = {wrap_dimension(d, count) for d in dims}
    if len(gone) != len(dims):
        raise RuntimeError(f"dim appears multiple times in the list of dims {list(dims)}")
    if keepdim:
        return tuple(1 if i in gone else size for i, size in enumerate(sizes))
    return tuple(size for i, size in enumerate(sizes) if i not in gone)


def _require_elements(self: TensorInfo, dim: Dimensions, operator: str) -> None:
    """A reduction without a neutral element needs something to reduce."""
    if dim is None or (not isinstance(dim, int) and not dim):
        refuse_zero(
            self.sizes,
            f"{operator}: Expected reduction dim to be specified for input.numel() == 0. Specify the "
            "reduction dim with the 'dim' argument.",
        )
        return
    for d in (dim,) if isinstance(dim, int) else dim:
        where = wrap_dimension(d, self.dim)
        if self.sizes:
            message = f"{operator}: Expected reduction dim {d} to have non-zero size."
            refuse_zero((self.sizes[where],), message, IndexError)


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.int64


# --- sums ------------------------------------------------------------------------------------------------


@rule("sum", "prod")
def sum_of_all(self: TensorInfo, *, dtype: torch.dtype | None = None) -> TensorInfo:
    return TensorInfo((), (), dtype or _sum_dtype(self.dtype), self.device)


@rule("sum.dim_IntList", "nansum", "prod.dim_int")
def sum_over(
    self: TensorInfo, dim: Dimensions = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorInfo:
    return _fresh(self, reduced_sizes(self.sizes, dim, keepdim), dtype or _sum_dtype(self.dtype))


_QUANTIZED = frozenset({torch.quint8, torch.qint8, torch.qint32})


@rule("mean")
def mean_of_all(self: TensorInfo, *, dtype: torch.dtype | None = None) -> TensorInfo:
    return mean(self, None, dtype=dtype)


@rule("mean.dim", "nanmean")
def mean(
    self: TensorInfo, dim: Dimensions = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorInfo:
    result = dtype or self.dtype
    if not result.is_floating_point and not result.is_complex and result not in _QUANTIZED:
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex "
            f"dtype. Got: {result}"
        )
    return _fresh(self, reduced_sizes(self.sizes, dim, keepdim), result)


@rule("logsumexp", "special_logsumexp")
def logsumexp(self: TensorInfo, dim: Dimensions, keepdim: bool = False) -> TensorInfo:
    dtype = result_type(self, 1.0)
    return _fresh(self, reduced_sizes(self.sizes, dim, keepdim), dtype)


@rule("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(self: TensorInfo, dim: Dimensions = None) -> TensorInfo:
    return _fresh(self, reduced_sizes(self.sizes, dim, False), torch.int64)


@rule("trace")
def trace(self: TensorInfo) -> TensorInfo:
    if self.dim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {self.dim}")
    return TensorInfo((), (), _sum_dtype(self.dtype), self.device)


# --- extrema ---------------------------------------------------------------------------------------------


@rule("max", "min")
def extremum_of_all(self: TensorInfo) -> TensorInfo:
    refuse_zero(
        self.sizes,
        "max(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
        "with the 'dim' argument.",
    )
    return TensorInfo((), (), self.dtype, self.device)


@rule("median", "nanmedian")
def median_of_all(self: TensorInfo) -> TensorInfo:
    return TensorInfo((), (), self.dtype, self.device)


@rule("amax", "amin")
def extremum(self: TensorInfo, dim: Dimensions = (), keepdim: bool = False) -> TensorInfo:
    _require_elements(self, dim, "amax()")
    return _fresh(self, reduced_sizes(self.sizes, dim, keepdim))


@rule("max.dim", "min.dim", "median.dim", "nanmedian.dim")
def extremum_with_indices(self: TensorInfo, dim: int, keepdim: bool = False) -> tuple[TensorInfo, TensorInfo]:
    _require_elements(self, dim, "max()")
    sizes = reduced_sizes(self.sizes, dim, keepdim)
    return _fresh(self, sizes), _fresh(self, sizes, torch.int64)


@rule("mode")
def mode(self: TensorInfo, dim: int = -1, keepdim: bool = False) -> tuple[TensorInfo, TensorInfo]:
    return extremum_with_indices(self, dim, keepdim)


@rule("kthvalue")
def kth_value(self: TensorInfo, k: Size, dim: int = -1, keepdim: bool = False) -> tuple[TensorInfo, TensorInfo]:
    where = wrap_dimension(dim, self.dim)
    available = self.sizes[where] if self.sizes else 1
    require(ge(available, k), lambda: f"kthvalue(): selected number k out of range for dimension {where}")
    return extremum_with_indices(self, dim, keepdim)


@rule("argmax", "argmin")
def index_of_extremum(self: TensorInfo, dim: int | None = None, keepdim: bool = False) -> TensorInfo:
    if dim is None:
        refuse_zero(
            self.sizes,
            "argmax(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
            "with the 'dim' argument.",
            IndexError,
        )
    else:
        _require_elements(self, dim, "argmax()")
    return _fresh(self, reduced_sizes(self.sizes, dim, keepdim), torch.int64)


@rule("aminmax")
def both_extrema(self: TensorInfo, *, dim: int | None = None, keepdim: bool = False) -> tuple[TensorInfo, TensorInfo]:
    _require_elements(self, dim, "aminmax()")
    sizes = reduced_sizes(self.sizes, dim, keepdim)
    return _fresh(self, sizes), _fresh(self, sizes)


# --- truth -----------------------------------------------------------------------------------------------


@rule("any", "all", "any.dim", "all.dim", "any.dims", "all.dims")
def truth(self: TensorInfo, dim: Dimensions = None, keepdim: bool = False) -> TensorInfo:
    dtype = torch.uint8 if self.dtype is torch.uint8 else torch.bool
    return _fresh(self, reduced_sizes(self.sizes, dim, keepdim), dtype)


# --- spread ----------------------------------------------------------------------------------------------


def _spread(self: TensorInfo, dim: Dimensions, keepdim: bool) -> TensorInfo:
    if not self.dtype.is_floating_point and not self.dtype.is_complex:
        raise RuntimeError("std and var only support floating point and complex dtypes")
    return _fresh(self, reduced_sizes(self.sizes, dim, keepdim), real_of(self.dtype))


@rule("var", "std")
def spread_of_all(self: TensorInfo, unbiased: bool = True) -> TensorInfo:
    return _spread(self, None, False)


@rule("var.dim", "std.dim")
def spread_over(self: TensorInfo, dim: Dimensions, unbiased: bool = True, keepdim: bool = False) -> TensorInfo:
    return _spread(self, dim, keepdim)


@rule("var.correction", "std.correction")
def spread_with_correction(
    self: TensorInfo, dim: Dimensions = None, *, correction: Any = None, keepdim: bool = False
) -> TensorInfo:
    return _spread(self, dim, keepdim)


def _spread_and_mean(self: TensorInfo, dim: Dimensions, keepdim: bool) -> tuple[TensorInfo, TensorInfo]:
    spread = _spread(self, dim, keepdim)
    return spread, TensorInfo(spread.sizes, spread.strides, self.dtype, self.device)


@rule("var_mean", "std_mean")
def spread_and_mean_of_all(self: TensorInfo, unbiased: bool = True) -> tuple[TensorInfo, TensorInfo]:
    return _spread_and_mean(self, None, False)


@rule("var_mean.dim", "std_mean.dim")
def spread_and_mean_over(
    self: TensorInfo, dim: Dimensions, unbiased: bool = True, keepdim: bool = False
) -> tuple[TensorInfo, TensorInfo]:
    return _spread_and_mean(self, dim, keepdim)


@rule("var_mean.correction", "std_mean.correction")
def spread_and_mean_with_correction(
    self: TensorInfo, dim: Dimensions = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[TensorInfo, TensorInfo]:
    return _spread_and_mean(self, dim, keepdim)


# --- norms -----------------------------------------------------------------------------------------------


def _norm(self: TensorInfo, dim: Dimensions, keepdim: bool, dtype: torch.dtype | None) -> TensorInfo:
    return _fresh(self, reduced_sizes(self.sizes, dim, keepdim), real_of(dtype or self.dtype))


@rule("norm.Scalar")
def norm_of_all(self: TensorInfo, p: Any = 2) -> TensorInfo:
    return _norm(self, None, False, None)


@rule("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype")
def norm_over(
    self: TensorInfo,
    p: Any,
    dim: Dimensions,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> TensorInfo:
    return _norm(self, dim, keepdim, dtype)


@rule("norm.ScalarOpt_dtype")
def norm_of_all_as(self: TensorInfo, p: Any, *, dtype: torch.dtype) -> TensorInfo:
    return _norm(self, None, False, dtype)


@rule("linalg_vector_norm")
def vector_norm(
    self: TensorInfo,
    ord: Any = 2,
    dim: Dimensions = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> TensorInfo:
    return _norm(self, dim, keepdim, dtype)


@rule("dist")
def distance(self: TensorInfo, other: TensorInfo, p: Any = 2) -> TensorInfo:
    broadcast([self.sizes, other.sizes])
    return TensorInfo((), (), real_of(result_type(self, other)), self.device)


# --- running reductions ----------------------------------------------------------------------------------


@rule("cumsum", "cumprod")
def running_sum(self: TensorInfo, dim: int, *, dtype: torch.dtype | None = None) -> TensorInfo:
    wrap_dimension(dim, self.dim)
    return _fresh(self, self.sizes, dtype or _sum_dtype(self.dtype))


@rule("logcumsumexp")
def running_logsumexp(self: TensorInfo, dim: int) -> TensorInfo:
    wrap_dimension(dim, self.dim)
    return self.fresh()


@rule("cummax", "cummin")
def running_extremum(self: TensorInfo, dim: int) -> tuple[TensorInfo, TensorInfo]:
    if not any(map(is_zero, self.sizes)):  # without elements eager mode does not look at the dimension
        wrap_dimension(dim, self.dim)
    return _fresh(self, self.sizes), _fresh(self, self.sizes, torch.int64)
