"""What a function became: a joint graph, and what a runtime has to do besides running it."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.fx import Node

from tintype import tree
from tintype.ir.signature import StateWrite
from tintype.trace.captured_graph import CapturedGraph


@dataclasses.dataclass
class InputWrite:
    """An input of the graph that got another value, which is an output of the graph."""

    position: int
    # autograd saw the write: the caller's tensor gets the history of its new value
    tracked: bool
    how: StateWrite
    value: Node


@dataclasses.dataclass
class GeometryChange:
    """An operator that gave the caller's tensor another size or other strides (``x.t_()``)."""

    position: int
    operator: Any
    arguments: tuple[Any, ...]


@dataclasses.dataclass
class OutputPlan:
    """Where an output comes from.

    ``constant``: it is ``value``. ``argument``: it is the argument at that position. ``state``: it is the tensor that
    this input of the graph stands for. ``same``: it is the output at that position. ``result``: it is the result at
    that position. ``view``: it is the view at that position, of an input or a result.
    """

    kind: str
    value: Any = None
    requires_grad: bool = False
    is_leaf: bool = False
    # a view of a view that was made while gradients were disabled: gradients end there
    is_cut_off: bool = False
    is_parameter: bool = False
    # the function asks for its gradient: retain_grad()
    keeps_gradient: bool = False
    # position of the result that has the history of a view which got another one by a write to it after detach()
    history: int | None = None


@dataclasses.dataclass
class RecordedFunction:
    """A function as a joint graph: inputs, then tangents, to new values of inputs, results, views and gradients."""

    captured: CapturedGraph
    # the graph's inputs before the caller's: a path in the module, or a tensor or object that was found elsewhere
    state: list[str | torch.Tensor | torch.ScriptObject]
    writes: list[InputWrite]
    geometry_changes: list[GeometryChange]
    # positions of inputs that lose their history before they are written to, and in the end
    detached_first: list[int]
    detached: list[int]
    # positions of inputs that the function lets require a gradient
    new_leaves: list[int]
    # positions of arguments whose gradients the function asks for: retain_grad()
    kept_gradients: list[int]
    results: list[Node]
    # the nodes that results are or were copied from; None for those that only lend their history
    originals: list[Node | None]
    views: list[Node]
    plans: list[OutputPlan]
    # positions of the values (written inputs first, then results) that have tangents, and of inputs with gradients
    tangents: list[int]
    gradient_inputs: list[int]
    gradients: list[Node]
    out_spec: tree.TreeSpec
    grad_enabled_after: bool
    # tensors whose gradient the function looked at, and what that was
    gradients_read: list[tuple[torch.Tensor, torch.Tensor | None]]
    # why there is no backward, where eager mode would raise that
    backward_error: str | None

    @property
    def input_count(self) -> int:
        """How many inputs the graph has, tangents not counted."""
        return len(self.captured.input_specs)
