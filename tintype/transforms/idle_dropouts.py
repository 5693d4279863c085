"""Dropout that drops nothing, which returns its argument.

A program of the training stage has it all the same: tools that switch a program between training and evaluation look
for it, as they do in torch's programs. A functional program does without.
"""

from __future__ import annotations

from typing import Any

from torch.fx import Graph

from tintype.ir.graph import calls_of_any
from tintype.ir.operator_facts import DROPOUTS


def drop_idle_dropouts(graph: Graph) -> None:
    """Remove them from a graph."""
    for node in calls_of_any(graph, DROPOUTS):
        arguments: list[Any] = [*node.args, *node.kwargs.values()]
        tensor, p, train = arguments
        if not train or p == 0:
            node.replace_all_uses_with(tensor)
            graph.erase_node(node)
