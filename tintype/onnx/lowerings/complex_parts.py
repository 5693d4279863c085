"""Operators on complex numbers that are operators on their parts: those that only move numbers or add them, which do
the same to the real and the imaginary parts, and products of two tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.complex_numbers import joined, parts_of
from tintype.onnx.registry import lowering_of_complex, own_lowering

aten = torch.ops.aten
_BOOL = ir.DataType.BOOL

# Results are made of elements of the arguments, or of sums of them.
_BY_PARTS = (
    aten.flatten.using_ints, aten.reshape.default, aten._unsafe_view.default, aten.view_copy.default,
    aten.unflatten.int, aten.expand.default, aten.expand_copy.default, aten.expand_as.default,
    aten.broadcast_to.default, aten.repeat.default, aten.tile.default, aten.repeat_interleave.self_int,
    aten.gather.default, aten.index.Tensor, aten.index_select.default, aten.take.default, aten.take_along_dim.default,
    aten.masked_select.default, aten.diagonal.default, aten.diagonal_copy.default, aten.tril.default,
    aten.triu.default, aten.unfold.default, aten.select_scatter.default, aten.slice_scatter.default,
    aten.diagonal_scatter.default, aten.scatter.src, aten.scatter_add.default, aten.index_add.default,
    aten.index_copy.default, aten.index_put.default, aten._unsafe_index_put.default, aten.where.self,
    aten.where.ScalarSelf, aten.where.ScalarOther, aten.masked_fill.Scalar, aten.masked_fill.Tensor,
    aten.cumsum.default, aten.fill.Tensor, aten.fill.Scalar, aten.copy.default,
)  # fmt: skip

# Products: each is linear in both of its arguments.
_PRODUCTS = (
    aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default, aten.einsum.default,
)  # fmt: skip


def _real_form(op: Builder, target: Any) -> Callable[..., Any]:
    """What an operator is for real numbers."""
    own = own_lowering(target, op.opset)
    if own is not None:
        return lambda *args, **kwargs: own(op, *args, **kwargs)
    return lambda *args, **kwargs: op.program.call_operator(target, [*args, *kwargs.values()])


def _divided(op: Builder, value: Any, source: Any) -> tuple[Any, Any]:
    """The real and the imaginary part of an argument; what is no number that is computed with stays as it is."""
    if isinstance(source, (list, tuple)) and any(isinstance(each, Node) for each in source):
        pairs = [_divided(op, *each) for each in zip(value, source)]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if isinstance(source, Node) and isinstance(value, ir.Value):
        dtype = getattr(source.meta["val"], "dtype", None)
        if dtype is not None and dtype.is_complex:
            return parts_of(op, value)
    if isinstance(value, complex):
        return value.real, value.imag
    return value, value


def _is_computed_with(argument: Any) -> bool:
    """Whether a parameter is a number or tensor that results are made of."""
    return str(argument.type) in ("number", "Tensor")


def _without_imaginary_part(op: Builder, value: Any, source: Any, index_like: bool) -> Any:
    """The imaginary part of an argument that is real, where it is one of those that results are made of."""
    if index_like:
        return value
    if isinstance(value, (int, float)):
        return 0
    if isinstance(value, ir.Value) and value.dtype is not None and value.dtype.is_floating_point():
        return op.Expand(op.constant(0, value.dtype), op.Shape(value))
    return value


def _register_by_parts(target: Any) -> None:
    schema = target._schema.arguments
    # indices, and truth values to choose by, are the same for both parts
    chosen_by = {"index", "indices", "mask", "condition"}

    @lowering_of_complex(target)
    def lower(op: Builder, *args: Any, **kwargs: Any) -> Any:
        if not op.node.meta["val"].dtype.is_complex:
            raise LoweringError("complex numbers become real ones")
        split = []
        for value, source, argument in zip(args, op.node.args, schema):
            first, second = _divided(op, value, source)
            if first is second and _is_computed_with(argument):
                second = _without_imaginary_part(op, value, source, argument.name in chosen_by)
            split.append((first, second))
        form = _real_form(op, target)
        keywords = {name: value for name, value in kwargs.items() if name in ("alpha", "sparse_grad", "implicit")}
        return joined(op, *(form(*(pair[part] for pair in split), **keywords) for part in (0, 1)))


for _target in _BY_PARTS:
    _register_by_parts(_target)


# Tensors of one number: where its place in the call is (None: there is none, but a number that they are named by).
_FILLED: dict[Any, tuple[int | None, complex]] = {
    aten.zeros.default: (None, 0), aten.ones.default: (None, 1), aten.full.default: (1, 0),
    aten.zeros_like.default: (None, 0), aten.ones_like.default: (None, 1), aten.full_like.default: (1, 0),
    aten.new_zeros.default: (None, 0), aten.new_ones.default: (None, 1), aten.new_full.default: (2, 0),
    aten.scalar_tensor.default: (0, 0),
}  # fmt: skip


_LIKE = (aten.zeros_like.default, aten.ones_like.default, aten.full_like.default)
_NEW = (aten.new_zeros.default, aten.new_ones.default, aten.new_full.default)


def _register_filled(target: Any, place: int | None, named: complex) -> None:
    @lowering_of_complex(target)
    def lower(op: Builder, *args: Any, **kwargs: Any) -> Any:
        value = named if place is None else args[place]
        if isinstance(value, ir.Value):
            raise LoweringError("of complex numbers that vary it has no form")
        result = op.node.meta["val"]
        if not result.dtype.is_complex:  # one that only looks like a complex one
            filler = op.constant(value, op.program.dtype_of(result))
        else:
            filler = op.constant([complex(value).real, complex(value).imag], op.program.dtype_of(result))
        if target in _LIKE:
            shape = op.Shape(args[0])
            if result.dtype.is_complex is not op.node.args[0].meta["val"].dtype.is_complex:
                is_longer = not result.dtype.is_complex
                shape = (
                    op.Shape(args[0], start=0, end=-1) if is_longer else op.Concat(shape, op.constant([2]), axis=0)
                )
            return op.Expand(filler, shape)
        is_number = target is aten.scalar_tensor.default
        sizes = [] if is_number else args[1 if target in _NEW else 0]
        return op.Expand(filler, op.vector([*sizes, *([2] if result.dtype.is_complex else [])]))


for _target, (_place, _number) in _FILLED.items():
    _register_filled(_target, _place, _number)


def _product(op: Builder, multiply: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    (a, b), (c, d) = parts_of(op, left), parts_of(op, right)
    real = op.Sub(multiply(a, c), multiply(b, d))
    return joined(op, real, op.Add(multiply(a, d), multiply(b, c)))


def _register_product(target: Any) -> None:
    @lowering_of_complex(target)
    def lower(op: Builder, *args: Any, **kwargs: Any) -> Any:
        form = _real_form(op, target)
        if target is aten.einsum.default:
            equation, operands = args[:2]
            if len(operands) != 2:
                raise LoweringError("of complex numbers it has a form for two tensors only")
            return _product(op, lambda left, right: form(equation, [left, right]), *operands)
        return _product(op, form, *args)


for _target in _PRODUCTS:
    _register_product(_target)


def _transposed(op: Builder, tensor: Any) -> Any:
    return op.Transpose(tensor, perm=[1, 0])


@lowering_of_complex(aten.linear.default)
def linear(op: Builder, tensor: Any, weight: Any, bias: Any = None) -> Any:
    result = _product(op, lambda left, right: op.MatMul(left, _transposed(op, right)), tensor, weight)
    return result if bias is None else op.Add(result, bias)


@lowering_of_complex(aten.addmm.default)
def addmm(op: Builder, tensor: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if beta != 1 or alpha != 1:
        raise LoweringError("of complex numbers it has a form without factors only")
    return op.Add(tensor, _product(op, op.MatMul, left, right))


# --- comparisons and functions -----------------------------------------------------------------------------------


def _equal(op: Builder, left: Any, right: Any) -> Any:
    pairs = [_divided(op, value, source) for value, source in zip((left, right), op.node.args)]
    for place, pair in enumerate(pairs):
        if pair[0] is pair[1]:
            pairs[place] = (pair[0], _without_imaginary_part(op, pair[0], None, False))
    dtype = next(part.dtype for pair in pairs for part in pair if isinstance(part, ir.Value) and part.dtype)
    (a, b), (c, d) = ([op.cast(part, dtype) for part in pair] for pair in pairs)
    return op.And(op.Equal(a, c), op.Equal(b, d))


@lowering_of_complex(aten.eq.Tensor, aten.eq.Scalar)
def equal(op: Builder, left: Any, right: Any) -> Any:
    return _equal(op, left, right)


@lowering_of_complex(aten.ne.Tensor, aten.ne.Scalar)
def differs(op: Builder, left: Any, right: Any) -> Any:
    return op.Not(_equal(op, left, right))


@lowering_of_complex(aten.isnan.default)
def isnan(op: Builder, tensor: Any) -> Any:
    return op.Or(*(op.IsNaN(part) for part in parts_of(op, tensor)))


@lowering_of_complex(aten.isinf.default)
def isinf(op: Builder, tensor: Any) -> Any:
    return op.Or(*(op.IsInf(part) for part in parts_of(op, tensor)))


@lowering_of_complex(aten.isfinite.default)
def isfinite(op: Builder, tensor: Any) -> Any:
    odd: Sequence[Any] = [op.Or(op.IsInf(part), op.IsNaN(part)) for part in parts_of(op, tensor)]
    return op.Not(op.Or(*odd))


@lowering_of_complex(aten.exp.default)
def exp(op: Builder, tensor: Any) -> Any:
    real, imaginary = parts_of(op, tensor)
    size = op.Exp(real)
    return joined(op, op.Mul(size, op.Cos(imaginary)), op.Mul(size, op.Sin(imaginary)))


@lowering_of_complex(aten.sin.default)
def sin(op: Builder, tensor: Any) -> Any:
    a, b = parts_of(op, tensor)
    return joined(op, op.Mul(op.Sin(a), op.Cosh(b)), op.Mul(op.Cos(a), op.Sinh(b)))


@lowering_of_complex(aten.cos.default)
def cos(op: Builder, tensor: Any) -> Any:
    a, b = parts_of(op, tensor)
    return joined(op, op.Mul(op.Cos(a), op.Cosh(b)), op.Neg(op.Mul(op.Sin(a), op.Sinh(b))))


@lowering_of_complex(aten.pow.Tensor_Scalar)
def power(op: Builder, tensor: Any, exponent: Any) -> Any:
    if type(exponent) not in (int, float) or exponent not in (1, 2, 3, 4):
        raise LoweringError("of complex numbers it has a form for the powers 1 to 4")
    result = tensor
    for _ in range(int(exponent) - 1):
        result = _product(op, op.Mul, result, tensor)
    return result
