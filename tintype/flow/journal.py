"""What an arm of a branch, or a step of a loop, writes to what existed before it: noted, undone, and done again with
the values that both arms agree on.

Tensors are not meant: writes to their memory are recorded, and functionalization takes care of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tintype.interpret import Frame
from tintype.trace.places import Place
from tintype.trace.reachable import namespace_of


class Notes:
    """The places that one arm writes to, each with what it was before."""

    def __init__(self, frame: Frame, repeats: bool) -> None:
        self.frame = frame  # as it was before the arm
        self.repeats = repeats  # a step of a loop
        # the lists that a step may append to, whatever the number of steps
        self.lists: Any = None
        # iterators from before the arm that it took elements from, by their ids
        self.taken: dict[int, Any] = {}
        # what can be reached, where code runs that nobody sees
        self.watched: Any = None
        # what was made meanwhile: nobody else has it, so writes to it are nobody else's affair
        self.made: dict[int, Any] = {}
        self.places: dict[Any, Place] = {}
        self._before: dict[Any, Any] = {}
        self.after: dict[Any, Any] = {}

    def note(self, place: Place) -> None:
        if place.key not in self.places and id(place.owner) not in self.made:
            self.places[place.key] = place
            self._before[place.key] = place.save()

    def holders(self) -> list[Any]:
        """Who holds values only to know them."""
        return [self.made, *self.places.values(), self._before, *self._before.values()]

    def undo(self) -> None:
        """Put everything back; what was there is kept in ``after``."""
        for key, place in self.places.items():
            self.after[key] = place.read()
        for key, place in reversed(self.places.items()):
            place.restore(self._before[key])


class Journal:
    """Who takes notes, from the outermost arm to the innermost."""

    def __init__(self) -> None:
        self._open: list[Notes] = []
        # iterators that arms which have run took elements from, by their ids
        self.taken: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    @contextmanager
    def taking_notes(self, frame: Frame, *, repeats: bool = False) -> Iterator[Notes]:
        """Within it writes are noted, for an arm of a frame or a step that repeats; afterwards they are undone."""
        notes = Notes(frame, repeats)
        self._open.append(notes)
        try:
            yield notes
            if notes.watched is not None:
                notes.watched.check(notes.places)
        finally:
            self._open.pop()
            self.taken.update(notes.taken)
            notes.undo()

    @property
    def open(self) -> list[Notes]:
        return self._open

    @property
    def innermost(self) -> Notes:
        return self._open[-1]

    def note(self, place: Place) -> None:
        if self._open:
            self._open[-1].note(place)

    def note_made(self, value: Any) -> None:
        if self._open:
            made = self._open[-1].made
            made[id(value)] = value
            names = namespace_of(value)
            if type(names) is dict:  # of an object, whose attributes can be written to there
                made[id(names)] = names

    def lists_around(self, value: Any) -> Any:
        """The lists of the loop whose step is running, where something was there before that; None for none."""
        for notes in reversed(self._open):
            if id(value) in notes.made:
                return None
            if notes.repeats:
                return notes.lists
        return None

    def is_made_here(self, value: Any) -> bool:
        """Whether something was made in the innermost arm or step."""
        return bool(self._open) and id(value) in self._open[-1].made

    def holders(self) -> list[Any]:
        """Who holds values only to know them."""
        return [holder for notes in self._open for holder in notes.holders()]

    def write(self, place: Place, value: Any) -> None:
        """Write to a place, which is noted where somebody takes notes."""
        self.note(place)
        place.write(value)
