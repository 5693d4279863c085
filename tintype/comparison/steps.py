"""The values that a program computes on its way, by where they come from.

Programs that come from the same code have the same steps, whatever operators each of them consists of: a step is one
call of a function in one call of a module, and its value is the last that was made for it. A program can be compared
with its decomposed self, with one that was exported from a changed model, or with torch's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from tintype.errors import Location
from tintype.export.module import ProgramModule, leaves_of_call, run_node
from tintype.export.own_attributes import attribute_of
from tintype.export.program import ExportedProgram
from tintype.ir.graph import location_of
from tintype.ir.node_info import NodeMeta, module_names
from tintype.ir.printing import spell_target
from tintype.ir.running import run_graph

# the call of a module, the function, and which of its calls there
Key = tuple[str, str, int]


@dataclass
class Step:
    """A call of a function in the user's program, and the node whose value is its result."""

    key: Key
    node: Node

    @property
    def module(self) -> str:
        """The call of a module that it is in."""
        return self.key[0]

    @property
    def operator(self) -> str:
        """What the node calls."""
        return spell_target(self.node.target).removeprefix("torch.ops.")

    @property
    def location(self) -> Location | None:
        """The line of the user's program."""
        return location_of(self.node)


def steps_of(module: ProgramModule) -> list[Step]:
    """The steps of a program, in the order in which they end."""
    found: dict[tuple[Any, ...], Node] = {}
    for node in module.graph.nodes:
        if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor):
            call = _call_of(node)
            found.pop(call, None)  # a step stands where its last node does
            found[call] = node
    counts: Counter[tuple[str, str]] = Counter()
    steps = []
    for (place, function, _), node in sorted(found.items(), key=lambda item: _first_serial(item[0])):
        steps.append(Step((place, function, counts[place, function]), node))
        counts[place, function] += 1
    order = {node: number for number, node in enumerate(module.graph.nodes)}
    return sorted(steps, key=lambda step: order[step.node])


def _first_serial(call: tuple[Any, ...]) -> int:
    """The calls of one function in the order in which the program made them."""
    return call[2] if isinstance(call[2], int) else 0


def _call_of(node: Node) -> tuple[str, str, Any]:
    """The module's call, the function and its number: equal for the nodes that came of one call."""
    meta = node.meta
    names = module_names(meta) if isinstance(meta, NodeMeta) else []
    place = names[-1] if names else ""
    origin = meta.origin if isinstance(meta, NodeMeta) else None
    if origin is not None and origin.function is not None:
        return place, origin.function, origin.serial
    return place, _function_name(node), node.name


def _function_name(node: Node) -> str:
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.overloadpacket.__name__
    return str(getattr(target, "__name__", target))


def run_steps(
    program: ExportedProgram,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    seen: Callable[[Step, torch.Tensor], None],
) -> None:
    """Run a program node by node, and tell of the value of each step when it is there."""
    module = program.module()
    steps = {step.node: step for step in steps_of(module)}
    given = leaves_of_call(module, args, kwargs)

    def call(node: Node, node_args: tuple[Any, ...], node_kwargs: dict[str, Any]) -> Any:
        value = run_node(module, node, node_args, node_kwargs)
        if node in steps and isinstance(value, torch.Tensor):
            seen(steps[node], value)
        return value

    run_graph(module.graph, given, call, lambda node: attribute_of(module, str(node.target)))
