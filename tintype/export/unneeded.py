"""Calls that a running program need not make: what they return is there already.

``x[:]`` and ``x.to(x.dtype)`` are operators in a program, and their argument in eager mode. In a program that writes
to nothing while it runs they can be that here too, unless somebody could tell: what is returned, or written somewhere
at the end, has the memory that the graph says, and is the object that the graph says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Node

from tintype.export.owned_state import replace_state, write_to_input, write_untracked
from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import graphs_of
from tintype.trace.shared_memory import storages_of

aten = torch.ops.aten
_WRITES = (aten.copy_.default, write_untracked, write_to_input, replace_state)
_END = (1 << 63) - 1
# views that layers make again of the same tensors
_VIEWS = {aten.unsqueeze.default, aten.slice.Tensor, aten.transpose.int, aten.view.default, aten.permute.default}


def unneeded_calls(nodes: Iterable[Node]) -> dict[Node, Node]:
    """Calls with the node whose value is what they return: always, or for conversions if it has the dtype and the
    device already."""
    nodes = list(nodes)
    if not all(map(_is_known, nodes)):
        return {}
    seen_by_others, written = _memory_that_matters(nodes)
    kept = _objects_that_matter(nodes)
    found: dict[Node, Node] = {}
    views: dict[Any, Node] = {}
    for node in nodes:
        if node.op != "call_function" or type(node.meta.get("val")) is not FakeTensor:
            continue
        if node in kept:
            continue
        if is_conversion(node):
            if seen_by_others.isdisjoint(storages_of(node)) and written.isdisjoint(storages_of(node.args[0])):  # type: ignore[arg-type]
                found[node] = node.args[0]  # type: ignore[assignment]
        elif _is_whole(node):
            found[node] = node.args[0]  # type: ignore[assignment]
        elif node.target in _VIEWS and not node.kwargs:
            first = views.setdefault((node.target, _key(node.args)), node)
            if first is not node:
                found[node] = first
    return found


def is_conversion(node: Node) -> bool:
    """Whether a node is a conversion to the dtype and device that its argument had in the example."""
    if node.target is not aten._to_copy.default or not set(node.kwargs) <= {"dtype", "device"}:
        return False
    given, made = node.args[0].meta.get("val"), node.meta.get("val")  # type: ignore[union-attr]
    if type(given) is not FakeTensor or type(made) is not FakeTensor:
        return False
    return bool((given.info.dtype, given.info.device) == (made.info.dtype, made.info.device))


def _is_whole(node: Node) -> bool:
    """Whether a node is a slice of all that is there."""
    if node.target is not aten.slice.Tensor or node.kwargs:
        return False
    given: list[Any] = [*node.args[2:], *[None, None, 1][len(node.args) - 2 :]]
    return given[0] in (None, 0) and given[1] in (None, _END) and given[2] == 1


def _key(args: Any) -> Any:
    return tuple(map(_key, args)) if isinstance(args, (list, tuple)) else (type(args), args)


def _is_known(node: Node) -> bool:
    """Whether a node writes to nothing, or where a program's results go; graphs that it takes write to nothing."""
    target = node.target
    if any(_writes(inner) for _, module in graphs_of(node) for inner in module.graph.nodes):
        return False
    if node.op == "call_function" and isinstance(target, torch._ops.OpOverload):
        return not target._schema.is_mutable or target in _WRITES
    return node.op not in ("call_module", "call_method")


def _writes(node: Node) -> bool:
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
        return True
    return any(_writes(inner) for _, module in graphs_of(node) for inner in module.graph.nodes)


def _memory_that_matters(nodes: list[Node]) -> tuple[set[Storage], set[Storage]]:
    """The memory of what is returned or written somewhere, and that which is written to."""
    seen: set[Storage] = set()
    written: set[Storage] = set()
    for node in reversed(nodes):
        if node.op == "output":
            seen.update(storage for value in node.all_input_nodes for storage in storages_of(value))
        elif node.target in _WRITES:
            mine = [storage for value in node.all_input_nodes for storage in storages_of(value)]
            seen.update(mine)
            written.update(mine)
        elif not seen.isdisjoint(storages_of(node)) and _may_return_its_argument(node):
            seen.update(storage for value in node.all_input_nodes for storage in storages_of(value))
    return seen, written


def _objects_that_matter(nodes: list[Node]) -> set[Node]:
    """The nodes whose values may be what is returned or becomes state, and not just share memory with that."""
    kept: set[Node] = set()
    for node in reversed(nodes):
        if node.op == "output" or node.target in _WRITES or (node in kept and _may_return_its_argument(node)):
            kept.update(node.all_input_nodes)
    return kept


def _may_return_its_argument(node: Node) -> bool:
    """Whether a layout decides if a result has memory of its own: where the example's was copied, another is not."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return True
    return is_conversion(node) or target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
