"""Views made again, of another tensor than the one that they were recorded of."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

import torch
from torch.fx import Graph, Node

from tintype.fake.tensor import FakeTensor
from tintype.transforms.views import base_of

aten = torch.ops.aten


def complex_view(parts: torch.Tensor) -> torch.Tensor:
    """``view_as_complex`` of elements side by side; where they are not, something before it was a copy."""
    if type(parts) is not FakeTensor:
        starts = (*parts.stride()[:-1], parts.storage_offset())
        if parts.stride(-1) != 1 or any(start % 2 for start in starts):
            parts = parts.contiguous()
    return torch.view_as_complex(parts)


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
    for view in reversed(chain):
        new = graph.node_copy(view, lambda argument: made[argument] if argument in made else values[argument])
        if view.target is aten.as_strided.default:
            move(view, new)
        if view.target is aten.view_as_complex.default:
            new.target = complex_view
        made[view] = new
