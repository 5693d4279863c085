"""What other libraries read from the bits of numbers, by arithmetic; and powers of integers, which wrap around."""

from __future__ import annotations

import math
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.formulas import BOOL, DOUBLE, INT64, Formula
from tintype.onnx.registry import lowering
from tintype.onnx.subgraphs import while_true

aten = torch.ops.aten
# by dtype: the bits of the mantissa, and the exponent of the smallest normal number
_SHAPES = {ir.DataType.FLOAT: (24, -125), ir.DataType.FLOAT16: (11, -13)}


def _power_of_two(op: Builder, exponent: Formula) -> Formula:
    return Formula(op, op.Pow(op.constant(2.0, DOUBLE), exponent.value))


def _parts(op: Builder, size: Formula) -> tuple[Formula, Formula]:
    """Mantissa in [1/2, 1) and exponent of numbers above 0, in double precision."""
    exponent = (size.Log() / math.log(2.0)).Floor() + 1.0
    mantissa = size / _power_of_two(op, exponent)
    # the logarithm may be off by a last bit at powers of two
    high, low = mantissa >= 1.0, mantissa < 0.5
    exponent = exponent.else_where(high, exponent + 1.0).else_where(low, exponent - 1.0)
    return mantissa.else_where(high, mantissa / 2.0).else_where(low, mantissa * 2.0), exponent


def _finite(size: Formula) -> Formula:
    return size.equals(0.0) | size.IsInf() | size.IsNaN()


@lowering(aten.frexp.Tensor)
def frexp(op: Builder, tensor: Any) -> Any:
    if tensor.dtype is DOUBLE:
        raise LoweringError("of numbers in double precision it has no form")
    x = Formula(op, tensor, DOUBLE)
    size = x.Abs()
    odd = _finite(size)
    mantissa, exponent = _parts(op, size.else_where(odd, 1.0))
    mantissa = (mantissa * x.Sign()).else_where(odd, x)
    return mantissa.value, exponent.else_where(odd, 0.0).cast(ir.DataType.INT32).value


@lowering(aten.nextafter.default)
def nextafter(op: Builder, left: Any, right: Any) -> Any:
    shape = _SHAPES.get(left.dtype)
    if shape is None:
        raise LoweringError(f"of {left.dtype} it has no form")
    bits, least = shape
    start, aim = Formula(op, left, DOUBLE), Formula(op, right, DOUBLE)
    size = start.Abs()
    mantissa, exponent = _parts(op, size.else_where(_finite(size), 1.0))
    exponent = exponent.Max(op.constant(float(least), DOUBLE))
    step = _power_of_two(op, exponent - float(bits))
    up = start < aim
    outwards = up.equals((start > 0.0).value)
    at_power = mantissa.equals(0.5) & (exponent > float(least))
    step = step.else_where(at_power & ~outwards, step / 2.0)
    smallest = 2.0 ** (least - bits)
    step = step.else_where(start.equals(0.0), smallest)
    moved = (start - step).else_where(up, start + step)
    largest = (1 - 2.0**-bits) * 2.0 ** (3 - least)
    inwards = Formula(op, op.constant(largest, DOUBLE)) * start.Sign()
    moved = moved.else_where(start.IsInf(), inwards)
    moved = moved.else_where(moved.Abs() > largest, moved.Sign() * math.inf)
    moved = moved.else_where(start.equals(aim.value), aim)
    return moved.else_where(start.IsNaN() | aim.IsNaN(), math.nan).value


@lowering(aten.pow.Tensor_Tensor, aten.pow.Scalar, aten.pow.Tensor_Scalar)
def power(op: Builder, base: Any, exponent: Any) -> Any:
    """Of integers by squaring, so that what is too large wraps around as it does in torch."""
    target = op.node.target
    result = op.node.meta["val"].dtype
    if result.is_floating_point and isinstance(exponent, ir.Value) and isinstance(base, ir.Value):
        return op.Pow(base, op.like(exponent, base))
    if result.is_floating_point or result.is_complex:
        function = op.program.torchlib.function(target, False)
        return function(base, exponent)
    wide_base, wide_exponent = op.cast(base, INT64), op.cast(exponent, INT64)
    shape = op.Shape(op.Add(wide_base, wide_exponent))
    one = op.Expand(op.constant(1, INT64), shape)
    below = op.Less(wide_exponent, 0)

    def going(inner: Builder, total: Any, square: Any, rest: Any) -> Any:
        return inner.Cast(inner.ReduceSum(rest, keepdims=0), to=BOOL)

    def step(inner: Builder, total: Any, square: Any, rest: Any) -> Any:
        odd = inner.Equal(inner.Mod(rest, 2), 1)
        new = inner.Where(odd, inner.Mul(total, square), total)
        return new, inner.Mul(square, square), inner.Div(rest, inner.constant(2, INT64))

    state = [one, op.Expand(wide_base, shape), op.Expand(op.Max(wide_exponent, op.constant(0, INT64)), shape)]
    total = while_true(op, going, step, state)[0]
    # a fraction is rounded to 0; only 1 and -1 have none
    sign = op.Where(op.Equal(op.Mod(wide_exponent, 2), 0), op.constant(1, INT64), wide_base)
    unit = op.Equal(op.Abs(wide_base), 1)
    fraction = op.Where(unit, op.Where(op.Equal(wide_base, 1), op.constant(1, INT64), sign), op.constant(0, INT64))
    return op.Where(below, fraction, total)
