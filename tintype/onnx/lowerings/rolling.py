"""Elements moved round a dimension, of which there may be none, by amounts that may vary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64 = ir.DataType.INT64
_END = 9223372036854775807


@lowering(aten.roll.default)
def roll(op: Builder, tensor: Any, shifts: Any, dims: Any = ()) -> Any:
    shifts = list(shifts) if isinstance(shifts, Sequence) else [shifts]
    dims = list(dims) if isinstance(dims, Sequence) else [dims]
    is_complex = op.node.meta["val"].dtype.is_complex  # pairs of numbers, which stay together
    if dims:
        rank = len(tensor.shape) - is_complex
        for shift, dim in zip(shifts, dims):
            tensor = _rolled(op, tensor, shift, dim % rank if rank else 0) if rank else tensor
        return tensor
    shape = op.Shape(tensor)
    flat = op.Reshape(tensor, [-1, 2] if is_complex else [-1])
    flat.shape = ir.Shape([None, 2] if is_complex else [None])
    return op.Reshape(_rolled(op, flat, shifts[0], 0), shape, allowzero=1)


roll.takes_complex = True  # type: ignore[attr-defined]


def _rolled(op: Builder, tensor: Any, shift: Any, axis: int) -> Any:
    size = op.size(tensor, axis)
    if isinstance(size, int) and not isinstance(shift, ir.Value):
        if size == 0 or shift % size == 0:
            return tensor
        cut = op.constant([size - shift % size], _INT64)
    else:
        length = op.as_vector(size)
        moved = op.Mod(op.as_vector(shift), op.Max(length, op.constant([1], _INT64)))
        cut = op.Sub(length, moved)
    begin = op.Slice(tensor, cut, op.constant([_END], _INT64), op.constant([axis], _INT64))
    end = op.Slice(tensor, op.constant([0], _INT64), cut, op.constant([axis], _INT64))
    result = op.Concat(begin, end, axis=axis)
    result.shape = tensor.shape
    return result
