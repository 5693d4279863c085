"""Decomposition of operators that are a view or a copy, as the layout of their argument says.

A decomposed program has the one or the other, as in the example. Views that rest on a layout which is not certain are
reshapes in the modules that are made of the program (:mod:`tintype.transforms.layouts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.fake.info import strides_for_format
from tintype.fake.rules.views import GeneralQuestions, infer_size, lies_in, view_strides
from tintype.ir.graph import output_node
from tintype.ir.operator_facts import RESHAPES, VIEWS_OR_COPIES
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.sizes import product
from tintype.transforms.layouts import is_copy, is_for_kernel
from tintype.transforms.views import base_of

aten = torch.ops.aten


def _reshape(tensor: Any, shape: Sequence[Any]) -> Any:
    """A view, or a copy and a view of it; no facts about sizes are learned for it."""
    info = tensor.info
    sizes = infer_size([from_torch(size) for size in shape], product(info.sizes))
    if view_strides(info.sizes, info.strides, sizes, GeneralQuestions) is not None:
        return aten.view.default(tensor, shape)
    copy = aten.clone.default(tensor, memory_format=torch.contiguous_format)
    return aten._unsafe_view.default(copy, shape)


def _contiguous(tensor: Any, *, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
    if lies_in(tensor.info, strides_for_format(tensor.info, memory_format)):
        return tensor
    return aten.clone.default(tensor, memory_format=memory_format)


def _copy_strided(tensor: Any, stride: Sequence[Any]) -> Any:
    """What torch's decompositions end with where strides are not those of the operator: nobody rests on these, and
    autograd does not know the operator."""
    return aten.clone.default(tensor)


# Whatever the table, unless it has an entry of its own.
BY_LAYOUT: dict[Any, Callable[..., Any]] = {
    torch.ops.prims.copy_strided.default: _copy_strided,
    aten.reshape.default: _reshape,
    aten.contiguous.default: _contiguous,
}


# They see the memory around a view, or take only elements that lie beside each other.
_LOOK_AT_MEMORY = (aten.as_strided.default, aten.view_as_complex.default, aten.view.dtype)


def told_apart(graph: Graph) -> set[Node]:
    """The operators of which somebody can tell whether they copied. A caller can, if what they return is an output,
    and so is what they were given, or it is an input; a kernel that needs contiguous arguments does; so
    does what looks at the memory below a view."""
    if not any(node.target in VIEWS_OR_COPIES for node in graph.nodes):
        return set()
    chains: list[list[Node]] = []
    roots: dict[Node, int] = {}
    for node in output_node(graph).all_input_nodes:
        chain = _views_below(node)
        chains.append(chain)
        roots[chain[-1]] = roots.get(chain[-1], 0) + 1
    for_kernels = {
        node for node in graph.find_nodes(op="call_function", target=aten.contiguous.default) if is_for_kernel(node)
    }
    seen_around = {
        base
        for target in _LOOK_AT_MEMORY
        for node in graph.find_nodes(op="call_function", target=target)
        for base in _views_below(node)
        if base.target in VIEWS_OR_COPIES
    }
    return (
        for_kernels
        | seen_around
        | {
            node
            for chain in chains
            if chain[-1].op == "placeholder" or roots[chain[-1]] > 1
            for node in chain
            # as views of the example's layout, reshapes stay views in modules where eager mode has views
            if node.target in VIEWS_OR_COPIES and (is_copy(node) or node.target not in RESHAPES)
        }
    )


def _views_below(node: Node) -> list[Node]:
    """A node, what it is a view of, and so on."""
    chain = [node]
    while (base := base_of(chain[-1])) is not None:
        chain.append(base)
    return chain


def exposed_nodes(graph: Graph) -> set[Node]:
    """The tensors that a caller gets to see, or views of which he does: their strides are part of the meaning.

    Views are not among them: they are as they were if what they are a view of is.
    """
    exposed: set[Node] = set()
    for node in output_node(graph).all_input_nodes:
        base = base_of(node)
        while base is not None and not is_copy(node):
            node, base = base, base_of(base)
        exposed.add(node)
    return exposed
