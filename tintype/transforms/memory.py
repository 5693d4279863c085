"""Which memory the nodes of a graph write to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.fake.info import Storage, TensorInfo
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import attached, called_functions, graphs_of, placeholders
from tintype.ir.operator_facts import facts_of, may_write
from tintype.ir.operators import OPERATORS
from tintype.trace.shared_memory import storages_of


def info_of(node: Node) -> TensorInfo | None:
    """The description of a node's value, if it is one tensor."""
    value = node.meta.get("val")
    return value.info if type(value) is FakeTensor else None


def written_storages(graph: Graph) -> dict[Storage, Node]:
    """The storages that some node of a graph writes to, each with the first one that does."""
    written: dict[Storage, Node] = {}
    # most graphs have few kinds of calls and none that writes: fx knows the kinds
    if not any(map(_may_write, called_functions(graph))):
        return written
    for node in graph.nodes:
        for storage in storages_written_by(node):
            written.setdefault(storage, node)
    return written


def _may_write(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return target in OPERATORS
    return may_write(target)


def storages_written_by(node: Node) -> Iterable[Storage]:
    """The storages that a node writes to, itself or in the graphs that it takes."""
    if node.op != "call_function":
        return ()
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return _written_by_graphs(node) if target in OPERATORS else ()
    facts = facts_of(target)
    if not facts.may_write:
        return ()
    found = [*written_nodes(node, facts.writes), *facts.hidden_writes_of(node.args)]
    return [storage for argument in found for storage in storages_of(argument)]


def writes(graph: Graph) -> bool:
    """Whether some node of a graph writes to memory, or one of a graph inside of it."""
    return bool(written_storages(graph)) or any(writes(module.graph) for module in attached(graph).values())


def _written_by_graphs(node: Node) -> set[Storage]:
    """The storages that the graphs which an operator takes write to."""
    written: set[Storage] = set()
    for position, module in graphs_of(node):
        shared = OPERATORS[node.target].shared_with(node, position)
        inside = written_storages(module.graph)
        for value, inner in zip(shared, placeholders(module.graph), strict=False):
            if isinstance(value, Node) and not inside.keys().isdisjoint(storages_of(inner)):
                written.update(storages_of(value))
    return written


def written_nodes(node: Node, writes: tuple[int | str, ...]) -> list[Node]:
    """The tensors among a node's arguments that it writes to, those in lists one by one."""
    found: list[Node] = []
    for where in writes:
        argument: Any = node.kwargs.get(where) if isinstance(where, str) else None
        if isinstance(where, int) and where < len(node.args):
            argument = node.args[where]
        items = argument if isinstance(argument, (list, tuple)) else (argument,)
        found += [item for item in items if isinstance(item, Node)]
    return found
