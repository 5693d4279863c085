"""Numbers rounded to small integers, within a range that may be narrower than that of their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering_by_name

_LIBRARY = "quantized_decomposed"  # which users load, or not
_FLOAT = ir.DataType.FLOAT
_BYTES = (ir.DataType.INT8, ir.DataType.UINT8)


def _number(op: Builder, value: Any, dtype: ir.DataType) -> Any:
    """A scale, zero point or bound, given as a number or as a tensor of one, as a value without dimensions."""
    value = op.cast(value, dtype)
    return value if value.shape is not None and not len(value.shape) else op.Reshape(value, op.vector([]))


@lowering_by_name(_LIBRARY, "quantize_per_tensor")
def quantize_per_tensor(
    op: Builder, tensor: Any, scale: Any, zero_point: Any, least: Any, greatest: Any, dtype: int
) -> Any:
    small = ir.DataType(dtype)
    tensor, scale = op.cast(tensor, _FLOAT), _number(op, scale, _FLOAT)
    if small not in _BYTES:
        rounded = op.Add(op.Round(op.Div(tensor, scale)), _number(op, zero_point, _FLOAT))
        return op.cast(op.Clip(rounded, _number(op, least, _FLOAT), _number(op, greatest, _FLOAT)), small)
    rounded = op.QuantizeLinear(tensor, scale, _number(op, zero_point, small))
    limits = np.iinfo(small.numpy())
    if not isinstance(least, ir.Value) and not isinstance(greatest, ir.Value):
        if least <= limits.min and greatest >= limits.max:
            return rounded
    return op.Clip(rounded, _number(op, least, small), _number(op, greatest, small))


@lowering_by_name(_LIBRARY, "dequantize_per_tensor")
def dequantize_per_tensor(
    op: Builder,
    tensor: Any,
    scale: Any,
    zero_point: Any,
    least: Any,
    greatest: Any,
    dtype: int,
    *,
    out_dtype: int | None = None,
) -> Any:
    scale = _number(op, scale, _FLOAT)
    if tensor.dtype in _BYTES:
        return op.DequantizeLinear(tensor, scale, _number(op, zero_point, tensor.dtype))
    return op.Mul(op.Sub(op.cast(tensor, _FLOAT), _number(op, zero_point, _FLOAT)), scale)
