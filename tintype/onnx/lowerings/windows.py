"""Windows over images that ONNX's own pooling does not have: of other widths, and at random places."""

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
from tintype.onnx.lowerings.taps import windows_of
from tintype.onnx.registry import lowering, own_lowering

aten = torch.ops.aten
_INT32, _INT64, _BOOL = ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL


def _largest(op: Builder, chosen: Any, places: Any) -> tuple[Any, Any]:
    """The largest of the elements along the last dimension, nan before all others, and the place that it has."""
    value = op.ReduceMax(chosen, [-1], keepdims=0)
    ranked = chosen
    if is_float(chosen):
        unknown = op.IsNaN(chosen)
        some = op.ReduceMax(op.cast(unknown, _INT32), [-1], keepdims=0)
        value = op.Where(op.cast(some, _BOOL), op.constant(math.nan, chosen.dtype), value)
        ranked = op.Where(unknown, op.constant(math.inf, chosen.dtype), chosen)
    best = op.ArgMax(ranked, axis=-1, keepdims=1)
    whole = op.Expand(places, op.Shape(chosen))
    return value, op.Squeeze(op.GatherElements(whole, best, axis=-1), [-1])


def _images(op: Builder, tensor: Any, dimensions: int) -> tuple[Any, list[Any], list[int]]:
    """Images as rows of elements, the sizes in front of them, and their own."""
    rank = len(tensor.shape)
    lead = [op.size(tensor, each) for each in range(rank - dimensions)]
    sizes = [op.size(tensor, each) for each in range(rank - dimensions, rank)]
    if not all(isinstance(size, int) for size in sizes):
        raise LoweringError("the windows of this pooling depend on sizes that vary")
    return op.Reshape(tensor, op.vector([*lead, math.prod(sizes)])), lead, sizes


def _adaptive_max(dimensions: int) -> Any:
    def lower(op: Builder, tensor: Any, wanted: Sequence[Any]) -> Any:
        """The elements of each window, the last of a short one again, and the largest of them."""
        if any(isinstance(size, ir.Value) for size in wanted):
            raise LoweringError("the windows of this pooling depend on sizes that vary")
        rank = len(tensor.shape)
        if all(size == 1 for size in wanted) and not _places_are_used(op):
            axes = list(range(rank - dimensions, rank))
            largest = own_lowering(aten.amax.default, op.opset)
            assert largest is not None
            return largest(op, tensor, axes, True), None
        rows, lead, sizes = _images(op, tensor, dimensions)
        table = np.zeros([1] * dimensions + [1] * dimensions, dtype=np.int64)
        for position, (size, count) in enumerate(zip(sizes, wanted)):
            windows = windows_of(size, count)
            width = max((end - begin for begin, end in windows), default=1)
            along = np.array([[min(begin + each, end - 1) for each in range(width)] for begin, end in windows])
            shape = [1] * (2 * dimensions)
            shape[position], shape[dimensions + position] = along.shape
            table = table + along.reshape(shape) * math.prod(sizes[position + 1 :])
        count = math.prod(wanted)
        places = op.constant(table.reshape(count, -1), _INT64)
        value, place = _largest(op, op.Gather(rows, places, axis=len(lead)), places)
        shape_of = op.vector([*lead, *wanted])
        return op.Reshape(value, shape_of), op.Reshape(place, shape_of)

    return lower


def _places_are_used(op: Builder) -> bool:
    return any(user.args[1] == 1 and user.users for user in op.node.users)


lowering(aten.adaptive_max_pool1d.default)(_adaptive_max(1))
lowering(aten.adaptive_max_pool2d.default)(_adaptive_max(2))
lowering(aten.adaptive_max_pool3d.default)(_adaptive_max(3))


def _fractional(dimensions: int) -> Any:
    def lower(op: Builder, tensor: Any, kernel: Sequence[int], wanted: Sequence[int], samples: Any) -> Any:
        """Windows of one width that begin where random numbers say."""
        rows, lead, sizes = _images(op, tensor, dimensions)
        batch = list(lead) if len(lead) == 2 else [1, *lead]
        # samples are (batch, channels, dimensions), the last dimension of the image first where there are two
        table: Any = op.constant(0, _INT64)
        for position, (size, width, count) in enumerate(zip(sizes, kernel, wanted)):
            column = dimensions - 1 - position if dimensions == 2 else position
            sample = op.Gather(samples, op.constant([column], _INT64), axis=2)
            starts = _fractional_starts(op, sample, size, width, count)
            along = op.Add(op.Unsqueeze(starts, [3]), op.constant(list(range(width)), _INT64))
            shape = [*batch, *([1] * (2 * dimensions))]
            shape[2 + position], shape[2 + dimensions + position] = count, width
            stride = op.constant(math.prod(sizes[position + 1 :]), _INT64)
            table = op.Add(op.Mul(op.Reshape(along, op.vector(shape)), stride), table)
        places = op.Reshape(table, op.vector([*lead, math.prod(wanted), math.prod(kernel)]))
        flat = op.Reshape(places, op.vector([*lead, math.prod(wanted) * math.prod(kernel)]))
        chosen = op.Reshape(op.GatherElements(rows, flat, axis=len(lead)), op.Shape(places))
        value, place = _largest(op, chosen, places)
        shape_of = op.vector([*lead, *wanted])
        return op.Reshape(value, shape_of), op.Reshape(place, shape_of)

    return lower


def _fractional_starts(op: Builder, sample: Any, size: int, width: int, count: int) -> Any:
    """Where windows begin: steps of one length from a random number on, rounded down; the last one at the end."""
    if count == 1:
        return op.Expand(op.constant(size - width, _INT64), op.Shape(sample))
    alpha = op.constant((size - width) / (count - 1), sample.dtype)
    numbers = op.constant([float(each) for each in range(count)], sample.dtype)
    moved = op.Cast(op.Mul(op.Add(sample, numbers), alpha), to=_INT64)
    starts = op.Sub(moved, op.Cast(op.Mul(sample, alpha), to=_INT64))
    is_last = op.constant([each == count - 1 for each in range(count)])
    return op.Where(is_last, op.constant(size - width, _INT64), starts)


lowering(aten.fractional_max_pool2d.default)(_fractional(2))
lowering(aten.fractional_max_pool3d.default)(_fractional(3))
