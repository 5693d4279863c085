"""Random numbers that a program draws a second time in the same way: the recomputation of a checkpoint.

``torch.utils.checkpoint`` notes the state of the generator, and sets it before it runs its function again for the
gradients. Nothing is drawn while a program is recorded, so a state stands for a place in the sequence of draws;
setting it means that the draws from there on come again. Both are recorded; where the graph is functional, the second
draw is replaced by the result of the first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.errors import CaptureError
from tintype.ir.graph import called_functions, calls_of_any, meta_of, subgraph_at
from tintype.ir.node_info import NodeMeta, Origin
from tintype.ir.operator_facts import facts_of
from tintype.ir.operators import OPERATORS


class Drawn(Origin):
    """The origin of a draw; what becomes of the node has it, too. ``first`` is the same for equal draws."""

    __slots__ = ("first",)

    def __init__(self, origin: Origin, first: Node) -> None:
        super().__init__(origin.call, origin.steps, origin.function, origin.serial, origin.text)
        self.sequence, self.backward = origin.sequence, origin.backward
        self.first = first


def draws(node: Node) -> bool:
    """Whether a node draws random numbers, itself or in the graphs that it takes."""
    if node.op != "call_function":
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return facts_of(node.target).draws
    graphs = [subgraph_at(argument) for argument in node.all_input_nodes if argument.op == "get_attr"]
    return any(draws(inner) for graph in graphs if graph is not None for inner in graph.graph.nodes)


# a state of a generator that was asked for or set: after which node, on what kind of device, which, whether set
StateEvent = tuple[Node, str, torch.Tensor, bool]


def number_draws(graph: Graph, events: list[StateEvent]) -> None:
    """Note which draws draw the same random numbers as an earlier one."""
    if not any(is_set for *_, is_set in events):
        return
    by_node: dict[Node, list[StateEvent]] = {}
    for event in events:
        by_node.setdefault(event[0], []).append(event)
    sequences: dict[str, list[Node]] = {}
    places: dict[str, int] = {}
    known: dict[int, int] = {}
    for node in (graph._root, *graph.nodes):
        if node is not graph._root and draws(node):
            device = _device_of(node)
            sequence, place = sequences.setdefault(device, []), places.get(device, 0)
            if place == len(sequence):
                sequence.append(node)
            elif sequence[place].target is not node.target:
                raise CaptureError(
                    f"what is computed again for gradients (torch.utils.checkpoint) draws random numbers by "
                    f"{node.target}, but by {sequence[place].target} the first time",
                    remedy="let the function under the checkpoint do the same each time",
                )
            meta = meta_of(node)
            meta.origin = Drawn(meta.origin or Origin(None, ()), sequence[place])
            places[device] = place + 1
        for _, device, state, is_set in by_node.get(node, ()):
            if not is_set:
                known[id(state)] = places.get(device, 0)
            elif id(state) in known:
                places[device] = known[id(state)]
            else:
                raise CaptureError(
                    "the state of a generator of random numbers is set to one from before the program, which can't "
                    "be captured",
                    remedy="set the seed before the program, and draw with torch's operators alone",
                )


def reuse_draws(graph: Graph) -> None:
    """In a functional graph, replace draws of random numbers that were drawn before by those."""
    first: dict[Any, Node] = {}
    for node in calls_of_any(graph, set(filter(_may_draw, called_functions(graph)))):
        origin = node.meta.origin if isinstance(node.meta, NodeMeta) else None
        if not isinstance(origin, Drawn) or not draws(node):
            continue
        known = first.setdefault(origin.first, node)
        if known is not node:
            node.replace_all_uses_with(known)
            graph.erase_node(node)


def _may_draw(function: Any) -> bool:
    """Whether a function draws random numbers; one that takes graphs may."""
    if isinstance(function, torch._ops.OpOverload):
        return facts_of(function).draws
    return isinstance(function, torch._ops.HigherOrderOperator) or function in OPERATORS


def _device_of(node: Node) -> str:
    value = node.meta.get("val")
    tensor: Any = value[0] if isinstance(value, (tuple, list)) else value
    return tensor.device.type if isinstance(tensor, torch.Tensor) else "cpu"
