"""Graphs of gradients when some results have none.

A graph of gradients takes a tangent for every result. Of a result that nobody uses, autograd computes no gradient at
all; computing one from zeros is not the same, since zero times an infinite slope is nan. So what only absent tangents
lead to is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.errors import CaptureError
from tintype.fake.context import FakeContext
from tintype.ir.graph import eliminate_dead_code, is_removable
from tintype.transforms.emit import Emitter, info_of
from tintype.transforms.views import laid_out

aten = torch.ops.aten


def leave_out(graph: Graph, context: FakeContext, tangents: Sequence[Node], absent: Collection[Node]) -> None:
    """Take inputs for ``absent`` tangents out of a graph of gradients, and what only they lead to.

    A gradient that nothing is left of becomes None. Every node is linear in the tangents, so one all of whose
    tangents are absent is absent itself; a sum is what is left of it, laid out as the sum was, which views of it rest
    on; and elsewhere zeros stand in.
    """
    emitter = Emitter(graph, context)
    derived, gone = set(tangents), set(absent)
    for node in list(graph.nodes):
        inputs = [argument for argument in node.all_input_nodes if argument in derived]
        missing = [argument for argument in inputs if argument in gone]
        if node.op == "output":
            node.args = (torch.fx.node.map_arg(node.args[0], lambda value: None if value in gone else value),)
            continue
        if inputs:
            derived.add(node)
        if not missing:
            continue
        if len(missing) == len(inputs) and is_removable(node):
            gone.add(node)
        elif (rest := _rest_of_sum(node, gone)) is not None:
            whole = info_of(node)
            assert whole is not None
            emitter.at = node
            left = laid_out(emitter, rest, whole)
            derived.add(left)
            node.replace_all_uses_with(left)
        else:
            emitter.at = node
            for argument in missing:
                node.replace_input_with(argument, _zeros(emitter, argument))
    eliminate_dead_code(graph)
    for node in absent:
        erase_tangent(graph, node)


def erase_tangent(graph: Graph, tangent: Node) -> None:
    """Take the input for a tangent that gradients don't need out of a graph."""
    if tangent.users:
        raise CaptureError(
            "gradients need the size of a result that has none of its own, and only data decide it",
            remedy="use the result too, or detach() what is made of it",
        )
    graph.erase_node(tangent)


def _rest_of_sum(node: Node, gone: Collection[Node]) -> Node | None:
    """The other summand of a sum, if it is as large as the sum."""
    if node.target is not aten.add.Tensor or node.kwargs:
        return None
    for rest in node.args:
        if isinstance(rest, Node) and rest not in gone:
            info, whole = info_of(rest), info_of(node)
            assert info is not None and whole is not None
            return rest if (info.sizes, info.dtype) == (whole.sizes, whole.dtype) else None
    return None


def _zeros(emitter: Emitter, node: Node) -> Node:
    info = info_of(node)
    assert info is not None, "only tensors are gradients"
    options: dict[str, Any] = {"dtype": info.dtype, "device": info.device}
    if info.is_contiguous():
        return emitter.call(aten.full.default, list(info.sizes), 0, **options)
    memory = emitter.call(aten.empty_strided.default, list(info.sizes), list(info.strides), **options)
    return emitter.call(aten.fill.Scalar, memory, 0)
