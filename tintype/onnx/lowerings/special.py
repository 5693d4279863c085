"""Functions that ONNX has no operators for, by approximations that are as good as float32 is."""

from __future__ import annotations

import math
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.approximations import scaled_erfc
from tintype.onnx.lowerings.formulas import Formula
from tintype.onnx.registry import lowering

aten = torch.ops.aten


def _wide(op: Builder, tensor: Any) -> Any:
    """In float32 at least: half precision would lose what approximations rest on."""
    return (
        op.Cast(tensor, to=ir.DataType.FLOAT)
        if tensor.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
        else tensor
    )


def _number(op: Builder, value: float, like: Any) -> Any:
    return op.constant(value, like.dtype)


@lowering(aten.hypot.default)
def hypot(op: Builder, left: Any, right: Any) -> Any:
    a, b = op.Abs(left), op.Abs(right)
    large = op.Max(a, b)
    safe = op.Where(op.Equal(large, _number(op, 0.0, a)), _number(op, 1.0, a), large)
    small = op.Div(op.Min(a, b), safe)
    return op.Mul(large, op.Sqrt(op.Add(op.Mul(small, small), _number(op, 1.0, a))))


@lowering(aten.sinc.default, aten.special_sinc.default)
def sinc(op: Builder, tensor: Any) -> Any:
    x = op.Mul(tensor, _number(op, math.pi, tensor))
    is_zero = op.Equal(x, _number(op, 0.0, x))
    safe = op.Where(is_zero, _number(op, 1.0, x), x)
    return op.Where(is_zero, _number(op, 1.0, x), op.Div(op.Sin(safe), safe))


@lowering(aten.angle.default)
def angle(op: Builder, tensor: Any) -> Any:
    dtype = tensor.dtype if tensor.dtype.is_floating_point() else ir.DataType.FLOAT
    x = op.cast(tensor, dtype)
    turned = op.Where(op.Less(x, _number(op, 0.0, x)), _number(op, math.pi, x), _number(op, 0.0, x))
    return op.Where(op.IsNaN(x), x, turned) if tensor.dtype.is_floating_point() else turned


_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


@lowering(aten.lgamma.default, aten.special_gammaln.default)
def lgamma(op: Builder, tensor: Any) -> Any:
    """Lanczos' approximation; below 1/2 by reflection. In double precision, since its terms cancel."""
    double = ir.DataType.DOUBLE
    given = op.cast(tensor, double)
    one, half = op.constant(1.0, double), op.constant(0.5, double)
    low = op.Less(given, half)
    x = op.Sub(op.Where(low, op.Sub(one, given), given), one)
    total: Any = op.constant(_LANCZOS[0], double)
    for number, coefficient in enumerate(_LANCZOS[1:], 1):
        total = op.Add(total, op.Div(op.constant(coefficient, double), op.Add(x, op.constant(float(number), double))))
    t = op.Add(x, op.constant(7.5, double))
    value = op.Add(
        op.Sub(op.Add(op.constant(0.5 * math.log(2 * math.pi), double), op.Mul(op.Add(x, half), op.Log(t))), t),
        op.Log(total),
    )
    sine = op.Abs(op.Sin(op.Mul(op.constant(math.pi, double), op.Sub(given, op.Floor(given)))))
    reflected = op.Sub(op.Sub(op.constant(math.log(math.pi), double), op.Log(sine)), value)
    whole = op.And(op.LessOrEqual(given, op.constant(0.0, double)), op.Equal(given, op.Floor(given)))
    result = op.Where(low, op.Where(whole, op.constant(math.inf, double), reflected), value)
    return op.cast(op.Where(op.IsInf(given), op.constant(math.inf, double), result), tensor.dtype)


@lowering(aten.digamma.default, aten.special_digamma.default)
def digamma(op: Builder, tensor: Any) -> Any:
    """The asymptotic series, from where it holds; below 0 by reflection."""
    double = ir.DataType.DOUBLE
    given = op.cast(tensor, double)
    zero, one = op.constant(0.0, double), op.constant(1.0, double)
    low = op.Less(given, zero)
    x = op.Where(low, op.Sub(one, given), given)
    steps: Any = zero
    for number in range(8):
        steps = op.Add(steps, op.Reciprocal(op.Add(x, op.constant(float(number), double))))
    shifted = op.Add(x, op.constant(8.0, double))
    inverse = op.Reciprocal(shifted)
    square = op.Mul(inverse, inverse)
    value = op.Sub(
        op.Sub(op.Sub(op.Log(shifted), op.Div(inverse, op.constant(2.0, double))), _signs(op, square)), steps
    )
    part = op.Sub(given, op.Floor(given))
    turn = op.Mul(op.constant(math.pi, double), part)
    reflected = op.Sub(value, op.Div(op.Mul(op.constant(math.pi, double), op.Cos(turn)), op.Sin(turn)))
    whole = op.And(op.Less(given, zero), op.Equal(part, zero))
    result = op.Where(low, op.Where(whole, op.constant(math.nan, double), reflected), value)
    result = op.Where(op.Equal(given, zero), op.Neg(op.Reciprocal(given)), result)
    return op.cast(result, tensor.dtype)


def _signs(op: Builder, square: Any) -> Any:
    """1/(12 x^2) - 1/(120 x^4) + 1/(252 x^6) - 1/(240 x^8) + 1/(132 x^10)."""
    double = ir.DataType.DOUBLE
    total: Any = op.constant(1 / 132, double)
    for coefficient in (-1 / 240, 1 / 252, -1 / 120, 1 / 12):
        total = op.Add(op.Mul(total, square), op.constant(coefficient, double))
    return op.Mul(total, square)


@lowering(aten.special_entr.default)
def entr(op: Builder, tensor: Any) -> Any:
    zero = _number(op, 0.0, tensor)
    value = op.Neg(op.Mul(tensor, op.Log(op.Where(op.Greater(tensor, zero), tensor, _number(op, 1.0, tensor)))))
    value = op.Where(op.Less(tensor, zero), _number(op, -math.inf, tensor), value)
    return op.Where(op.IsNaN(tensor), tensor, value)


@lowering(aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other)
def xlogy(op: Builder, factor: Any, argument: Any) -> Any:
    dtype = getattr(factor, "dtype", None) or argument.dtype  # one of them may be a number
    factor, argument = (
        op.constant(each, dtype) if type(each) in (int, float) else each for each in (factor, argument)
    )
    value = op.Mul(factor, op.Log(argument))
    is_nothing = op.And(op.Equal(factor, _number(op, 0.0, factor)), op.Not(op.IsNaN(argument)))
    return op.Where(is_nothing, _number(op, 0.0, value), value)


@lowering(aten.special_xlog1py.default, aten.special_xlog1py.self_scalar, aten.special_xlog1py.other_scalar)
def xlog1py(op: Builder, factor: Any, argument: Any) -> Any:
    if type(argument) in (int, float):
        return xlogy(op, factor, argument + 1.0)
    return xlogy(op, factor, op.Add(argument, _number(op, 1.0, argument)))


@lowering(aten.special_spherical_bessel_j0.default)
def spherical_bessel_j0(op: Builder, tensor: Any) -> Any:
    is_zero = op.Equal(tensor, _number(op, 0.0, tensor))
    safe = op.Where(is_zero, _number(op, 1.0, tensor), tensor)
    return op.Where(is_zero, _number(op, 1.0, tensor), op.Div(op.Sin(safe), safe))


@lowering(aten.erfinv.default, aten.special_erfinv.default)
def erfinv(op: Builder, tensor: Any) -> Any:
    """Giles' polynomials, made better by two steps of Newton's method."""
    x = _wide(op, tensor)
    one = _number(op, 1.0, x)
    w = op.Neg(op.Log(op.Mul(op.Sub(one, x), op.Add(one, x))))
    near = op.Less(w, _number(op, 5.0, x))
    value = op.Mul(op.Where(near, _polynomial(op, op.Sub(w, _number(op, 2.5, x)), _NEAR), _far(op, w)), x)
    for _ in range(2):
        error = op.Sub(op.Erf(value), x)
        slope = op.Mul(op.Exp(op.Neg(op.Mul(value, value))), _number(op, 2 / math.sqrt(math.pi), x))
        better = op.Sub(value, op.Div(error, slope))
        value = op.Where(near, better, value)
    if x.dtype is ir.DataType.DOUBLE:
        value = op.Where(near, value, _in_the_tail(op, value, x))
    edge = op.Equal(op.Abs(x), one)
    value = op.Where(edge, op.Mul(op.Sign(x), _number(op, math.inf, x)), value)
    outside = op.Greater(op.Abs(x), one)
    return op.cast(op.Where(outside, _number(op, math.nan, x), value), tensor.dtype)


def _in_the_tail(op: Builder, value: Any, x: Any) -> Any:
    """The inverse where what is left of 1 says more than the number: by its logarithm, which is nearly a parabola."""
    size = Formula(op, value).Abs()
    wanted = (1.0 - Formula(op, x).Abs()).Log()
    for _ in range(3):
        scaled = scaled_erfc(size)
        size = size + (scaled.Log() - size * size - wanted) * scaled * (math.sqrt(math.pi) / 2)
    return op.Mul(op.Sign(x), size.value)


_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def _polynomial(op: Builder, x: Any, coefficients: tuple[float, ...]) -> Any:
    total: Any = _number(op, coefficients[0], x)
    for coefficient in coefficients[1:]:
        total = op.Add(op.Mul(total, x), _number(op, coefficient, x))
    return total


def _far(op: Builder, w: Any) -> Any:
    safe = op.Max(w, _number(op, 0.0, w))
    return _polynomial(op, op.Sub(op.Sqrt(safe), _number(op, 3.0, w)), _FAR)


@lowering(aten.binary_cross_entropy.default)
def binary_cross_entropy(op: Builder, tensor: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    least = _number(op, -100.0, tensor)
    one = _number(op, 1.0, tensor)
    first = op.Mul(target, op.Max(op.Log(tensor), least))
    second = op.Mul(op.Sub(one, target), op.Max(op.Log(op.Sub(one, tensor)), least))
    loss = op.Neg(op.Add(first, second))
    if weight is not None:
        loss = op.Mul(loss, weight)
    if reduction == 0:
        return loss
    return op.ReduceMean(loss, keepdims=0) if reduction == 1 else op.ReduceSum(loss, keepdims=0)
