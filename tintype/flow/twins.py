"""Containers and objects of the program's of which only the data decide whether they are one: what a branch or a loop
leaves is a new one, and somebody has the one that it is in eager mode for some data.

To read them is no matter. A write would have to change both or only one, so it is refused, as are questions for which
one it is; a branch may then be captured again with what follows in each arm, where every object is what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tintype.errors import CaptureError, Location
from tintype.flow.ends import BranchKey, Refused, Wanted, location_of
from tintype.flow.forms import containers_in
from tintype.flow.plain_objects import attributes_of
from tintype.flow.references import has_unknown_holder
from tintype.interpret import Frame
from tintype.trace.reachable import namespace_of

if TYPE_CHECKING:
    from tintype.flow.policy import FlowPolicy


class Twins:
    """What one capture has found."""

    def __init__(self) -> None:
        # by their ids, which stay those of nobody else
        self._known: dict[int, tuple[Any, Location, BranchKey | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def note(self, values: Iterable[Any], location: Location, branch: BranchKey | None = None) -> None:
        """Some of these may be one in eager mode; a line made them, and a branch where it was one."""
        for value in values:
            self._known.setdefault(id(value), (value, location, branch))

    def look_at_write(self, frame: Frame, owner: Any) -> None:
        """The program is about to write to something."""
        if self._known and id(owner) in self._known:
            raise self._refused(frame, owner, "is written to")

    def contents(self) -> list[tuple[Any, list[Any]]]:
        """What is in each of them, to be compared when native code has run."""
        return [(value, _content_of(value)) for value, _, _ in self._known.values()]

    def look_at_changes(self, frame: Frame, before: list[tuple[Any, list[Any]]]) -> None:
        """Native code has run, to which some of them may have been given."""
        for value, content in before:
            now = _content_of(value)
            if len(now) != len(content) or any(one is not other for one, other in zip(now, content, strict=True)):
                raise self._refused(frame, value, "is written to")

    def look_at_comparison(self, frame: Frame, first: Any, second: Any) -> None:
        """The program is about to ask whether two are one."""
        if first is not second and id(first) in self._known and id(second) in self._known:
            raise self._refused(frame, first, "is compared by identity")

    def _refused(self, frame: Frame, value: Any, done: str) -> Refused:
        _, location, branch = self._known[id(value)]
        kind = type(value)
        what = f"a {kind.__name__}" if kind in (list, dict) else f"an object of {kind.__name__}"
        wanted = () if branch is None else (Wanted(branch, "objects"),)
        error = CaptureError(
            f"{what} {done} of which only the data decide whether somebody else has it, too: line {location.line} "
            f"({location.source_line() or location.function}) may have left the one that it was or made another",
            location=location_of(frame),
            remedy="make one before that nobody else has: a copy in place of another name for it",
        )
        return Refused(error, wanted)


def _content_of(value: Any) -> list[Any]:
    if isinstance(value, list):
        return list.copy(value)
    items = dict(value) if isinstance(value, dict) else attributes_of(value)
    return [*items.keys(), *items.values()]


def taken_apart(value: Any, opens: bool) -> list[Any]:
    """The containers of a variable that a loop makes anew for each step; ``opens``: the objects, too."""
    return [found for found in containers_in(value) if opens or type(found) in (list, dict)]


def shared_before(policy: FlowPolicy, frame: Frame, initial: Mapping[Any, Any], opened: set[Any]) -> set[Any]:
    """The variables of a loop whose containers somebody else has before it."""
    found = {key: taken_apart(value, key in opened) for key, value in initial.items()}
    shared = _held_twice(found, _by_holder(frame, by_slot=True))
    frames = [frame, *(branch.frame for branch in policy.branches_of(frame))]
    arms = [arm for branch in policy.branches_of(frame) for arm in branch.arms]
    stores = [initial, *policy.holders(), *(store for one in frames for store in (one.locals, one.stack))]
    stores += [holder for arm in arms for holder in arm.holders()]
    return shared | {key for key, mine in found.items() if key not in shared and _has_others(mine, stores)}


def _has_others(mine: list[Any], stores: list[Any]) -> bool:
    spaces = [names for names in map(namespace_of, mine) if type(names) is dict]
    return bool(mine) and has_unknown_holder([*mine, *spaces], [*stores, mine, spaces])


def shared_after(frame: Frame, after: Mapping[Any, Any], opened: set[Any]) -> set[Any]:
    """The variables of a loop whose containers are another's, too, after a step, or somebody's from before it."""
    held: dict[int, set[Any]] = {}
    outer: Frame | None = frame
    while outer is not None:
        for container in _by_holder(outer, by_slot=False):
            held[container] = {"before"}
        outer = outer.back
    return _held_twice({key: taken_apart(value, key in opened) for key, value in after.items()}, held)


def _held_twice(found: Mapping[Any, list[Any]], held: dict[int, set[Any]]) -> set[Any]:
    """The variables that have a container which another one has, too, or somebody else."""
    for key, mine in found.items():
        for container in mine:
            held.setdefault(id(container), set()).add(key)
    return {key for key, mine in found.items() if any(held[id(container)] - {key} for container in mine)}


def _by_holder(frame: Frame, *, by_slot: bool) -> dict[int, set[Any]]:
    """What holds the containers of a frame, by their ids: its slots, or its stack."""
    held: dict[int, set[Any]] = {}
    slots = [*enumerate(frame.locals), *(("stack", value) for value in frame.stack)]
    for slot, value in slots:
        for container in containers_in(value):
            held.setdefault(id(container), set()).add(slot if by_slot else "before")
    return held
