"""Spectra: singular values, eigenvalues, Fourier transforms. Their results lie in memory as the kernels leave them.

Their layouts are the processor's; on other devices torch's meta kernels describe the results.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tintype.errors import UnsupportedOperatorError
from tintype.fake.info import TensorInfo, fresh, memory_order, preserved_strides, strides_in_order
from tintype.fake.rules.elementwise import broadcast
from tintype.fake.rules.registry import rule
from tintype.fake.rules.views import wrap_dimension
from tintype.symbolic import Size, ge, minimum
from tintype.symbolic.location import user_location
from tintype.symbolic.sizes import contiguous_strides, require, require_same

_COMPLEX = {torch.float16: torch.complex32, torch.float32: torch.complex64, torch.float64: torch.complex128}
_REAL = {complex_dtype: dtype for dtype, complex_dtype in _COMPLEX.items()}


def _require_processor(self: TensorInfo) -> None:
    if self.device.type != "cpu":
        raise NotImplementedError


def _by_columns(sizes: Sequence[Size], dtype: torch.dtype, device: torch.device) -> TensorInfo:
    """New matrices whose columns are contiguous."""
    *batch, rows, columns = sizes
    strides = list(contiguous_strides((*batch, columns, rows)))
    strides[-2:] = [strides[-1], strides[-2]]
    return fresh(sizes, dtype, device, strides)


@rule("_linalg_svd")
def singular_values(
    A: TensorInfo, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[TensorInfo, TensorInfo, TensorInfo]:
    _require_processor(A)
    if A.dim < 2:
        raise RuntimeError(f"linalg.svd: The input tensor must have at least 2 dimensions, but it has {A.dim}")
    *batch, rows, columns = A.sizes
    rank = minimum(rows, columns)
    values = fresh((*batch, rank), _REAL.get(A.dtype, A.dtype), A.device)
    if not compute_uv:
        return A.fresh((0,)), values, A.fresh((0,))
    left = _by_columns((*batch, rows, rows if full_matrices else rank), A.dtype, A.device)
    right = _by_columns((*batch, columns if full_matrices else rank, columns), A.dtype, A.device)
    return left, values, right


@rule("linalg_eig")
def eigenvalues(self: TensorInfo) -> tuple[TensorInfo, TensorInfo]:
    _require_processor(self)
    if self.dim < 2:
        raise RuntimeError(f"linalg.eig: The input tensor A must have at least 2 dimensions, but it has {self.dim}")
    rows, columns = self.sizes[-2:]
    require_same(
        rows, columns, lambda: f"linalg.eig: A must be batches of square matrices, but is {rows} by {columns}"
    )
    dtype = _COMPLEX.get(self.dtype, self.dtype)
    return fresh(self.sizes[:-1], dtype, self.device), _by_columns(self.sizes, dtype, self.device)


# --- Fourier transforms ----------------------------------------------------------------------------------


@rule("_fft_c2c")
def complex_transform(self: TensorInfo, dim: Sequence[int], normalization: int, forward: bool) -> TensorInfo:
    _require_processor(self)
    if not self.dtype.is_complex:
        raise RuntimeError(f"_fft_c2c expects a complex tensor, but got {self.dtype}")
    if not dim:
        return fresh(self.sizes, self.dtype, self.device, preserved_strides(self.sizes, self.strides))
    return _transformed(self, self.sizes, self.dtype, _outermost_first(self, dim))


@rule("_fft_r2c")
def transform_of_reals(self: TensorInfo, dim: Sequence[int], normalization: int, onesided: bool) -> TensorInfo:
    _require_processor(self)
    if self.dtype not in _COMPLEX:
        raise RuntimeError(f"_fft_r2c expects a tensor of floating-point numbers, but got {self.dtype}")
    sizes = list(self.sizes)
    last = wrap_dimension(dim[-1], self.dim)
    if onesided:
        sizes[last] = sizes[last] // 2 + 1
    return _transformed(self, sizes, _COMPLEX[self.dtype], [*_outermost_first(self, dim[:-1]), last])


@rule("_fft_c2r")
def transform_to_reals(self: TensorInfo, dim: Sequence[int], normalization: int, last_dim_size: Size) -> TensorInfo:
    """Done as a transform of all dimensions but the last, then of that one."""
    _require_processor(self)
    if self.dtype not in _REAL:
        raise RuntimeError(f"_fft_c2r expects a complex tensor, but got {self.dtype}")
    *others, last = dim
    before = complex_transform(self, others, 0, False) if others else self
    last = wrap_dimension(last, self.dim)
    sizes = list(self.sizes)
    sizes[last] = last_dim_size
    return _transformed(before, sizes, _REAL[self.dtype], [last])


def _transformed(
    self: TensorInfo, sizes: Sequence[Size], dtype: torch.dtype, dimensions: Sequence[int]
) -> TensorInfo:
    """A result in which the transformed dimensions lie innermost, in the given order."""
    others = [dimension for dimension in range(self.dim) if dimension not in dimensions]
    order = [*_outermost_first(self, others), *dimensions]
    return fresh(sizes, dtype, self.device, strides_in_order(sizes, order))


def _outermost_first(self: TensorInfo, dimensions: Sequence[int]) -> list[int]:
    chosen = [wrap_dimension(dimension, self.dim) for dimension in dimensions]
    strides = [stride for stride in self.strides if isinstance(stride, int)]
    if len(strides) == self.dim:
        return sorted(chosen, key=strides.__getitem__, reverse=True)
    return [dimension for dimension in memory_order(self.sizes, [self.strides]) if dimension in chosen]


@rule("geqrf")
def reflections(self: TensorInfo) -> tuple[TensorInfo, TensorInfo]:
    """A decomposition into reflections, as LAPACK leaves it."""
    _require_processor(self)
    if self.dim < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    *batch, rows, columns = self.sizes
    return _by_columns(self.sizes, self.dtype, self.device), self.fresh((*batch, minimum(rows, columns)))


@rule("linalg_lstsq")
def least_squares(
    self: TensorInfo, b: TensorInfo, rcond: float | None = None, *, driver: str | None = None
) -> tuple[TensorInfo, TensorInfo, TensorInfo, TensorInfo]:
    """As far as the sizes of the results do not depend on the rank of a matrix."""
    _require_processor(self)
    fixed = all(type(size) is int for size in (*self.sizes, *b.sizes))
    if not fixed or self.dim < 2:
        raise NotImplementedError
    *batch, rows, columns = self.sizes
    by_rank = driver in ("gelsd", "gelss")
    if by_rank and rows > columns:  # type: ignore[operator]
        raise UnsupportedOperatorError(
            f"linalg.lstsq by {driver!r} has residuals only where the matrix has full rank, which is only known when "
            "the program runs",
            location=user_location(),
            remedy="use another driver: torch.linalg.lstsq(a, b, driver='gelsy')",
        )
    is_vector = b.dim == 1 or (b.dim == self.dim - 1 and b.sizes == self.sizes[:-1])
    if is_vector and (driver == "gels" or b.dim != self.dim - 1):
        raise NotImplementedError
    *others, given, count = (*b.sizes, 1) if is_vector else b.sizes
    if given != rows:
        raise RuntimeError("torch.linalg.lstsq: input.size(-2) should match other.size(-2)")
    common = broadcast([tuple(batch), tuple(others)])
    whole = _by_columns((*common, max(rows, columns), count), self.dtype, self.device)  # type: ignore[type-var]
    sizes, strides = (*common, columns, count), whole.strides
    solution = (
        fresh(sizes[:-1], self.dtype, self.device, strides[:-1])
        if is_vector
        else (fresh(sizes, self.dtype, self.device, strides))
    )
    real = _REAL.get(self.dtype, self.dtype)
    overdetermined = driver == "gels" and rows > columns  # type: ignore[operator]
    residuals = fresh((*common, count) if overdetermined else (0,), real, self.device)
    rank = fresh((0,) if driver == "gels" else tuple(batch), torch.int64, self.device)
    values = (*batch, min(rows, columns)) if by_rank else (0,)  # type: ignore[type-var]
    return solution, residuals, rank, fresh(values, real, self.device)


@rule("istft")
def inverse_short_time_transform(
    self: TensorInfo,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: TensorInfo | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Size | None = None,
    return_complex: bool = False,
) -> TensorInfo:
    if self.dtype not in _REAL or self.dim not in (2, 3):
        raise RuntimeError(f"istft: expected a complex tensor with 2 or 3 dimensions, but got {list(self.sizes)}")
    bins = self.sizes[-2]
    one_side = bool(onesided) if onesided is not None else not (type(bins) is int and bins == n_fft)
    expected = n_fft // 2 + 1 if one_side else n_fft
    require_same(bins, expected, lambda: f"istft: expected {expected} frequencies for n_fft={n_fft}, but got {bins}")
    width = n_fft if win_length is None else win_length
    hop = n_fft // 4 if hop_length is None else hop_length
    if not 0 < hop <= width <= n_fft:
        raise RuntimeError(f"istft: expected 0 < hop_length <= win_length <= n_fft, but got {hop}, {width}, {n_fft}")
    if window is not None and (window.dim != 1 or window.sizes[0] != width):
        raise RuntimeError(f"istft: expected a window of {width} elements, but got {list(window.sizes)}")
    if length is None:
        length = hop * (self.sizes[-1] - 1) + (n_fft % 2 if center else n_fft)
    require(ge(length, 1), "istft: expected a length of at least 1")
    return fresh((*self.sizes[:-2], length), self.dtype if return_complex else _REAL[self.dtype], self.device)
