"""Joint graphs in other layouts than the example's.

Calls that are a view or a copy stand in the graph as themselves where it matters which; functionalization asserts
then what it rests on, as in any other program (:mod:`tintype.transforms.doubts`). Kernels that read memory as if it
were contiguous, which composite operators and autograd's formulas see to, are given what is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.errors import MutationError, raise_all
from tintype.fake.context import FakeContext
from tintype.fake.tensor import FakeTensor
from tintype.trace.views_or_copies import ViewOrCopy
from tintype.transforms.doubts import Doubt, doubt_between, may_share, write_doubts
from tintype.transforms.emit import Emitter
from tintype.transforms.layouts import NEED_CONTIGUOUS, KernelLayouts, Layouts
from tintype.transforms.memory import storages_of, written_storages

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default)


def settle_views_or_copies(graph: Graph, calls: list[ViewOrCopy], context: FakeContext) -> list[MutationError]:
    """Let noted calls be operators if memory that they may share is written to, those inside of branches and loops in
    their own graphs; returns what can't be captured."""
    by_graph: dict[Graph, list[ViewOrCopy]] = {graph: []}
    for call in calls:
        by_graph.setdefault(call.result.graph, []).append(call)
    return [problem for own, noted in by_graph.items() for problem in _settled(own, noted, context)]


def _settled(graph: Graph, calls: list[ViewOrCopy], context: FakeContext) -> list[MutationError]:
    reached = may_share([(call.base, call.result) for call in calls], written_storages(graph))
    layouts = Layouts()
    doubts = []
    for call in calls:
        is_written = not reached.isdisjoint((*storages_of(call.base), *storages_of(call.result)))
        if is_written and _stands_for_itself(call):
            continue
        if is_written or call.keeps_history:
            memory_format = None if call.operator is aten.reshape.default else call.memory_format
            reason = "what is returned without gradients is a copy only" if call.keeps_history else ""
            doubts.append(doubt_between(call.base, call.result, memory_format, layouts, reason))
        if call.result.target is aten.alias.default and call.result.args[0] is call.base:
            call.result.replace_all_uses_with(call.base)
            graph.erase_node(call.result)
    return write_doubts(graph, [doubt for doubt in doubts if doubt is not None], context.environment)


def _stands_for_itself(call: ViewOrCopy) -> bool:
    """Let the node of a call's result be the call; False where it is not known how that was made."""
    result = call.result
    if result is call.base or not result.args:
        return False
    source: Any = result.args[0]
    sizes = list(result.args[1:2])
    if result.target in _VIEWS and source.target is aten.clone.default:
        source = source.args[0]
    elif result.target not in (*_VIEWS, aten.alias.default, aten.clone.default):
        return False
    if source is not call.base or (call.operator is aten.reshape.default and result.target not in _VIEWS):
        return False
    result.target = call.operator
    result.args = (source, *sizes) if call.operator is aten.reshape.default else (source,)
    result.kwargs = {}
    if call.operator is aten.contiguous.default and call.memory_format is not torch.contiguous_format:
        result.kwargs = {"memory_format": call.memory_format}
    return True


def settle_layouts(graph: Graph) -> None:
    """Let a functional joint graph be right, or refuse, in every layout of its inputs."""
    _give_contiguous_arguments(graph)
    _assert_what_gradients_rest_on(graph)


def _assert_what_gradients_rest_on(graph: Graph) -> None:
    """Assert layouts where gradients flow through ``as_strided``: they go to the elements that lie in the memory that
    it looks at, which autograd's formula works out from the strides of the example."""
    layouts = Layouts()
    for node in graph.find_nodes(op="call_function", target=aten.as_strided.default):
        base, value = node.args[0], node.meta["val"]
        if value.requires_grad:
            doubt = Doubt(node, layouts.sources(base), [], "gradients go to the elements that lie there")
            raise_all(write_doubts(graph, [doubt], value.context.environment))


def _give_contiguous_arguments(graph: Graph) -> None:
    """Let kernels that need contiguous arguments have them."""
    known = KernelLayouts(Layouts())
    for target in NEED_CONTIGUOUS:
        for node in graph.find_nodes(op="call_function", target=target):
            nodes = [argument if _is_tensor(argument) else None for argument in node.args]
            for position in known.uncertain(target, nodes):
                _make_contiguous(graph, node, position)


def _make_contiguous(graph: Graph, node: Node, position: int) -> None:
    argument: Any = node.args[position]
    emit = Emitter(graph, argument.meta["val"].context)
    emit.at = node
    node.update_arg(position, emit.call(aten.contiguous.default, argument))


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, Node) and type(argument.meta.get("val")) is FakeTensor
