"""Capturing a graph again: its nodes are run one after the other, and what is recorded has their origins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.fx import Graph, Node

from tintype.ir.graph import subgraph_at
from tintype.ir.node_info import NodeMeta
from tintype.ir.running import Call, call_node, run_graph
from tintype.trace.recorder import Recorder


def replay_graph(
    recorder: Recorder,
    graph: Graph,
    inputs: Iterable[Any],
    call: Call = call_node,
    fetch: Callable[[Node], Any] = subgraph_at,
    values: dict[Node, Any] | None = None,
) -> Any:
    """Run a graph with the recorder on; see :func:`~tintype.ir.running.run_graph`."""
    previous = recorder.replayed

    def called(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recorder.replayed = node.meta if isinstance(node.meta, NodeMeta) else None
        return call(node, args, kwargs)

    try:
        return run_graph(graph, inputs, called, fetch, values)
    finally:
        recorder.replayed = previous
