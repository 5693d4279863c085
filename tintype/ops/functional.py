"""Functionalization of operators that take graphs: what the graphs write to becomes a result of theirs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule, Node

from tintype.errors import MutationError
from tintype.fake.context import FakeContext
from tintype.fake.tensor import make_fake
from tintype.ir.graph import graphs_of, meta_of, output_node, placeholders, set_meta
from tintype.ir.operators import OPERATORS
from tintype.ir.signature import InputKind, InputSpec, StateWrite, TensorArgument
from tintype.transforms.emit import info_of, location_of
from tintype.transforms.functionalize import REWRITES, Functionalization, Rewrite
from tintype.transforms.views import laid_out


class FunctionalGraph:
    """A graph that was functionalized, and the new values of those of its inputs that it wrote to, by position;
    ``writes`` says how that looks to autograd, ``layouts`` which inputs have to lie as in the example, and
    for the sake of which node."""

    def __init__(
        self,
        module: GraphModule,
        new_values: dict[int, Node],
        writes: Mapping[int, StateWrite],
        layouts: Mapping[int, Node],
    ) -> None:
        self.module = module
        self.new_values = new_values
        self.writes = writes
        self.layouts = layouts
        self.returned = False

    def return_values(self, positions: Sequence[int], at: int | None = None) -> None:
        """Return the latest values of inputs too: at a place among the results, or after them."""
        inputs = placeholders(self.module.graph)
        values = [self.new_values.get(position, inputs[position]) for position in positions]
        output = output_node(self.module.graph)
        results: Any = output.args[0]
        if values:
            place = len(results) if at is None else at
            output.args = ((*results[:place], *values, *results[place:]),)
        self.module.recompile()
        self.returned = True


def functionalizes(target: Any) -> Callable[[Rewrite], Rewrite]:
    """Register how a call of an operator that takes graphs is functionalized, once its arguments are up to date."""

    def register(rewrite: Rewrite) -> Rewrite:
        def prepared(functional: Functionalization, node: Node) -> None:
            functional.note_frozen(node)
            _lay_out_operands(functional, node)
            rewrite(functional, node)

        REWRITES[target] = prepared
        return rewrite

    return register


def _lay_out_operands(functional: Functionalization, node: Node) -> None:
    """Give operands the strides that the graphs were recorded with."""
    for position, module in graphs_of(node):
        shared = OPERATORS[node.target].shared_with(node, position)
        for value, inner in zip(shared, placeholders(module.graph), strict=False):
            wanted = info_of(inner)
            given = info_of(value) if isinstance(value, Node) else None
            if wanted is not None and given is not None and given.strides != wanted.strides:
                copy = laid_out(functional.emit, value, wanted)
                functional.stand_for(copy, value)  # what the graph writes to the copy, it writes to the tensor
                node.replace_input_with(value, copy)


def functional_graphs(functional: Functionalization, node: Node) -> list[FunctionalGraph]:
    """Functionalize the graphs that a call takes; a graph is rewritten once, however many calls take it."""
    graphs = []
    for place, module in graphs_of(node):
        operands = OPERATORS[node.target].shared_with(node, place)
        if module not in functional.finished:
            inputs = list(zip(operands, placeholders(module.graph), strict=False))
            constants = [inner for operand, inner in inputs if operand in functional.constants]
            shared = {inner for operand, inner in inputs if isinstance(operand, Node)}
            functional.finished[module] = functional_graph(
                functional.context, module, constants, shared, seen_as_bits=functional.emit.looks_at_bits
            )
        graph = functional.finished[module]
        for position, reader in graph.layouts.items():
            handle = functional.handles.get(operands[position])
            functional.rely_on_layout(operands[position] if handle is None else handle.source, reader)
        for position, write in graph.writes.items():
            functional.state_writes.setdefault(functional.handle_of(operands[position]).source.name, write)
        graphs.append(graph)
    return graphs


def functional_graph(
    context: FakeContext,
    module: GraphModule,
    constants: Sequence[Node] = (),
    shared: Collection[Node] = (),
    *,
    seen_as_bits: bool = False,
) -> FunctionalGraph:
    """Functionalize a graph, in place; ``constants`` are inputs that stand for constants of the program, ``shared``
    those that are tensors of the graph around it, which may look at the bits of numbers."""
    graph = module.graph
    inputs = placeholders(graph)
    specs = [InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None) for node in inputs]
    functionalization = Functionalization(
        graph, context, specs, constants=constants, shared=shared, seen_as_bits=seen_as_bits
    )
    functionalization.is_body = True
    # what operators ask of its numbers, its own graph asserts already where it is not known
    with context.environment.branch():
        mutations = functionalization.run()
    output = output_node(graph)
    results: Any = output.args[0]
    output.args = (results[len(mutations) :],)
    positions = {node.name: position for position, node in enumerate(inputs)}
    written = [positions[str(spec.target)] for spec in mutations]
    writes: dict[int, StateWrite] = {
        p: spec.write for p, spec in zip(written, mutations, strict=True) if spec.write is not StateWrite.IN_PLACE
    }
    layouts = {inputs.index(source): doubt.call for source, doubt in functionalization.doubts.outside.items()}
    return FunctionalGraph(module, dict(zip(written, results, strict=False)), writes, layouts)


def add_new_values(functional: Functionalization, node: Node, written: Sequence[Node], at: int | None = None) -> None:
    """Let a call return new values of operands too, and write them to the operands."""
    if not written:
        return
    handles = [functional.handle_of(operand) for operand in written]
    results = node.meta["val"]
    copies = []
    for operand in written:
        info = info_of(operand)
        assert info is not None
        copies.append(make_fake(info.with_storage(None), functional.context))
    place = len(results) if at is None else at
    set_meta(node, meta_of(node).derived(val=(*results[:place], *copies, *results[place:])))
    functional.emit.at = _after_items(node)
    for position, handle in enumerate(handles, place):
        functional.write(handle, functional.emit.item(node, position))


def _after_items(node: Node) -> Node:
    """The first node after a call and the selections of its results."""
    following = node.next
    while following.target is operator.getitem and following.args[0] is node:
        following = following.next
    return following


def shift_items(node: Node, start: int, distance: int) -> None:
    """Let the selections of results from ``start`` on select what has moved further back."""
    for user in list(node.users):
        index: Any = user.args[1] if user.target is operator.getitem else -1
        if index >= start:
            user.args = (node, index + distance)


def reorder_inputs(module: GraphModule, order: Sequence[int]) -> None:
    """Bring the inputs of a graph into another order."""
    inputs = placeholders(module.graph)
    if list(order) == sorted(order):
        return
    last = module.graph._root
    for position in order:
        last.append(inputs[position])
        last = inputs[position]
    module.recompile()


def refuse_writes(
    functional: Functionalization,
    node: Node,
    graphs: Sequence[FunctionalGraph],
    what: str,
    below: int | None = None,
) -> bool:
    """Report a write of a graph to an input (to one of the first ``below``); False if there is none."""
    for graph in graphs:
        for position in graph.new_values:
            if below is not None and position >= below:
                continue
            name = placeholders(graph.module.graph)[position].name
            functional.problems.append(
                MutationError(
                    f"{what} writes to {name!r}, which can't be captured",
                    location=location_of(node),
                    remedy="compute a new tensor and return it, or write to a copy: clone()",
                )
            )
            return True
    return False
