"""Medians, the most frequent element, and runs of equal ones."""

from __future__ import annotations

import math
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.elementwise import is_float
from tintype.onnx.lowerings.extremes import ordered
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT32, _INT64, _BOOL = ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL
_END = 9223372036854775807


def _middle(op: Builder, tensor: Any, axis: int, skip_nan: bool) -> tuple[Any, Any]:
    """The lower median along a dimension, which stays with size 1, and its place."""
    wide = op.cast(tensor, _INT32) if tensor.dtype is _BOOL else tensor
    size = op.as_vector(op.size(tensor, axis))
    unknown = op.IsNaN(tensor) if is_float(tensor) else None
    if unknown is not None:  # nan is the largest
        wide = op.Where(unknown, op.constant(math.inf, wide.dtype), wide)
    values, places = op.TopK(wide, size, axis=axis, largest=0, sorted=1)
    half = op.Div(op.Sub(size, 1), op.constant([2], _INT64))
    if unknown is None:
        return tuple(op.Gather(each, half, axis=axis) for each in (values, places))
    missing = op.ReduceSum(op.cast(unknown, _INT64), [axis], keepdims=1)
    known = op.Sub(size, missing)
    chosen = op.Div(op.Max(op.Sub(known, 1), op.constant(0, _INT64)), op.constant(2, _INT64))
    if not skip_nan:
        chosen = op.Expand(half, op.Shape(missing)) if len(tensor.shape) == 1 else op.Add(op.Mul(missing, 0), half)
    value = op.GatherElements(values, chosen, axis=axis)
    place = op.GatherElements(places, chosen, axis=axis)
    is_unknown = op.Equal(known, 0) if skip_nan else op.Greater(missing, 0)
    first = op.ArgMax(op.cast(unknown, _INT32), axis=axis, keepdims=1)
    value = op.Where(is_unknown, op.constant(math.nan, tensor.dtype), value)
    return value, op.Where(is_unknown, first, place)


def _median(target: Any, target_dim: Any, skip_nan: bool) -> None:
    @lowering(target)
    def lower(op: Builder, tensor: Any) -> Any:
        flat = op.Reshape(tensor, [-1])
        sizes = list(tensor.shape)
        fixed = all(isinstance(size, int) for size in sizes)
        flat.shape = ir.Shape([math.prod(sizes) if fixed else None])
        value, _ = _middle(op, flat, 0, skip_nan)
        return op.cast(op.Reshape(value, op.constant([], _INT64)), tensor.dtype)

    @lowering(target_dim)
    def lower_along(op: Builder, tensor: Any, dim: int, keepdim: bool = False) -> Any:
        rank = len(tensor.shape)
        if rank == 0:
            return tensor, op.constant(0, _INT64)
        axis = dim % rank
        value, place = _middle(op, tensor, axis, skip_nan)
        value = op.cast(value, tensor.dtype)
        return (value, place) if keepdim else (op.Squeeze(value, [axis]), op.Squeeze(place, [axis]))


_median(aten.median.default, aten.median.dim, skip_nan=False)
_median(aten.nanmedian.default, aten.nanmedian.dim, skip_nan=True)


@lowering(aten.mode.default)
def mode(op: Builder, tensor: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """Every element beside every other: the most frequent, of those the smallest, of those the last."""
    rank = len(tensor.shape)
    if rank == 0:
        return tensor, op.constant(0, _INT64)
    axis = dim % rank
    wide = op.cast(tensor, _INT32) if tensor.dtype is _BOOL else tensor
    order = [*(each for each in range(rank) if each != axis), axis]
    moved = op.Transpose(wide, perm=order)
    same = op.Equal(op.Unsqueeze(moved, [-1]), op.Unsqueeze(moved, [-2]))
    counts = op.ReduceSum(op.cast(same, _INT64), [-1], keepdims=0)
    often = op.Equal(counts, op.ReduceMax(counts, [-1], keepdims=1))
    largest = op.constant(math.inf, wide.dtype) if is_float(wide) else op.ReduceMax(moved, [-1], keepdims=1)
    value = op.ReduceMin(op.Where(often, moved, largest), [-1], keepdims=1)
    place = op.ArgMax(op.cast(op.Equal(moved, value), _INT32), axis=-1, keepdims=1, select_last_index=1)
    back = [order.index(each) for each in range(rank)]
    value, place = op.cast(op.Transpose(value, perm=back), tensor.dtype), op.Transpose(place, perm=back)
    return (value, place) if keepdim else (op.Squeeze(value, [axis]), op.Squeeze(place, [axis]))


@lowering(aten.unique_consecutive.default)
def unique_consecutive(
    op: Builder, tensor: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Runs of equal elements, or of equal slices along a dimension."""
    if dim is None:
        rows, axis = op.Reshape(tensor, [-1]), 0
        size = op.Reshape(op.Size(tensor), [1])
    else:
        rows, axis = tensor, dim % max(len(tensor.shape), 1)
        if not len(tensor.shape):
            raise LoweringError("of a tensor without dimensions it has no form")
        size = op.as_vector(op.size(tensor, axis))
    changes = op.Not(op.Equal(op.Slice(rows, [1], [_END], [axis]), op.Slice(rows, [0], [-1], [axis])))
    if dim is not None and len(tensor.shape) > 1:
        others = [each for each in range(len(tensor.shape)) if each != axis]
        # a sum, since nothing is the largest of no elements
        changes = op.cast(op.ReduceSum(op.cast(changes, _INT64), others, keepdims=0), _BOOL)
    some = op.Min(size, op.constant([1], _INT64))
    starts = op.Concat(op.Expand(op.constant(True), some), changes, axis=0)
    values = op.Compress(rows, starts, axis=axis)
    inverse = op.Sub(op.CumSum(op.cast(starts, _INT64), op.constant(0, _INT64)), op.constant(1, _INT64))
    places = op.Reshape(op.NonZero(starts), [-1])
    ends = op.Concat(op.Slice(places, [1], [_END], [0]), op.Slice(size, op.constant([0], _INT64), some, [0]), axis=0)
    if dim is None:
        inverse = op.Reshape(inverse, op.Shape(tensor))
    nothing = op.constant([], _INT64)
    counts = op.Sub(ends, places)
    return values, inverse if return_inverse else nothing, counts if return_counts else nothing


@lowering(aten._unique2.default)
def unique(
    op: Builder, tensor: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    """Equal elements once. ONNX Runtime's own operator does not know that nan equals nothing."""
    flat = op.Reshape(tensor, [-1])
    flat.shape = ir.Shape([None])
    values, places = ordered(op, flat, 0, op.Shape(flat), descending=False)
    values.dtype, values.shape = tensor.dtype, ir.Shape([None])
    found, inverse, counts = unique_consecutive(op, values, return_inverse, return_counts)
    if return_inverse:
        inverse = op.ScatterElements(op.Expand(op.constant(0, _INT64), op.Shape(flat)), places, inverse, axis=0)
        inverse = op.Reshape(inverse, op.Shape(tensor))
    return found, inverse, counts
