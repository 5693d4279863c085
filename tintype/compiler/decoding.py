"""Items of runs out of the lists that :mod:`tintype.compiler.encoding` makes; nothing of them is taken on trust."""

from __future__ import annotations

import dataclasses
import re
import weakref
from collections.abc import Callable
from typing import Any

import torch

from tintype.compiler.code_hashes import LiveCode, code_hash
from tintype.compiler.encoding import KINDS, SKIPPED, codes_in
from tintype.compiler.expressions import Expression
from tintype.compiler.named_objects import Callables, NotNamedError, find_object
from tintype.compiler.numbers import COMPUTATIONS
from tintype.compiler.sources import LOOKUP_ERRORS, Guard, Source, parts_of, said
from tintype.compiler.trace import Call, Effect, Item
from tintype.errors import FileFormatError, Location

_SOURCES = frozenset(
    {"argument", "keyword", "constant", "value", "attribute", "item", "dict_item", "called", "cell", "now", "again"}
)
_METHODS = ("method", "base_method")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SEQUENCES: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "list": list,
    "size": torch.Size,
    "frozenset": frozenset,
    "set": set,
}


class Decoder:
    """Reads the items of one file for a function."""

    def __init__(self, function: Any, live: LiveCode, objects: list[list[Any]], sources: list[list[Any]]) -> None:
        self.function = function
        self.callables = Callables()
        self._live = live
        self._objects = objects
        self._sources = sources
        self._found: dict[int, Any] = {}
        self._made: dict[int, Source] = {}

    def live_code(self, key: tuple[str, str, str]) -> Any:
        """The code that a file speaks of."""
        return self._live.find(*key)[0]

    def item(self, item: list[Any]) -> Item:
        """A guard, call, effect or end."""
        try:
            if item[0] == "guard":
                _, kind, source, expected, inline = item
                return self.guard(str(kind), self.source(source), expected, bool(inline))
            return self.other(item[0], item[1])
        except (KeyError, IndexError, ValueError, TypeError, AttributeError, AssertionError) as error:
            raise FileFormatError(f"an item in the file makes no sense: {item}") from error

    def guard(self, kind: str, source: Source, expected: Any, inline: bool) -> Guard:
        if isinstance(expected, list) and expected and expected[0] == "found":
            return Guard(kind, source, self.found(kind, source, *expected[1:]), inline)
        value = self.value(expected)
        if kind == "relation":
            self.check_computation(("operator", value[0], value[1]))
        return Guard(kind, source, value, inline)

    def check_computation(self, expression: Expression) -> None:
        """Refuse numbers that are computed by anything but arithmetic."""
        if expression[0] == "number":
            self.check_computation(expression[1])
        elif expression[0] == "operator":
            if expression[1] not in COMPUTATIONS:
                raise NotNamedError("a number in the file is computed by something else than arithmetic")
            for operand in expression[2]:
                self.check_computation(operand)

    def found(self, kind: str, source: Source, hashes: list[str], defaults: Any) -> Any:
        """What is at a place now, if its code is what it was."""
        place = said(source)
        try:
            found = source.fetch((), {}, ())
        except LOOKUP_ERRORS as error:
            raise NotNamedError(f"{place} is gone") from error
        if [code_hash(code) for code in codes_in(found)] != hashes:
            raise NotNamedError(f"the code of {place} has changed")
        if kind != "code":
            return found
        parts = parts_of(found)
        if defaults is not None and self.value(defaults) != parts[1:3]:
            raise NotNamedError(f"the defaults of {place} have changed")
        return parts

    def other(self, name: str, content: dict[str, Any]) -> Item:
        kind = KINDS[name]
        fields = {field.name for field in dataclasses.fields(kind)} - SKIPPED
        if set(content) != fields:
            raise FileFormatError(f"a {name} in the file has other parts than those of this version")
        made: Any = kind(**{field: self.value(value) for field, value in content.items()})
        if isinstance(made, Call):
            self.check_call(made)
        elif isinstance(made, Effect) and made.kind in _METHODS and made.name not in self.callables.names:
            raise NotNamedError(f"the program's code does not name {made.name!r}")
        return made

    def check_call(self, call: Call) -> None:
        """Refuse what the program's own code could not call."""
        if not all(_NAME.fullmatch(name) for name in call.keywords):
            raise NotNamedError("a call has keywords that are no names")
        for expression in (call.function, *call.arguments, *call.keywords.values()):
            self.check_making(expression)
        function = call.function
        if function[0] == "constant":
            self.callables.check(function[1])
        elif function[0] == "method" and function[2] not in self.callables.names:
            if not hasattr(torch.Tensor, function[2]):
                raise NotNamedError(f"the program's code does not name {function[2]!r}")
        elif function[0] == "source":
            self.check_source(function[1])

    def check_making(self, expression: Expression) -> None:
        self.check_computation(expression)
        if expression[0] == "make":
            if not isinstance(expression[1], str):
                self.callables.check(expression[1])
            for part in expression[2]:
                self.check_making(part)

    def check_source(self, source: Source) -> None:
        """Refuse a place with a name on the way to it that the program's code does not have."""
        step: Source | None = source
        while step is not None:
            name = step.key
            is_name = isinstance(name, str) and not (name.startswith("__") and name.endswith("__"))
            if step.kind in ("attribute", "item") and is_name and name not in self.callables.names:
                raise NotNamedError(f"the program's code does not name {name!r}, which a run in the file calls")
            if step.kind == "constant" and callable(step.key) and step.key is not self.function:
                self.callables.check(step.key)
            step = step.parent

    def source(self, number: int) -> Source:
        """A source of the table; parents stand before those that are made of them."""
        if number not in self._made:
            if type(number) is not int or not 0 <= number < len(self._sources):
                raise FileFormatError("an item in the file speaks of a source that is not in it")
            kind, key, parent = self._sources[number]
            if kind not in _SOURCES or (parent is not None and not 0 <= parent < number):
                raise FileFormatError(f"{kind} is no source")
            made = Source(kind, self.value(key), None if parent is None else self.source(parent))
            if kind == "attribute" and not isinstance(made.key, str):
                raise FileFormatError("the name of an attribute is no string")
            if kind == "called" and made.parent is not None and not _is_reference(made.parent):
                self.check_source(made.parent)
            self._made[number] = made
        return self._made[number]

    def value(self, value: Any) -> Any:
        """A value of a file."""
        if not isinstance(value, list):
            if isinstance(value, (dict, float)):
                raise FileFormatError(f"{value} is no value in a file")
            return value
        name, *parts = value
        if name in _SEQUENCES:
            return _SEQUENCES[name](map(self.value, parts))
        if name == "dict":
            content = list(map(self.value, parts))
            return dict(zip(content[::2], content[1::2], strict=True))
        if name == "source":
            return self.source(parts[0])
        if name == "object":
            return self.object(parts[0])
        if name == "location":
            return Location(*parts)
        return _PLAIN[name](*parts)

    def object(self, number: int) -> Any:
        """An object of the table."""
        if number not in self._found:
            if type(number) is not int or not 0 <= number < len(self._objects):
                raise FileFormatError("an item in the file speaks of an object that is not in it")
            name = self._objects[number]
            is_kind = name[:1] == ["class"]
            self._found[number] = self.kind_at(*name[1:]) if is_kind else find_object(name, self.function)
        return self._found[number]

    def kind_at(self, number: int, name: str) -> type:
        """The class of what is at a place now."""
        source = self.source(number)
        try:
            kind = type(source.fetch((), {}, ()))
        except LOOKUP_ERRORS as error:
            raise NotNamedError(f"{said(source)} is gone") from error
        if kind.__qualname__ != name:
            raise NotNamedError(f"{said(source)} is a {kind.__qualname__}, not a {name}")
        return kind


def _is_reference(source: Source) -> bool:
    """Whether it is a weak reference, which anybody may call."""
    try:
        return source.root.kind == "constant" and type(source.fetch((), {}, ())) is weakref.ref
    except LOOKUP_ERRORS:
        return False


def _of_torch(kind: type) -> Callable[[str], Any]:
    def named(name: str) -> Any:
        found = getattr(torch, name)
        if type(found) is not kind:
            raise ValueError(name)
        return found

    return named


_PLAIN: dict[str, Callable[..., Any]] = {
    "int": int,
    "float": float.fromhex,
    "complex": lambda real, imaginary: complex(float.fromhex(real), float.fromhex(imaginary)),
    "bytes": bytes.fromhex,
    "layout": _of_torch(torch.layout),
    "memory_format": _of_torch(torch.memory_format),
    "dtype": _of_torch(torch.dtype),
    "device": torch.device,
    "slice": slice,
    "range": range,
    "ellipsis": lambda: ...,
    "not_implemented": lambda: NotImplemented,
}
