"""Programs that compute gradients themselves (``torch.autograd.grad``): captured with autograd on, as joint graphs.

What is left is operators: those of the program and those of the gradients that it takes. Which of its results eager
mode would differentiate further is not known any more: the program's results have no gradients, and a warning says
so where eager mode's have.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype import tree
from tintype.errors import LostGradientWarning
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import output_node
from tintype.symbolic.location import levels_to_the_user
from tintype.transforms.joint import JointCapture, tidy_joint_graph
from tintype.transforms.joint_layouts import settle_layouts


class GradientsInside(JointCapture):
    """A capture of a program with autograd on, and no gradients besides those that the program computes."""

    def differentiate(self, outputs: Any) -> list[FakeTensor | None]:
        """Nothing more."""
        return []

    def _tensor_input(self, node: Node, tensor: torch.Tensor, position: int) -> FakeTensor:
        if tensor.requires_grad:  # gradients of it may be asked for, and another call may have none
            self.recorder.observer.note(position, "requires_grad", (), True)
        return super()._tensor_input(node, tensor, position)

    def _call_root(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outputs = super()._call_root(args, kwargs)
        if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in tree.flatten(outputs)[0]):
            warnings.warn(
                f"[{LostGradientWarning.id}] the program computes gradients itself (torch.autograd.grad), so the "
                "captured program's results have none\n  What to do: nothing if the program is not differentiated; "
                "else use tintype.export_joint or tintype.aot on the model with its loss",
                LostGradientWarning,
                stacklevel=levels_to_the_user(),
            )
        return tree.map_leaves(_cut_off, outputs)


def _cut_off(leaf: Any) -> Any:
    """A result without its history; an input is one that the caller has."""
    if type(leaf) is not FakeTensor or leaf.node.op == "placeholder":
        return leaf
    return leaf.detach() if leaf.is_floating_point() or leaf.is_complex() else leaf


def without_gradients(graph: Graph) -> None:
    """Let nothing but the results be cut off from gradients."""
    tidy_joint_graph(graph, keep=output_node(graph).all_input_nodes)
    settle_layouts(graph)
