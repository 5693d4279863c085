"""Matrix products: results are fresh and contiguous."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.fake.info import TensorInfo
from tintype.fake.promotion import result_type
from tintype.fake.rules.elementwise import broadcast, common_device, elementwise
from tintype.fake.rules.registry import rule
from tintype.fake.rules.views import (
    GeneralQuestions,
    require_expandable,
    reshape,
    unsafe_view,
    unsqueeze,
    view_strides,
)
from tintype.symbolic import Size
from tintype.symbolic.sizes import contiguous_strides, decided_one, require_same


def _fresh(sizes: tuple[Size, ...], like: TensorInfo) -> TensorInfo:
    return TensorInfo(sizes, contiguous_strides(sizes), like.dtype, like.device)


def _check_operands(first: TensorInfo, second: TensorInfo, operator: str) -> None:
    if first.dtype is not second.dtype:
        raise RuntimeError(
            f"{operator}: expected both operands to have the same dtype, but got: {first.dtype} != {second.dtype}"
        )
    if first.device != second.device:
        common_device((first, second))


def _require_rank(info: TensorInfo, rank: int, operator: str, name: str) -> None:
    if len(info.sizes) != rank:
        raise RuntimeError(f"{operator}: {name} must be a {rank}D tensor, but it has {info.dim} dimensions")


def _require_expandable(self: TensorInfo, sizes: tuple[Size, ...]) -> None:
    if self.sizes != sizes:
        require_expandable(
            self.sizes,
            sizes,
            lambda: f"The expanded size of the tensor must match {list(sizes)}, but it has sizes {list(self.sizes)}",
        )


def _product_sizes(first: TensorInfo, second: TensorInfo) -> tuple[Size, Size]:
    """The sizes of the product of two matrices."""
    rows, inner = first.sizes[-2:]
    other_inner, columns = second.sizes[-2:]
    if inner is not other_inner:
        require_same(
            inner,
            other_inner,
            lambda: f"mat1 and mat2 shapes cannot be multiplied ({rows}x{inner} and {other_inner}x{columns})",
        )
    return rows, columns


@rule("mm")
def matrix_product(self: TensorInfo, mat2: TensorInfo) -> TensorInfo:
    _require_rank(self, 2, "mm", "self")
    _require_rank(mat2, 2, "mm", "mat2")
    _check_operands(self, mat2, "mm")
    return _fresh(_product_sizes(self, mat2), self)


@rule("addmm")
def add_matrix_product(
    self: TensorInfo, mat1: TensorInfo, mat2: TensorInfo, *, beta: Any = 1, alpha: Any = 1
) -> TensorInfo:
    _require_rank(mat1, 2, "addmm", "mat1")
    _require_rank(mat2, 2, "addmm", "mat2")
    _check_operands(mat1, mat2, "addmm")
    _check_operands(self, mat2, "addmm")
    sizes = _product_sizes(mat1, mat2)
    _require_expandable(self, sizes)
    return _fresh(sizes, mat1)


def _batched_sizes(first: TensorInfo, second: TensorInfo, operator: str) -> tuple[Size, Size, Size]:
    _require_rank(first, 3, operator, "batch1")
    _require_rank(second, 3, operator, "batch2")
    batch, rows, inner = first.sizes
    other_batch, other_inner, columns = second.sizes
    if 0 not in (*first.sizes, *second.sizes):  # of nothing, the kernel does not look at dtypes
        _check_operands(first, second, operator)
    if batch is not other_batch or inner is not other_inner:

        def message() -> str:
            return (
                f"Expected size for first two dimensions of batch2 tensor to be: [{batch}, {inner}] but got: "
                f"[{other_batch}, {other_inner}]."
            )

        require_same(batch, other_batch, message)
        require_same(inner, other_inner, message)
    return batch, rows, columns


@rule("bmm")
def batched_matrix_product(self: TensorInfo, mat2: TensorInfo) -> TensorInfo:
    return _fresh(_batched_sizes(self, mat2, "bmm"), self)


@rule("baddbmm")
def add_batched_matrix_product(
    self: TensorInfo, batch1: TensorInfo, batch2: TensorInfo, *, beta: Any = 1, alpha: Any = 1
) -> TensorInfo:
    sizes = _batched_sizes(batch1, batch2, "baddbmm")
    _check_operands(self, batch2, "baddbmm")
    _require_expandable(self, sizes)
    return _fresh(sizes, batch1)


@rule("addbmm")
def add_summed_matrix_product(
    self: TensorInfo, batch1: TensorInfo, batch2: TensorInfo, *, beta: Any = 1, alpha: Any = 1
) -> TensorInfo:
    _, rows, columns = _batched_sizes(batch1, batch2, "addbmm")
    _check_operands(self, batch2, "addbmm")
    _require_expandable(self, (rows, columns))
    return _fresh((rows, columns), batch1)


@rule("mv")
def matrix_vector_product(self: TensorInfo, vec: TensorInfo) -> TensorInfo:
    _require_rank(self, 2, "mv", "self")
    _require_rank(vec, 1, "mv", "vec")
    _check_operands(self, vec, "mv")
    rows, columns = self.sizes
    require_same(columns, vec.sizes[0], lambda: f"size mismatch, got input ({rows}x{columns}), vec ({vec.sizes[0]})")
    return _fresh((rows,), self)


@rule("addmv")
def add_matrix_vector_product(
    self: TensorInfo, mat: TensorInfo, vec: TensorInfo, *, beta: Any = 1, alpha: Any = 1
) -> TensorInfo:
    result = matrix_vector_product(mat, vec)
    _require_expandable(self, result.sizes)
    return result


@rule("addr")
def add_outer_product(
    self: TensorInfo, vec1: TensorInfo, vec2: TensorInfo, *, beta: Any = 1, alpha: Any = 1
) -> TensorInfo:
    _require_rank(vec1, 1, "addr", "vec1")
    _require_rank(vec2, 1, "addr", "vec2")
    _require_expandable(self, (vec1.sizes[0], vec2.sizes[0]))
    return elementwise((self, unsqueeze(vec1, 1), vec2), result_type(self, vec1, vec2))


@rule("dot")
def inner_product(self: TensorInfo, tensor: TensorInfo) -> TensorInfo:
    result = _inner_product(self, tensor)
    result.conjugate = self.conjugate and tensor.conjugate
    return result


@rule("vdot")
def conjugated_inner_product(self: TensorInfo, other: TensorInfo) -> TensorInfo:
    result = _inner_product(self, other)
    result.conjugate = other.conjugate and not self.conjugate
    return result


def _inner_product(self: TensorInfo, tensor: TensorInfo) -> TensorInfo:
    if self.dim != 1 or tensor.dim != 1:
        raise RuntimeError(f"1D tensors expected, but got {self.dim}D and {tensor.dim}D tensors")
    _check_operands(self, tensor, "dot")
    require_same(
        self.sizes[0],
        tensor.sizes[0],
        lambda: (
            f"inconsistent tensor size, expected tensor [{self.sizes[0]}] and src [{tensor.sizes[0]}] to "
            "have the same number of elements"
        ),
    )
    return _fresh((), self)


@rule("outer", "ger")
def outer_product(self: TensorInfo, vec2: TensorInfo) -> TensorInfo:
    _require_rank(self, 1, "outer", "self")
    _require_rank(vec2, 1, "outer", "vec2")
    sizes = (self.sizes[0], vec2.sizes[0])
    return TensorInfo(sizes, contiguous_strides(sizes), result_type(self, vec2), self.device)


@rule("kron")
def kronecker_product(self: TensorInfo, other: TensorInfo) -> TensorInfo:
    rank = max(self.dim, other.dim)
    first, second = ((1,) * (rank - info.dim) + info.sizes for info in (self, other))
    pairs = list(zip(first, second, strict=True))
    left = reshape(self, [size for one, _ in pairs for size in (one, 1)])
    right = reshape(other, [size for _, one in pairs for size in (1, one)])
    product = elementwise((left, right), result_type(self, other))
    sizes = tuple(one * two for one, two in pairs)
    strides = view_strides(product.sizes, product.strides, sizes, GeneralQuestions)
    if strides is None and all(type(size) is int for size in (*product.sizes, *product.strides)):
        return unsafe_view(product, sizes)  # eager mode fails in this layout, and so does this
    if strides is None:  # sizes and layouts in which the operator is none are refused by it when it runs
        strides = contiguous_strides(sizes)
    return TensorInfo(sizes, strides, product.dtype, product.device)


@rule("cov", "corrcoef")
def covariance(
    self: TensorInfo,
    *,
    correction: int = 1,
    fweights: TensorInfo | None = None,
    aweights: TensorInfo | None = None,
) -> TensorInfo:
    """One number for one variable, whose observations are the whole tensor; a matrix for the rows of several."""
    if self.dim > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {self.dim}")
    if self.dtype is torch.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    weights = [weight for weight in (fweights, aweights) if weight is not None]
    for weight in weights:
        observations = self.sizes[-1] if self.sizes else 1
        require_same(weight.sizes[0] if weight.sizes else 1, observations, "cov(): expected a weight per observation")
    dtype = result_type(self, *weights)
    if not dtype.is_floating_point and not dtype.is_complex:
        dtype = torch.get_default_dtype()
    rows = self.sizes[0] if self.dim == 2 else 1
    sizes = () if decided_one(rows, "cov() returns one number for one row") else (rows, rows)
    return TensorInfo(sizes, contiguous_strides(sizes), dtype, self.device)


@rule("matmul")
def matmul(self: TensorInfo, other: TensorInfo) -> TensorInfo:
    first, second = self.sizes, other.sizes
    if not first or not second:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {self.dim}D and {other.dim}D"
        )
    if len(first) < 2 or len(second) < 3 or 0 not in (*first, *second):  # as in bmm
        _check_operands(self, other, "matmul")
    if len(first) == 1 and len(second) == 1:
        return inner_product(self, other)
    inner = first[-1]
    other_inner = second[-2] if len(second) > 1 else second[0]
    if inner is not other_inner:
        require_same(
            inner,
            other_inner,
            lambda: f"mat1 and mat2 shapes cannot be multiplied ({list(first)} and {list(second)})",
        )
    batch, other_batch = first[:-2], second[:-2]
    sizes = batch if batch == other_batch else broadcast([batch, other_batch])
    if len(first) > 1:
        sizes = (*sizes, first[-2])
    if len(second) > 1:
        sizes = (*sizes, second[-1])
    return _fresh(sizes, self)


@rule("linear")
def linear(input: TensorInfo, weight: TensorInfo, bias: TensorInfo | None = None) -> TensorInfo:
    sizes, weight_sizes = input.sizes, weight.sizes
    if not sizes or len(weight_sizes) not in (1, 2):
        raise RuntimeError(
            f"linear(): input must be at least 1D and weight 1D or 2D, but they are {input.dim}D and {weight.dim}D"
        )
    features = sizes[-1]
    if features is not weight_sizes[-1]:
        require_same(
            features,
            weight_sizes[-1],
            lambda: (
                f"mat1 and mat2 shapes cannot be multiplied ({_rows(sizes)}x{features} and "
                f"{weight_sizes[-1]}x{weight_sizes[0]})"
            ),
        )
    if input.dtype is not weight.dtype:
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {input.dtype} and {weight.dtype}")
    if input.device != weight.device:
        common_device((input, weight))
    result_sizes = (*sizes[:-1], weight_sizes[0]) if len(weight_sizes) == 2 else sizes[:-1]
    if bias is not None and (not result_sizes or bias.sizes != result_sizes[-1:]):
        _require_expandable(bias, result_sizes)
    return TensorInfo(result_sizes, contiguous_strides(result_sizes), input.dtype, input.device)


def _rows(sizes: Sequence[Size]) -> Size:
    rows: Size = 1
    for size in sizes[:-1]:
        rows = rows * size
    return rows


@rule("linalg_multi_dot", "chain_matmul")
def chained_product(tensors: Sequence[TensorInfo]) -> TensorInfo:
    if len(tensors) < 2:
        raise NotImplementedError("a single factor is returned as it is")
    result = tensors[0]
    for factor in tensors[1:]:
        result = matmul(result, factor)
    return result
