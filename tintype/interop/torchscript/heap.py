"""The heap: lists, dictionaries and objects of a script, which are changed in place and shared by reference.

Inside of a branch or a loop body that is being recorded, changes to what was there before are noted, so that they can
be taken back and be made results of the operator. Everything that changes something asks the heap first.
"""

from __future__ import annotations

from typing import Any

import torch

from tintype.errors import CaptureError, StateChangedError
from tintype.symbolic.location import user_location

# What containers that are attributes of modules are born in.
LASTING = -1


class Container:
    """What can be changed in place. ``born`` is the number of the recorded block that made it."""

    __slots__ = ("born", "content", "frozen")

    def __init__(self, content: Any, born: int) -> None:
        self.content = content
        self.born = born
        # why it can't be changed; empty if it can
        self.frozen = ""

    def copy_of_content(self) -> Any:
        return self.content.copy()


class ScriptList(Container):
    """A list; ``content`` is a Python list.

    A list that a recorded loop has appended to has ``rows`` besides, after its content: what each step appended, as
    tensors with one row per step. Only what is made for such lists may be done with them. While the loop is being
    recorded its rows are :data:`APPENDING`, and it can be appended to and nothing else. What ``unbind`` makes of a
    size that varies has the rows of a tensor (:class:`RowsOfTensor`).
    """

    __slots__ = ("rows", "taken")

    def __init__(self, content: list[Any], born: int) -> None:
        super().__init__(content, born)
        self.rows: tuple[Any, ...] = ()
        # whether a tensor of the script's is the memory of the rows already
        self.taken = False

    def known(self) -> list[Any]:
        """The items of a list whose length is known."""
        if isinstance(self.rows, RowsOfTensor):
            return self.rows.items()
        if self.rows:
            raise CaptureError(
                "a list that a loop over a size that varies has appended to is used in a way that needs its items",
                location=user_location(),
                remedy="use torch.stack or torch.cat on it, index it or ask for its length; or fix the size",
            )
        content: list[Any] = self.content
        return content


class RowsOfTensor(tuple[Any, ...]):
    """The rows of one tensor, which are views of it."""

    __slots__ = ()

    def items(self) -> list[Any]:
        """The rows one by one, which fixes their number."""
        return list(self[0].unbind(0))


# The rows of a list that is only being appended to.
APPENDING: tuple[Any, ...] = ("appending",)


class ScriptDict(Container):
    """A dictionary; ``content`` is a Python dictionary."""

    __slots__ = ()


class ScriptInstance(Container):
    """An instance of a TorchScript class, or the attributes of a module; ``content`` is what they are, by name.

    ``load`` gives attributes that were there before the run and that nobody has written to.
    """

    __slots__ = ("load", "type")

    def __init__(self, content: dict[str, Any], born: int, type: Any = None, load: Any = None) -> None:
        super().__init__(content, born)
        self.type = type
        self.load = load

    def get(self, name: str) -> Any:
        """An attribute; KeyError where there is none."""
        if name in self.content or self.load is None:
            return self.content[name]
        return self.load(name)


class Heap:
    """Notes changes to containers."""

    def __init__(self) -> None:
        self._serial = 0
        # one per block that is being recorded: containers with what they were before
        self._journals: list[tuple[int, dict[int, tuple[Container, Any]]]] = []

    @property
    def is_outermost(self) -> bool:
        """Whether what runs now runs in every case."""
        return not self._journals

    @property
    def now(self) -> int:
        """What containers that are made now are born in."""
        return self._serial

    def list(self, items: Any) -> ScriptList:
        return ScriptList(list(items), self._serial)

    def dictionary(self, items: Any) -> ScriptDict:
        return ScriptDict(dict(items), self._serial)

    def adopt(self, value: Any, born: int | None = None) -> Any:
        """A value of Python's or of an operator's as one of a script: lists and dictionaries are containers."""
        kind = type(value)
        born = self._serial if born is None else born
        if kind is list:
            return ScriptList([self.adopt(item, born) for item in value], born)
        if kind is dict:
            return ScriptDict({key: self.adopt(item, born) for key, item in value.items()}, born)
        if isinstance(value, tuple) and kind is not torch.Size:
            items = [self.adopt(item, born) for item in value]
            return kind(*items) if hasattr(value, "_fields") else tuple(items)
        return value

    def changes(self, container: Container) -> None:
        """Called before a container is changed."""
        if container.frozen:
            raise CaptureError(
                container.frozen,
                location=user_location(),
                remedy="build the list, dictionary or object anew where it changes",
            )
        if container.born == LASTING:
            raise StateChangedError(
                "the script changes a list, dictionary or object that is an attribute of a module and lasts from "
                "call to call, which a program can't have",
                location=user_location(),
                remedy="keep tensors and numbers in attributes; pass what changes as an argument and return it",
            )
        if not self._journals:
            return
        began, journal = self._journals[-1]
        if container.born < began and id(container) not in journal:
            journal[id(container)] = (container, _state(container))

    def enter(self) -> None:
        """Begin to note changes."""
        self._serial += 1
        self._journals.append((self._serial, {}))

    def leave(self) -> dict[int, tuple[Container, Any]]:
        """Stop noting, take the changes back; returns the containers that were changed, with what they were at the
        end."""
        _, journal = self._journals.pop()
        changed = {}
        for key, (container, before) in journal.items():
            changed[key] = (container, _state(container))
            put(container, before)
        return changed

    def noted(self) -> Any:
        """The containers that were changed in the block that is being recorded, with what they were before."""
        return list(self._journals[-1][1].values())

    def replace(self, container: Container, state: Any) -> None:
        """Change a container as a whole."""
        self.changes(container)
        put(container, state)

    def is_older(self, container: Container) -> bool:
        """Whether a container was there before the block that is being recorded."""
        return bool(self._journals) and container.born < self._journals[-1][0]


def _state(container: Container) -> Any:
    return container.copy_of_content(), container.rows if isinstance(container, ScriptList) else ()


def put(container: Container, state: Any) -> None:
    """Set the content of a container, without noting it."""
    container.content, rows = state
    if isinstance(container, ScriptList):
        container.rows = rows


def plain(value: Any) -> Any:
    """A value of a script as operators take it: containers as Python's."""
    if isinstance(value, ScriptList):
        return [plain(item) for item in value.known()]
    if isinstance(value, ScriptDict):
        return {key: plain(item) for key, item in value.content.items()}
    if isinstance(value, tuple):
        items = [plain(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value
