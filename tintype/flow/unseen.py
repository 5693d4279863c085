"""Writes that nobody tells of: the user's code that native code calls is not interpreted.

Such code (``__add__`` of a class, a function given to ``sorted`` or ``torch.vmap``) runs in both arms of a branch.
What it writes to can't be undone after either arm, so everything that it can reach is compared, before and after.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from types import CellType, FunctionType
from typing import Any

from tintype.errors import Location
from tintype.flow.ends import Refused, refuse
from tintype.interpret import Frame
from tintype.trace.places import AttributePlace, CellPlace, ContentPlace, GlobalPlace
from tintype.trace.reachable import PLAIN, contents_of, held_by_callable, held_by_function, is_globals, namespace_of

_MOST = 200_000  # containers and objects; models have some thousands


class Watched:
    """What can be reached at one moment, with its contents."""

    def __init__(self, frame: Frame, others: Sequence[Any], location: Location) -> None:
        self.location = location
        self._seen: set[int] = set()
        self._saved: list[tuple[Any, list[tuple[Any, Any]]]] = []
        pending: list[Any] = list(others)
        outer: Frame | None = frame
        while outer is not None:
            pending += [*outer.locals, *outer.stack, outer.globals]
            outer = outer.back
        self._save(pending)

    def holders(self) -> list[Any]:
        """What holds values only to know them."""
        held: list[Any] = []
        for saved in self._saved:
            held += (saved, saved[1], *saved[1])
        return held

    def add_code_of(self, values: Sequence[Any]) -> None:
        """Also what the code of values can reach; not the values, which the arm may have made."""
        functions = [getattr(value, "__func__", value) for value in values]
        self._save([*map(type, values), *(value for value in functions if isinstance(value, (FunctionType, type)))])

    def _save(self, pending: list[Any]) -> None:
        seen = self._seen
        while pending:
            value = pending.pop()
            if type(value) in PLAIN or id(value) in seen:
                continue
            seen.add(id(value))
            if len(seen) > _MOST:
                raise refuse(
                    "code that is not interpreted runs where only the data decide whether it does, and what it can "
                    "reach is too much to be compared",
                    self.location,
                    "compute it before the branch",
                )
            contents = contents_of(value)
            if contents is not None:
                pending.append(type(value))
                self._saved.append((value, contents))
                if not is_globals(value):  # of which functions reach what they name
                    pending += [item for _, item in contents]
            pending += held_by_function(value) if type(value) is FunctionType else held_by_callable(value)

    def check(self, known: Container[Any]) -> None:
        """Refuse changes that are not at known places."""
        for holder, before in self._saved:
            for name in _changed_names(before, contents_of(holder) or []):
                if not any(key in known for key in _keys(holder, name)):
                    raise self._refused(holder, name)

    def _refused(self, holder: Any, name: Any) -> Refused:
        what = f"a {type(holder).__name__}"
        if isinstance(holder, CellType):
            what = "a variable of a closure"
        elif is_globals(holder):
            what = f"the global {name!r}"
        elif name is not None:
            what = f"{name!r} of {what}"
        return refuse(
            f"{what} is changed where only the data decide whether it is, by code that Python or torch calls (an "
            "operator of a class, a function given to another one), which is not interpreted",
            self.location,
            "let such code change nothing but its own variables, or call it before the branch",
        )


def _changed_names(before: list[tuple[Any, Any]], after: list[tuple[Any, Any]]) -> list[Any]:
    """The names under which something else is found."""
    if len(before) == len(after) and all(
        one[0] is other[0] and one[1] is other[1] for one, other in zip(before, after, strict=True)
    ):
        return []
    known = {(id(name), id(item)): name for name, item in before}
    found = {(id(name), id(item)): name for name, item in after}
    different = [name for key, name in {**known, **found}.items() if (key in known) != (key in found)]
    return different or [None]


def _keys(holder: Any, name: Any) -> Iterator[Any]:
    """How the journal knows a place."""
    yield AttributePlace, id(holder), name
    yield GlobalPlace, id(holder), name
    yield ContentPlace, id(holder), None
    yield CellPlace, id(holder)
    yield ContentPlace, id(namespace_of(holder)), None
