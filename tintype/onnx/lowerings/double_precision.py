"""Functions in double precision for which ONNX Runtime's processor has kernels in float32 only: formulas that are as
exact as the dtype is, also where a plain one would lose most digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tintype.onnx.builder import Builder, form_of
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.approximations import scaled_erfc
from tintype.onnx.lowerings.formulas import DOUBLE, INT64, Formula, polynomial
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_LOG_2 = math.log(2.0)
# beyond it, the square of a number says nothing of 1 beside it
_LARGE = 1e8


def _in_double(*operations: str) -> Callable[[Callable[[Formula], Formula]], Callable[[Formula], Formula]]:
    """Register a formula for operators of one number."""

    def register(function: Callable[[Formula], Formula]) -> Callable[[Formula], Formula]:
        def lower(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
            return function(Formula(op, values[0])).value if values[0].dtype is DOUBLE else None

        form_of(*operations)(lower)
        return function

    return register


def _signed(x: Formula, size: Formula) -> Formula:
    """A number of this size with the sign of another one, where that is not 0."""
    return size.else_where(x < 0.0, -size)


def _log1p(u: Formula) -> Formula:
    """log(1 + u), which is u where that is small: what 1 + u rounds to is put right again."""
    one = u + 1.0
    rest = one - 1.0
    tiny = rest.equals(0.0)
    exact = one.Log() * (u / rest.else_where(tiny, 1.0))
    return exact.else_where(tiny, u).else_where(u.equals(math.inf), math.inf)


@_in_double("Tan")
def tan(x: Formula) -> Formula:
    return x.Sin() / x.Cos()


@_in_double("Sinh")
def sinh(x: Formula) -> Formula:
    square = x * x
    series: Any = 1.0
    for number in range(21, 1, -2):
        series = series * square * (1 / (number * (number - 1))) + 1.0
    large = (x - _LOG_2).Exp() - (-x - _LOG_2).Exp()
    return large.else_where(x.Abs() < 1.0, x * series)


@_in_double("Cosh")
def cosh(x: Formula) -> Formula:
    return (x - _LOG_2).Exp() + (-x - _LOG_2).Exp()


@_in_double("Asinh")
def asinh(x: Formula) -> Formula:
    size = x.Abs()
    near = size.else_where(size > _LARGE, 1.0)
    value = _log1p(near + near * near / (1.0 + (near * near + 1.0).Sqrt()))
    return _signed(x, value.else_where(size > _LARGE, size.Log() + _LOG_2)).else_where(x.equals(0.0), x)


@_in_double("Acosh")
def acosh(x: Formula) -> Formula:
    near = x.else_where(x > _LARGE, 1.0) - 1.0
    value = _log1p(near + (near * (near + 2.0)).Sqrt())
    return value.else_where(x > _LARGE, x.Log() + _LOG_2).else_where(x < 1.0, math.nan)


@_in_double("Atanh")
def atanh(x: Formula) -> Formula:
    size = x.Abs()
    return _signed(x, _log1p(2.0 * size / (1.0 - size)) * 0.5).else_where(size > 1.0, math.nan)


@_in_double("Atan")
def atan(x: Formula) -> Formula:
    """Of a number that is at most 1, halved twice, by its series."""
    size = x.Abs()
    beyond = size > 1.0
    t = size.else_where(beyond, 1.0 / size.Max(size.op.constant(1.0, DOUBLE)))
    for _ in range(2):
        t = t / (1.0 + (1.0 + t * t).Sqrt())
    series = polynomial(t * t, [(-1) ** (number // 2) / number for number in range(25, 0, -2)])
    angle = 4.0 * t * series
    angle = angle.else_where(beyond, math.pi / 2 - angle)
    return _signed(x, angle).else_where(x.equals(0.0) | x.IsNaN(), x)


@_in_double("Asin")
def asin(x: Formula) -> Formula:
    return atan(x / ((1.0 - x) * (1.0 + x)).Sqrt())


@_in_double("Acos")
def acos(x: Formula) -> Formula:
    return 2.0 * atan(((1.0 - x) / (1.0 + x)).Sqrt())


@_in_double("Erf")
def erf(x: Formula) -> Formula:
    size = x.Abs()
    near = size.Min(size.op.constant(1.0, DOUBLE))
    coefficients = [(-1) ** number / (math.factorial(number) * (2 * number + 1)) for number in range(20, -1, -1)]
    series = near * polynomial(near * near, coefficients) * (2 / math.sqrt(math.pi))
    value = (1.0 - scaled_erfc(size) * (-(size * size)).Exp()).else_where(size < 1.0, series)
    return _signed(x, value).else_where(x.equals(0.0) | x.IsNaN(), x)


@_in_double("Softsign")
def softsign(x: Formula) -> Formula:
    return x / (x.Abs() + 1.0)


@form_of("Gelu")
def gelu(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    if values[0].dtype is not DOUBLE:
        return None
    x = Formula(op, values[0])
    if attributes.get("approximate", "none") == "tanh":
        return (x * 0.5 * (1.0 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).Tanh())).value
    return (x * 0.5 * (1.0 + (x * math.sqrt(0.5)).Erf())).value


@form_of("LogSoftmax")
def log_softmax(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """The kernel passes over nan, and makes numbers of rows with infinite ones."""
    if values[0].dtype is not DOUBLE:
        return None
    axes = [attributes.get("axis", -1)]
    distance = op.Sub(values[0], op.ReduceMax(values[0], axes, keepdims=1))
    return op.Sub(distance, op.Log(op.ReduceSum(op.Exp(distance), axes, keepdims=1)))


@form_of("PRelu")
def prelu(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    tensor, slope = values
    if tensor.dtype is not DOUBLE:
        return None
    return op.Where(op.Less(tensor, op.constant(0.0, DOUBLE)), op.Mul(tensor, slope), tensor)


@form_of("LayerNormalization", "RMSNormalization")
def layer_normalization(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """The operators have their small number in float32."""
    tensor, scale, bias = (*values, None)[:3]
    if tensor.dtype is not DOUBLE or tensor.shape is None:
        return None
    rank = len(tensor.shape)
    axes = list(range(attributes.get("axis", -1) % rank, rank))
    average = None if operation == "RMSNormalization" else op.ReduceMean(tensor, axes, keepdims=1)
    centred = tensor if average is None else op.Sub(tensor, average)
    spread = op.ReduceMean(op.Mul(centred, centred), axes, keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(op.Add(spread, op.constant(attributes.get("epsilon", 1e-5), DOUBLE))))
    result = op.Mul(op.Mul(centred, inverse), scale)
    result = result if bias is None else op.Add(result, bias)
    return result if average is None else (result, average, inverse)


@form_of("BatchNormalization")
def batch_normalization(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    tensor, *statistics = values
    if tensor.dtype is not DOUBLE or tensor.shape is None or attributes.get("training_mode"):
        return None
    axes = [axis for axis in range(len(tensor.shape)) if axis != 1]
    scale, bias, average, spread = (op.Unsqueeze(each, axes) if axes else each for each in statistics)
    inverse = op.Reciprocal(op.Sqrt(op.Add(spread, op.constant(attributes.get("epsilon", 1e-5), DOUBLE))))
    return op.Add(op.Mul(op.Mul(op.Sub(tensor, average), inverse), scale), bias)


@form_of("InstanceNormalization")
def instance_normalization(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    tensor, scale, bias = values
    if tensor.dtype is not DOUBLE or tensor.shape is None:
        return None
    axes = list(range(2, len(tensor.shape)))
    centred = op.Sub(tensor, op.ReduceMean(tensor, axes, keepdims=1))
    spread = op.ReduceMean(op.Mul(centred, centred), axes, keepdims=1)
    normal = op.Div(centred, op.Sqrt(op.Add(spread, op.constant(attributes.get("epsilon", 1e-5), DOUBLE))))
    scale, bias = (op.Unsqueeze(each, [axis - 1 for axis in axes]) if axes else each for each in (scale, bias))
    return op.Add(op.Mul(normal, scale), bias)


@lowering(aten.erfc.default, aten.special_erfc.default)
def erfc(op: Builder, tensor: Any) -> Any:
    """In float32 it is what is left of 1; in double precision its tail has all digits."""
    if tensor.dtype is not DOUBLE:
        return op.Sub(op.constant(1.0, tensor.dtype), op.Erf(tensor))
    x = Formula(op, tensor)
    size = x.Abs()
    tail = scaled_erfc(size) * (-(size * size)).Exp()
    return tail.else_where(x < 0.5, 1.0 - x.Erf()).else_where(x.IsNaN(), x).value


def _logarithm(target: Any, base: float) -> None:
    @lowering(target)
    def lower(op: Builder, tensor: Any) -> Any:
        return op.Div(op.Log(tensor), op.constant(math.log(base), tensor.dtype))


_logarithm(aten.log2.default, 2.0)
_logarithm(aten.log10.default, 10.0)


@form_of("Col2Im")
def columns_to_images(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """Each element added to its place, where sizes are fixed."""
    columns, image, block = values
    sizes, kernel = image.array, block.array
    if columns.dtype is not DOUBLE or sizes is None or kernel is None:
        return None
    rank = sizes.size
    pads = attributes.get("pads", [0] * 2 * rank)
    padded = [int(size) + pads[axis] + pads[axis + rank] for axis, size in enumerate(sizes)]
    places = _places(padded, [int(size) for size in kernel], attributes)
    batch, count = op.size(columns, 0), int(np.prod(kernel))
    width = op.size(columns, 1)
    channels = width // count if isinstance(width, int) else op.Div(width, count)
    rows = op.Reshape(columns, op.vector([batch, channels, places.size]), allowzero=1)
    zeros = op.Expand(op.constant(0.0, DOUBLE), op.vector([batch, channels, int(np.prod(padded))]))
    index = op.Expand(op.constant(places.reshape(1, 1, -1), INT64), op.vector([batch, channels, places.size]))
    summed = op.ScatterElements(zeros, index, rows, axis=2, reduction="add")
    whole = op.Reshape(summed, op.vector([batch, channels, *padded]), allowzero=1)
    whole.shape = ir.Shape([None, None, *padded])
    axes = list(range(2, 2 + rank))
    ends = [pads[axis] + int(size) for axis, size in enumerate(sizes)]
    return op.Slice(whole, [int(pad) for pad in pads[:rank]], ends, axes)


def _places(padded: list[int], kernel: list[int], attributes: dict[str, Any]) -> Any:
    """Where in an image with its padding each element of a column lies: by place in the block, then by block."""
    rank = len(padded)
    strides = attributes.get("strides", [1] * rank)
    dilations = attributes.get("dilations", [1] * rank)
    total: Any = np.zeros([1] * (2 * rank), dtype=np.int64)
    for axis, size in enumerate(padded):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        starts = np.arange((size - reach) // strides[axis] + 1) * strides[axis]
        inside = np.arange(kernel[axis]) * dilations[axis]
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = inside.size, starts.size
        along = inside[:, None] + starts[None, :]
        total = total * size + along.reshape(shape)
    return total.reshape(-1)
