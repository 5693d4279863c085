"""A call of an operator on its way into the graph."""

from __future__ import annotations

from typing import Any

from tintype.symbolic.interruptions import Word
from tintype.trace.plan import Plan

# What is returned by who declines to handle a call.
NOT_HANDLED = object()


class NeedsRecordingError(Word):
    """A kernel that was run unrecorded asked about data; recorded, the answer may be known."""


class Call:
    """An operator with its plan and its arguments: as they were given, as shape rules take them (``infos``), and as
    the graph takes them (``nodes``)."""

    __slots__ = ("args", "infos", "kwarg_infos", "kwarg_nodes", "kwargs", "nodes", "operator", "plan")

    def __init__(
        self,
        operator: Any,
        plan: Plan,
        args: Any,
        kwargs: dict[str, Any],
        infos: list[Any],
        nodes: list[Any],
        kwarg_infos: dict[str, Any],
        kwarg_nodes: dict[str, Any],
    ) -> None:
        self.operator = operator
        self.plan = plan
        self.args = args
        self.kwargs = kwargs
        self.infos = infos
        self.nodes = nodes
        self.kwarg_infos = kwarg_infos
        self.kwarg_nodes = kwarg_nodes

    def argument(self, where: int | str) -> Any:
        """The argument at a position or of a name; None where it was left out."""
        if isinstance(where, str):
            return self.kwargs.get(where)
        return self.args[where] if where < len(self.args) else None

    def written(self) -> list[tuple[Any, Any]]:
        """The arguments that the operator writes to, with their infos."""
        return [
            (self.args[where], self.infos[where])
            if isinstance(where, int)
            else (self.kwargs.get(where), self.kwarg_infos.get(where))
            for where in self.plan.writes
            if not isinstance(where, int) or where < len(self.args)
        ]

    def given(self) -> dict[int, Any]:
        """The arguments by the identity of their infos: some operators return what they were given."""
        return dict(zip(map(id, self.infos), self.args, strict=True))
