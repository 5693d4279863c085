"""Whether two captures of a model gave the same program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from tintype import tree
from tintype.errors import Location
from tintype.ir.graph import meta_of, placeholders, subgraph_at
from tintype.ir.node_info import NodeMeta
from tintype.trace.captured_graph import CapturedGraph


def difference(
    first: CapturedGraph, second: CapturedGraph, positions: Sequence[int] | None = None
) -> tuple[Location | None, bool]:
    """Whether two programs differ, and the line where the first one begins to.

    ``positions`` are the places of the second one's inputs among those of the first one."""
    if positions is None:
        positions = range(first.in_spec.num_leaves)
    node = next(_Comparison(first, second, positions).differing_nodes(), None)
    if node is not None:
        return _line_of(node), True
    return None, not _same_contracts(first, second, positions)


class _Comparison:
    """Compares the graphs of two captures, whose inputs may come in another order."""

    def __init__(self, first: CapturedGraph, second: CapturedGraph, positions: Sequence[int]) -> None:
        self.graphs = first.graph, second.graph
        self.same_node: dict[Node, Node] = {}
        count = len(positions)
        inputs, others = placeholders(first.graph), placeholders(second.graph)
        state, other_state = len(inputs) - count, len(others) - count
        for place, position in enumerate(positions):
            self.same_node[others[other_state + place]] = inputs[state + position]
        # by name: a model that takes a parameter out of itself has fewer the second time
        known = {spec.target: node for spec, node in zip(first.input_specs, inputs[:state])}
        for spec, other in zip(second.input_specs, others[:other_state]):
            if spec.target in known:
                self.same_node[other] = known[spec.target]

    def differing_nodes(self) -> Iterator[Node]:
        """The nodes of the first graph that have no equal in the second one."""
        yield from self._compared(*self.graphs)

    def _compared(self, first: Graph, second: Graph) -> Iterator[Node]:
        nodes, others = list(first.nodes), list(second.nodes)
        if first is not self.graphs[0]:
            self.same_node.update(zip(placeholders(second), placeholders(first)))
        nodes = [node for node in nodes if node.op != "placeholder"]
        others = [node for node in others if node.op != "placeholder"]
        for node, other in zip(nodes, others):
            inner, other_inner = subgraph_at(node), subgraph_at(other)
            if inner is not None and other_inner is not None:
                yield from self._compared(inner.graph, other_inner.graph)
            elif _kind(node) != _kind(other) or self._text(node) != self._text(other):
                yield node
            self.same_node[other] = node
        if len(nodes) != len(others):
            yield nodes[-1]

    def _text(self, node: Node) -> str:
        return str(map_arg((node.args, node.kwargs), lambda argument: self.same_node.get(argument, argument)))


def _kind(node: Node) -> tuple[Any, ...]:
    return node.op, node.target, meta_of(node).region


def _same_contracts(first: CapturedGraph, second: CapturedGraph, positions: Sequence[int]) -> bool:
    """Whether two captures with the same graph asked the same of their inputs, and return the same structure."""
    same_results = tree.same_structure(first.out_spec, second.out_spec)
    if not same_results or not _same_constants(first.constants, second.constants):
        return False
    asked = {(seen.key, str(seen.answer)) for seen in first.observations}
    place = dict(enumerate(positions))
    asked_then = {
        ((place.get(seen.subject, seen.subject), seen.fact, seen.arguments), str(seen.answer))  # type: ignore[arg-type]
        for seen in second.observations
        if seen.fact != "is"
    }
    if {entry for entry in asked if entry[0][1] != "is"} != asked_then:
        return False
    return _facts(first) == _facts(second)


def _same_constants(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        value is second[name]
        or (
            isinstance(value, torch.Tensor)
            and isinstance(second[name], torch.Tensor)
            and value.dtype is second[name].dtype
            and torch.equal(value, second[name])
        )
        for name, value in first.items()
    )


def _facts(captured: CapturedGraph) -> tuple[set[str], ...]:
    environment = captured.context.environment
    return (
        {str(guard.condition) for guard in environment.guards},
        {str(assertion.condition) for assertion in environment.assertions},
        {str(entry) for entry in environment.replacements.items()},
    )


def _line_of(node: Node) -> Location | None:
    origin = node.meta.origin if isinstance(node.meta, NodeMeta) else None
    line = origin.user_line() if origin is not None else None
    return Location(*line) if line is not None else None
