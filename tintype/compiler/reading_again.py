"""Places that are read again behind a step that may have written to them.

A function that is called as it is (``disable``, ``allow_in_graph``, a method of torch's modules) may change what the
program has read before. What is read behind it is fetched again, and asked again. Where a run is taken over behind
such a step, the program's code begins anew, and sees what it saw before the step: what the guards of the run say.
"""

from __future__ import annotations

import collections
from types import CellType
from typing import Any

from tintype.compiler.sources import Guard, Path, Source
from tintype.compiler.trace import Item, Segment
from tintype.compiler.undoing import instance_value
from tintype.interpret.frame import NULL
from tintype.interpret.handlers.names import content_of
from tintype.ir.call_values import PLAIN, same_value

# guards about what is at a place; others ask the object that was found there
_OF_PLACES = frozenset({"value", "type", "is", "same"})
_ASKED_ONCE = frozenset({"arguments", "state", "tensor", "apart", "relation", "assumed", "returned"})

_ALL = object()


def are_same(first: Any, second: Any) -> bool:
    """Whether places hold what they held."""
    if first is second:
        return True
    if type(first) is list and type(second) is list:
        return len(first) == len(second) and all(map(are_same, first, second))
    return type(first) in PLAIN and same_value(first, second)


def _content(owner: Any, name: Any) -> Any:
    if type(owner) is CellType:
        return [owner.cell_contents] if content_of(owner) is not NULL else None
    if type(name) is tuple:
        return [dict.get(owner, name[0], _ALL)]
    if name is not _ALL:
        return [instance_value(owner, name)]
    if isinstance(owner, dict):
        return [*dict.keys(owner), *dict.values(owner)]
    return list(owner) if isinstance(owner, (list, set, collections.deque)) else None


class ReadingAgain:
    """Which places were read before the last of such steps."""

    def __init__(self) -> None:
        self.step = 0
        self.before: set[Path] = set()
        # what the program wrote to: by object and name, the object and the name; None: a container
        self._written: dict[tuple[int, Any], tuple[Any, Any]] = {}
        self.given: dict[Path, Any] = {}  # plain values that were read in the part of a run that was done already

    def note_write(self, kind: str, owner: Any, name: Any) -> None:
        """The program writes to something that was there before."""
        own = name if kind.endswith("attribute") or kind == "cell" else _ALL
        if kind == "item" and isinstance(owner, dict) and type(name) in PLAIN:
            own = (name,)  # what else is there is no matter of the program's: globals, say
        self._written[id(owner), own] = (owner, own)

    def contents(self) -> list[Any]:
        """What is in the places that the program has written to. Where a run is taken over, its writes are taken back
        and done again, and what a step writes to the same places is not: nothing may be different behind it."""
        return [_content(owner, name) for owner, name in self._written.values()]

    def note(self, step: int, segments: list[Segment]) -> None:
        """The call of this number may have written to whatever was read so far. What is read next is asked behind
        it."""
        self.step = step
        self.before = {guard.source.path for segment in segments for guard in segment.guards}
        segments.append(Segment())

    def place(self, source: Source, kind: str = "value") -> Source:
        """A source as it has to be read now, for a guard of a kind."""
        if source.path not in self.before or kind in _ASKED_ONCE:
            return source
        if kind not in _OF_PLACES or source.parent is None:
            return Source("again", self.step, source)
        return Source(source.kind, source.key, Source("again", self.step, source.parent))

    def take(self, path: list[Item], found: dict[Path, Any]) -> None:
        """Take values from the items of a run that is taken over; ``found`` are numbers that vary."""
        guards = [item for item in path if isinstance(item, Guard) and item.kind == "value"]
        self.given = {guard.source.path: guard.expected for guard in guards if type(guard.expected) in PLAIN}
        self.given.update(found)
