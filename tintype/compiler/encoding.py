"""Items of runs as lists of plain values, for a file (see :mod:`tintype.compiler.saving`).

None, booleans, numbers that fit and strings stand for themselves; everything else is a list that begins with what it
is. Objects and sources are in tables, since many items speak of the same ones.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from tintype.compiler.code_hashes import code_hash
from tintype.compiler.named_objects import NotNamedError, name_object
from tintype.compiler.sources import LOOKUP_ERRORS, Guard, Source, said
from tintype.compiler.trace import Call, Eagerly, Effect, Item, Return
from tintype.errors import Location

KINDS: dict[str, type] = {"call": Call, "effect": Effect, "return": Return, "eagerly": Eagerly}
NAMES = {kind: name for name, kind in KINDS.items()}
# what is made again, and what is not: graphs of backends
SKIPPED = frozenset({"graph"})
_SEQUENCES: dict[type, str] = {tuple: "tuple", list: "list", torch.Size: "size", frozenset: "frozenset", set: "set"}
_NAMED: dict[type, str] = {torch.layout: "layout", torch.memory_format: "memory_format", torch.dtype: "dtype"}


class Encoder:
    """Writes the items of one compiled function's runs."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.objects: list[list[Any]] = []
        self.sources: list[list[Any]] = []
        self._objects: dict[int, int] = {}
        self.known: dict[Any, int] = {}  # the numbers of sources, by path
        self._places: dict[int, int] = {}  # of objects whose classes no name leads to, by the class
        self._kept: list[Any] = []  # so that identities stay what they are

    def item(self, item: Item) -> list[Any]:
        """A guard, call, effect or end."""
        if isinstance(item, Guard):
            return ["guard", item.kind, self.source(item.source), self.expected(item), item.inline]
        fields = [field.name for field in dataclasses.fields(item) if field.name not in SKIPPED]
        return [NAMES[type(item)], {name: self.value(getattr(item, name)) for name in fields}]

    def expected(self, guard: Guard) -> Any:
        """What a guard rests on. Functions that no name leads to are what is found at their place."""
        if guard.kind == "type" and type(_fetched(guard.source)) is guard.expected:
            self._places.setdefault(id(guard.expected), self.source(guard.source))
        if guard.kind in ("code", "is"):
            found = _fetched(guard.source)
            expected = guard.expected[0] if guard.kind == "code" else guard.expected
            if found is not None and (found is expected or getattr(found, "__code__", None) is expected):
                hashes = [code_hash(code) for code in codes_in(found)]
                return ["found", hashes, self.defaults(guard)]
            if guard.kind == "code":
                raise NotNamedError(f"the function that {said(guard.source)} is comes from a caller")
        return self.value(guard.expected)

    def defaults(self, guard: Guard) -> Any:
        """The defaults of a function, as far as they are plain."""
        try:
            return self.value(guard.expected[1:3]) if guard.kind == "code" else None
        except NotNamedError:
            return None

    def source(self, source: Source) -> int:
        """The number of a source in the table."""
        if source.path not in self.known:
            parent = None if source.parent is None else self.source(source.parent)
            key = self.reference(source.key) if source.kind == "constant" and source.key is not None else None
            entry = [source.kind, self.value(source.key) if key is None else ["object", key], parent]
            self.sources.append(entry)
            self.known[source.path] = len(self.sources) - 1
        return self.known[source.path]

    def reference(self, value: Any) -> int:
        """The number of an object in the table."""
        if id(value) not in self._objects:
            try:
                self.objects.append(name_object(value, self.function))
            except NotNamedError:
                if id(value) not in self._places:
                    raise
                self.objects.append(["class", self._places[id(value)], value.__qualname__])
            self._objects[id(value)] = len(self.objects) - 1
            self._kept.append(value)
        return self._objects[id(value)]

    def value(self, value: Any) -> Any:
        """A value: plain, of plain parts, a source, or an object that has a name."""
        kind = type(value)
        if value is None or kind in (bool, str) or (kind is int and abs(value) < 2**53):
            return value
        if kind in _SEQUENCES:
            return [_SEQUENCES[kind], *map(self.value, value)]
        if kind is dict:
            return ["dict", *[self.value(part) for pair in value.items() for part in pair]]
        if isinstance(value, Source):
            return ["source", self.source(value)]
        if kind is Location:
            return ["location", value.filename, value.line, value.function, value.source_line()]
        plain = _plain(value, kind)
        return ["object", self.reference(value)] if plain is None else plain


def _plain(value: Any, kind: type) -> list[Any] | None:
    if kind is int:
        return ["int", str(value)]
    if kind is float:
        return ["float", value.hex()]
    if kind is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    if kind is bytes:
        return ["bytes", value.hex()]
    if kind in _NAMED:
        return [_NAMED[kind], str(value).removeprefix("torch.")]
    if kind is torch.device:
        return ["device", str(value)]
    if kind is slice:
        return ["slice", value.start, value.stop, value.step] if _are_numbers(value) else None
    if kind is range:
        return ["range", value.start, value.stop, value.step]
    if value is ...:
        return ["ellipsis"]
    return ["not_implemented"] if value is NotImplemented else None


def _are_numbers(value: slice) -> bool:
    return all(type(part) in (int, type(None)) for part in (value.start, value.stop, value.step))


def _fetched(source: Source) -> Any:
    """What is at a place that does not hang on a call's arguments."""
    if source.root.kind != "constant":
        return None
    try:
        return source.fetch((), {}, ())
    except LOOKUP_ERRORS:
        return None


def codes_in(value: Any) -> list[Any]:
    """The code of a function, or of what is made of functions."""
    parts = [value, *(getattr(value, name, None) for name in ("__func__", "fget", "fset", "fdel"))]
    return [part.__code__ for part in parts if hasattr(part, "__code__")]
