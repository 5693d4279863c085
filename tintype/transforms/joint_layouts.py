"""Joint graphs in other layouts than the example's.

Calls that are a view or a copy stand in the graph as themselves where it matters which; functionalization asserts
then what it rests on, as in any other program (:mod:`tintype.transforms.doubts`). Kernels that read memory as if it
were contiguous, which composite operators and autograd's formulas see to, are given what is.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.errors import MutationError, raise_all
from tintype.fake.context import FakeContext
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import called_functions, calls_of, meta_of
from tintype.trace.shared_memory import may_share, storages_of
from tintype.trace.views_or_copies import ViewOrCopy
from tintype.transforms.doubts import Doubt, doubt_between, write_doubts
from tintype.transforms.emit import Emitter
from tintype.transforms.layouts import (
    FACTORIZED_AS_THEY_LIE,
    NEED_CONTIGUOUS,
    KernelLayouts,
    Layouts,
    as_reshape,
    may_need_copy,
)
from tintype.transforms.memory import written_storages

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
    _give_contiguous_arguments(_calls_of(graph, NEED_CONTIGUOUS))
    _let_matrices_lie_as_in_the_example(_calls_of(graph, FACTORIZED_AS_THEY_LIE))
    looked_at = _calls_of(graph, (aten.as_strided.default,))
    _assert_what_gradients_rest_on([node for node in looked_at if node.meta["val"].requires_grad])


def settle_transformed(graph: Graph) -> None:
    """The same for what was recorded inside of functions that torch transforms (``vmap``, ``grad``, ``jvp``).

    torch takes composite operators apart there, and computes gradients, before the recorder sees anything. Of a
    ``view`` there is no telling who called it."""
    nodes = _of_transforms(_calls_of(graph, _CONCERNED))
    if not nodes:
        return
    layouts = Layouts()
    for node in nodes:
        copy: Any = node.args[0]
        if node.target is aten._unsafe_view.default and copy.target is aten.clone.default:
            node.args = (copy.args[0], *node.args[1:])  # a reshape that had to copy
            if not copy.users:
                graph.erase_node(copy)
        elif node.target is not aten.view.default or not may_need_copy(node, layouts):
            continue
        node.target = aten.reshape.default
        node.meta = as_reshape(meta_of(node))
    _give_contiguous_arguments([node for node in nodes if node.target in NEED_CONTIGUOUS])
    _let_matrices_lie_as_in_the_example([node for node in nodes if node.target in FACTORIZED_AS_THEY_LIE])
    _assert_what_gradients_rest_on([node for node in nodes if node.target is aten.as_strided.default])


_CONCERNED = frozenset(
    (
        *NEED_CONTIGUOUS,
        *FACTORIZED_AS_THEY_LIE,
        aten.as_strided.default,
        aten.view.default,
        aten._unsafe_view.default,
    )
)


def _calls_of(graph: Graph, targets: Container[Any]) -> list[Node]:
    return [node for target in called_functions(graph) if target in targets for node in calls_of(graph, target)]


def _of_transforms(nodes: list[Node]) -> list[Node]:
    """Those of some nodes that were recorded inside of functions that torch transforms."""
    known: dict[tuple[int, int], bool] = {}  # a step of autograd's has many nodes of the same frames
    found: list[Node] = []
    for node in nodes:
        origin = meta_of(node).origin
        if origin is None:
            continue
        place = id(origin.call), id(origin.steps)
        answer = known.get(place)
        if answer is None:
            answer = known[place] = origin.is_of_a_transform()
        if answer:
            found.append(node)
    return found


def _assert_what_gradients_rest_on(nodes: list[Node]) -> None:
    """Assert layouts where gradients flow through ``as_strided``: they go to the elements that lie in the memory that
    it looks at, which autograd's formula works out from the strides of the example."""
    layouts = Layouts()
    for node in nodes:
        base: Any = node.args[0]
        doubt = Doubt(node, layouts.sources(base), [], "gradients go to the elements that lie there")
        raise_all(write_doubts(node.graph, [doubt], node.meta["val"].context.environment))


def _give_contiguous_arguments(nodes: list[Node]) -> None:
    """Let kernels that need contiguous arguments have them."""
    known = KernelLayouts(Layouts())
    for node in nodes:
        arguments: list[Any] = [argument if _is_tensor(argument) else None for argument in node.args]
        for position in known.uncertain(node.target, arguments):
            _make_contiguous(node, position)


def _make_contiguous(node: Node, position: int) -> None:
    argument: Any = node.args[position]
    emit = Emitter(node.graph, argument.meta["val"].context)
    emit.at = node
    node.update_arg(position, emit.call(aten.contiguous.default, argument))


def _let_matrices_lie_as_in_the_example(nodes: list[Node]) -> None:
    """Let factorizations whose factors gradients are computed from be of the matrices that they are of there."""
    layouts = Layouts()
    for node in nodes:
        matrix: Any = node.args[0]
        info = matrix.meta["val"].info
        if info.dtype.is_complex or layouts.is_certain(matrix):
            continue
        if info.is_contiguous():
            _make_contiguous(node, 0)
            continue
        emit = Emitter(node.graph, matrix.meta["val"].context)
        emit.at = node
        rows_last = emit.call(aten.contiguous.default, emit.call(aten.transpose.int, matrix, -2, -1))
        node.update_arg(0, emit.call(aten.transpose.int, rows_last, -2, -1))


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, Node) and type(argument.meta.get("val")) is FakeTensor
