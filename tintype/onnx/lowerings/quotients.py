"""Quotients and remainders: of integers without going through floating-point numbers, of those as torch rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.elementwise import is_float, trunc
from tintype.onnx.registry import lowering

aten = torch.ops.aten


def _operands(op: Builder, left: Any, right: Any) -> tuple[Any, Any]:
    """Both as values of one dtype; one of them may be a number."""
    if not isinstance(left, ir.Value):
        return op.like(left, right), right
    return left, op.like(right, left)


def _zero(op: Builder, value: Any) -> Any:
    return op.constant(0, value.dtype)


def _rest(op: Builder, left: Any, right: Any) -> Any:
    """What a division that rounds towards zero leaves, with the sign of the dividend."""
    if is_float(left):
        return op.Mod(left, right, fmod=1)
    return op.Sub(left, op.Mul(op.Div(left, right), right))


def _is_off(op: Builder, rest: Any, right: Any) -> Any:
    """Whether a rest has another sign than the divisor, so that rounding down and towards zero differ."""
    zero = _zero(op, right)
    return op.And(op.Not(op.Equal(rest, zero)), op.Xor(op.Less(rest, zero), op.Less(right, zero)))


def _floored(op: Builder, left: Any, right: Any) -> Any:
    zero = _zero(op, left)
    if not is_float(left):
        quotient = op.Div(left, right)
        if left.dtype.is_signed():
            off = _is_off(op, _rest(op, left, right), right)
            quotient = op.Sub(quotient, op.cast(off, left.dtype))
        return quotient
    dtype, rounded = left.dtype, _rounded_to(op, left.dtype)
    if dtype is ir.DataType.FLOAT16:
        left, right = op.cast(left, ir.DataType.FLOAT), op.cast(right, ir.DataType.FLOAT)
        zero = _zero(op, left)
    # the exact quotient less its rest is nearly an integer: that integer
    rest = _rest(op, left, right)
    near = rounded(op.Div(rounded(op.Sub(left, rest)), right))
    near = rounded(op.Sub(near, op.cast(_is_off(op, rest, right), left.dtype)))
    below = op.Floor(near)
    whole = op.Add(below, op.cast(op.Greater(op.Sub(near, below), op.constant(0.5, left.dtype)), left.dtype))
    plain = op.Div(left, right)
    # 0 has the sign of the quotient; a division by 0 is infinite
    signed = op.Where(op.Equal(near, zero), op.Mul(plain, zero), whole)
    return op.cast(op.Where(op.Equal(right, zero), plain, signed), dtype)


def _rounded_to(op: Builder, dtype: ir.DataType) -> Callable[[Any], Any]:
    """What torch does to each step in half precision, where ONNX Runtime computes several in float32."""
    if dtype is not ir.DataType.FLOAT16:
        return lambda value: value
    return lambda value: op.cast(op.cast(value, dtype), ir.DataType.FLOAT)


@lowering(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(op: Builder, left: Any, right: Any) -> Any:
    return _floored(op, *_operands(op, left, right))


@lowering(aten.div.Tensor_mode, aten.div.Scalar_mode, aten.divide.Tensor_mode, aten.divide.Scalar_mode)
def divide(op: Builder, left: Any, right: Any, *, rounding_mode: str | None = None) -> Any:
    left, right = _operands(op, left, right)
    if rounding_mode == "floor":
        return _floored(op, left, right)
    quotient = op.Div(left, right)
    return trunc(op, quotient) if rounding_mode == "trunc" else quotient


@lowering(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(op: Builder, left: Any, right: Any) -> Any:
    return _rest(op, *_operands(op, left, right))


@lowering(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def remainder(op: Builder, left: Any, right: Any) -> Any:
    left, right = _operands(op, left, right)
    rest = _rest(op, left, right)
    return op.Where(_is_off(op, rest, right), op.Add(rest, right), rest)
