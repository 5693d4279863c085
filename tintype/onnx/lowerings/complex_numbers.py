"""Complex numbers, which are pairs of real ones along a last dimension: what torchlib leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering, lowering_of_complex

aten = torch.ops.aten
_INT64 = ir.DataType.INT64


def parts_of(op: Builder, tensor: Any) -> tuple[Any, Any]:
    """The real and the imaginary part."""
    parts = [op.Gather(tensor, op.constant(each, _INT64), axis=-1) for each in (0, 1)]
    if tensor.shape is not None:
        for part in parts:
            part.shape = ir.Shape(list(tensor.shape)[:-1])
    return parts[0], parts[1]


def joined(op: Builder, real: Any, imaginary: Any) -> Any:
    """Complex numbers of real and imaginary parts."""
    return op.Concat(op.Unsqueeze(real, [-1]), op.Unsqueeze(imaginary, [-1]), axis=-1)


def _rank(tensor: Any) -> int:
    return len(tensor.shape) - 1


@lowering_of_complex(aten._conj_physical.default, aten.conj_physical.default, aten._conj.default, aten.conj.default)
def conj(op: Builder, tensor: Any) -> Any:
    return op.Mul(tensor, op.constant([1.0, -1.0], tensor.dtype))


@lowering_of_complex(aten.constant_pad_nd.default)
def constant_pad_nd(op: Builder, tensor: Any, padding: Sequence[Any], value: Any = 0) -> Any:
    rank = _rank(tensor)
    before: list[Any] = [0] * (rank + 1)
    after: list[Any] = [0] * (rank + 1)
    for position in range(len(padding) // 2):
        before[rank - 1 - position] = padding[2 * position]
        after[rank - 1 - position] = padding[2 * position + 1]
    amounts = op.vector([*before, *after])
    filler = complex(value)
    if filler.imag == 0 and filler.real == 0:
        return op.Pad(tensor, amounts, op.constant(0.0, tensor.dtype))
    parts = (filler.real, filler.imag)
    padded = [op.Pad(tensor, amounts, op.constant(part, tensor.dtype)) for part in parts]
    return op.Concat(op.Slice(padded[0], [0], [1], [rank]), op.Slice(padded[1], [1], [2], [rank]), axis=rank)


@lowering_of_complex(aten.unsqueeze.default)
def unsqueeze(op: Builder, tensor: Any, dim: int) -> Any:
    rank = _rank(tensor)
    return op.Unsqueeze(tensor, [dim % (rank + 1)])


@lowering_of_complex(aten.transpose.int)
def transpose(op: Builder, tensor: Any, first: int, second: int) -> Any:
    rank = _rank(tensor)
    order = list(range(rank + 1))
    if rank:
        order[first % rank], order[second % rank] = order[second % rank], order[first % rank]
    return op.Transpose(tensor, perm=order)


@lowering_of_complex(aten.permute.default)
def permute(op: Builder, tensor: Any, dims: Sequence[int]) -> Any:
    rank = _rank(tensor)
    return op.Transpose(tensor, perm=[*(each % rank for each in dims), rank])


@lowering_of_complex(aten.silu.default)
def silu(op: Builder, tensor: Any) -> Any:
    """z / (1 + exp(-z))."""
    real, imaginary = parts_of(op, tensor)
    size = op.Exp(op.Neg(real))
    below_real = op.Add(op.Mul(size, op.Cos(imaginary)), op.constant(1.0, tensor.dtype))
    below_imaginary = op.Neg(op.Mul(size, op.Sin(imaginary)))
    square = op.Add(op.Mul(below_real, below_real), op.Mul(below_imaginary, below_imaginary))
    top_real = op.Add(op.Mul(real, below_real), op.Mul(imaginary, below_imaginary))
    top_imaginary = op.Sub(op.Mul(imaginary, below_real), op.Mul(real, below_imaginary))
    return joined(op, op.Div(top_real, square), op.Div(top_imaginary, square))


@lowering(aten.complex.default)
def make_complex(op: Builder, real: Any, imaginary: Any) -> Any:
    shape = op.Shape(op.Add(real, imaginary))
    return joined(op, op.Expand(real, shape), op.Expand(imaginary, shape))


# --- arithmetic with real numbers --------------------------------------------------------------------------------


def _operands(op: Builder, *given: Any) -> list[tuple[Any, bool]]:
    """The first operands of the call, in the dtype of the parts of its result, and whether they are complex."""
    dtype = op.program.dtype_of(op.node.meta["val"])
    found = []
    for value, source in zip(given, op.node.args):
        if isinstance(value, ir.Value):
            is_complex = isinstance(source, Node) and source.meta["val"].dtype.is_complex
            found.append((op.cast(value, dtype), is_complex))
        elif isinstance(value, complex):
            found.append((op.constant([value.real, value.imag], dtype), True))
        else:
            found.append((op.constant(value, dtype), False))
    return found


def _pair(op: Builder, value: Any, is_complex: bool) -> Any:
    """A number as a pair, with an imaginary part of 0 where it is real."""
    if is_complex:
        return value
    wide = op.Unsqueeze(value, [-1])
    return op.Concat(wide, op.Mul(wide, op.constant(0, wide.dtype)), axis=-1)


def _added(op: Builder, left: Any, right: Any, alpha: Any, sign: int) -> Any:
    first, second = (_pair(op, *operand) for operand in _operands(op, left, right))
    if isinstance(alpha, (complex, ir.Value)):
        raise LoweringError("a factor alpha that varies or is complex")
    if alpha != 1:
        second = op.Mul(second, op.constant(alpha, second.dtype))
    return op.Add(first, second) if sign > 0 else op.Sub(first, second)


@lowering_of_complex(aten.add.Tensor, aten.add.Scalar)
def add(op: Builder, left: Any, right: Any, alpha: Any = 1) -> Any:
    return _added(op, left, right, alpha, 1)


@lowering_of_complex(aten.sub.Tensor, aten.sub.Scalar, aten.subtract.Tensor, aten.subtract.Scalar)
def subtract(op: Builder, left: Any, right: Any, alpha: Any = 1) -> Any:
    return _added(op, left, right, alpha, -1)


def _product(op: Builder, left: tuple[Any, bool], right: tuple[Any, bool]) -> Any:
    if not (left[1] and right[1]):  # each part by the real one
        (real, _), (pair, _) = (left, right) if right[1] else (right, left)
        return op.Mul(pair, op.Unsqueeze(real, [-1]))
    (a, b), (c, d) = parts_of(op, left[0]), parts_of(op, right[0])
    return joined(op, op.Sub(op.Mul(a, c), op.Mul(b, d)), op.Add(op.Mul(a, d), op.Mul(b, c)))


@lowering_of_complex(aten.mul.Tensor, aten.mul.Scalar, aten.multiply.Tensor, aten.multiply.Scalar)
def multiply(op: Builder, left: Any, right: Any) -> Any:
    return _product(op, *_operands(op, left, right))


@lowering_of_complex(
    aten.div.Tensor, aten.div.Scalar, aten.divide.Tensor, aten.divide.Scalar, aten.true_divide.Tensor
)
def divide(op: Builder, left: Any, right: Any) -> Any:
    top, below = _operands(op, left, right)
    if not below[1]:
        return op.Div(top[0], op.Unsqueeze(below[0], [-1]))
    real, imaginary = parts_of(op, below[0])
    # of numbers whose size is 1, so that squares are neither too large nor too small
    size = op.Max(op.Abs(real), op.Abs(imaginary))
    real, imaginary = op.Div(real, size), op.Div(imaginary, size)
    square = op.Add(op.Mul(real, real), op.Mul(imaginary, imaginary))
    product = _product(op, top, (joined(op, real, op.Neg(imaginary)), True))
    return op.Div(op.Div(product, op.Unsqueeze(square, [-1])), op.Unsqueeze(size, [-1]))
