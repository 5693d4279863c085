"""Reductions, running sums and products, and what sorting gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.elementwise import is_float
from tintype.onnx.lowerings.extremes import ordered
from tintype.onnx.registry import lowering
from tintype.onnx.subgraphs import scanned

aten = torch.ops.aten
_INT64, _BOOL = ir.DataType.INT64, ir.DataType.BOOL


def _axes(tensor: Any, dimensions: Any) -> list[int]:
    rank = len(tensor.shape)
    if dimensions is None or dimensions == []:
        return list(range(rank))
    if isinstance(dimensions, int):
        dimensions = [dimensions]
    return [each % rank for each in dimensions] if rank else []


def _count(op: Builder, tensor: Any, axes: Sequence[int]) -> Any:
    """The number of elements along axes."""
    number: Any = 1
    for axis in axes:
        size = op.size(tensor, axis)
        number = (
            number * size
            if isinstance(number, int) and isinstance(size, int)
            else op.Mul(op.cast(number, _INT64), op.cast(size, _INT64))
        )
    return number


def mean_along(op: Builder, tensor: Any, axes: Sequence[int], keepdim: bool) -> Any:
    """The mean along axes, if there are any."""
    return op.ReduceMean(tensor, list(axes), keepdims=int(keepdim)) if axes else tensor


@lowering(aten.mean.default)
def mean(op: Builder, tensor: Any, *, dtype: Any = None) -> Any:
    return mean_along(op, tensor, _axes(tensor, None), False)


@lowering(aten.mean.dim)
def mean_dim(op: Builder, tensor: Any, dimensions: Any, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return mean_along(op, tensor, _axes(tensor, dimensions), keepdim)


def _variance(op: Builder, tensor: Any, axes: list[int], correction: Any, keepdim: bool) -> tuple[Any, Any]:
    """The variance and the mean."""
    wide = tensor
    if tensor.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        wide = op.Cast(tensor, to=ir.DataType.FLOAT)
    average = mean_along(op, wide, axes, True)
    distance = op.Sub(wide, average)
    total = (
        op.ReduceSum(op.Mul(distance, distance), axes, keepdims=int(keepdim)) if axes else op.Mul(distance, distance)
    )
    number = _count(op, tensor, axes)
    correction = 1.0 if correction is None else correction
    if isinstance(number, int) and not isinstance(correction, ir.Value):
        divisor = op.constant(max(float(number) - correction, 0.0), wide.dtype)
    else:
        divisor = op.Max(
            op.Sub(op.cast(number, wide.dtype), op.cast(correction, wide.dtype)), op.constant(0.0, wide.dtype)
        )
    plain = average if keepdim or not axes else op.Squeeze(average, axes)
    return op.cast(op.Div(total, divisor), tensor.dtype), op.cast(plain, tensor.dtype)


def _unbiased(flag: bool) -> float:
    return 1.0 if flag else 0.0


def _register_variances() -> None:
    def forms(name: str, finish: Any) -> None:
        packet = getattr(aten, name)

        @lowering(packet.correction)
        def correction_form(
            op: Builder, tensor: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
        ) -> Any:
            return finish(op, *_variance(op, tensor, _axes(tensor, dim), correction, keepdim))

        @lowering(packet.dim)
        def dim_form(op: Builder, tensor: Any, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Any:
            return finish(op, *_variance(op, tensor, _axes(tensor, dim), _unbiased(unbiased), keepdim))

        @lowering(packet.default)
        def plain_form(op: Builder, tensor: Any, unbiased: bool = True) -> Any:
            return finish(op, *_variance(op, tensor, _axes(tensor, None), _unbiased(unbiased), False))

    forms("var", lambda op, variance, average: variance)
    forms("std", lambda op, variance, average: op.Sqrt(variance))
    forms("var_mean", lambda op, variance, average: (variance, average))
    forms("std_mean", lambda op, variance, average: (op.Sqrt(variance), average))


_register_variances()


def _some(op: Builder, tensor: Any, dimensions: Any, keepdim: bool) -> Any:
    """Whether an element along dimensions is true. A sum, since ONNX Runtime's largest of no elements is a number."""
    axes = _axes(tensor, dimensions)
    truths = op.cast(tensor, _BOOL)
    return op.cast(op.ReduceSum(op.cast(truths, _INT64), axes, keepdims=int(keepdim)), _BOOL) if axes else truths


def _register_truths() -> None:
    def forms(name: str, find: Any) -> None:
        packet = getattr(aten, name)

        def found(op: Builder, tensor: Any, dimensions: Any, keepdim: bool) -> Any:
            result = find(op, tensor, dimensions, keepdim)
            return op.cast(result, tensor.dtype) if tensor.dtype is ir.DataType.UINT8 else result  # as torch has it

        @lowering(packet.default)
        def of_all(op: Builder, tensor: Any) -> Any:
            return found(op, tensor, None, False)

        @lowering(packet.dim, packet.dims)
        def along(op: Builder, tensor: Any, dim: Any = None, keepdim: bool = False) -> Any:
            return found(op, tensor, dim, keepdim)

    def every(op: Builder, tensor: Any, dimensions: Any, keepdim: bool) -> Any:
        return op.Not(_some(op, op.Not(op.cast(tensor, _BOOL)), dimensions, keepdim))

    forms("any", _some)
    forms("all", every)


_register_truths()


def _extreme(target: Any, name: str) -> None:
    @lowering(target)
    def lower(op: Builder, tensor: Any, dim: Any = (), keepdim: bool = False) -> Any:
        axes = _axes(tensor, list(dim) if not isinstance(dim, int) else dim)
        if not axes:
            return tensor
        result = getattr(op, f"Reduce{name}")(
            op.cast(tensor, ir.DataType.INT32) if tensor.dtype is _BOOL else tensor, axes, keepdims=int(keepdim)
        )
        if is_float(tensor):  # nan is larger and smaller than everything
            unknown = op.ReduceMax(op.cast(op.IsNaN(tensor), ir.DataType.INT32), axes, keepdims=int(keepdim))
            result = op.Where(op.cast(unknown, _BOOL), op.constant(math.nan, tensor.dtype), result)
        return op.cast(result, tensor.dtype)


_extreme(aten.amax.default, "Max")
_extreme(aten.amin.default, "Min")


@lowering(aten.aminmax.default)
def aminmax(op: Builder, tensor: Any, *, dim: int | None = None, keepdim: bool = False) -> Any:
    from tintype.onnx.registry import own_lowering

    dims = [] if dim is None else [dim]
    smallest = own_lowering(aten.amin.default, op.opset)
    largest = own_lowering(aten.amax.default, op.opset)
    assert smallest is not None and largest is not None
    return smallest(op, tensor, dims, keepdim), largest(op, tensor, dims, keepdim)


# --- along an axis, step by step --------------------------------------------------------------------


def _start(op: Builder, tensor: Any, axis: int, value: float | int | bool, dtype: Any = None) -> Any:
    """A slice across an axis filled with one number."""
    sizes = [op.size(tensor, each) for each in range(len(tensor.shape)) if each != axis]
    return op.Expand(op.constant(value, dtype or tensor.dtype), op.vector(sizes))


def _running(op: Builder, step: Any, state: Sequence[Any], rows: Sequence[Any], axis: int) -> list[Any]:
    """What a loop along an axis stacks up; also where there is nothing along it, which ONNX Runtime does not take."""
    size = op.size(rows[0], axis)
    if isinstance(size, int) and size > 0:
        return scanned(op, step, state, rows, axis)[len(state) :]
    longer = [op.Concat(each, _another_row(op, each, axis), axis=axis) for each in rows]
    for each in longer:
        each.shape = ir.Shape([None] * len(rows[0].shape))
    stacked = scanned(op, step, state, longer, axis)[len(state) :]
    return [op.Slice(each, [0], [-1], [axis]) for each in stacked]


def _another_row(op: Builder, tensor: Any, axis: int) -> Any:
    sizes = [1 if each == axis else op.size(tensor, each) for each in range(len(tensor.shape))]
    return op.Expand(op.constant(0, tensor.dtype), op.vector(sizes))


@lowering(aten.cumprod.default)
def cumprod(op: Builder, tensor: Any, dim: int, *, dtype: Any = None) -> Any:
    if len(tensor.shape) == 0:
        return tensor
    axis = dim % len(tensor.shape)

    def step(inner: Builder, state: Any, row: Any) -> Any:
        product = inner.Mul(state, row)
        return product, product

    return _running(op, step, [_start(op, tensor, axis, 1)], [tensor], axis)[0]


@lowering(aten.logcumsumexp.default)
def logcumsumexp(op: Builder, tensor: Any, dim: int) -> Any:
    from tintype.onnx.lowerings.elementwise import _log_sum

    if len(tensor.shape) == 0:
        return tensor
    axis = dim % len(tensor.shape)

    def step(inner: Builder, state: Any, row: Any) -> Any:
        total = _log_sum(inner, state, row)
        return total, total

    return _running(op, step, [_start(op, tensor, axis, -math.inf)], [tensor], axis)[0]


def _running_extreme(target: Any, comparison: str, bound: float) -> None:
    @lowering(target)
    def lower(op: Builder, tensor: Any, dim: int) -> Any:
        if len(tensor.shape) == 0:
            return tensor, op.constant(0, _INT64)
        axis = dim % len(tensor.shape)
        dtype = tensor.dtype
        if dtype is _BOOL:
            tensor = op.cast(tensor, ir.DataType.INT32)
        size = op.size(tensor, axis)
        numbers = op.Range(0, op.cast(size, _INT64), 1)
        shape = [1] * len(tensor.shape)
        shape[axis] = -1
        places = op.Expand(op.Reshape(numbers, shape), op.Shape(tensor))
        places.shape = tensor.shape
        some = op.Concat(tensor, _another_row(op, tensor, axis), axis=axis)  # there may be nothing
        first = op.Squeeze(op.Slice(some, [0], [1], [axis]), [axis])
        zero = _start(op, tensor, axis, 0, _INT64)

        def step(inner: Builder, best: Any, place: Any, row: Any, number: Any) -> Any:
            is_new = getattr(inner, comparison)(row, best)
            if is_float(tensor):
                is_new = inner.Or(is_new, inner.IsNaN(row))
                is_new = inner.And(is_new, inner.Or(inner.Not(inner.IsNaN(best)), inner.IsNaN(row)))
            best = inner.Where(is_new, row, best)
            place = inner.Where(is_new, number, place)
            return best, place, best, place

        values, found = _running(op, step, [first, zero], [tensor, places], axis)
        return op.cast(values, dtype), found


_running_extreme(aten.cummax.default, "GreaterOrEqual", -math.inf)
_running_extreme(aten.cummin.default, "LessOrEqual", math.inf)


# --- sorting ------------------------------------------------------------------------------------------


def _sorted(op: Builder, tensor: Any, dim: int, descending: bool, count: Any = None) -> tuple[Any, Any]:
    """Values and places in order; equal ones stay in theirs."""
    rank = len(tensor.shape)
    if rank == 0:
        return tensor, op.constant(0, _INT64)
    axis = dim % rank
    return ordered(op, tensor, axis, op.as_vector(op.size(tensor, axis) if count is None else count), descending)


@lowering(aten.sort.default)
def sort(op: Builder, tensor: Any, dim: int = -1, descending: bool = False) -> Any:
    return _sorted(op, tensor, dim, descending)


@lowering(aten.sort.stable)
def sort_stable(op: Builder, tensor: Any, *, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return _sorted(op, tensor, dim, descending)


@lowering(aten.argsort.default)
def argsort(op: Builder, tensor: Any, dim: int = -1, descending: bool = False) -> Any:
    return _sorted(op, tensor, dim, descending)[1]


@lowering(aten.argsort.stable)
def argsort_stable(op: Builder, tensor: Any, *, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return _sorted(op, tensor, dim, descending)[1]


@lowering(aten.msort.default)
def msort(op: Builder, tensor: Any) -> Any:
    return _sorted(op, tensor, 0, False)[0]


@lowering(aten.kthvalue.default)
def kthvalue(op: Builder, tensor: Any, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    rank = len(tensor.shape)
    if rank == 0:
        return tensor, op.constant(0, _INT64)
    if isinstance(k, ir.Value):
        raise LoweringError("the place in the order varies")
    values, places = _sorted(op, tensor, dim, False, k)
    axis = dim % rank
    return tuple(_last(op, each, axis, k - 1, keepdim) for each in (values, places))


def _last(op: Builder, tensor: Any, axis: int, place: int, keepdim: bool) -> Any:
    return op.Gather(tensor, op.constant([place] if keepdim else place, _INT64), axis=axis)


@lowering(aten.masked_select.default)
def masked_select(op: Builder, tensor: Any, mask: Any) -> Any:
    shape = op.Shape(op.And(mask, op.Expand(op.constant(True), op.Shape(tensor))))
    values = op.Reshape(op.Expand(tensor, shape), [-1])
    chosen = op.Reshape(op.cast(op.Expand(op.cast(mask, ir.DataType.INT32), shape), _BOOL), [-1])
    return op.Compress(values, chosen, axis=0)


@lowering(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(
    op: Builder,
    edges: Any,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
) -> Any:
    """How many of the edges are before each value; a value and an edge that are equal are told apart by the side."""
    edge_rank = len(edges.shape)
    if sorter is not None:
        edges = op.GatherElements(edges, op.cast(sorter, _INT64), axis=-1)
    is_right = right or side == "right"
    number = not isinstance(values, ir.Value)
    values = op.like(values, edges) if number or values.dtype is not edges.dtype else values
    rank = 0 if number else len(values.shape)
    wide = op.Unsqueeze(values, [rank])
    if edge_rank > 1:
        edges = op.Unsqueeze(edges, [edge_rank - 1])
    # what is not behind it: all of them are before nan
    behind = op.Greater(edges, wide) if is_right else op.GreaterOrEqual(edges, wide)
    before = op.cast(op.Not(behind), _INT64)
    found = op.ReduceSum(before, [rank], keepdims=0)
    return op.cast(found, ir.DataType.INT32) if out_int32 else found


@lowering(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(op: Builder, values: Any, edges: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    return searchsorted(op, edges, values, out_int32=out_int32, right=right)


@lowering(aten.isin.Tensor_Tensor)
def isin(op: Builder, elements: Any, others: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    rank = len(elements.shape)
    same = op.Equal(op.Unsqueeze(elements, [rank]), op.like(op.Reshape(others, [-1]), elements))
    found = op.cast(op.ReduceSum(op.cast(same, ir.DataType.INT32), [rank], keepdims=0), _BOOL)
    return op.Not(found) if invert else found


@lowering(aten._cdist_forward.default, aten.cdist.default)
def cdist(op: Builder, left: Any, right: Any, p: float = 2.0, mode: Any = None) -> Any:
    distance = op.Abs(op.Sub(op.Unsqueeze(left, [-2]), op.Unsqueeze(right, [-3])))
    last = max(len(left.shape), len(right.shape))
    if p == 0:
        unequal = op.Not(op.Equal(distance, op.constant(0, left.dtype)))
        return op.ReduceSum(op.cast(unequal, left.dtype), [last], keepdims=0)
    if p == 1:
        return op.ReduceSum(distance, [last], keepdims=0)
    if p == 2:
        return op.Sqrt(op.ReduceSum(op.Mul(distance, distance), [last], keepdims=0))
    if math.isinf(p):
        return op.ReduceMax(distance, [last], keepdims=0)
    powers = op.ReduceSum(op.Pow(distance, op.constant(p, left.dtype)), [last], keepdims=0)
    return op.Pow(powers, op.constant(1 / p, left.dtype))


@lowering(aten._pdist_forward.default)
def pdist(op: Builder, tensor: Any, p: float = 2.0) -> Any:
    """The distances above the diagonal, row by row."""
    size = op.size(tensor, 0)
    if not isinstance(size, int):
        raise LoweringError("of as many points as the input has, if that varies, it has no form")
    first, second = np.triu_indices(size, 1)
    left, right = (op.Gather(tensor, op.constant(each, _INT64), axis=0) for each in (first, second))
    # one pair of points after the other
    pairs = [op.Unsqueeze(each, [1]) for each in (left, right)]
    for each in pairs:
        each.shape = ir.Shape([len(first), 1, None])
    return op.Reshape(cdist(op, *pairs, p), [-1])


@lowering(aten.linalg_vector_norm.default)
def linalg_vector_norm(
    op: Builder, tensor: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    if isinstance(order, ir.Value):
        raise LoweringError("which norm it is varies")
    axes = _axes(tensor, dim)
    size = op.Abs(tensor)
    if not axes:  # one number, whatever the order; how many are not 0 for the order 0
        one = op.constant(1, tensor.dtype)
        return size if order != 0 else op.Where(op.Equal(size, op.constant(0, size.dtype)), size, one)
    if order == 0:
        counted = op.cast(op.Not(op.Equal(size, op.constant(0, size.dtype))), tensor.dtype)
        return op.ReduceSum(counted, axes, keepdims=int(keepdim))
    if math.isinf(order):
        return op.emit("ReduceMax" if order > 0 else "ReduceMin", size, axes, keepdims=int(keepdim))
    if order in (1, 2):
        return op.emit(f"ReduceL{int(order)}", tensor, axes, keepdims=int(keepdim))
    powers = op.Pow(size, op.constant(float(order), size.dtype))
    return op.Pow(op.ReduceSum(powers, axes, keepdims=int(keepdim)), op.constant(1 / order, size.dtype))
