"""Elements that are gathered at places and reduced there: scattering with all reductions, segments, counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.elementwise import is_float
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT32, _INT64, _BOOL = ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL
_NAMES = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min", "mean": "add"}


def _neutral(reduction: str, dtype: ir.DataType) -> Any:
    """What changes nothing when it is reduced with something else."""
    if reduction in ("sum", "mean", "add"):
        return 0
    if reduction in ("prod", "multiply"):
        return 1
    if dtype.is_floating_point():
        return -math.inf if reduction == "amax" else math.inf
    limits = np.iinfo(dtype.numpy())
    return limits.min if reduction == "amax" else limits.max


def reduced_at(
    op: Builder, tensor: Any, axis: int, index: Any, source: Any, reduction: str, include_self: bool
) -> Any:
    """Elements of ``source`` reduced into the places of ``index``, with or without what stands there."""
    dtype = tensor.dtype
    if dtype is _BOOL:
        tensor, source = op.cast(tensor, _INT32), op.cast(source, _INT32)
    source = op.like(source, tensor)
    zeros = op.Expand(op.constant(0, tensor.dtype), op.Shape(tensor))
    ones = op.Expand(op.constant(1, tensor.dtype), op.Shape(index))
    base = tensor
    count = op.ScatterElements(zeros, index, ones, axis=axis, reduction="add")
    if not include_self:
        touched = op.Greater(count, op.constant(0, tensor.dtype))
        base = op.Where(touched, op.constant(_neutral(reduction, tensor.dtype), tensor.dtype), tensor)
    result = op.ScatterElements(base, index, source, axis=axis, reduction=_NAMES[reduction])
    if reduction == "mean":
        number = op.Add(count, op.constant(1, tensor.dtype)) if include_self else count
        number = op.Max(number, op.constant(1, tensor.dtype))
        result = op.Div(result, number) if is_float(tensor) else _floor_quotient(op, result, number)
    if is_float(tensor) and reduction in ("amax", "amin"):
        result = _with_unknown(op, result, base, axis, index, source)
    if dtype is _BOOL and reduction in ("sum", "add", "mean"):
        result = op.Greater(result, op.constant(0, _INT32))
    return op.cast(result, dtype)


def _with_unknown(op: Builder, result: Any, base: Any, axis: int, index: Any, source: Any) -> Any:
    """nan wherever one was reduced: it is larger and smaller than everything."""
    marks = op.ScatterElements(
        op.cast(op.IsNaN(base), _INT32), index, op.cast(op.IsNaN(source), _INT32), axis=axis, reduction="add"
    )
    return op.Where(op.cast(marks, _BOOL), op.constant(math.nan, result.dtype), result)


def _floor_quotient(op: Builder, total: Any, number: Any) -> Any:
    """Division that rounds down; ONNX's rounds to 0."""
    rest = op.Mod(total, number)  # has the sign of the divisor, which is above 0
    return op.Div(op.Sub(total, rest), number)


@lowering(aten.scatter_reduce.two)
def scatter_reduce(
    op: Builder, tensor: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    if any(isinstance(size, int) and size == 0 for size in index.shape):
        return tensor
    rank = len(tensor.shape)
    flat = tensor if rank else op.Reshape(tensor, [1])
    places = op.cast(index if len(index.shape) else op.Reshape(index, [1]), _INT64)
    values = source if len(source.shape) else op.Reshape(source, [1])
    if list(source.shape) != list(index.shape):
        axes = list(range(len(index.shape)))
        values = op.Slice(values, op.constant([0] * len(axes), _INT64), op.Shape(index), axes)
    result = reduced_at(op, flat, dim % max(rank, 1), places, values, reduce, include_self)
    return result if rank else op.Reshape(result, op.constant([], _INT64))


@lowering(aten.index_reduce.default)
def index_reduce(
    op: Builder, tensor: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    rank = len(tensor.shape)
    flat, values = (tensor, source) if rank else (op.Reshape(tensor, [1]), op.Reshape(source, [-1]))
    axis = dim % max(rank, 1)
    shape = [1] * max(rank, 1)
    shape[axis] = -1
    places = op.Expand(op.Reshape(op.cast(index, _INT64), shape), op.Shape(values))
    result = reduced_at(op, flat, axis, places, values, reduce, include_self)
    return result if rank else op.Reshape(result, op.constant([], _INT64))


@lowering(aten.bincount.default)
def bincount(op: Builder, tensor: Any, weights: Any = None, minlength: Any = 0) -> Any:
    places = op.cast(tensor, _INT64)
    # the largest number, or none at all
    largest = op.ReduceMax(op.Concat(places, op.constant([-1], _INT64), axis=0), keepdims=1)
    count = op.Max(op.Add(largest, 1), op.as_vector(minlength))
    if weights is None:
        weights = op.Expand(op.constant(1, _INT64), op.Shape(places))
    elif weights.dtype is not ir.DataType.FLOAT:
        weights = op.cast(weights, ir.DataType.DOUBLE)
    room = op.Expand(op.constant(0, weights.dtype), count)
    return op.ScatterElements(room, places, weights, axis=0, reduction="add")


@lowering(aten.segment_reduce.default)
def segment_reduce(
    op: Builder,
    tensor: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    """Rows by segments: each segment chooses its own, and what it does not choose changes nothing."""
    given = lengths if lengths is not None else offsets
    if given is None or axis != len(given.shape) - 1:
        raise LoweringError("of segments by indices, or not along the last of their own dimensions, it has no form")
    given = op.cast(given, _INT64)
    if offsets is None:
        ends = op.CumSum(given, op.constant(axis, _INT64))
        starts = op.Sub(ends, given)
    else:
        starts, ends = op.Slice(given, [0], [-1], [axis]), op.Slice(given, [1], [9223372036854775807], [axis])
    rank = len(tensor.shape)
    behind = list(range(axis + 2, rank + 1))  # dimensions of a row
    name = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    places = op.Range(op.constant(0, _INT64), op.cast(op.size(tensor, axis), _INT64), 1)
    begun, ended = (op.Unsqueeze(each, [axis + 1]) for each in (starts, ends))
    inside = op.And(op.LessOrEqual(begun, places), op.Less(places, ended))
    chosen = op.Unsqueeze(inside, behind) if behind else inside
    start = op.constant(_neutral(name, tensor.dtype), tensor.dtype)
    rows = op.Where(chosen, op.Unsqueeze(tensor, [axis]), start)
    operation = {"sum": "Sum", "mean": "Sum", "prod": "Prod", "amax": "Max", "amin": "Min"}[name]
    result = op.emit(f"Reduce{operation}", rows, [axis + 1], keepdims=0)
    if initial is not None:
        combine = {"Sum": "Add", "Prod": "Mul", "Max": "Max", "Min": "Min"}[operation]
        result = op.emit(combine, result, op.constant(initial, tensor.dtype))
    if name == "mean":
        count = op.cast(op.Sub(ends, starts), tensor.dtype)
        # a mean of nothing is nan, unless there is something to begin with
        nothing = op.constant(math.nan if initial is None else 1.0, tensor.dtype)
        count = op.Where(op.Equal(count, op.constant(0, tensor.dtype)), nothing, count)
        result = op.Div(result, op.Unsqueeze(count, [each - 1 for each in behind]) if behind else count)
    return result


@lowering(aten.diagonal_scatter.default)
def diagonal_scatter(op: Builder, tensor: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal's elements are added to zeros, as a matrix, and chosen by where the diagonal lies."""
    rank = len(tensor.shape)
    first, second = dim1 % rank, dim2 % rank
    others = [each for each in range(rank) if each not in (first, second)]
    order = [*others, first, second]
    moved = op.Transpose(tensor, perm=order)
    rows, columns = op.size(tensor, first), op.size(tensor, second)
    down = op.Unsqueeze(op.Range(op.constant(0, _INT64), op.cast(rows, _INT64), 1), [1])
    across = op.Unsqueeze(op.Range(op.constant(0, _INT64), op.cast(columns, _INT64), 1), [0])
    on_it = op.Equal(op.Add(down, op.constant(offset, _INT64)), across)
    # the place on the diagonal is the smaller of the two numbers that are counted from its beginning
    place = op.Min(
        op.Add(down, op.constant(min(offset, 0), _INT64)), op.Sub(across, op.constant(max(offset, 0), _INT64))
    )
    length = op.size(source, -1)
    last = op.Sub(op.cast(length, _INT64), 1)
    place = op.Min(op.Max(place, op.constant(0, _INT64)), last)
    spread = op.Gather(op.like(source, tensor), place, axis=len(source.shape) - 1)
    back = [order.index(each) for each in range(rank)]
    return op.Transpose(op.Where(on_it, spread, moved), perm=back)


@lowering(aten.histc.default)
def histc(op: Builder, tensor: Any, bins: int = 100, low: Any = 0, high: Any = 0) -> Any:
    """How many numbers are in each of so many equal parts of a range: that of the numbers, where none is given."""
    if any(isinstance(each, ir.Value) for each in (bins, low, high)):
        raise LoweringError("a range that varies")
    if low != high:
        return op.program.call_operator(aten.histc.default, (tensor, bins, float(low), float(high)))
    flat = op.Reshape(tensor, op.constant([-1], _INT64))
    if flat.dtype is ir.DataType.FLOAT16:
        flat = op.cast(flat, ir.DataType.FLOAT)
    one = op.constant(1, flat.dtype)
    least, most = op.ReduceMin(flat, [0], keepdims=0), op.ReduceMax(flat, [0], keepdims=0)
    alone = op.cast(op.Equal(least, most), flat.dtype)  # one number is in the middle of a range of 2
    least, most = op.Sub(least, alone), op.Add(most, alone)
    place = op.Div(op.Mul(op.Sub(flat, least), op.constant(bins, flat.dtype)), op.Sub(most, least))
    place = op.Min(op.cast(place, _INT64), op.constant(bins - 1, _INT64))
    zeros = op.Expand(op.constant(0, flat.dtype), op.constant([bins], _INT64))
    ones = op.Expand(one, op.Shape(flat))
    return op.cast(op.ScatterElements(zeros, place, ones, axis=0, reduction="add"), tensor.dtype)
