"""Numbers that vary, made plain wherever the program has put them.

They are for the program while it is captured. Nobody else shall see them: neither who gets its result, its exception
or what it has stored, nor the program itself once nothing is noted any more.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Container, Iterable
from types import CellType, FunctionType, GeneratorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import torch

from tintype.compiler.numbers import Number
from tintype.interpret import Frame
from tintype.interpret.generators import frame_of
from tintype.interpret.handlers.attributes import instance_dictionary
from tintype.ir.call_values import PLAIN

# they hold what they go through, and can say how to be made again
_ITERATORS: tuple[type, ...] = (
    *(type(iter(())), type(iter([])), type(reversed([])), type(iter(range(0)))),
    *(enumerate, zip, map, filter, reversed),
)
_UNCHANGING = (tuple, slice, frozenset)
_SKIPPED = (type, ModuleType, str, bytes)


def fixed(value: Any) -> Any:
    """A value that is about to be stored in what was there before, as it is to stand there: with plain numbers where
    it can't be changed later on. What can be is left as it is, since the program goes on with it."""
    if isinstance(value, Number):
        return value.plain()
    return _rebuilt(value, fixed) if isinstance(value, _UNCHANGING) else value


def _rebuilt(value: Any, change: Any) -> Any:
    """A tuple, slice or frozenset of changed items; the very same one where nothing has changed."""
    kind: Any = type(value)
    items = [value.start, value.stop, value.step] if kind is slice else list(value)
    new = list(map(change, items))
    if all(one is other for one, other in zip(items, new, strict=True)):
        return value
    if kind is slice or kind is frozenset:
        return slice(*new) if kind is slice else frozenset(new)
    if not issubclass(kind, tuple):
        return value
    made = kind(new) if kind in (tuple, torch.Size) else tuple.__new__(kind, new)
    if own := instance_dictionary(value):
        instance_dictionary(made).update(own)
    return made


class PlainAgain:
    """Makes numbers plain in values and in all that they hold. What is in ``known`` was there before the program, and
    holds none."""

    def __init__(self, known: Container[int]) -> None:
        self.known = known
        self._seen: dict[int, Any] = {}  # kept, since another object may get the identity of one that is gone
        self._waiting: list[Any] = []

    def value(self, value: Any) -> Any:
        """What takes the place of a value: itself, if it can be changed, or if there is nothing to change."""
        found = self._plain(value)
        while self._waiting:
            self._change(self._waiting.pop())
        return found

    def frames(self, frame: Frame | None) -> None:
        """The variables and stacks of a frame and of those that wait for it."""
        while frame is not None:
            self._frame(frame)
            frame = frame.back
        self.value(None)

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        # a function that the program made is known, too, as soon as something is asked of it
        if kind in PLAIN or (id(value) in self.known and kind is not FunctionType) or issubclass(kind, _SKIPPED):
            return value
        if isinstance(value, Number):
            return value.plain()
        if issubclass(kind, _UNCHANGING):
            return _rebuilt(value, self._plain)
        if kind in _ITERATORS:
            return self._iterator(value)
        if id(value) not in self._seen:
            self._seen[id(value)] = value
            self._waiting.append(value)
        return value

    def _iterator(self, value: Any) -> Any:
        how, parts, *state = value.__reduce__()
        new = tuple(map(self._plain, parts))
        if all(one is other for one, other in zip(parts, new, strict=True)):
            return value
        made = how(*new)
        if state and state[0] is not None:
            made.__setstate__(state[0])
        return made

    def _change(self, value: Any) -> None:
        """Change what can be changed in place."""
        kind = type(value)
        if issubclass(kind, (list, collections.deque)):
            base: Any = list if issubclass(kind, list) else collections.deque
            for position, item in enumerate(base.__iter__(value)):
                if (new := self._plain(item)) is not item:
                    base.__setitem__(value, position, new)
        elif issubclass(kind, dict):
            self._dictionary(value)
        elif kind is set:
            self._set(value)
        elif kind is Frame:
            self._frame(value)
        elif kind is CellType:
            self._cell(value)
        elif kind is FunctionType:
            self._function(value)
        elif kind is MethodType:
            self._plain_parts((value.__self__, value.__func__))
        elif kind is types.BuiltinFunctionType:
            self._plain(value.__self__)
        elif kind is functools.partial:
            self._partial(value)
        elif kind is GeneratorType:
            self._plain(frame_of(value))
        self._attributes(value, kind)

    def _plain_parts(self, parts: Iterable[Any]) -> None:
        for part in parts:
            self._plain(part)

    def _attributes(self, value: Any, kind: type) -> None:
        """Of objects that have some; those of libraries hold what the program gave them (a stack of callbacks)."""
        if kind.__module__.partition(".")[0] == "tintype":
            return
        if own := instance_dictionary(value):
            self._plain(own)
        if issubclass(kind, BaseException):
            if (arguments := self._plain(value.args)) is not value.args:
                value.args = arguments
            self._plain_parts((value.__cause__, value.__context__))
        for base in kind.__mro__:
            for slot in list(vars(base).values()) if _is_written_in_python(base) else ():
                if type(slot) is MemberDescriptorType:
                    found = slot.__get__(value) if _is_set(slot, value) else None
                    if (new := self._plain(found)) is not found:
                        slot.__set__(value, new)

    def _dictionary(self, value: Any) -> None:
        base: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        items = list(base.items(value))
        if any(isinstance(key, (Number, *_UNCHANGING)) for key, _ in items):
            new = [(self._plain(key), self._plain(item)) for key, item in items]
            if any(key is not other for (key, _), (other, _) in zip(items, new, strict=True)):
                base.clear(value)
                for key, item in new:
                    base.__setitem__(value, key, item)
                return
        for key, item in items:
            if (plain := self._plain(item)) is not item:
                dict.__setitem__(value, key, plain)

    def _set(self, value: set[Any]) -> None:
        items = list(value)
        new = list(map(self._plain, items))
        if any(one is not other for one, other in zip(items, new, strict=True)):
            value.clear()
            value.update(new)

    def _frame(self, frame: Frame) -> None:
        for values in (frame.locals, frame.stack):
            for position, item in enumerate(values):
                if (new := self._plain(item)) is not item:
                    values[position] = new
        self._plain_parts((frame.names, frame.function))

    def _cell(self, cell: CellType) -> None:
        try:
            content = cell.cell_contents
        except ValueError:
            return
        if (new := self._plain(content)) is not content:
            cell.cell_contents = new

    def _function(self, function: FunctionType) -> None:
        self._plain_parts((*(function.__closure__ or ()), function.__kwdefaults__, function.__dict__))
        if (defaults := self._plain(function.__defaults__)) is not function.__defaults__:
            function.__defaults__ = defaults

    def _partial(self, value: functools.partial[Any]) -> None:
        self._plain_parts((value.func, value.keywords))
        if (arguments := self._plain(value.args)) is not value.args:
            value.__setstate__((value.func, arguments, value.keywords, value.__dict__))  # type: ignore[attr-defined]


def _is_set(slot: MemberDescriptorType, value: Any) -> bool:
    try:
        slot.__get__(value)
    except AttributeError:
        return False
    return True


def _is_written_in_python(kind: type) -> bool:
    return bool(kind.__flags__ & _ON_THE_HEAP)


_ON_THE_HEAP = 1 << 9  # what Python says of classes that were made by a class statement
