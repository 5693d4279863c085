"""Which objects are one and the same: what a run rests on without asking for it.

A run that found two objects at two places writes to one of them and goes on with what it read of the other one. Where
both are one object, that would be wrong, so the run rests on their being two. The same holds for objects that are
compared by identity, be it with ``is`` or as keys. That two places hold one object is noted when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from tintype.compiler.calls import source_of_value
from tintype.compiler.known import CONTAINERS
from tintype.compiler.sources import Source
from tintype.ir.call_values import PLAIN

if TYPE_CHECKING:
    from tintype.compiler.reads import Reads

# how many objects are told apart by being keys, or by being in lists that are compared
MOST_OBJECTS = 64
_Found = dict[int, Source]
KEYED = (dict, set, frozenset)
_SUBSCRIPTS = ("binary_subscript", "store_subscript", "delete_subscript")
_UPDATES = ("set_update", "dict_update", "dict_merge")
# operations of the machine that compare objects, or take them for keys
COMPARING = frozenset({"is_operator", "compare", "contains", "set_add", "map_add", *_SUBSCRIPTS, *_UPDATES})
# methods of lists, tuples and queues that do
_COMPARING_METHODS = frozenset({"index", "count", "remove", "__contains__", "__eq__", "__ne__"})


class Identities:
    """The objects of a run that matter as themselves, by their class: those of two classes are two."""

    def __init__(self, capture: Reads) -> None:
        self.capture = capture
        self._seen: dict[type, _Found] = {}
        self._written: dict[type, _Found] = {}
        self._keys: dict[type, _Found] = {}

    def registered(self, source: Source, value: Any) -> None:
        """An object that was there before is known from now on."""
        kind = type(value)
        if issubclass(kind, (torch.Tensor, type, ModuleType)):
            return
        self.capture.note_class(kind)
        self._seen.setdefault(kind, {})[id(value)] = source
        written = self._written.get(kind)
        if written:
            self._tell_apart(source, id(value), written)

    def written(self, value: Any) -> None:
        """The program is about to write to an object that was there before."""
        kind, identity = type(value), id(value)
        found = self._seen.get(kind, {})
        written = self._written.setdefault(kind, {})
        if identity in found and identity not in written:
            written[identity] = found[identity]
            others = {other: source for other, source in found.items() if other not in written}
            self._tell_apart(found[identity], identity, others)

    def compared(self, left: Any, right: Any) -> None:
        """The program asks whether two objects are one."""
        pair = self._atoms([left, right])
        if len(pair) == 2 and pair[0][0] is pair[1][0]:
            (_, first, place), (_, second, other) = pair
            self._tell_apart(place, id(first), {id(second): other})

    def compared_within(self, values: Iterable[Any]) -> None:
        """Values are compared with each other, lists and what is in them: who is the same object is equal."""
        by_kind: dict[type, _Found] = {}
        for kind, value, source in self._atoms(values, is_deep=True):
            identity = id(value)
            others = by_kind.setdefault(kind, {})
            self._tell_apart(source, identity, others)
            others[identity] = source
            self._check_count(others)

    def used_as_keys(self, values: Iterable[Any]) -> None:
        """Values are keys, or are looked for among keys."""
        for kind, value, source in self._atoms(values):
            identity = id(value)
            others = self._keys.setdefault(kind, {})
            if identity not in others:
                self._tell_apart(source, identity, others)
                others[identity] = source
                self.capture.kept.append(value)
                self._check_count(others)

    def _check_count(self, objects: _Found) -> None:
        if len(objects) > MOST_OBJECTS:
            self.capture.give_up(f"more than {MOST_OBJECTS} objects are compared with each other")

    def _tell_apart(self, source: Source, identity: int, others: _Found) -> None:
        if source.kind == "constant":
            places = [other for other in others.values() if other.kind != "constant"]
        else:
            places = list(others.values())
        places = [place for place in places if not self.capture.are_two(source, place)]
        if places and identity not in others:
            inline = any(place.root.kind == "value" or place.is_now for place in places)
            self.capture.guard("apart", source, tuple(places), inline)

    def _atoms(self, values: Iterable[Any], is_deep: bool = False) -> list[tuple[type, Any, Source]]:
        """Those that were there before or that calls gave, and have no other equality than being themselves."""
        found = []
        stack = list(values)
        while stack:
            value = stack.pop()
            if type(value) in PLAIN or issubclass(type(value), (type, ModuleType)):
                continue
            if issubclass(type(value), CONTAINERS) and (is_deep or isinstance(value, (tuple, frozenset))):
                stack += [*value, *value.values()] if isinstance(value, dict) else value
                continue
            source = self.capture.sources.get(id(value))
            if source is None and id(value) in self.capture.values:
                source = source_of_value(self.capture.values[id(value)])
            if source is not None:
                kind = type(value)
                found.append((torch.Tensor if issubclass(kind, torch.Tensor) else kind, value, source))
        return found


def note_comparison(identities: Identities, operation: str, values: list[Any]) -> None:
    """An operation of the machine is about to compare its operands, or to take them for keys."""
    if operation in _UPDATES or operation == "set_add":
        identities.used_as_keys(values[0] if operation in _UPDATES and isinstance(values[0], KEYED) else values[:1])
    elif operation == "map_add":
        identities.used_as_keys(values[-2:-1])
    elif operation in _SUBSCRIPTS:
        if isinstance(values[-2], dict):
            identities.used_as_keys(values[-1:])
    elif operation == "contains" and isinstance(values[1], KEYED):
        identities.used_as_keys(values[:1])
    elif not any(isinstance(value, torch.Tensor) for value in values) or operation == "contains":
        identities.compared_within(values)


def note_comparing_method(identities: Identities, name: str, owner: Any, arguments: list[Any]) -> None:
    """The same for a method of a container."""
    if isinstance(owner, KEYED):
        for argument in arguments:
            identities.used_as_keys(argument if isinstance(argument, KEYED) else [argument])
    elif name in _COMPARING_METHODS:
        identities.compared_within([owner, *arguments])
