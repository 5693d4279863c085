"""From a joint graph to two: a forward graph, which also returns what is to be saved, and a backward graph.

What depends on a tangent belongs to the backward graph, what the outputs need to the forward graph. The rest is a
choice: a value that the backward graph needs is saved, or is computed again from values that are.

* :func:`partition_by_default` saves what the backward graph needs, as autograd does in eager mode.
* :func:`partition_by_min_cut` takes the cheapest set of values that lies between the inputs and the backward graph: a
  minimum cut. Operators that cost next to nothing may be computed again for nothing; what else may be, and what that
  saves, is set by a budget.

Views are never saved: they cost nothing to make again, and what they are a view of is in memory anyway. Random
numbers are the same in both graphs: a random operator is computed again with the state of the generator that it
had.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.errors import InvalidRequestError
from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import (
    add_placeholder,
    append_call,
    append_item,
    is_removable,
    meta_of,
    output_node,
    placeholders,
)
from tintype.ir.node_info import NodeMeta
from tintype.symbolic.environment import Environment
from tintype.symbolic.expression import Expr
from tintype.symbolic.sizes import product
from tintype.transforms.joint import JointGraph
from tintype.transforms.random_state import STATE_BYTES, run_and_save_state, run_with_state
from tintype.transforms.views import base_of

aten = torch.ops.aten

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclasses.dataclass
class Partition:
    """The two halves of a joint graph.

    The forward graph takes the joint graph's inputs without the tangents and returns its outputs, then what is
    saved: tensors first, ``saved_tensors`` of them, then numbers. The backward graph takes those and the tangents,
    and returns the gradients. ``saved_bytes`` is how much memory is held from the one to the other, ``input_bytes``
    how much of that belongs to inputs, which are there anyway; memory that is shared counts once.
    """

    forward: Graph
    backward: Graph
    output_count: int
    saved_tensors: int
    saved_numbers: int
    saved_bytes: int
    input_bytes: int
    recomputed: list[str]


Partitioner = Callable[[JointGraph], Partition]


def partition_by_default(joint: JointGraph) -> Partition:
    """Save everything that the backward graph needs of the forward graph.

    >>> import torch, tintype
    >>> from tintype.transforms.joint import joint_of
    >>> ep = tintype.export(lambda x: x.sin().exp(), (torch.ones(3),))
    >>> partition = partition_by_default(joint_of(ep.graph, ep.context))
    >>> partition.saved_bytes, partition.input_bytes
    (24, 12)
    >>> [node.name for node in partition.backward.nodes if node.op == "call_function"]
    ['mul', 'cos', 'mul_1']
    """
    halves = Halves(joint)
    return _Builder(halves, halves.needed_by_backward(halves.forward)).build()


def partition_by_min_cut(joint: JointGraph, memory_budget: float = 1.0) -> Partition:
    """Save as little as possible, computing cheap operators again.

    With a ``memory_budget`` of 1 only operators that cost next to nothing are computed again (elementwise ones,
    copies, normalizations). A smaller budget allows further ones, those that save most memory for their cost first,
    until no more than that share of the memory is saved; with 0 everything that can be is computed again.

    >>> import torch, tintype
    >>> from tintype.transforms.joint import joint_of
    >>> ep = tintype.export(lambda x: x.sin().exp(), (torch.ones(3),))
    >>> partition = partition_by_min_cut(joint_of(ep.graph, ep.context))
    >>> partition.saved_bytes, partition.recomputed
    (12, ['sin', 'exp'])
    """
    if not 0 <= memory_budget <= 1:
        raise InvalidRequestError(f"memory_budget is a share from 0 to 1, but got {memory_budget}")
    from tintype.transforms.min_cut import MinCut

    halves = Halves(joint)
    return _Builder(halves, MinCut(halves).saved(memory_budget)).build()


class Halves:
    """What the nodes of a joint graph can be part of."""

    def __init__(self, joint: JointGraph) -> None:
        self.joint = joint
        self.nodes = list(joint.graph.nodes)
        inputs = placeholders(joint.graph)
        self.primals = inputs[: joint.input_count]
        self.tangents = inputs[joint.input_count :]
        results: Any = output_node(joint.graph).args[0]
        self.outputs: list[Any] = list(results[: joint.output_count])
        self.gradients: list[Any] = list(results[joint.output_count :])
        self.behind_tangents = self._behind(self.tangents)
        effects = [node for node in self.nodes if node.op == "call_function" and not is_removable(node)]
        kept = [node for node in effects if node not in self.behind_tangents]
        # what the forward graph computes in any case, random numbers among it: they are drawn in the program's order
        self.forward = self.before([*(n for n in self.outputs if isinstance(n, Node)), *kept])
        self.forward |= {n for n in self.nodes if n.target is operator.getitem and n.args[0] in self.forward}
        # what the gradients need, and effects that follow from them
        later = [node for node in effects if node in self.behind_tangents]
        self.backward = self.before([*(n for n in self.gradients if isinstance(n, Node)), *later])

    def _behind(self, start: Iterable[Node]) -> set[Node]:
        found = set(start)
        for node in self.nodes:
            if node.op == "call_function" and any(argument in found for argument in node.all_input_nodes):
                found.add(node)
        return found

    def before(self, end: Iterable[Node]) -> set[Node]:
        """Nodes and everything that they are computed from."""
        found: set[Node] = set()
        pending = list(end)
        while pending:
            node = pending.pop()
            if node not in found:
                found.add(node)
                pending += node.all_input_nodes
        return found

    def needed_by_backward(self, available: set[Node]) -> list[Node]:
        """The values to save if everything among ``available`` is to be saved that can be, and what is missing of the
        rest is computed again."""
        wanted: dict[Node, None] = {}
        seen: set[Node] = set()
        pending = [node for node in reversed(self.gradients) if isinstance(node, Node)]
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.op == "placeholder" or (node in available and can_be_saved(node)):
                if node not in self.behind_tangents:
                    wanted[node] = None
                continue
            pending += node.all_input_nodes
        order = {node: position for position, node in enumerate(self.nodes)}
        return sorted(wanted, key=order.__getitem__)

    def computed_again(self, saved: set[Node]) -> list[Node]:
        """What the backward graph computes without tangents, if the given values are saved."""
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        pending = [node for node in self.gradients if isinstance(node, Node)]
        while pending:
            node = pending.pop()
            if node in seen or node in saved or node.op == "placeholder":
                continue
            seen.add(node)
            if node not in self.behind_tangents:
                found[node] = None
            pending += node.all_input_nodes
        return list(found)


def can_be_saved(node: Node) -> bool:
    """Whether a node's value can go from the forward to the backward graph: a tensor with memory of its own, or a
    number. Views are made again, several results at once are saved one by one."""
    value = node.meta.get("val")
    if isinstance(value, _NUMBERS):
        return True
    return type(value) is FakeTensor and base_of(node) is None


def is_number(node: Node) -> bool:
    """Whether a node's value is a symbolic number."""
    return isinstance(node.meta.get("val"), _NUMBERS)


def bytes_of(node: Node) -> int:
    """How much memory a node's value takes; symbolic sizes count as in the example that the graph was made with."""
    return _bytes(node.meta.get("val"))


def _bytes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(_bytes(item) for item in value)
    if type(value) is not FakeTensor:
        return 8
    count = product(value.info.sizes)
    if isinstance(count, Expr):
        environment: Environment = value.context.environment
        count = environment.hint(count) or _USUAL_ELEMENTS
    return int(count) * value.info.dtype.itemsize


_USUAL_ELEMENTS = 4096


def is_random(node: Node) -> bool:
    """Whether a node draws random numbers."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


class _Builder:
    """Writes the two graphs, once it is known what is saved."""

    def __init__(self, halves: Halves, saved: list[Node]) -> None:
        self.halves = halves
        self.tensors = [node for node in saved if not is_number(node)]
        self.numbers = [node for node in saved if is_number(node)]
        self.recomputed: list[Node] = []
        # random operators that are computed again, and the node of the forward graph that has their state
        self.states: dict[Node, Node | None] = {}

    def build(self) -> Partition:
        backward = self._backward()
        forward = self._forward()
        saved, of_inputs = self._memory()
        return Partition(
            forward,
            backward,
            len(self.halves.outputs),
            len(self.tensors) + len(self.states),
            len(self.numbers),
            saved,
            of_inputs,
            [node.name for node in self.recomputed],
        )

    # --- backward ------------------------------------------------------------------------------------------

    def _backward(self) -> Graph:
        """What gradients need, each value computed just before it is first used."""
        graph = Graph()
        values: dict[Node, Node] = {}
        kept = {*self.tensors, *self.numbers}
        order = self._order(kept)
        random = [node for node in order if is_random(node) and node not in self.halves.behind_tangents]
        for node in self.tensors:
            values[node] = self._input(graph, node)
        states = {}
        for node in random:
            if node in self.halves.forward or node in kept:
                states[node] = add_placeholder(graph, f"random_state_of_{node.name}", NodeMeta({"val": None}))
        self.states = dict.fromkeys(states)
        for node in (*self.numbers, *self.halves.tangents):
            values[node] = self._input(graph, node)
        for node in order:
            if node in states:
                arguments = (states[node], node.target, values_of(node.args, values), values_of(node.kwargs, values))
                values[node] = append_call(graph, run_with_state, arguments, {}, node.name, meta_of(node).copy())
            else:
                values[node] = graph.node_copy(node, values.__getitem__)
            if node in self.halves.forward and node.op == "call_function" and node.target is not operator.getitem:
                self.recomputed.append(node)
        results = [values[node] if isinstance(node, Node) else node for node in self.halves.gradients]
        graph.output(tuple(results)).meta = NodeMeta()
        return graph

    def _order(self, kept: set[Node]) -> list[Node]:
        """The nodes of the backward graph: those behind tangents in their order, others before their first use."""
        found: dict[Node, None] = {}

        def need(goal: Node) -> None:
            pending = [goal]
            while pending:
                node = pending[-1]
                if node in found or node in kept or node.op == "placeholder":
                    pending.pop()
                    continue
                missing = [
                    n for n in node.all_input_nodes if n not in found and n not in kept and n.op != "placeholder"
                ]
                if missing:
                    pending += missing
                else:
                    found[node] = None
                    pending.pop()

        for node in self.halves.nodes:
            if node in self.halves.backward and node in self.halves.behind_tangents:
                need(node)
        for gradient in self.halves.gradients:
            if isinstance(gradient, Node):
                need(gradient)
        return list(found)

    def _input(self, graph: Graph, node: Node) -> Node:
        return add_placeholder(graph, node.name, meta_of(node).copy())

    # --- forward -------------------------------------------------------------------------------------------

    def _forward(self) -> Graph:
        graph = Graph()
        values: dict[Node, Node] = {}
        needed = self.halves.before(
            [*(n for n in self.halves.outputs if isinstance(n, Node)), *self.tensors, *self.numbers]
        )
        needed |= self.halves.forward
        for node in self.halves.primals:
            values[node] = self._input(graph, node)
        for node in self.halves.nodes:
            if node.op not in ("call_function", "get_attr") or node not in needed:
                continue
            if node in self.states:
                call = append_call(
                    graph,
                    run_and_save_state,
                    (node.target, values_of(node.args, values), values_of(node.kwargs, values)),
                    {},
                    "run_and_save_state",
                    meta_of(node).derived(val=(None, node.meta.get("val"))),
                )
                self.states[node] = append_item(graph, call, 0, meta_of(node).derived(val=None))
                values[node] = append_item(graph, call, 1, meta_of(node).copy())
            else:
                values[node] = graph.node_copy(node, values.__getitem__)
        results = [values[n] if isinstance(n, Node) else n for n in self.halves.outputs]
        saved = [*(values[n] for n in self.tensors), *self.states.values(), *(values[n] for n in self.numbers)]
        graph.output((*results, *saved)).meta = NodeMeta()
        return graph

    # --- accounts ------------------------------------------------------------------------------------------

    def _memory(self) -> tuple[int, int]:
        inputs = {node.meta["val"].info.storage for node in self.halves.primals if _is_tensor(node)}
        by_storage: dict[Storage, int] = {}
        for node in self.tensors:
            storage = node.meta["val"].info.storage
            by_storage[storage] = max(by_storage.get(storage, 0), bytes_of(node))
        total = sum(by_storage.values()) + STATE_BYTES * len(self.states)
        return total, sum(size for storage, size in by_storage.items() if storage in inputs)


def values_of(arguments: Any, values: dict[Node, Node]) -> Any:
    """Arguments of a node of one graph as arguments of one of another."""
    return torch.fx.node.map_arg(arguments, values.__getitem__)


def _is_tensor(node: Node) -> bool:
    return type(node.meta.get("val")) is FakeTensor
