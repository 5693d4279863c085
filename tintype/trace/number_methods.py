"""What Python's numbers can do and torch's symbolic ones can't, or do in another way.

These are methods of torch's classes while a program is captured. A symbolic number also passes for the plain one
that it stands for: where the user's program asks for its class (``isinstance``, ``__class__``), that is int, float or
bool.
NumPy applies its functions to an object by calling the method of their name, so ``np.sqrt(size)`` comes to
``size.sqrt()``. What only a plain number can do (``size.to_bytes(2)``, JSON, pickle) fixes the number.
"""

from __future__ import annotations

import functools
import gc
import json
from collections.abc import Callable
from typing import Any

import torch

from tintype.errors import CaptureError
from tintype.ir.process_switches import CountedSwitch
from tintype.symbolic import floating
from tintype.symbolic.bits import bitwise
from tintype.symbolic.bridge import OPERATIONS, from_torch, to_torch
from tintype.symbolic.expression import Expr, as_int, is_bool
from tintype.symbolic.location import user_location, users_caller
from tintype.symbolic.messages import is_for_people
from tintype.symbolic.relations import ne

_PLAIN_CLASSES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_NUMBERS = (int, float, *_PLAIN_CLASSES)


def plain_number(number: Any) -> Any:
    """A symbolic number as the plain one that it is in the example, which fixes it."""
    return _PLAIN_CLASSES[type(number)](number)


# --- classes -------------------------------------------------------------------------------------------------


def class_of_number(number: Any) -> type:
    """``type(number)`` as eager mode has it."""
    return _PLAIN_CLASSES[type(number)]


@property  # type: ignore[misc]
def _class(self: Any) -> type:
    """What ``isinstance`` asks where the type says no; torch itself knows its symbolic numbers."""
    return type(self) if users_caller(1) is None else _PLAIN_CLASSES[type(self)]


# --- methods -------------------------------------------------------------------------------------------------


def _format(self: Any, specification: str) -> str:
    """``f"{size:3d}"``: the number itself where a person reads it, else it is fixed."""
    number = from_torch(self)
    frame = users_caller(1)
    if isinstance(number, Expr) and number.environment.has_running_program:
        if frame is not None and not is_for_people(frame):
            number = number.environment.specialize(number)
    return str(number) if isinstance(number, Expr) else format(number, specification)


def _divmod(left: Any, right: Any) -> tuple[Any, Any]:
    return left // right, left % right


def _function(name: str) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        return to_torch(floating.function(name, floating.to_float(from_torch(self))))

    return method


def _round(self: Any, digits: Any = None) -> Any:
    """An integer is rounded already, unless to tens; to how many of them is not for an expression to say."""
    return self if digits is None or digits >= 0 else round(plain_number(self), int(digits))


def _float_operation(name: str, *, swapped: bool = False) -> Callable[[Any, Any], Any]:
    """Arithmetic of which one operand is a float, as Python does it; torch's own takes ``a // b`` for the floor of
    ``a / b``, which for infinities, nan and where the quotient is rounded it is not."""

    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, _NUMBERS):
            return NotImplemented
        operands = [floating.to_float(from_torch(number)) for number in (self, other)]
        return to_torch(floating.arithmetic(name, *(reversed(operands) if swapped else operands)))

    return method


def _shift(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A shift, which Python has for integers only."""

    def shift(self: Any, other: Any) -> Any:
        is_float = isinstance(self, torch.SymFloat) or isinstance(other, (float, torch.SymFloat))
        return NotImplemented if is_float else method(self, other)

    return shift


def _shifts(kind: type) -> dict[str, Any]:
    names = ("__lshift__", "__rlshift__", "__rshift__", "__rrshift__")
    return {name: _shift(getattr(kind, name)) for name in names if hasattr(kind, name)}


def _integers_by(
    method: Callable[[Any, Any], Any], of_floats: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """A method of integers whose other operand may be a float."""

    def chosen(self: Any, other: Any) -> Any:
        return of_floats(self, other) if isinstance(other, (float, torch.SymFloat)) else method(self, other)

    return chosen


OPERATIONS.add(__file__)  # the methods here call those of torch's on behalf of the program
_floor_divided, _floor_dividing = (_float_operation("floordiv", swapped=swapped) for swapped in (False, True))
_power, _to_the_power = (_float_operation("pow", swapped=swapped) for swapped in (False, True))
_checked_power = torch.SymFloat.__pow__


def _float_power(base: Any, exponent: Any) -> Any:
    """Of a negative base the power to a fraction is complex; any other is a float."""
    whole = isinstance(exponent, (int, torch.SymInt)) or (isinstance(exponent, float) and exponent.is_integer())
    return _power(base, exponent) if whole else _checked_power(base, exponent)


def _power_of_number(exponent: Any, base: Any) -> Any:
    if isinstance(base, (int, float)) and base < 0:
        raise CaptureError(
            f"the program takes the power of {base} to a float that varies, which is a complex number for some",
            location=user_location(),
            remedy="take the power of the absolute value, or fix the exponent with float(...) outside of the program",
        )
    return _to_the_power(exponent, base)


def _as_integer(name: str) -> Callable[..., Any]:
    """A method of integers for a truth value; torch has some of them, which ask which one it is."""

    def method(self: Any, *arguments: Any) -> Any:
        return getattr(to_torch(as_int(from_torch(self))), name)(*arguments)

    return method


def _bitwise(self: Any, other: Any) -> Any:
    return to_torch(bitwise("xor", from_torch(self), from_torch(other)))


def _differs(self: Any, other: Any) -> Any:
    """``!=`` of a truth value that varies: of another one it is ``^``, of a number that of 0 or 1."""
    if not isinstance(other, _NUMBERS):
        return NotImplemented
    left, right = from_torch(self), from_torch(other)
    return to_torch(bitwise("xor", left, right) if is_bool(right) else ne(as_int(left), right))


def _equals(self: Any, other: Any) -> Any:
    differs = _differs(self, other)
    return differs if differs is NotImplemented else torch.sym_not(differs)


def _only_plain(name: str) -> property:
    return property(lambda self: getattr(plain_number(self), name))


def _missing(kind: type) -> dict[str, Any]:
    """What the plain number has by name and the symbolic one has not."""
    return {
        name: _only_plain(name)
        for name in dir(_PLAIN_CLASSES[kind])
        if not name.startswith("__") and not hasattr(kind, name)
    }


_COMMON: dict[str, Any] = {
    "__format__": _format,
    "__copy__": lambda self: self,
    "__deepcopy__": lambda self, memo: self,
    "__reduce_ex__": lambda self, protocol: (_PLAIN_CLASSES[type(self)], (plain_number(self),)),
}
_OF_NUMBERS: dict[str, Any] = {
    "real": property(lambda self: self),
    "__divmod__": _divmod,
    "__rdivmod__": lambda right, left: _divmod(left, right),
    **{name: _function(name) for name in floating.FUNCTIONS},
}
_OF_TRUTH_VALUES = (
    "__abs__", "__add__", "__floordiv__", "__ge__", "__gt__", "__invert__", "__le__", "__lshift__", "__lt__",
    "__mod__", "__mul__", "__neg__", "__pos__", "__pow__", "__radd__", "__rfloordiv__", "__rlshift__", "__rmod__",
    "__rmul__", "__rpow__", "__rrshift__", "__rshift__", "__rsub__", "__rtruediv__", "__sub__", "__truediv__",
)  # fmt: skip
_METHODS: dict[type, dict[str, Any]] = {
    torch.SymInt: {
        **_missing(torch.SymInt),
        **_shifts(torch.SymInt),
        **_COMMON,
        **_OF_NUMBERS,
        "__invert__": lambda self: -self - 1,
        "__round__": _round,
        "__floordiv__": _integers_by(torch.SymInt.__floordiv__, _floor_divided),
        "__rfloordiv__": _integers_by(torch.SymInt.__rfloordiv__, _floor_dividing),
    },
    torch.SymFloat: {
        **_missing(torch.SymFloat),
        **_shifts(torch.SymFloat),
        **_COMMON,
        **_OF_NUMBERS,
        "__floordiv__": _floor_divided,
        "__rfloordiv__": _floor_dividing,
        "__pow__": _float_power,
        "__rpow__": _power_of_number,
    },
    torch.SymBool: {
        **_missing(torch.SymBool),
        **_COMMON,
        **{name: _as_integer(name) for name in _OF_TRUTH_VALUES},
        "__eq__": _equals,
        "__ne__": _differs,
        "__xor__": _bitwise,
        "__rxor__": _bitwise,
        "__index__": lambda self: int(plain_number(self)),
    },
}


# --- for the time of a capture -------------------------------------------------------------------------------


_encode_json = json.JSONEncoder.default


def _json_of(self: Any, value: Any) -> Any:
    return plain_number(value) if type(value) in _PLAIN_CLASSES else _encode_json(self, value)


def _names_of(kind: type) -> dict[str, Any]:
    """The dictionary behind ``vars(kind)``: to set ``__class__`` on a class would be to change what the class
    itself is an instance of. What is changed there counts from the next attribute on that is set in the usual way."""
    (names,) = gc.get_referents(vars(kind))
    return names


_MISSING = object()
# methods that Python finds by their names alone, and not through a place in the class of their own
_FOUND_BY_NAME = frozenset({"__copy__", "__deepcopy__", "__format__", "__reduce_ex__", "__round__"})


@functools.cache
def _in_two_parts(kind: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """The methods of a class that can be put into its dictionary, and those that have to be set in the usual way, of
    which there are some: each of these costs Python all that it remembers of the class."""
    there = vars(kind)
    quiet = {
        name: method
        for name, method in _METHODS[kind].items()
        if name in there or name in _FOUND_BY_NAME or not name.startswith("__")
    }
    return {**quiet, "__class__": _class}, {n: method for n, method in _METHODS[kind].items() if n not in quiet}


def _add_methods() -> list[tuple[type, dict[str, Any]]]:
    before: list[tuple[type, dict[str, Any]]] = []
    for kind in _METHODS:
        quiet, others = _in_two_parts(kind)
        names = _names_of(kind)
        before.append((kind, {name: names.get(name, _MISSING) for name in quiet}))
        names.update(quiet)
        for name, method in others.items():
            setattr(kind, name, method)
    json.JSONEncoder.default = _json_of  # type: ignore[assignment, method-assign]
    return before


def _take_away(before: list[tuple[type, dict[str, Any]]]) -> None:
    json.JSONEncoder.default = _encode_json  # type: ignore[method-assign]
    for kind, there in before:
        names = _names_of(kind)
        for name, method in there.items():
            if method is _MISSING:
                del names[name]
            else:
                names[name] = method
        for name in _in_two_parts(kind)[1]:
            delattr(kind, name)


# While there are numbers that vary in a program that is captured.
number_methods = CountedSwitch(_add_methods, _take_away)
