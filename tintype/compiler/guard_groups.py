"""Guards that stand together, and those of them that are about one object.

Most guards of a model ask its modules: what class each is of, that nothing listens to it, what its parameters and
numbers are. Guards about one object are asked next to each other, and what several objects are asked alike, or
several layers of them, is a function that is written once (:mod:`tintype.compiler.guard_code`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tintype.compiler.sources import Guard, Source

# what a guard of these kinds asks hangs on one source and on constants
_ABOUT_ONE = frozenset(
    {"type", "is", "value", "length", "keys", "code", "absent", "members", "hooks", "printed", "tensor", "answer"}
)
# of which the sources tell all: their paths are in no key of what is asked
_ABOUT_SEVERAL = frozenset({"same", "apart"})


def roots_among(guards: Iterable[Guard]) -> set[Any]:
    """The paths of the objects whose attributes guards ask for."""
    found: set[Any] = set()
    seen: set[Any] = set()
    for guard in guards:
        step: Source | None = guard.source
        while step is not None and step.parent is not None and step.path not in seen:
            seen.add(step.path)
            if step.kind == "attribute" and step.key == "__dict__":
                found.add(step.parent.path)
            step = step.parent
    return found


def root_of(guard: Guard, roots: Collection[Any]) -> Source | None:
    """The innermost object of ``roots`` that a guard asks about; None: it asks about others, too."""
    if guard.kind not in _ABOUT_ONE or guard.source.root.kind == "value":
        return None
    step: Source | None = guard.source
    while step is not None and step.path not in roots:
        step = step.parent
    return step


# A guard, or a source that is fetched; the variables that it uses; the variable for what is fetched, "" for a guard.
# Tuples, since a model has thousands of them.
Step = tuple[Source | Guard, tuple[str, ...], str]


def shape_of(what: Source | Guard) -> Any:
    """What is asked or fetched, whatever of."""
    if isinstance(what, Source):
        return what.path.step
    return what.kind if what.kind in _ABOUT_SEVERAL else (what.kind, what.key[3:])


class Group:
    """Guards about one object that stand together, and the variables that their code has.

    ``outside`` are variables that are there before, in the order in which they are used; ``outputs`` are those that
    something behind the guards uses."""

    def __init__(self, root: Source, block: Block) -> None:
        self.root = root
        self.block = block
        self.guards: list[Guard] = []
        self.steps: list[Step] = []
        self.own: dict[str, None] = {}
        self.outside: dict[str, None] = {}
        self.outputs: set[str] = set()

    def given_back(self) -> list[str]:
        """The outputs, in the order in which they are made."""
        return [name for name in self.own if name in self.outputs]


# the text is a condition that is written already, with the variables of the function that it stands in
Unit = Step | Group | str


class Block:
    """Guards that stand together, and what they fetch, in order.

    ``outputs`` are the variables that something behind the guards uses; ``missed`` is the statement for where one
    does not hold."""

    def __init__(self, missed: str) -> None:
        self.missed = missed
        self.units: list[Unit] = []
        self.outputs: set[str] = set()
