"""Normalization, and activations that newer opsets have as operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64 = ir.DataType.INT64


@lowering(aten.gelu.default, since=20)
def gelu(op: Builder, tensor: Any, *, approximate: str = "none") -> Any:
    return op.Gelu(tensor, approximate=approximate)


@lowering(aten.layer_norm.default)
def layer_norm(
    op: Builder, tensor: Any, shape: Sequence[Any], weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:  # fmt: skip
    axis = -len(shape)
    if weight is None:
        weight = _filled(op, tensor, shape, 1.0)
    return op.LayerNormalization(tensor, weight, bias, axis=axis, epsilon=eps)[0]


def _filled(op: Builder, tensor: Any, shape: Sequence[Any], value: float) -> Any:
    """A tensor of one number, as scale where a module has none."""
    if all(isinstance(size, int) for size in shape) and len(shape) == 1 and shape[0] <= 4096:
        return op.Expand(op.constant(value, tensor.dtype), list(shape))
    return op.Expand(op.constant(value, tensor.dtype), op.vector(shape))


@lowering(aten.rms_norm.default, since=23)
def rms_norm_23(op: Builder, tensor: Any, shape: Sequence[Any], weight: Any = None, eps: float | None = None) -> Any:
    if weight is None:
        weight = _filled(op, tensor, shape, 1.0)
    if weight.dtype is not tensor.dtype:  # onnx's checker takes the result for one of the tensor's dtype
        return rms_norm(op, tensor, shape, weight, eps)
    return op.RMSNormalization(tensor, weight, axis=-len(shape), epsilon=_epsilon(tensor, eps))


def _epsilon(tensor: Any, eps: float | None) -> float:
    if eps is not None:
        return eps
    return float(torch.finfo(torch.float64 if tensor.dtype is ir.DataType.DOUBLE else torch.float32).eps)


@lowering(aten.rms_norm.default)
def rms_norm(op: Builder, tensor: Any, shape: Sequence[Any], weight: Any = None, eps: float | None = None) -> Any:
    axes = list(range(-len(shape), 0))
    wide = tensor
    if tensor.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        wide = op.Cast(tensor, to=ir.DataType.FLOAT)
    mean = op.ReduceMean(op.Mul(wide, wide), axes, keepdims=1)
    normal = op.Mul(wide, op.Reciprocal(op.Sqrt(op.Add(mean, _epsilon(tensor, eps)))))
    if weight is not None:
        normal = op.Mul(normal, op.cast(weight, wide.dtype))
    return op.cast(normal, tensor.dtype)


@lowering(aten.group_norm.default, since=21)
def group_norm_21(
    op: Builder, tensor: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Any:
    if tensor.dtype is ir.DataType.DOUBLE:  # the operator computes in float32
        return group_norm(op, tensor, groups, weight, bias, eps)
    channels = [op.size(tensor, 1)]
    weight = _filled(op, tensor, channels, 1.0) if weight is None else weight
    bias = _filled(op, tensor, channels, 0.0) if bias is None else bias
    # ONNX defines the variance as a difference of large numbers where the mean is large: it is taken away before
    grouped = _grouped(op, tensor, groups)
    centred = op.Sub(grouped, op.ReduceMean(grouped, [2], keepdims=1))
    centred = op.Reshape(centred, op.Shape(tensor), allowzero=1)
    centred.shape = tensor.shape
    return op.GroupNormalization(centred, weight, bias, epsilon=eps, num_groups=groups)


def _grouped(op: Builder, tensor: Any, groups: int) -> Any:
    """The channels of a group and all that is in them along one dimension."""
    batch, channels, *rest = (op.size(tensor, axis) for axis in range(len(tensor.shape)))
    number: Any = channels // groups if isinstance(channels, int) else op.Div(channels, op.constant(groups, _INT64))
    for size in rest:
        known = isinstance(number, int) and isinstance(size, int)
        number = number * size if known else op.Mul(op.cast(number, _INT64), op.cast(size, _INT64))
    grouped = op.Reshape(tensor, op.vector([batch, groups, number]), allowzero=1)
    grouped.shape = ir.Shape([tensor.shape[0], groups, number if isinstance(number, int) else None])
    return grouped


@lowering(aten.group_norm.default)
def group_norm(
    op: Builder, tensor: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Any:
    """Instance normalization of groups of channels: the groups are normalized as if each were one channel."""
    rank = len(tensor.shape)
    grouped = _grouped(op, tensor, groups)
    ones = op.constant([1.0] * groups, tensor.dtype)
    zeros = op.constant([0.0] * groups, tensor.dtype)
    normal = op.InstanceNormalization(grouped, ones, zeros, epsilon=eps)
    normal = op.Reshape(normal, op.Shape(tensor), allowzero=1)
    axes = list(range(1, rank - 1))
    if weight is not None:
        normal = op.Mul(normal, op.Unsqueeze(weight, axes) if axes else weight)
    if bias is not None:
        normal = op.Add(normal, op.Unsqueeze(bias, axes) if axes else bias)
    return normal


# --- batch normalization ----------------------------------------------------------------------------------------


def _per_channel(op: Builder, value: Any, rank: int) -> Any:
    """One number for each channel, in a shape that fits images."""
    axes = [axis for axis in range(rank) if axis != 1]
    return op.Unsqueeze(value, axes) if axes else value


def _normalized(op: Builder, tensor: Any, weight: Any, bias: Any, mean: Any, inverse: Any) -> Any:
    rank = len(tensor.shape)
    result = op.Mul(op.Sub(tensor, _per_channel(op, mean, rank)), _per_channel(op, inverse, rank))
    if weight is not None:
        result = op.Mul(result, _per_channel(op, weight, rank))
    return result if bias is None else op.Add(result, _per_channel(op, bias, rank))


def _batch_norm(
    op: Builder,
    tensor: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, Any, Any, Any, Any]:
    """The result, the mean and the inverse deviation it was computed with, and the new running statistics."""
    dtype = tensor.dtype
    wide = op.cast(tensor, ir.DataType.FLOAT) if dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16) else tensor
    weight, bias, mean, variance = (
        None if each is None else op.like(each, wide) for each in (weight, bias, mean, variance)
    )
    one = op.constant(1.0, wide.dtype)
    if not training:
        channels = [op.size(tensor, 1)]
        result = op.BatchNormalization(
            wide,
            _filled(op, wide, channels, 1.0) if weight is None else weight,
            _filled(op, wide, channels, 0.0) if bias is None else bias,
            mean,
            variance,
            epsilon=eps,
        )
        nothing = op.constant([], wide.dtype)
        return op.cast(result, dtype), nothing, nothing, mean, variance
    axes = [axis for axis in range(len(tensor.shape)) if axis != 1]
    average = op.ReduceMean(wide, axes, keepdims=1)
    distance = op.Sub(wide, average)
    spread = op.ReduceMean(op.Mul(distance, distance), axes, keepdims=0)
    average = op.Squeeze(average, axes)
    inverse = op.Div(one, op.Sqrt(op.Add(spread, op.constant(eps, wide.dtype))))
    result = op.cast(_normalized(op, wide, weight, bias, average, inverse), dtype)
    if mean is not None:
        share = op.constant(momentum, wide.dtype)
        rest = op.constant(1.0 - momentum, wide.dtype)
        count = op.cast(op.Div(op.Size(tensor), op.cast(op.size(tensor, 1), ir.DataType.INT64)), wide.dtype)
        unbiased = op.Mul(spread, op.Div(count, op.Sub(count, one)))
        mean = op.Add(op.Mul(mean, rest), op.Mul(average, share))
        variance = op.Add(op.Mul(variance, rest), op.Mul(unbiased, share))
    return result, average, inverse, mean, variance


@lowering(aten.batch_norm.default)
def batch_norm(
    op: Builder, tensor: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float,
    eps: float, cudnn: bool = True,
) -> Any:  # fmt: skip
    return _batch_norm(op, tensor, weight, bias, mean, variance, training or mean is None, momentum, eps)[0]


@lowering(aten.native_batch_norm.default)
def native_batch_norm(
    op: Builder,
    tensor: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    return _batch_norm(op, tensor, weight, bias, mean, variance, training, momentum, eps)[:3]


@lowering(aten._native_batch_norm_legit_functional.default)
def native_batch_norm_functional(
    op: Builder,
    tensor: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    return _batch_norm(op, tensor, weight, bias, mean, variance, training, momentum, eps)


@lowering(aten._native_batch_norm_legit_no_training.default)
def native_batch_norm_in_use(
    op: Builder, tensor: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    return _batch_norm(op, tensor, weight, bias, mean, variance, False, momentum, eps)[:3]


@lowering(aten._native_batch_norm_legit.no_stats)
def native_batch_norm_without_statistics(
    op: Builder, tensor: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    return _batch_norm(op, tensor, weight, bias, None, None, True, momentum, eps)[:3]
