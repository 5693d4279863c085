"""Operators that work element by element, where torchlib has none or treats integers, nan or signs otherwise."""

from __future__ import annotations

import math
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering
from tintype.onnx.subgraphs import while_true

aten = torch.ops.aten
_INT64, _BOOL = ir.DataType.INT64, ir.DataType.BOOL


def is_float(value: Any) -> bool:
    """Whether a value has a floating-point dtype."""
    return value.dtype is not None and value.dtype.is_floating_point()


def _rounding(target: Any, name: str) -> None:
    @lowering(target)
    def lower(op: Builder, tensor: Any) -> Any:
        return getattr(op, name)(tensor) if is_float(tensor) else tensor


_rounding(aten.ceil.default, "Ceil")
_rounding(aten.floor.default, "Floor")
_rounding(aten.round.default, "Round")


@lowering(aten.trunc.default, aten.fix.default)
def trunc(op: Builder, tensor: Any) -> Any:
    return op.Mul(op.Sign(tensor), op.Floor(op.Abs(tensor))) if is_float(tensor) else tensor


@lowering(aten.sign.default)
def sign(op: Builder, tensor: Any) -> Any:
    """Of nan it is 0, where ONNX Runtime has nan."""
    if tensor.dtype is _BOOL:
        return tensor
    if not is_float(tensor):
        return op.Sign(tensor)
    return op.Where(op.IsNaN(tensor), op.constant(0.0, tensor.dtype), op.Sign(tensor))


@lowering(aten.log_sigmoid.default)
def log_sigmoid(op: Builder, tensor: Any) -> Any:
    """So that it is finite far below 0, where the sigmoid itself is 0."""
    return op.Neg(op.Softplus(op.Neg(tensor)))


@lowering(aten.frac.default)
def frac(op: Builder, tensor: Any) -> Any:
    return op.Sub(tensor, trunc(op, tensor))


@lowering(aten.relu.default)
def relu(op: Builder, tensor: Any) -> Any:
    return op.Relu(tensor) if is_float(tensor) else op.Max(tensor, op.constant(0, tensor.dtype))


def is_negative(op: Builder, tensor: Any) -> Any:
    """The sign bit: also of -0.0."""
    below = op.Less(tensor, op.constant(0, tensor.dtype))
    if not is_float(tensor):
        return below
    zero = op.And(
        op.Equal(tensor, op.constant(0, tensor.dtype)), op.Less(op.Reciprocal(tensor), op.constant(0, tensor.dtype))
    )
    return op.Or(below, zero)


@lowering(aten.signbit.default)
def signbit(op: Builder, tensor: Any) -> Any:
    if tensor.dtype is _BOOL:
        return op.Expand(op.constant(False), op.Shape(tensor))
    return is_negative(op, tensor)


@lowering(aten.copysign.Tensor, aten.copysign.Scalar)
def copysign(op: Builder, tensor: Any, sign: Any) -> Any:
    size = op.Abs(tensor)
    return op.Where(is_negative(op, op.like(sign, tensor)), op.Neg(size), size)


@lowering(aten.atan2.default, aten.arctan2.default)
def atan2(op: Builder, y: Any, x: Any) -> Any:
    zero = op.constant(0.0, x.dtype)
    upright = op.Equal(x, zero)
    quotient = op.Where(upright, zero, op.Div(y, op.Where(upright, op.constant(1.0, x.dtype), x)))
    infinite = op.And(op.IsInf(x), op.IsInf(y))
    quotient = op.Where(infinite, op.Mul(op.Sign(x), op.Sign(y)), quotient)
    down = is_negative(op, y)
    half_turn = op.Where(down, op.constant(-math.pi, x.dtype), op.constant(math.pi, x.dtype))
    turned = op.Where(is_negative(op, x), half_turn, zero)
    angle = op.Add(op.Atan(quotient), turned)
    quarter = op.Where(down, op.constant(-math.pi / 2, x.dtype), op.constant(math.pi / 2, x.dtype))
    flat = op.Equal(y, zero)
    return op.Where(op.And(upright, op.Not(flat)), op.Where(op.IsNaN(y), y, quarter), angle)


def _ignoring_nan(target: Any, name: str) -> None:
    @lowering(target)
    def lower(op: Builder, left: Any, right: Any) -> Any:
        chosen = getattr(op, name)(left, right)
        if not is_float(left):
            return chosen
        return op.Where(op.IsNaN(left), right, op.Where(op.IsNaN(right), left, chosen))


_ignoring_nan(aten.fmax.default, "Max")
_ignoring_nan(aten.fmin.default, "Min")


@lowering(aten.gcd.default)
def gcd(op: Builder, left: Any, right: Any) -> Any:
    """Euclid's, until nothing is left anywhere."""
    dtype = left.dtype
    shape = op.Shape(op.Add(op.cast(left, _INT64), op.cast(right, _INT64)))
    first = op.Expand(op.Abs(op.cast(left, _INT64)), shape)
    second = op.Expand(op.Abs(op.cast(right, _INT64)), shape)

    def going(inner: Builder, a: Any, b: Any) -> Any:
        # a sum, since nothing is the largest of no elements
        return inner.Cast(inner.ReduceSum(inner.Cast(inner.Not(inner.Equal(b, 0)), to=_INT64), keepdims=0), to=_BOOL)

    def step(inner: Builder, a: Any, b: Any) -> Any:
        is_done = inner.Equal(b, 0)
        rest = inner.Mod(a, inner.Where(is_done, inner.constant(1, _INT64), b))
        return inner.Where(is_done, a, b), inner.Where(is_done, b, rest)

    return op.cast(while_true(op, going, step, [first, second])[0], dtype)


@lowering(aten.lcm.default)
def lcm(op: Builder, left: Any, right: Any) -> Any:
    common = gcd(op, left, right)
    is_zero = op.Equal(common, op.constant(0, common.dtype))
    safe = op.Where(is_zero, op.constant(1, common.dtype), common)
    return op.Abs(op.Mul(op.Div(left, safe), right))


@lowering(aten.logaddexp.default)
def logaddexp(op: Builder, left: Any, right: Any) -> Any:
    return _log_sum(op, left, right)


def _log_sum(op: Builder, left: Any, right: Any) -> Any:
    """log(exp(a) + exp(b)), where the larger of the two may be infinite."""
    largest, smallest = op.Max(left, right), op.Min(left, right)
    same = op.Equal(left, right)
    distance = op.Where(same, op.constant(0.0, left.dtype), op.Sub(smallest, largest))
    total = op.Add(largest, op.Log(op.Add(op.Exp(distance), op.constant(1.0, left.dtype))))
    return op.Where(op.And(op.IsInf(left), same), left, total)


@lowering(aten.isclose.default)
def isclose(
    op: Builder, left: Any, right: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    close = op.Equal(left, right)
    if equal_nan and is_float(left):
        close = op.Or(close, op.And(op.IsNaN(left), op.IsNaN(right)))
    if rtol == 0 and atol == 0:
        return close
    if not is_float(left):
        left, right = op.cast(left, ir.DataType.FLOAT), op.cast(right, ir.DataType.FLOAT)
    distance = op.Abs(op.Sub(left, right))
    allowed = op.Add(op.Abs(op.Mul(right, op.constant(rtol, right.dtype))), op.constant(atol, right.dtype))
    # an infinite distance is allowed beside nothing, not even an infinite number
    near = op.And(op.Not(op.IsInf(distance)), op.LessOrEqual(distance, allowed))
    return op.Or(close, near)


@lowering(aten.heaviside.default)
def heaviside(op: Builder, tensor: Any, at_zero: Any) -> Any:
    zero = op.constant(0, tensor.dtype)
    above = op.cast(op.Greater(tensor, zero), tensor.dtype)
    return op.Where(op.Equal(tensor, zero), op.like(at_zero, tensor), above)


@lowering(aten.logical_xor.default)
def logical_xor(op: Builder, left: Any, right: Any) -> Any:
    return op.Xor(op.cast(left, _BOOL), op.cast(right, _BOOL))


@lowering(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(op: Builder, tensor: Any, mask: Any, value: Any) -> Any:
    return op.Where(op.cast(mask, _BOOL), op.like(value, tensor), tensor)


@lowering(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def where(op: Builder, condition: Any, first: Any, second: Any) -> Any:
    if not isinstance(first, ir.Value):
        first = op.like(first, second) if isinstance(second, ir.Value) else op.constant(first)
    return op.Where(op.cast(condition, _BOOL), first, op.like(second, first))


@lowering(aten.fill.Scalar, aten.fill.Tensor)
def fill(op: Builder, tensor: Any, value: Any) -> Any:
    return op.Expand(op.like(value, tensor), op.Shape(tensor))
