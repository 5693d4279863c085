"""A program's graph to work on: what a pass learns about sizes is learned in a copy of the program's facts.

A finished program is never changed. A pass that works in place, or that may ask about sizes, gets a copy of the
context in which it may learn, and the graph with its values in terms of that context's symbols. What the pass has
learned is in the guards that were not there before (:meth:`WorkingCopy.learned`); the program that it makes must
assert them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph

from tintype.fake.context import FakeContext
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import copy_graph
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.environment import Guard
from tintype.symbolic.evaluation import Translation

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class WorkingCopy:
    """A finished program's context, copied; ``translation`` leads into it, None where no size varies."""

    def __init__(self, context: FakeContext) -> None:
        self.context, self.translation = context.copy()
        self._guards_before = len(self.context.environment.guards)

    def graph_of(self, graph: Graph) -> Graph:
        """A copy of a graph, in terms of this context."""
        return copy_graph(graph, self.value_of())

    def value_of(self) -> Callable[[Any], Any] | None:
        """What stands for a node's value in this context; None where values are as they were."""
        if self.translation is None:
            return None
        return lambda value: translated(value, self.context, self.translation)  # type: ignore[arg-type]

    def learned(self) -> Sequence[Guard]:
        """What was decided about sizes since the copy was made."""
        return self.context.environment.guards[self._guards_before :]


def translated(value: Any, context: FakeContext, translation: Translation) -> Any:
    """A node's value in terms of another context's symbols."""
    if type(value) is FakeTensor:
        return make_fake(value.info.translated(translation), context, value.node)
    if isinstance(value, _SYMBOLIC):
        return to_torch(translation(from_torch(value)))
    if isinstance(value, (list, tuple)):
        return type(value)([translated(item, context, translation) for item in value])
    return value
