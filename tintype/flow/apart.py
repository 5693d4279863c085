"""Arms of a branch that leave behind what can't be merged go on by themselves: to a place where they can be, to the
end of the function, or out of it and on in the function that called it."""

from __future__ import annotations

from collections.abc import Sequence

from tintype.flow.ends import BranchKey, Wanted
from tintype.interpret.flow import BRANCHES, END, Flow

# how many joins further on it is tried to merge what could not be merged before
_TRIED = (1, 2, 4, 8)


class Apart:
    """What the captures of one program have found out about its branches, each time one more thing."""

    def __init__(self) -> None:
        self.within: set[BranchKey] = set()  # that go on by themselves
        self.across: set[BranchKey] = set()  # that do so beyond the end of their function
        self.objects: set[BranchKey] = set()  # that do so where containers would be merged which others have, too
        self.failed: set[tuple[BranchKey, int]] = set()  # places where values could not be merged either

    def first_new(self, wanted: Sequence[Wanted]) -> Wanted | None:
        """The first one that does not do so yet."""
        return next((one for one in wanted if one.branch not in getattr(self, one.how)), None)

    def add(self, wanted: Wanted) -> None:
        getattr(self, wanted.how).add(wanted.branch)
        if wanted.how == "objects":
            self.within.add(wanted.branch)


def places_further_on(flow: Flow, start: int) -> list[int]:
    """Operations that all ways from one lead to, each behind some more branches, where it may be tried to merge what
    could not be merged there. None of them is in another loop, or in another step of the same one."""
    loop = flow.loop_around(start)
    joins: list[int] = []
    index: int | None = start
    while index is not None and index != END:
        join = flow.join_of(index)
        if join is None or join == END:
            break
        if flow.operations[index][0] in BRANCHES and flow.loop_around(join) == loop:
            joins.append(join)
        index = join
    found = [joins[count - 1] for count in _TRIED if count <= len(joins)]
    return [join for join in found if loop is None or loop.header not in flow.ways_from(start, {join})]
