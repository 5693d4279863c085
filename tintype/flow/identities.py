"""Which objects a variable may be in eager mode, where only the data decide: a program that asks (``is``, a search in
a list) is refused, unless all answers are the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from tintype.fake.tensor import FakeTensor
from tintype.flow.ends import location_of, refuse
from tintype.interpret import Frame

_COMPARED = (torch.Tensor, tuple)
_SEARCHED = (list, tuple)
_SEARCHES = frozenset({"count", "index", "remove"})

# objects by their ids, which stay those of nobody else
Objects = dict[int, Any]


class Identities:
    """What branches and loops of one capture made, with the objects that each may be."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Objects]] = {}
        self._carried: Objects = {}  # into steps that are recorded: they may be any object

    def note(self, value: Any, candidates: Iterable[Any]) -> None:
        """A value was made that is one of several in eager mode."""
        found: Objects = {}
        for candidate in candidates:
            if isinstance(candidate, _COMPARED):
                found.update(self._objects(candidate))
        self._note(value, found)

    def _note(self, value: Any, objects: Objects) -> None:
        if isinstance(value, _COMPARED):
            self._known[id(value)] = (value, objects)
            if type(value) is FakeTensor:
                value.is_undecided = True

    def _objects(self, value: Any) -> Objects:
        known = self._known.get(id(value))
        return {id(value): value} if known is None else known[1]

    def note_carried(self, values: Iterable[Any]) -> None:
        """A step of a loop was given values."""
        for value in values:
            self._note(value, {id(value): value})
            self._carried[id(value)] = value

    def leave(
        self, initial: Sequence[Any], entered: Sequence[Any], following: Sequence[Any], results: Sequence[Any]
    ) -> None:
        """A loop was left: its results are what was there before it, or what the last step made."""
        place = {id(value): index for index, value in enumerate(entered)}
        found = [dict(self._objects(value)) for value in initial]
        changed = True
        while changed:
            changed = False
            for objects, value in zip(found, following, strict=True):
                before = len(objects)
                for key, candidate in self._objects(value).items():
                    objects.update(found[place[key]] if key in place else {key: candidate})
                changed = changed or len(objects) > before
        for result, objects in zip(results, found, strict=True):
            self._note(result, objects)

    def _may_be_one(self, first: Any, second: Any) -> bool:
        """Whether the data decide if two values are one object."""
        if first is second or not (isinstance(first, _COMPARED) and isinstance(second, _COMPARED)):
            return False
        if id(first) in self._carried or id(second) in self._carried:
            return True
        return not self._objects(first).keys().isdisjoint(self._objects(second))

    def look(self, frame: Frame, operation: str, values: Sequence[Any]) -> None:
        """The program is about to compare, or to search."""
        if operation == "is_operator" and self._may_be_one(*values):
            raise _undecided(frame)
        if operation == "contains" and isinstance(values[1], _SEARCHED):
            self._look_for(frame, values[0], values[1])

    def look_at_call(self, frame: Frame, callable: Any, arguments: Sequence[Any]) -> None:
        """The same for a method of a list."""
        owner = getattr(callable, "__self__", None)
        if isinstance(owner, _SEARCHED) and len(arguments) == 1 and callable.__name__ in _SEARCHES:
            self._look_for(frame, arguments[0], owner)

    def _look_for(self, frame: Frame, value: Any, items: Sequence[Any]) -> None:
        for item in items if isinstance(value, _COMPARED) else ():
            if item is value:
                return
            if self._may_be_one(item, value):
                raise _undecided(frame)


def _undecided(frame: Frame) -> BaseException:
    return refuse(
        "the program asks whether two tensors are one object (is, in), which only the data decide: a branch or a "
        "loop made one of them",
        location_of(frame),
        "keep in a variable of its own what the program wants to know: a number, or a truth value",
    )
