"""Numbers that vary: sizes, counters, what ``item()`` or ``random.random()`` gave.

A number of a run that shall serve other numbers too is an object of its own while the run is captured. It is an int
or a float that remembers how it was computed; what is computed of it remembers that too, and a comparison becomes a
guard about the computation. Code in C that takes it for what it is now would not tell. So whatever the program hands
to such code is *settled* before (:func:`settled`): the recorded run then rests on the number's value.
"""

from __future__ import annotations

import collections
import itertools
import math
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tintype.ir.call_values import same_value

if TYPE_CHECKING:
    from tintype.compiler.expressions import Expression
    from tintype.compiler.reads import Reads

_PLAIN_NUMBERS = (int, float, bool)
# of which a number remembers to be computed: they are written out wherever it is used, each within parentheses of its
# own, of which Python reads 200 in each other
MOST_OPERATIONS = 64
# what a comparison with a number is a plain answer for
_NEVER_EQUAL = (type(None), str, bytes, tuple, list, dict, set, torch.Tensor, torch.dtype, torch.device)


class Number:
    """What the two classes have in common."""

    capture: Reads
    expression: Expression
    weight: int  # how many operators the expression has, written out

    def plain(self) -> Any:
        """The number as it is in this run."""
        raise NotImplementedError

    def settle(self) -> Any:
        """The number as it is in this run, on which the recorded run rests from now on."""
        value = self.plain()
        function = operator.eq if type(value) is int else same_value
        self.capture.relate(function, (self.expression, ("constant", value)), True)
        return value


class IntNumber(int, Number):
    __class__ = property(lambda self: int)

    def plain(self) -> int:
        return int.__int__(self)


class FloatNumber(float, Number):
    __class__ = property(lambda self: float)

    def plain(self) -> float:
        return float.__float__(self)


def number(capture: Reads, value: Any, expression: Expression, weight: int = 0) -> Any:
    """A number that remembers where it comes from; anything but an int or a float is given back as it is."""
    kind = {int: IntNumber, float: FloatNumber}.get(type(value))
    if kind is None:
        return value
    made: Any = kind(value)
    made.capture = capture
    made.expression = expression if expression[0] == "number" else ("number", expression)
    made.weight = weight
    capture.has_numbers = True
    return made


def plain(value: Any) -> Any:
    """A number without memory."""
    return value.plain() if isinstance(value, Number) else value


def _expression(value: Any) -> Expression:
    return value.expression if isinstance(value, Number) else ("constant", value)


def computed(capture: Reads, function: Callable[..., Any], *operands: Any) -> Any:
    """A number that is computed of others; one of too many operations is what it is in this run."""
    value = function(*map(plain, operands))
    weight = 1 + sum(operand.weight for operand in operands if isinstance(operand, Number))
    expression = ("operator", function, tuple(map(_expression, operands)))
    if weight > 1 and type(value) is int and (function is operator.add or function is operator.sub):
        counted = _counted_on(function, operands)
        if counted is not None:
            return number(capture, value, counted, weight - 1)
    if weight > MOST_OPERATIONS:
        for operand in operands:
            settled(operand)
        return value
    return number(capture, value, expression, weight)


def _counted_on(function: Callable[..., Any], operands: tuple[Any, ...]) -> Expression | None:
    """``(x + 1) + 1`` as ``x + 2``: a counter is one operation, however often it is counted on."""
    left, right = operands
    if function is operator.add and type(left) is int:
        left, right = right, left
    if type(left) is not IntNumber or type(right) is not int:
        return None
    match left.expression:
        case ("number", ("operator", operator.add, (counted, ("constant", int(before))))):
            return ("operator", operator.add, (counted, ("constant", function(before, right))))
        case ("number", ("operator", operator.sub, (counted, ("constant", int(before))))):
            return ("operator", operator.add, (counted, ("constant", function(-before, right))))
    return None


def _arithmetic(name: str, function: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    divides = name in ("truediv", "floordiv", "mod")
    is_shift_or_power = name in ("lshift", "rshift", "pow")

    def method(self: Any, other: Any) -> Any:
        if type(other) not in (*_PLAIN_NUMBERS, IntNumber, FloatNumber):
            if not isinstance(other, torch.Tensor):
                self.settle()  # a list is repeated, an array is computed with
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        if not self.capture.is_computing or (is_shift_or_power and not _is_simple_power(name, left, right)):
            return function(settled(left), settled(right))
        if divides and isinstance(right, Number):
            divisor: Any = right
            if divisor == 0:  # this is a guard
                return function(plain(left), plain(right))
        return computed(self.capture, function, left, right)

    return method


def _is_simple_power(name: str, left: Any, right: Any) -> bool:
    """Whether a power is of one type, and raises nothing, for all numbers."""
    return name == "pow" and isinstance(left, int) and type(right) is int and 0 <= right < 16


def _comparison(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if type(other) not in (*_PLAIN_NUMBERS, IntNumber, FloatNumber):
            if type(other) not in _NEVER_EQUAL:
                self.settle()
            return NotImplemented
        answer = function(plain(self), plain(other))
        self.capture.relate(function, (self.expression, _expression(other)), answer)
        return answer

    return method


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any) -> Any:
        return computed(self.capture, function, self) if self.capture.is_computing else function(plain(self))

    return method


def _truth(self: Any) -> bool:
    return bool(self != 0)


def _settling(name: str) -> Callable[..., Any]:
    """A method that shows the number to others."""

    def method(self: Any, *arguments: Any) -> Any:
        return getattr(self.settle(), name)(*arguments)

    return method


def _equip(kind: type, base: type) -> None:
    arithmetic = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
    if base is int:
        arithmetic += ["lshift", "rshift"]
    for name in arithmetic:
        function = getattr(operator, name)
        setattr(kind, f"__{name}__", _arithmetic(name, function, False))
        setattr(kind, f"__r{name}__", _arithmetic(name, function, True))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(kind, f"__{name}__", _comparison(name, getattr(operator, name)))
    for name in ("neg", "pos", "abs"):
        setattr(kind, f"__{name}__", _unary(getattr(operator, name)))
    kind.__bool__ = _truth  # type: ignore[attr-defined]
    shown = ["hash", "repr", "str", "format", "int", "float", "round", "trunc", "floor", "ceil", "divmod", "rdivmod"]
    shown += ["reduce", "reduce_ex", "sizeof", "getnewargs"]
    if base is int:
        shown += ["index", "and", "rand", "or", "ror", "xor", "rxor", "invert"]
    for name in shown:
        if hasattr(base, f"__{name}__"):
            setattr(kind, f"__{name}__", _settling(f"__{name}__"))
    own = {name for name in dir(base) if not name.startswith("_")}
    for name in own:  # bit_length, is_integer, real, ...
        setattr(kind, name, property(_attribute(name)))


def _attribute(name: str) -> Callable[..., Any]:
    return lambda self: getattr(self.settle(), name)


_equip(IntNumber, int)
_equip(FloatNumber, float)


# --- what holds numbers --------------------------------------------------------------------------------------------

_DEEPEST = 8


def holds_number(value: Any, depth: int = 0) -> bool:
    """Whether a value is such a number, or a container that holds one."""
    if isinstance(value, Number):
        return True
    if depth > _DEEPEST:
        return False
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(holds_number(item, depth + 1) for item in value)
    if isinstance(value, dict):
        parts = itertools.chain(dict.keys(value), dict.values(value))
        return any(holds_number(part, depth + 1) for part in parts)
    if type(value) is slice:
        return any(isinstance(part, Number) for part in (value.start, value.stop, value.step))
    return False


def settled(value: Any) -> Any:
    """A value with numbers as they are in this run, on which the recorded run rests from now on."""
    return replaced(value, lambda found: found.settle())


def stripped(value: Any) -> Any:
    """A value with numbers as they are in this run."""
    return replaced(value, lambda found: found.plain())


def replaced(value: Any, change: Callable[[Any], Any], depth: int = 0) -> Any:
    """A value with other numbers: lists and dictionaries are changed in place, tuples made anew."""
    if isinstance(value, Number):
        return change(value)
    if depth > _DEEPEST or not holds_number(value):
        return value
    if isinstance(value, list):
        for position, item in enumerate(value):
            list.__setitem__(value, position, replaced(item, change, depth + 1))
    elif isinstance(value, dict):
        _replace_items(value, lambda found: replaced(found, change, depth + 1))
    elif isinstance(value, set):
        items = [replaced(item, change, depth + 1) for item in value]
        set.clear(value)
        set.update(value, items)
    elif type(value) is frozenset:
        return frozenset(replaced(item, change, depth + 1) for item in value)
    elif isinstance(value, tuple):
        items = [replaced(item, change, depth + 1) for item in value]
        kind: Any = type(value)
        return kind(items) if kind in (tuple, torch.Size) else tuple.__new__(kind, items)
    elif type(value) is slice:
        return slice(*(replaced(part, change, depth + 1) for part in (value.start, value.stop, value.step)))
    return value


def _replace_items(value: dict[Any, Any], change: Callable[[Any], Any]) -> None:
    """Change keys and values of a dictionary in place; keys that change are put there anew, in their order."""
    items = [(change(key), change(item)) for key, item in dict.items(value)]
    if any(key is not new for key, (new, _) in zip(dict.keys(value), items, strict=True)):
        base: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        base.clear(value)
        for key, item in items:
            base.__setitem__(value, key, item)
        return
    for key, item in items:
        dict.__setitem__(value, key, item)


def copied(value: Any, depth: int = 0) -> Any:
    """A value as native code gets it: numbers are plain, containers that held some are copies."""
    if isinstance(value, Number):
        return value.plain()
    if depth > _DEEPEST or not holds_number(value):
        return value
    if type(value) is list:
        return [copied(item, depth + 1) for item in value]
    if type(value) is dict:
        return {copied(key, depth + 1): copied(item, depth + 1) for key, item in value.items()}
    if type(value) is set:
        return {copied(item, depth + 1) for item in value}
    return replaced(value, lambda found: found.plain())


# --- functions of numbers ------------------------------------------------------------------------------------------

# they keep numbers, or ask for no more than their type
KEEPS_NUMBERS = frozenset(
    map(id, (isinstance, issubclass, len, tuple, list, dict, zip, enumerate, map, filter, reversed, iter, next))
) | frozenset(map(id, (torch.Size, slice, callable, id, getattr, hasattr, setattr)))
# they look at numbers by their operators alone
COMPUTES = frozenset(map(id, (max, min, sum, abs, any, all, sorted)))
# they call what they are given
CALLING = frozenset(map(id, (map, filter, max, min, sorted)))
KEEPS = frozenset(["append", "appendleft", "extend", "items", "values", "keys", "get", "copy", "setdefault"])
# by identity, whether the number has to be at least zero
_MATH = {id(math.sqrt): True, id(math.sin): False, id(math.cos): False, id(math.tanh): False, id(math.atan): False}


_IN_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
# all that numbers are computed or compared by
COMPUTATIONS = frozenset(
    getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge", "eq", "ne")
) | frozenset([operator.neg, operator.pos, operator.abs, float, same_value])
COMPUTATIONS |= frozenset([math.sqrt, math.sin, math.cos, math.tanh, math.atan])


def calls_native_code(arguments: list[Any], keywords: dict[str, Any]) -> bool:
    """Whether what is given to call is written in C, which takes numbers for what they are now."""
    called = (*arguments[:1], keywords.get("key"))
    return any(isinstance(value, _IN_C) for value in called) and not any(id(value) in COMPUTES for value in called)


def is_mixed(values: Any) -> bool:
    """Whether there are varying ints beside floats or truth values, whose operators in C take ints as they are."""
    leaves = list(_leaves(values))
    return any(type(leaf) is IntNumber for leaf in leaves) and any(type(leaf) in _TAKES_INTS for leaf in leaves)


_TAKES_INTS = (float, bool, complex)


def _leaves(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict):
        value = list(dict.values(value))
    if isinstance(value, (list, tuple, set, frozenset)) and depth < _DEEPEST:
        for item in value:
            yield from _leaves(item, depth + 1)
    else:
        yield value


def takes_as_it_is(left: Any, right: Any) -> bool:
    """Whether an operator of the left operand would not ask the number on the right."""
    return type(left) in _TAKES_INTS and isinstance(right, Number)


def converted(capture: Reads, function: Any, arguments: list[Any]) -> Any:
    """``int``, ``float``, ``type`` and a few functions of a number; NotImplemented: nothing of that kind."""
    if len(arguments) != 1 or not isinstance(arguments[0], Number):
        return NotImplemented
    value: Any = arguments[0]
    if function is type:
        return int if isinstance(value, int) else float
    if function is int and isinstance(value, int):
        return value
    if function is float:
        return value if isinstance(value, float) else computed(capture, float, value)
    if id(function) in _MATH:
        if _MATH[id(function)] and not value >= 0:
            return NotImplemented
        if isinstance(value, float) and not abs(value) < math.inf:
            return NotImplemented
        return computed(capture, function, value)
    return NotImplemented
