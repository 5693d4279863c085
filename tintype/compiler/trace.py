"""What a run of a function was: guards, calls and effects, in order.

Arguments of calls, values of effects and the result are expressions (:mod:`tintype.compiler.expressions`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tintype.compiler.expressions import Expression, expression_key
from tintype.compiler.sources import Guard
from tintype.errors import Location

# the step that sets a mode of the thread
SETS_MODE = "a mode of the thread is set"
WARNS = "a warning is given"
# steps that are no breaks
QUIET_STEPS = (SETS_MODE, WARNS)


@dataclasses.dataclass(eq=False)
class Call:
    """A call that is done each time: of a function of torch's, or a step that has to be done for real."""

    number: int
    function: Expression
    arguments: tuple[Expression, ...]
    keywords: dict[str, Expression]
    # whether somebody in the program could catch what it raises
    careful: bool
    location: Location | None
    # why it is no part of a graph; None: it is
    step: str | None = None
    gives_tensor: bool = False
    # how many tensors it gives, where it gives a tuple of them
    tensors: int | None = None
    # whether it may write to what it is given
    writes: bool = False
    # whether gradients flow through what it gives, or end there: in a new leaf of autograd's graph
    has_history: bool = False
    makes_leaf: bool = False
    # what its result is where it is nothing new, as of x.add_(1)
    alias: Expression | None = None
    # the graph that begins with it, for a backend
    graph: Any = None
    # the call whose result this one gave back, as x.add_(1) does
    same_as: int | None = None
    # the results that the program let go of after it
    frees: list[int] = dataclasses.field(default_factory=list)

    @property
    def key(self) -> tuple[Any, ...]:
        keywords = tuple((name, expression_key(value)) for name, value in self.keywords.items())
        return ("call", expression_key(self.function), tuple(map(expression_key, self.arguments)), keywords)


@dataclasses.dataclass(eq=False)
class Effect:
    """A write to something that was there before the call: ``attribute``, ``item``, ``cell`` or a ``method``."""

    kind: str
    owner: Expression
    name: Any
    values: tuple[Expression, ...]
    deletes: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        name = self.name if self.kind != "item" else expression_key(self.name)
        values = tuple(map(expression_key, self.values))
        return ("effect", self.kind, expression_key(self.owner), name, values, self.deletes)


@dataclasses.dataclass(eq=False)
class Return:
    """The end: the result of the function."""

    value: Expression

    @property
    def key(self) -> tuple[Any, ...]:
        return ("return", expression_key(self.value))


@dataclasses.dataclass(eq=False)
class Eagerly:
    """Nothing is known beyond guards: the function is called as it is."""

    reason: str
    location: Location | None

    @property
    def key(self) -> tuple[Any, ...]:
        return ("eagerly", self.reason)


Item = Guard | Call | Effect | Return | Eagerly


class Segment:
    """Guards, and what is done once they hold. A guard that can only be asked later begins another segment."""

    __slots__ = ("body", "guards")

    def __init__(self) -> None:
        self.guards: list[Guard] = []
        self.body: list[Call | Effect | Guard] = []


def flattened(segments: list[Segment]) -> list[Item]:
    """The items of a trace."""
    return [item for segment in segments for part in (segment.guards, segment.body) for item in part]


def expressions_of(item: Item) -> list[Expression]:
    """The expressions that an item uses."""
    if isinstance(item, Guard):
        return list(item.expected[1]) if item.kind == "relation" else []
    if isinstance(item, Call):
        return [item.function, *item.arguments, *item.keywords.values()]
    if isinstance(item, Effect):
        named = [item.name] if item.kind == "item" else []
        return [item.owner, *named, *item.values]
    return [item.value] if isinstance(item, Return) else []
