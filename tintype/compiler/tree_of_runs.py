"""The tree that recorded runs of a function make (see :mod:`tintype.compiler.program`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from tintype.compiler.expressions import sources_in
from tintype.compiler.sources import Guard, Source
from tintype.compiler.trace import Item, expressions_of

# The types of values that tables of runs have as keys: asking for their hash calls no code of the user's.
KEY_TYPES = frozenset({int, str, bool})


class DivergedError(Exception):
    """Two runs differ in what no guard explains."""


class MissedError(LookupError):
    """A guard has another answer."""


class KnownError(DivergedError):
    """The program has a run already."""


class Node:
    """Items, then children that begin with guards."""

    def __init__(self, items: list[Item], parent: Node | None, number: int) -> None:
        self.items = items
        self.parent = parent
        self.number = number
        self.children: list[Node] = []
        self.parameters: list[str] = []
        # whether its function has to be written anew
        self.is_stale = True
        # with many children: what they are handed, by name, and their functions, those apart that begin with a value
        # at one place
        self.handed: list[str] | None = None
        self.place_of_values: Any = None
        self.by_value: dict[Any, Callable[..., Any]] = {}
        self.ways: tuple[Callable[..., Any], ...] = ()
        self.seen: set[str] = set()  # the names that it or a node above it has given to what is at a source

    @property
    def name(self) -> str:
        return f"node_{self.number}"

    def value_guard(self) -> Guard | None:
        """Its first guard, if that asks for a value that a table can have as a key."""
        first = self.items[0]
        if isinstance(first, Guard) and first.kind == "value" and type(first.expected) in KEY_TYPES:
            return first
        return None

    def sources(self) -> Iterator[Source]:
        """All sources that the node and those below it read."""
        for node in self.walk():
            for item in node.items:
                if isinstance(item, Guard):
                    yield from item.sources
                for expression in expressions_of(item):
                    yield from sources_in(expression)

    def walk(self) -> list[Node]:
        """The node and all below it."""
        found = [self]
        for node in found:
            found += node.children
        return found


class Place:
    """Where a program missed, as it was when the function that did so was written: another thread may have changed
    the tree since."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.own = node.items
        self.path: list[Item] = []
        step: Node | None = node
        while step is not None:
            self.path = [*step.items, *self.path]
            step = step.parent

    def guards(self) -> list[Guard]:
        """The guards of which one did not hold; of many ways to go on, those that a few begin with."""
        firsts: list[Item] = []
        for child in self.node.children[:8]:
            firsts += itertools.takewhile(lambda item: isinstance(item, Guard), child.items[:4])
        return [item for item in (*self.own, *firsts) if isinstance(item, Guard) and item.kind != "assumed"]


def common_start(first: list[Item], second: list[Item]) -> int:
    """How many items two runs have in common at their start."""
    count = 0
    for one, other in zip(first, second):
        if one is not other and one.key != other.key:
            break
        count += 1
    return count
