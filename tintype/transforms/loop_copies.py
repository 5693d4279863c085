"""Writes in graphs for training that would show in eager mode through the results of loops.

A loop that makes no step gives its initial values in eager mode; the operator gives copies of them. Other aliases
that only a run can tell (the results of branches, conversions) are the same in a graph that keeps its writes.
"""

from __future__ import annotations

from torch.fx import Graph, Node

from tintype.errors import MutationError, raise_all
from tintype.fake.info import Storage
from tintype.ir.graph import attached, placeholders
from tintype.ir.operators import declaration_of
from tintype.trace.shared_memory import storages_of
from tintype.transforms import refused_writes
from tintype.transforms.memory import storages_written_by


def refuse_hidden_writes(graph: Graph) -> None:
    """Refuse writes to what may be the result of a loop or its initial value, where the other one is seen later."""
    raise_all(_hidden_writes(graph))


def _hidden_writes(graph: Graph) -> list[MutationError]:
    problems = [problem for module in attached(graph).values() for problem in _hidden_writes(module.graph)]
    aliases = _aliases(graph)
    if not aliases:
        return problems
    made: dict[Storage, int] = {}
    # the caller goes on to see its inputs
    seen = {storage: len(graph.nodes) for node in placeholders(graph) for storage in storages_of(node)}
    for position, node in enumerate(graph.nodes):
        for storage in storages_of(node):
            made.setdefault(storage, position)
        for argument in node.all_input_nodes:
            for storage in storages_of(argument):
                seen[storage] = max(position, seen.get(storage, 0))
    for position, node in enumerate(graph.nodes):
        others = (aliases.get(storage, set()) - {storage} for storage in storages_written_by(node))
        if any(made.get(other, position) < position < seen.get(other, 0) for other in set().union(*others)):
            problems.append(refused_writes.hidden_by_loop(node))
    return problems


def _aliases(graph: Graph) -> dict[Storage, set[Storage]]:
    """For memory that the result of a loop may be: all memory that may be the same."""
    groups: dict[Storage, set[Storage]] = {}
    of_loops: list[Storage] = []
    for node in graph.nodes:
        for storage in storages_of(node):
            if not storage.frozen or not storage.sources:
                continue
            if _is_result_of_a_loop(node):
                of_loops.append(storage)
            group = set().union(*(groups.get(other, {other}) for other in (storage, *storage.sources)))
            groups.update(dict.fromkeys(group, group))
    return {storage: groups[loop] for loop in of_loops for storage in groups[loop]}


def _is_result_of_a_loop(node: Node) -> bool:
    source = node.args[0] if node.args and isinstance(node.args[0], Node) else node
    declaration = declaration_of(source)
    return declaration is not None and declaration.copies
