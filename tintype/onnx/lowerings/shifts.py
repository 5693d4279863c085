"""Bits of integers moved to the left and to the right, in 64 bits whatever the dtype is; and beside those of a number
that may vary."""

from __future__ import annotations

from typing import Any

import torch

from tintype.onnx import dtypes
from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64, _UINT64 = ir.DataType.INT64, ir.DataType.UINT64


def _amount(op: Builder, amount: Any, instead: int) -> tuple[Any, Any]:
    """By how many places, and whether the dtype of the result has so many; where it has not, another amount."""
    result = dtypes.to_onnx(op.node.meta["val"].dtype)
    assert result is not None
    amount = op.cast(amount, _INT64)
    below = op.Less(amount, op.constant(result.itemsize * 8, _INT64))
    fits = op.And(op.GreaterOrEqual(amount, op.constant(0, _INT64)), below)
    return op.cast(op.Where(fits, amount, op.constant(instead, _INT64)), _UINT64), fits


@lowering(
    aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar, aten.bitwise_left_shift.Scalar_Tensor,
    aten.__lshift__.Tensor, aten.__lshift__.Scalar,
)  # fmt: skip
def left_shift(op: Builder, value: Any, amount: Any) -> Any:
    places, fits = _amount(op, amount, 0)
    bits = op.cast(op.cast(value, _INT64), _UINT64)
    return op.Where(fits, op.cast(op.BitShift(bits, places, direction="LEFT"), _INT64), op.constant(0, _INT64))


@lowering(
    aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar, aten.bitwise_right_shift.Scalar_Tensor,
    aten.__rshift__.Tensor, aten.__rshift__.Scalar,
)  # fmt: skip
def right_shift(op: Builder, value: Any, amount: Any) -> Any:
    """Of numbers below 0, what is moved is their complement, so that ones follow."""
    places, _ = _amount(op, amount, 63)
    wide = op.cast(value, _INT64)
    below = op.Less(wide, op.constant(0, _INT64))
    bits = op.cast(op.Where(below, op.BitwiseNot(wide), wide), _UINT64)
    moved = op.cast(op.BitShift(bits, places, direction="RIGHT"), _INT64)
    return op.Where(below, op.BitwiseNot(moved), moved)


def _bit_by_bit(name: str, other_name: str) -> None:
    packet, other = getattr(aten, name), getattr(aten, other_name)

    @lowering(packet.Scalar, packet.Scalar_Tensor, other.Scalar)
    def lower(op: Builder, left: Any, right: Any) -> Any:
        tensor = right if op.node.target is packet.Scalar_Tensor else left
        word = name.removeprefix("bitwise_").title()
        word = word if tensor.dtype is ir.DataType.BOOL else f"Bitwise{word}"
        return op.emit(word, op.like(left, tensor), op.like(right, tensor))


_bit_by_bit("bitwise_and", "__and__")
_bit_by_bit("bitwise_or", "__or__")
_bit_by_bit("bitwise_xor", "__xor__")
