"""Numbers rounded to small integers, within a range that may be narrower than that of their dtype. For a range of
4 bits ONNX has a type where torch has bytes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering, lowering_by_name
from tintype.onnx.weights import Weight

aten = torch.ops.aten
_LIBRARY = "quantized_decomposed"  # which users load, or not
DataType = ir.DataType
_FLOAT, _INT64 = DataType.FLOAT, DataType.INT64
# The types that ONNX quantizes to, the least and greatest number of each, and since when there are kernels for them.
_TYPES = {
    DataType.INT4: (-8, 7, 21),
    DataType.UINT4: (0, 15, 21),
    DataType.INT8: (-128, 127, 18),
    DataType.UINT8: (0, 255, 18),
    DataType.INT16: (-32768, 32767, 21),
    DataType.UINT16: (0, 65535, 21),
}
_IN_4_BITS = {DataType.INT4: ml_dtypes.int4, DataType.UINT4: ml_dtypes.uint4}


def _kind(op: Builder, small: ir.DataType, zero_point: Any, least: Any, greatest: Any) -> ir.DataType | None:
    """The type that ONNX has for integers of a dtype and range; None if they are computed with others."""
    for kind in _IN_4_BITS:
        if op.opset >= 21 and (least, greatest) == _TYPES[kind][:2] and _is_within(zero_point, least, greatest):
            return kind
    return small if small in _TYPES and op.opset >= _TYPES[small][2] else None


def _number(op: Builder, value: Any, dtype: ir.DataType) -> Any:
    """A scale, zero point or bound, given as a number or as a tensor of one, as a value without dimensions."""
    value = op.cast(value, dtype)
    return value if value.shape is not None and not len(value.shape) else op.Reshape(value, op.vector([]))


def _along(op: Builder, value: Any, rank: int, axis: int) -> Any:
    """One number for each slice along an axis, in a shape that fits the whole."""
    axes = [each for each in range(rank) if each != axis % rank]
    return op.Unsqueeze(value, axes) if axes else value


def _quantized(
    op: Builder, tensor: Any, scale: Any, zero_point: Any, least: Any, greatest: Any, small: Any, axis: int | None
) -> Any:
    """As one node, and another one for a narrower range. Scales are values; for each slice, if there is an axis."""
    tensor = op.cast(tensor, _FLOAT)
    kind = _kind(op, small, zero_point, least, greatest)
    bounds = [_number(op, bound, kind or _FLOAT) for bound in (least, greatest)] if kind not in _IN_4_BITS else []
    if kind is None:
        zero_point = op.cast(zero_point, _FLOAT)
        if axis is not None:
            scale, zero_point = (_along(op, each, len(tensor.shape), axis) for each in (scale, zero_point))
        rounded = op.Add(op.Round(op.Div(tensor, scale)), zero_point)
        return op.cast(op.Clip(rounded, *bounds), small)
    rounded = op.QuantizeLinear(tensor, scale, op.cast(zero_point, kind), axis=1 if axis is None else axis)
    if kind in _IN_4_BITS:
        return op.cast(rounded, small)
    if not isinstance(least, ir.Value) and not isinstance(greatest, ir.Value):
        if least <= _TYPES[kind][0] and greatest >= _TYPES[kind][1]:
            return rounded
    return op.Clip(rounded, *bounds)


def _dequantized(
    op: Builder, tensor: Any, scale: Any, zero_point: Any, least: Any, greatest: Any, axis: int | None
) -> Any:
    tensor = _in_4_bits(op, tensor, zero_point, least, greatest)
    if tensor.dtype in _TYPES and op.opset >= _TYPES[tensor.dtype][2]:
        zero_point = None if zero_point is None else op.cast(zero_point, tensor.dtype)
        return op.DequantizeLinear(tensor, scale, zero_point, axis=1 if axis is None else axis)
    zero_point = op.cast(0 if zero_point is None else zero_point, _FLOAT)
    if axis is not None:
        scale = _along(op, scale, len(tensor.shape), axis)
        zero_point = _along(op, zero_point, len(tensor.shape), axis) if len(zero_point.shape) else zero_point
    return op.Mul(op.Sub(op.cast(tensor, _FLOAT), zero_point), scale)


def _in_4_bits(op: Builder, tensor: Any, zero_point: Any, least: Any, greatest: Any) -> Any:
    """The same integers in the type of 4 bits that they were rounded to; weights are packed."""
    kind = _kind(op, tensor.dtype, zero_point, least, greatest)
    if kind not in _IN_4_BITS:
        return tensor
    made = tensor.producer()
    if made is not None:
        is_theirs = made.op_type == "Cast" and made.inputs[0].dtype is kind
        return made.inputs[0] if is_theirs else tensor
    if not _is_within(tensor, least, greatest):  # which eager mode does not mind
        return tensor
    return op.constant(tensor.const_value.raw.numpy().astype(_IN_4_BITS[kind]), kind)


def _is_within(value: Any, least: int, greatest: int) -> bool:
    """Whether integers are known, and in a range."""
    if value is None or value.array is not None:
        return value is None or bool(((value.array >= least) & (value.array <= greatest)).all())
    held = value.const_value
    if not isinstance(held, Weight) or held.raw.is_meta or value.meta.get("written") or not held.raw.numel():
        return False
    return least <= int(held.raw.min()) and int(held.raw.max()) <= greatest and not held.raw.is_floating_point()


# --- torch's operators ------------------------------------------------------------------------------------------


@lowering_by_name(_LIBRARY, "quantize_per_tensor")
def quantize_per_tensor(
    op: Builder, tensor: Any, scale: Any, zero_point: Any, least: Any, greatest: Any, dtype: int
) -> Any:
    zero_point = _number(op, zero_point, _INT64)
    return _quantized(
        op, tensor, _number(op, scale, _FLOAT), zero_point, least, greatest, ir.DataType(dtype), axis=None
    )


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
    zero_point = _number(op, zero_point, _INT64)
    return _dequantized(op, tensor, _number(op, scale, _FLOAT), zero_point, least, greatest, axis=None)


@lowering_by_name(_LIBRARY, "quantize_per_channel")
def quantize_per_channel(
    op: Builder, tensor: Any, scales: Any, zero_points: Any, axis: int, least: Any, greatest: Any, dtype: int
) -> Any:
    return _quantized(op, tensor, op.cast(scales, _FLOAT), zero_points, least, greatest, ir.DataType(dtype), axis)


@lowering_by_name(_LIBRARY, "dequantize_per_channel")
def dequantize_per_channel(
    op: Builder,
    tensor: Any,
    scales: Any,
    zero_points: Any,
    axis: int,
    least: Any,
    greatest: Any,
    dtype: int,
    *,
    out_dtype: int | None = None,
) -> Any:
    return _dequantized(op, tensor, op.cast(scales, _FLOAT), zero_points, least, greatest, axis)


@lowering_by_name(_LIBRARY, "dequantize_per_channel_group")
def dequantize_per_channel_group(
    op: Builder,
    tensor: Any,
    scales: Any,
    zero_points: Any,
    least: Any,
    greatest: Any,
    dtype: int,
    group_size: int = 128,
    output_dtype: Any = None,
) -> Any:
    """Blocks of a row have a scale each."""
    rows, columns = (op.size(tensor, axis) for axis in (0, 1))
    scales = op.Reshape(op.cast(scales, _FLOAT), op.vector([rows, -1]))
    whole = zero_points is None or not zero_points.dtype.is_floating_point()
    if op.opset >= 21 and whole and isinstance(columns, int) and columns % group_size == 0:
        small = _in_4_bits(op, tensor, zero_points, least, greatest)
        zeros = None if zero_points is None else op.Reshape(zero_points, op.vector([rows, -1]))
        zeros = None if zeros is None else op.cast(zeros, small.dtype)
        return op.DequantizeLinear(small, scales, zeros, axis=1, block_size=group_size)
    blocks = op.Reshape(op.cast(tensor, _FLOAT), [-1, group_size])
    zeros = op.cast(0 if zero_points is None else zero_points, _FLOAT)
    moved = op.Sub(blocks, zeros if zero_points is None else op.Reshape(zeros, [-1, 1]))
    return op.Reshape(op.Mul(moved, op.Reshape(scales, [-1, 1])), op.Shape(tensor))


def _smallest(op: Builder, least: int, greatest: int) -> ir.DataType:
    """The smallest type that has a range."""
    return next(
        (
            kind
            for kind, (low, high, since) in _TYPES.items()
            if op.opset >= since and low <= least and greatest <= high
        ),
        DataType.INT32,
    )


def _rounded(
    op: Builder, tensor: Any, scale: Any, zero_point: Any, axis: int | None, least: int, greatest: int
) -> Any:
    """Numbers rounded as if they were quantized: the two nodes that do both."""
    small = _smallest(op, least, greatest)
    if small in _IN_4_BITS and (least, greatest) != _TYPES[small][:2]:
        small = DataType.INT8 if least < 0 else DataType.UINT8
    rounded = _quantized(op, tensor, scale, zero_point, least, greatest, small, axis)
    return op.cast(_dequantized(op, rounded, scale, zero_point, least, greatest, axis), tensor.dtype)


@lowering(aten.fake_quantize_per_tensor_affine.default, aten.fake_quantize_per_tensor_affine.tensor_qparams)
def fake_quantize(op: Builder, tensor: Any, scale: Any, zero_point: Any, least: int, greatest: int) -> Any:
    return _rounded(op, tensor, _number(op, scale, _FLOAT), _number(op, zero_point, _INT64), None, least, greatest)


@lowering(aten.fake_quantize_per_channel_affine.default)
def fake_quantize_channels(
    op: Builder, tensor: Any, scales: Any, zero_points: Any, axis: int, least: int, greatest: int
) -> Any:
    return _rounded(op, tensor, op.cast(scales, _FLOAT), zero_points, axis, least, greatest)
