"""Views made again, of another tensor than the one that they were recorded of."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

import torch
from torch.fx import Graph, Node

from tintype.ir.operator_facts import VIEWS_OR_COPIES
from tintype.transforms.views import base_of

aten = torch.ops.aten


def chain_of_views(view: Node, bases: Container[Node]) -> tuple[list[Node], Node | None]:
    """The operators that lead from one of several values to a view of it, last one first, and that value; None if the
    view is one of something else."""
    chain: list[Node] = []
    step: Node | None = view
    while step is not None and step not in bases:
        chain.append(step)
        step = base_of(step)
    return chain, step


def make_again(
    graph: Graph,
    chain: list[Node],
    made: dict[Node, Node],
    values: Mapping[Node, Node],
    move: Callable[[Node, Node], None],
) -> None:
    """Make the views of a chain again at the end of a graph.

    ``made`` has what stands for their base, and gets the views; ``values`` has their other arguments. ``move(view,
    new)`` is told of views that count from the beginning of the memory, and lets the new one begin where it shall.
    """
    has_copies = any(view.target in VIEWS_OR_COPIES for view in chain)
    for view in reversed(chain):
        new = graph.node_copy(view, lambda argument: made[argument] if argument in made else values[argument])
        if view.target is aten.as_strided.default:
            move(view, new)
        if has_copies and view.target is aten.view_as_complex.default:
            # of elements that lie beside each other: where they don't, what may be a copy was one
            parts: Node = new.args[0]  # type: ignore[assignment]
            with graph.inserting_before(new):
                new.update_arg(0, graph.create_node("call_function", aten.contiguous.default, (parts,)))
            new.args[0].meta = parts.meta.copy()  # type: ignore[union-attr]
        made[view] = new
