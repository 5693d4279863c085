"""What happened to a compiled function: captures with their reasons and times, and whether there may be more.

There is no limit on how often a function is captured, but on the time that it may cost: a capture takes several times
as long as the call that it records, and pays off if the calls after it are many. The first eight are free.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

from tintype.compiler.expressions import sources_in
from tintype.compiler.sources import Guard, Source, said
from tintype.errors import Location

# guards behind which nothing is known of what they ask about, where they do not hold
_ABOUT_WHAT_IS_THERE = frozenset({"type", "is", "keys", "length", "code", "same"})
# captures that are made whatever they cost
LEAST_CAPTURES = 8
# the share of the time in a function that captures may take beyond those
LARGEST_SHARE = 0.25


@dataclasses.dataclass
class Captured:
    """One capture: why, how long it took, and what became of it."""

    reasons: list[str]
    seconds: float
    outcome: str
    place: str = ""  # what was different, without its value


@dataclasses.dataclass
class Failed:
    """A guard that no known run fits, with what it found and what would help."""

    guard: Guard
    words: str
    remedy: str


class History:
    """The captures of one function, and the time that was spent in it."""

    def __init__(self) -> None:
        self.captured: list[Captured] = []
        self.attempts = 0  # also of runs that raised an exception
        self.capture_seconds = 0.0
        # in all calls since the function has been captured eight times, and in captures before that
        self.seconds = 0.0
        self.not_captured = 0
        self.has_warned = False

    @property
    def captures(self) -> int:
        return len(self.captured)

    def may_capture(self) -> bool:
        """Whether another capture is worth its time."""
        return self.attempts < LEAST_CAPTURES or self.capture_seconds < LARGEST_SHARE * self.seconds

    def is_timed(self) -> bool:
        """Whether it matters how long calls take."""
        return self.attempts >= LEAST_CAPTURES

    def add(self, captured: Captured) -> None:
        if not self.is_timed():  # else the call as a whole is timed
            self.seconds += captured.seconds
        self.capture_seconds += captured.seconds
        self.captured.append(captured)

    def has_written(self, seconds: float) -> None:
        """What was captured last has become code."""
        if not self.is_timed():
            self.seconds += seconds
        self.capture_seconds += seconds
        if self.captured:
            self.captured[-1].seconds += seconds

    def warning(self, name: str, failed: list[Failed]) -> str:
        """Why there are no more captures, and what would help."""
        share = self.capture_seconds / max(self.seconds, self.capture_seconds, 1e-9)
        took = f"{name!r} was captured {self.captures} times, which is {share:.0%} of the time spent in it"
        lines = [f"{took}: calls that no capture fits run eagerly until it is less than {LARGEST_SHARE:.0%}"]
        now: dict[str, list[str]] = {}
        for item in failed:
            now.setdefault(said(item.guard.source), []).append(item.words)
        for words in now.values():
            others = f" (and {len(words) - 1} other values are known)" if len(words) > 1 else ""
            lines.append(f"  now: {words[0]}{others}")
        again = collections.Counter(captured.place for captured in self.captured if captured.place)
        lines += [f"  captured {count} times for {place}" for place, count in again.most_common(3)]
        lines += [f"  what helps: {remedy}" for remedy in dict.fromkeys(item.remedy for item in failed)]
        return "\n".join(lines)


def failed_guards(candidates: list[Guard], args: Any, kwargs: Any, values: Any) -> list[Failed]:
    """The guards that do not hold, with words. Where something is another, what would be read of it is not looked at:
    to look might call code of the user's, or put items into a dictionary that makes them."""
    failed: list[Failed] = []
    others: set[Any] = set()
    for guard in candidates:
        paths = [source.path for source in sources_of(guard)]
        if any(part in others for path in paths for part in path.parts()):
            continue
        if not guard.holds(args, kwargs, values):
            failed.append(Failed(guard, guard.failure(args, kwargs, values), remedy_for(guard)))
            others.update(paths if guard.kind in _ABOUT_WHAT_IS_THERE else ())
    return failed


def sources_of(guard: Guard) -> list[Source]:
    """All that a guard reads."""
    operands = guard.expected[1] if guard.kind == "relation" else ()
    return [*guard.sources, *(source for operand in operands for source in sources_in(operand))]


def remedy_for(guard: Guard) -> str:
    """What a user can do so that another answer needs no capture."""
    place = said(guard.source)
    root = guard.source.root.kind
    if root == "value":
        return f"keep {place} a tensor: a number that the program looks at is part of the run"
    if guard.kind == "tensor":
        return (
            f"give {place} a few sizes, by padding: this backend makes graphs for each of them; "
            "backend='eager' checks nothing but what the function looks at"
        )
    if guard.kind == "answer" and guard.expected[0] in (".shape", "size", "__len__"):
        return f"say that sizes of {place} vary: dynamic=True, or tintype.compile.mark_dynamic(tensor, dimension)"
    if guard.kind == "value" and type(guard.expected) in (int, float):
        if root in ("argument", "keyword"):
            return f"pass {place} as a tensor, torch.tensor({guard.expected!r})"
        return f"keep {place} in a tensor (a buffer), or read it outside of the compiled function"
    if guard.kind == "state":
        return "call it in the same modes (torch.no_grad(), autocast) each time, or compile it once for each"
    if guard.kind == "arguments":
        return "pass the same arguments in the same way each time"
    return f"let {place} be the same each time, or compile the function once for each"


def line_of(location: Location | None) -> str:
    """A line of the user's program, as reports have it."""
    return "" if location is None else f"\n    {location}\n      {location.source_line()}"
