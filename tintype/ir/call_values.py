"""What tells two values apart that are no tensors: their type, and their bits.

0.0 and -0.0 are equal, and so are 1 and True; a program may do other things with them all the same.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import sys
from typing import Any

import torch

from tintype.ir.writing import Writer, spell

# types whose values can't change
PLAIN = frozenset(
    {int, float, bool, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)


def value_key(leaf: Any) -> Any:
    """A value by its type and its bits. What is of a class of the user's counts as the object that it is, since what
    its class calls equal may be told apart. Hashable, unless the value is nothing that can be an argument.

    >>> value_key(0.0) == value_key(-0.0), value_key(1) == value_key(True), value_key((1 + 1) / 4) == value_key(0.5)
    (False, False, True)
    """
    kind = type(leaf)
    if kind is str or kind is int or kind is bool or leaf is None:
        return (kind, leaf)
    if isinstance(leaf, float):
        return (kind, struct.pack("<d", leaf))
    if isinstance(leaf, complex):
        return (kind, struct.pack("<dd", leaf.real, leaf.imag))
    if kind in PLAIN:
        return (kind, leaf)
    if kind is slice:
        return (kind, value_key(leaf.start), value_key(leaf.stop), value_key(leaf.step))
    if kind is set or kind is frozenset:
        return (kind, frozenset(map(value_key, leaf)))
    if kind.__module__ == "numpy" and hasattr(leaf, "tobytes") and not hasattr(leaf, "__setitem__"):
        return (kind, leaf.tobytes())
    if is_library(kind.__module__):
        return (kind, leaf)
    fields = _plain_fields(leaf)
    return (kind, TheObject(leaf) if fields is None else fields)


def _plain_fields(leaf: Any) -> tuple[Any, ...] | None:
    """The fields of a frozen dataclass that holds nothing but plain values, which say all about it."""
    parameters = getattr(type(leaf), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen or not parameters.eq:
        return None
    fields = [getattr(leaf, field.name) for field in dataclasses.fields(leaf)]
    has_more = len(getattr(leaf, "__dict__", ())) > len(fields)
    return tuple(map(value_key, fields)) if not has_more and all(type(field) in PLAIN for field in fields) else None


class TheObject:
    """An object that is equal to itself alone, whatever its class says."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TheObject) and self.value is other.value


_LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "torchvision", "numpy", "tintype"})


def is_library(name: Any) -> bool:
    """Whether a module, by its name, is one whose code is not the user's."""
    return isinstance(name, str) and name.partition(".")[0] in _LIBRARIES


def same_value(first: Any, second: Any) -> bool:
    """Whether two values that can't change are the same, bit for bit."""
    if first is second:
        return True
    kind = type(first)
    if kind is not type(second):
        return False
    if kind in (tuple, frozenset):
        if len(first) != len(second):
            return False
        return first == second if kind is frozenset else all(map(same_value, first, second))
    return kind in PLAIN and value_key(first) == value_key(second)


# --- checks ----------------------------------------------------------------------------------------------


def is_like(given: Any, expected: Any) -> bool:
    """Whether a value does where another one was given: of the same type and equal, zeros with their signs. Any nan
    does for any other, so that nobody is told that nan was expected and nan given."""
    if type(given) is not type(expected):
        return False
    if isinstance(expected, (float, complex)):
        return repr(given) == repr(expected)
    return bool(given == expected)


def unlike(writer: Writer, name: str, expected: Any) -> str:
    """The condition that a variable does not hold a value like this one, as :func:`is_like` has it.

    >>> unlike(Writer(), "x", True), unlike(Writer(), "x", -0.0), unlike(Writer(), "x", 3)
    ('x is not True', "type(x) is not _k0 or repr(x) != '-0.0'", 'type(x) is not _k0 or x != 3')
    """
    if expected is None or isinstance(expected, bool):
        return f"{name} is not {expected!r}"
    kind = writer.bind(type(expected))
    if isinstance(expected, (float, complex)) and not _is_told_by_equality(expected):
        return f"type({name}) is not {kind} or repr({name}) != {repr(expected)!r}"
    return f"type({name}) is not {kind} or {name} != {spell(writer, expected)}"


def _is_told_by_equality(number: float | complex) -> bool:
    """Whether only one number equals this one: not so for zeros, which have a sign, and nan."""
    if isinstance(number, complex):
        return _is_told_by_equality(number.real) and _is_told_by_equality(number.imag)
    return not (number == 0 or math.isnan(number))
