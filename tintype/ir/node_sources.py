"""Which nodes of a program a pass made the nodes of another one of: ``node.meta["from_node"]``.

Passes hand origins on as they are, so nodes of two programs that share an origin belong together. This is found out
after a pass, in one go over both graphs; nothing is noted while it runs.
"""

from __future__ import annotations

from typing import Any

from torch.fx import Graph

from tintype.ir.graph import meta_of
from tintype.ir.node_info import NodeSource, Origin
from tintype.ir.printing import spell_target


def note_sources(before: Graph, after: Graph, pass_name: str) -> None:
    """Let the nodes of a graph say which nodes of the graph before the pass they come from.

    >>> import torch, tintype
    >>> core = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),)).run_decompositions()
    >>> node = next(node for node in core.graph.nodes if node.name == "addmm")
    >>> node.meta["from_node"]
    [NodeSource(name='linear', target='aten.linear.default', pass_name='run_decompositions', from_node=())]
    """
    sources: dict[Any, list[NodeSource]] = {}
    spelled: dict[int, str] = {}
    for node in before.nodes:
        meta = meta_of(node)
        if node.op == "call_function" and meta.origin is not None:
            target = spelled.get(id(node.target))
            if target is None:
                target = spelled[id(node.target)] = spell_target(node.target).removeprefix("torch.ops.")
            source = NodeSource(node.name, target, pass_name, meta.sources)
            sources.setdefault(_key(meta.origin), []).append(source)
    shared = {key: tuple(found) for key, found in sources.items()}
    for node in after.nodes:
        meta = meta_of(node)
        if node.op == "call_function" and meta.origin is not None:
            found = shared.get(_key(meta.origin), ())
            if len(found) > 1:  # several nodes of one call: one that stayed comes from itself
                found = tuple(source for source in found if source.name == node.name) or found
            meta.sources = found
            meta.pop("from_node", None)


def _key(origin: Origin) -> Any:
    """Equal for one call of the user's program; what was noted on a node may have given it an origin of its own."""
    return origin if origin.function is None else (origin.function, origin.serial, id(origin.steps))
