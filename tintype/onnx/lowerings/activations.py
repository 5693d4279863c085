"""Activations whose slopes vary from call to call, where ONNX has attributes, which do not; and those in double
precision, for which ONNX Runtime has no kernels."""

from __future__ import annotations

from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_SELU_SLOPE, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _has_kernel(tensor: Any, *numbers: Any) -> bool:
    return tensor.dtype is not ir.DataType.DOUBLE and not any(isinstance(number, ir.Value) for number in numbers)


def _parted(op: Builder, tensor: Any, below: Any) -> Any:
    """A tensor where it is not below 0, and something else where it is."""
    return op.Where(op.Less(tensor, op.constant(0.0, tensor.dtype)), below, tensor)


@lowering(aten.leaky_relu.default)
def leaky_relu(op: Builder, tensor: Any, negative_slope: Any = 0.01) -> Any:
    if _has_kernel(tensor, negative_slope):
        return op.LeakyRelu(tensor, alpha=float(negative_slope))
    return _parted(op, tensor, op.Mul(tensor, op.like(negative_slope, tensor)))


@lowering(aten.elu.default)
def elu(op: Builder, tensor: Any, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Any:
    if _has_kernel(tensor, alpha, scale, input_scale) and input_scale == 1:
        result = op.Elu(tensor, alpha=float(alpha))
        return result if scale == 1 else op.Mul(result, op.constant(scale, tensor.dtype))
    raised = op.Sub(op.Exp(op.Mul(tensor, op.like(input_scale, tensor))), op.constant(1.0, tensor.dtype))
    return op.Mul(_parted(op, tensor, op.Mul(raised, op.like(alpha, tensor))), op.like(scale, tensor))


@lowering(aten.celu.default)
def celu(op: Builder, tensor: Any, alpha: Any = 1.0) -> Any:
    if _has_kernel(tensor, alpha) and tensor.dtype is ir.DataType.FLOAT:
        return op.Celu(tensor, alpha=float(alpha))
    alpha = op.like(alpha, tensor)
    raised = op.Sub(op.Exp(op.Div(tensor, alpha)), op.constant(1.0, tensor.dtype))
    return _parted(op, tensor, op.Mul(raised, alpha))


@lowering(aten.hardtanh_backward.default)
def hardtanh_backward(op: Builder, gradient: Any, tensor: Any, low: Any, high: Any) -> Any:
    """Nothing flows back from the bounds themselves."""
    beyond = op.Or(op.LessOrEqual(tensor, op.like(low, tensor)), op.GreaterOrEqual(tensor, op.like(high, tensor)))
    return op.Where(beyond, op.constant(0.0, gradient.dtype), gradient)


@lowering(aten.selu.default)
def selu(op: Builder, tensor: Any) -> Any:
    return op.Selu(tensor) if _has_kernel(tensor) else elu(op, tensor, _SELU_SLOPE, _SELU_SCALE)
