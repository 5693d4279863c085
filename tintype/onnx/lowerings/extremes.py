"""The largest and smallest elements and their places. To torch nan is larger and smaller than everything, and comes
first in a descending order; ONNX Runtime passes over it."""

from __future__ import annotations

import math
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.elementwise import is_float
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT32, _INT64, _BOOL = ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL


def _place(op: Builder, name: str, tensor: Any, axis: int, keepdim: bool) -> Any:
    wide = op.cast(tensor, _INT32) if tensor.dtype is _BOOL else tensor
    place = op.emit(f"Arg{name}", wide, axis=axis, keepdims=int(keepdim))
    if not is_float(tensor):
        return place
    unknown = op.cast(op.IsNaN(tensor), _INT32)
    first = op.ArgMax(unknown, axis=axis, keepdims=int(keepdim))
    some = op.cast(op.ReduceMax(unknown, [axis], keepdims=int(keepdim)), _BOOL)
    return op.Where(some, first, place)


def _whole(op: Builder, tensor: Any) -> Any:
    """All elements in one row."""
    sizes = list(tensor.shape)
    flat = op.Reshape(tensor, [-1])
    flat.shape = ir.Shape([math.prod(sizes) if all(isinstance(size, int) for size in sizes) else None])
    return flat


def _register(kind: str, name: str) -> None:
    @lowering(getattr(aten, f"arg{kind}").default)
    def argument(op: Builder, tensor: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        rank = len(tensor.shape)
        if rank == 0:
            return op.constant(0, _INT64)
        if dim is not None:
            return _place(op, name, tensor, dim % rank, keepdim)
        place = _place(op, name, _whole(op, tensor), 0, False)
        return op.Reshape(place, op.constant([1] * rank, _INT64)) if keepdim else place

    @lowering(getattr(aten, kind).dim)
    def along(op: Builder, tensor: Any, dim: int, keepdim: bool = False) -> Any:
        rank = len(tensor.shape)
        if rank == 0:
            return tensor, op.constant(0, _INT64)
        axis = dim % rank
        place = _place(op, name, tensor, axis, True)
        value = op.GatherElements(tensor, place, axis=axis)
        return (value, place) if keepdim else (op.Squeeze(value, [axis]), op.Squeeze(place, [axis]))

    @lowering(getattr(aten, kind).default)
    def largest(op: Builder, tensor: Any) -> Any:
        wide = op.cast(tensor, _INT32) if tensor.dtype is _BOOL else tensor
        value = op.emit(f"Reduce{name}", wide, keepdims=0)
        if is_float(tensor):
            some = op.cast(op.ReduceMax(op.cast(op.IsNaN(tensor), _INT32), keepdims=0), _BOOL)
            value = op.Where(some, op.constant(math.nan, tensor.dtype), value)
        return op.cast(value, tensor.dtype)


_register("max", "Max")
_register("min", "Min")


# Where there is a wider dtype, it has numbers between what is infinite and nan, which comes behind it.
_WIDER = {
    ir.DataType.FLOAT16: (ir.DataType.FLOAT, 1e30),
    ir.DataType.BFLOAT16: (ir.DataType.DOUBLE, 1e300),
    ir.DataType.FLOAT: (ir.DataType.DOUBLE, 1e300),
}


def ordered(op: Builder, tensor: Any, axis: int, count: Any, descending: bool) -> tuple[Any, Any]:
    """The first elements in an order, and their places; equal ones stay in theirs."""
    dtype = tensor.dtype
    largest = int(descending)
    if not is_float(tensor):
        keys = op.cast(tensor, _INT32) if dtype is _BOOL else tensor
        values, places = op.TopK(keys, count, axis=axis, largest=largest, sorted=1)
        return op.cast(values, dtype), places
    unknown = op.IsNaN(tensor)
    if dtype in _WIDER:
        wide, beyond = _WIDER[dtype]
        keys = op.Min(op.cast(tensor, wide), op.constant(beyond, wide))
        keys = op.Where(unknown, op.constant(math.inf, wide), keys)
        _, places = op.TopK(keys, count, axis=axis, largest=largest, sorted=1)
    else:
        # all of them, and then those that are nan by themselves
        keys = op.Where(unknown, op.constant(math.inf, dtype), tensor)
        everything = op.Shape(tensor, start=axis, end=axis + 1)
        _, order = op.TopK(keys, everything, axis=axis, largest=largest, sorted=1)
        flags = op.GatherElements(op.cast(unknown, _INT32), order, axis=axis)
        _, chosen = op.TopK(flags, count, axis=axis, largest=largest, sorted=1)
        places = op.GatherElements(order, chosen, axis=axis)
    return op.GatherElements(tensor, places, axis=axis), places


@lowering(aten.topk.default)
def topk(op: Builder, tensor: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    rank = len(tensor.shape)
    if rank == 0:
        return tensor, op.constant(0, _INT64)
    return ordered(op, tensor, dim % rank, op.as_vector(k), largest)


@lowering(aten.logsumexp.default)
def logsumexp(op: Builder, tensor: Any, dimensions: Any, keepdim: bool = False) -> Any:
    """With nan also where something else is infinite."""
    rank = len(tensor.shape)
    if rank == 0:
        return tensor
    given = [dimensions] if isinstance(dimensions, int) else list(dimensions)
    axes = [axis % rank for axis in given] or list(range(rank))
    result = op.ReduceLogSumExp(tensor, axes, keepdims=int(keepdim))
    unknown = op.ReduceMax(op.cast(op.IsNaN(tensor), _INT32), axes, keepdims=int(keepdim))
    is_unknown = op.Greater(unknown, op.constant(0, _INT32))  # of nothing, the maximum is below
    return op.Where(is_unknown, op.constant(math.nan, tensor.dtype), result)
