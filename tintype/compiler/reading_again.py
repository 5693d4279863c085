"""Places that are read again behind a step that may have written to them.

A function that is called as it is (``disable``, ``allow_in_graph``, a method of torch's modules) may change what the
program has read before. What is read behind it is fetched again, and asked again. Where a run is taken over behind
such a step, the program's code begins anew, and sees what it saw before the step: what the guards of the run say.
"""

from __future__ import annotations

from typing import Any

from tintype.compiler.sources import Guard, Path, Source
from tintype.compiler.trace import Item, Segment
from tintype.ir.call_values import PLAIN

# guards about what is at a place; others ask the object that was found there
_OF_PLACES = frozenset({"value", "type", "is", "same"})
_ASKED_ONCE = frozenset({"arguments", "state", "tensor", "apart", "relation", "assumed", "returned"})


class ReadingAgain:
    """Which places were read before the last of such steps."""

    def __init__(self) -> None:
        self.step = 0
        self.before: set[Path] = set()
        self.given: dict[Path, Any] = {}  # plain values that were read in the part of a run that was done already

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
