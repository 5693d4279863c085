"""Operators: statements that are operators of torch's, called by the overload that the script names.

Operators on tensors go through the dispatcher, where a capture records them. TorchScript's own operators on numbers,
strings and lists are called as they are where their arguments are known, so that they mean what they mean there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import UnsupportedOperatorError
from tintype.interop.torchscript.heap import ScriptInstance, ScriptList, plain
from tintype.interop.torchscript.mirror import Mirror
from tintype.interop.torchscript.tables import HANDLERS
from tintype.interop.torchscript.values import (
    Future,
    UnknownText,
    dtype_of,
    is_symbolic,
    layout_of,
    memory_format_of,
)
from tintype.symbolic.location import user_location

if TYPE_CHECKING:
    from tintype.interop.torchscript.interpreter import Interpreter
    from tintype.interop.torchscript.reading import Statement

_CONVERSIONS = {"ScalarType": dtype_of, "Layout": layout_of, "MemoryFormat": memory_format_of}

# What Python calls for a tensor and a number. The operators are the same; graphs look as those of eager programs.
_AS_PYTHON_CALLS = {
    f"aten::{name}{in_place}.Scalar": f"aten::{name}{in_place}.Tensor"
    for name in ("add", "sub", "mul", "div")
    for in_place in ("", "_")
}


class Called:
    """An overload, with what is to be known of its arguments."""

    __slots__ = ("arguments", "in_dispatcher", "name", "overload", "writes")

    def __init__(self, name: str) -> None:
        self.overload = find_overload(name)
        schema = self.overload._schema
        self.name = schema.name.rpartition("::")[2]
        self.in_dispatcher = torch._C._dispatch_has_kernel(self.overload.name())
        # name, conversion, default and whether there is one, whether it has to be named
        self.arguments = [
            (
                argument.name,
                _CONVERSIONS.get(_real_type(argument)),
                argument.default_value if argument.has_default_value() else _NOTHING,
                argument.kwarg_only,
            )
            for argument in schema.arguments
        ]
        self.writes = [
            position
            for position, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]

    def call(self, args: list[Any]) -> Any:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        defaults = 0  # how many at the end of the positional ones are what they would be anyway
        for value, (name, conversion, default, keyword_only) in zip(args, self.arguments, strict=True):
            value = plain(value)
            if conversion is not None and value is not None:
                value = conversion(value)
            is_default = value is default or (
                default is not _NOTHING and type(value) is type(default) and _is_plain(value) and value == default
            )
            if keyword_only:
                if not is_default:
                    named[name] = value
            else:
                positional.append(value)
                defaults = defaults + 1 if is_default else 0
        if defaults:
            del positional[-defaults:]
        return self.overload(*positional, **named)


_NOTHING = object()


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str, list, type(None)))


def _real_type(argument: Any) -> str:
    text = str(argument.real_type)
    return text.removeprefix("Optional[").removesuffix("]")


@functools.cache
def called(name: str) -> Called:
    """An operator by its name with the overload."""
    return Called(_AS_PYTHON_CALLS.get(name, name))


def find_overload(name: str) -> Any:
    """The overload of ``aten::add.Tensor``; AttributeError if torch has none."""
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), operator)
    return getattr(packet, overload or "default")


def exists(name: str) -> bool:
    """Whether torch has an operator."""
    try:
        find_overload(name)
    except (AttributeError, RuntimeError):
        return False
    return True


def is_supported(statement: Statement) -> bool:
    """Whether there is something that runs a statement."""
    return (
        statement.kind in _BLOCKS
        or statement.operator in HANDLERS
        or statement.kind in HANDLERS
        or (bool(statement.operator) and exists(statement.operator))
    )


_BLOCKS = ("prim::If", "prim::Loop", "prim::Constant")


class UnsupportedStatementError(UnsupportedOperatorError):
    """A statement that nothing here runs."""

    def __init__(self, statement: Statement) -> None:
        super().__init__(
            f"{statement.operator or statement.kind} is nothing that a captured program can do",
            location=statement.location(),
        )


def call_operator(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    """Run a statement that is an operator."""
    operator = called(statement.operator)
    if not operator.in_dispatcher:
        return _call_on_known(interpreter, statement, operator, args)
    interpreter.note_origin(statement, operator.name)
    if operator.writes and interpreter.numbers:
        forget_numbers(interpreter, [args[position] for position in operator.writes])
    try:
        result = operator.call(args)
    except (RuntimeError, TypeError) as error:
        _refuse_number(statement, args, error)
        raise
    if interpreter.numbers:
        _note_number(interpreter, statement, args, result)
    return interpreter.heap.adopt(result)


def _refuse_number(statement: Statement, args: list[Any], error: Exception) -> None:
    """Raise if the reason is a number that varies where an operator takes plain ones only."""
    if "Expected a value of type" in str(error) and any(is_symbolic(value) for value in args):
        raise _takes_known(statement) from error


def _takes_known(statement: Statement) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"{statement.operator} is called on a value that is only known when the program runs",
        location=user_location(),
        remedy="fix the sizes and numbers that it depends on, or compute it with tensors",
    )


# What traced programs do with the tensors that they make of sizes.
_ON_NUMBER_TENSORS: dict[str, Callable[..., Any]] = {
    "aten::add": lambda one, other, alpha=1: one + other * alpha,
    "aten::sub": lambda one, other, alpha=1: one - other * alpha,
    "aten::rsub": lambda one, other, alpha=1: other - one * alpha,
    "aten::mul": lambda one, other: one * other,
    "aten::floor_divide": lambda one, other: one // other,
    "aten::remainder": lambda one, other: one % other,
    "aten::neg": lambda one: -one,
}


def _note_number(interpreter: Interpreter, statement: Statement, args: list[Any], result: Any) -> None:
    """Remember the number that a tensor computed from numbers is: a size stays a size on its way through tensors."""
    function = _ON_NUMBER_TENSORS.get(statement.kind)
    if function is None or not isinstance(result, torch.Tensor) or result.dtype is not torch.int64 or result.dim():
        return
    numbers = []
    for value in args:
        if isinstance(value, torch.Tensor):
            known = interpreter.numbers.get(id(value))
            if known is None and type(value) is torch.Tensor and not value.dim() and value.dtype is torch.int64:
                known = (value, value.item())  # a constant
            if known is None:
                return
            value = known[1]
        if not isinstance(value, (int, torch.SymInt)) or isinstance(value, bool):
            return
        numbers.append(value)
    interpreter.numbers[id(result)] = (result, function(*numbers))


# Functions for TorchScript's operators on numbers that vary, by operator or kind; see numbers.py.
NUMBERS: dict[str, Callable[..., Any]] = {}
_NUMBER = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def _call_on_known(interpreter: Interpreter, statement: Statement, operator: Called, args: list[Any]) -> Any:
    """One of TorchScript's own operators, for values that are known, and for numbers that vary."""
    varies = any(is_symbolic(value) for value in args)
    if varies and all(isinstance(value, _NUMBER) for value in args):
        function = NUMBERS.get(statement.operator) or NUMBERS.get(statement.kind)
        if function is not None:
            return function(*args)
    if varies or any(isinstance(value, _NOT_FOR_OPERATORS) for value in args):
        raise _takes_known(statement)
    if any(_has_tensor(value) for value in args):
        raise UnsupportedOperatorError(
            f"{statement.operator} takes tensors and is not known to tintype", location=user_location()
        )
    return interpreter.heap.adopt(operator.call(args))


_NOT_FOR_OPERATORS = (UnknownText, Future, ScriptInstance, Mirror)


def _has_tensor(value: Any) -> bool:
    if isinstance(value, ScriptList):
        return any(_has_tensor(item) for item in value.content)
    if isinstance(value, tuple):
        return any(_has_tensor(item) for item in value)
    return isinstance(value, torch.Tensor)


def forget_numbers(interpreter: Interpreter, written: list[Any]) -> None:
    """A tensor that was made of a number and is written to is that number no more."""
    for value in written:
        # one with a single element may be a view of any of them
        if isinstance(value, torch.Tensor) and all(type(size) is int and size == 1 for size in value.shape):
            interpreter.numbers.clear()
