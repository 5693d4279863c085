"""Numbers that vary: sizes of tensors, what is computed from them, and numbers from data."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64, _DOUBLE, _BOOL = ir.DataType.INT64, ir.DataType.DOUBLE, ir.DataType.BOOL


@lowering(aten.sym_size.int)
def sym_size(op: Builder, tensor: Any, dimension: int) -> Any:
    rank = len(op.node.args[0].meta["val"].info.sizes)  # one less than that of the value, for complex numbers
    return op.size(tensor, dimension % rank)


@lowering(aten.sym_numel.default)
def sym_numel(op: Builder, tensor: Any) -> Any:
    if op.node.args[0].meta["val"].dtype.is_complex:
        tensor = op.Gather(tensor, op.constant(0, _INT64), axis=-1)
    return op.Size(tensor)


for _each in (sym_size, sym_numel):
    _each.takes_complex = True  # type: ignore[attr-defined]


@lowering(aten._local_scalar_dense.default, aten.item.default)
def number_of(op: Builder, tensor: Any) -> Any:
    number = op.Reshape(tensor, op.constant([], _INT64))
    wanted = {torch.SymFloat: _DOUBLE, torch.SymBool: _BOOL}.get(type(op.node.meta.get("val")), _INT64)
    number = op.cast(number, wanted)
    number.shape = ir.Shape([])
    return number


def _kind(op: Builder, *operands: Any) -> ir.DataType:
    """The dtype that arithmetic on numbers is done in: Python's integers and floats."""
    for operand in operands:
        if isinstance(operand, ir.Value):
            if operand.dtype in (_DOUBLE, ir.DataType.FLOAT):
                return _DOUBLE
        elif isinstance(operand, float):
            return _DOUBLE
    return _INT64


def _operands(op: Builder, *operands: Any, kind: ir.DataType | None = None) -> list[Any]:
    kind = kind or _kind(op, *operands)
    return [op.cast(operand, kind) for operand in operands]


def _register_arithmetic() -> None:
    function: Any
    for function, name in (
        (operator.add, "Add"),
        (operator.sub, "Sub"),
        (operator.mul, "Mul"),
        (operator.pow, "Pow"),
    ):
        lowering(function)(lambda op, left, right, name=name: getattr(op, name)(*_operands(op, left, right)))
    for function, name in (
        (operator.lt, "Less"), (operator.le, "LessOrEqual"), (operator.gt, "Greater"),
        (operator.ge, "GreaterOrEqual"),
    ):  # fmt: skip
        lowering(function)(lambda op, left, right, name=name: getattr(op, name)(*_operands(op, left, right)))
    for function, name in ((torch.sym_min, "Min"), (torch.sym_max, "Max")):
        lowering(function)(lambda op, *numbers, name=name: getattr(op, name)(*_operands(op, *numbers)))
    for function, name in ((operator.neg, "Neg"), (operator.abs, "Abs")):
        lowering(function)(lambda op, number, name=name: getattr(op, name)(number))
    for function, name in ((math.floor, "Floor"), (math.ceil, "Ceil"), (round, "Round")):
        lowering(function)(lambda op, number, name=name: op.cast(getattr(op, name)(op.cast(number, _DOUBLE)), _INT64))


_register_arithmetic()


def _is_truth(value: Any) -> bool:
    return value.dtype is _BOOL if isinstance(value, ir.Value) else isinstance(value, bool)


@lowering(operator.eq)
def equal(op: Builder, left: Any, right: Any) -> Any:
    if _is_truth(left) and _is_truth(right):
        return op.Equal(op.cast(left, _BOOL), op.cast(right, _BOOL))
    return op.Equal(*_operands(op, left, right))


@lowering(operator.ne)
def not_equal(op: Builder, left: Any, right: Any) -> Any:
    return op.Not(equal(op, left, right))


@lowering(operator.floordiv)
def floor_division(op: Builder, left: Any, right: Any) -> Any:
    if _kind(op, left, right) is _DOUBLE:
        return op.Floor(op.Div(*_operands(op, left, right)))
    if type(right) is int and right > 0 and type(op.node.meta.get("val")) is torch.SymInt:
        # rounds as Python does: (a - a mod b) / b, with the remainder in the sign of b
        left = op.cast(left, _INT64)
        if _is_size(op.node.args[0]):
            return op.Div(left, right)
    left, right = _operands(op, left, right)
    return op.Div(op.Sub(left, op.Mod(left, right)), right)


def _is_size(argument: Any) -> bool:
    """Whether a number is the size of a tensor, and so not negative."""
    return isinstance(argument, torch.fx.Node) and argument.target is aten.sym_size.int


@lowering(operator.mod)
def remainder(op: Builder, left: Any, right: Any) -> Any:
    if _kind(op, left, right) is _DOUBLE:
        left, right = _operands(op, left, right)
        return op.Sub(left, op.Mul(right, op.Floor(op.Div(left, right))))
    return op.Mod(*_operands(op, left, right))


@lowering(operator.truediv)
def true_division(op: Builder, left: Any, right: Any) -> Any:
    return op.Div(*_operands(op, left, right, kind=_DOUBLE))


@lowering(torch.sym_float)
def to_float(op: Builder, number: Any) -> Any:
    return op.cast(number, _DOUBLE)


@lowering(math.trunc)
def truncated(op: Builder, number: Any) -> Any:
    return op.cast(number, _INT64)


@lowering(torch._sym_sqrt)  # type: ignore[attr-defined]
def square_root(op: Builder, number: Any) -> Any:
    return op.Sqrt(op.cast(number, _DOUBLE))


@lowering(torch.sym_not)
def negation(op: Builder, truth: Any) -> Any:
    return op.Not(op.cast(truth, _BOOL))


@lowering(torch.sym_ite)
def choice(op: Builder, condition: Any, first: Any, second: Any) -> Any:
    return op.Where(op.cast(condition, _BOOL), *_operands(op, first, second))


def _logical(name: str, bitwise: str) -> Any:
    def lower(op: Builder, left: Any, right: Any) -> Any:
        if _is_truth(left) or _is_truth(right):
            return getattr(op, name)(op.cast(left, _BOOL), op.cast(right, _BOOL))
        return getattr(op, bitwise)(*_operands(op, left, right))

    return lower


lowering(operator.and_)(_logical("And", "BitwiseAnd"))
lowering(operator.or_)(_logical("Or", "BitwiseOr"))
lowering(operator.xor)(_logical("Xor", "BitwiseXor"))


# --- what is asserted ---------------------------------------------------------------------------------------------


def _keep(op: Builder, truth: Any, message: str) -> None:
    """Keep an assertion: the program that runs looks at it."""
    translator = op.program
    if not isinstance(truth, ir.Value):
        if not truth:
            raise LoweringError(f"the program asserts what never holds: {message}")
        return
    translator.assert_that(truth, message)


@lowering(aten._assert_scalar.default)
def assert_scalar(op: Builder, truth: Any, message: str) -> None:
    _keep(op, truth if not isinstance(truth, ir.Value) else op.cast(truth, _BOOL), message)


@lowering(aten._assert_async.msg)
def assert_tensor(op: Builder, tensor: Any, message: str) -> None:
    _keep(op, op.cast(op.Reshape(tensor, op.constant([], _INT64)), _BOOL), message)


@lowering(aten._assert_async.default)
def assert_tensor_without_words(op: Builder, tensor: Any) -> None:
    assert_tensor(op, tensor, "Expected Tensor with single nonzero value, but got zero")


@lowering(aten._assert_tensor_metadata.default)
def assert_metadata(op: Builder, *args: Any, **kwargs: Any) -> None:
    """Layouts of inputs, which ONNX has not: the checks of inputs look at them."""


@lowering(aten.sym_constrain_range_for_size.default, aten.sym_constrain_range.default)
def constrain_range(op: Builder, number: Any, *, min: int | None = None, max: int | None = None) -> None:
    if min is not None:
        _keep(op, op.GreaterOrEqual(number, min), f"Invalid value range: {min} is the least")
    if max is not None:
        _keep(op, op.LessOrEqual(number, max), f"Invalid value range: {max} is the most")
