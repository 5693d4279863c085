"""Loops, and functions of attention, as torch's tools want them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from tintype.ir.graph import add_placeholder, output_node, placeholders
from tintype.ir.names import free_name

aten = torch.ops.aten


def fit_loops(graph: Graph, bodies: dict[str, Any]) -> None:
    """Let the loops and functions of attention of a translated graph, whose graphs are ``bodies``, be as torch has
    them."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.higher_order.while_loop):
        condition: Any = node.args[0]
        _return_one(bodies[condition.target])
    for node in graph.find_nodes(op="call_function", target=torch.ops.higher_order.scan):
        combine: Any = node.args[0]
        if len(combine.users) == 1:
            _give_sizes(node, bodies[combine.target])
        _assert_a_step(node)
    for operator_of_attention, score, block_mask in _ATTENTION:
        for node in graph.find_nodes(op="call_function", target=operator_of_attention):
            mask: Any = node.args[block_mask]
            for function in (node.args[score], mask[-1]):
                _return_one(bodies[function.target])


# The operators of attention, with the places of the graph of a score and of the mask, whose last entry is a graph.
_ATTENTION = ((torch.ops.higher_order.flex_attention, 3, 4), (torch.ops.higher_order.flex_attention_backward, 7, 9))


def _return_one(function: GraphModule) -> None:
    """Let a graph, that of a loop's condition or of a score, return its only result itself."""
    output = output_node(function.graph)
    if isinstance(output.args[0], (tuple, list)):
        output.args = (output.args[0][0],)
        function.recompile()


def _give_sizes(node: Node, body: GraphModule) -> None:
    """Let a ``scan`` take the sizes of its outputs, those that vary, as further numbers: torch's compiler makes the
    outputs before the loop runs, and finds their sizes among what the loop is given."""
    arguments: tuple[Any, ...] = node.args
    combine, init, xs, additional = arguments
    outputs = node.meta["val"][len(init) :]
    needed = {symbol for output in outputs for size in output.shape for symbol in _symbols(size)}
    operands: list[Any] = [*init, *xs, *additional]
    needed -= {symbol for operand in operands for symbol in _symbols(operand.meta["val"])}
    needed -= _symbols(xs[0].meta["val"].shape[0])
    given: list[Node] = []
    for symbol in sorted(needed, key=str):
        found = _place_of(symbol, operands)
        if found is None:
            continue
        operand, dimension = found
        with node.graph.inserting_before(node):
            size = node.graph.call_function(aten.sym_size.int, (operand, dimension))
        size.meta = {**node.meta, "val": operand.meta["val"].shape[dimension]}
        given.append(size)
        inputs = placeholders(body.graph)
        name = free_name(f"size_{dimension}", {other.name for other in body.graph.nodes})
        add_placeholder(body.graph, name, after=inputs[-1]).meta = {"val": size.meta["val"]}
    if given:
        node.args = (combine, init, xs, (*additional, *given))
        body.recompile()


def _assert_a_step(node: Node) -> None:
    """Let a loop that may have no step say so: torch's ``scan`` looks at a first row, whether or not there is one."""
    rows: Any = node.args[2]
    count = rows[0].meta["val"].shape[0]
    if not isinstance(count, torch.SymInt) or statically_known_true(count >= 1):
        return
    with node.graph.inserting_before(node):
        size = node.graph.call_function(aten.sym_size.int, (rows[0], 0))
        holds = node.graph.call_function(operator.ge, (size, 1))
        check = node.graph.call_function(aten._assert_scalar.default, (holds, _NO_STEP))
    values = ((size, count), (holds, count >= 1), (check, None))
    for new, value in values:
        new.meta = {**node.meta, "val": value}


_NO_STEP = (
    "a loop of the program has no step for these sizes, which torch's scan does not take; the program itself does"
)


def _symbols(value: Any) -> set[Any]:
    return set(value.node.expr.free_symbols) if isinstance(value, torch.SymInt) else set()


def _place_of(symbol: Any, operands: Sequence[Node]) -> tuple[Node, int] | None:
    """The tensor and dimension that a symbol is the size of."""
    for operand in operands:
        value = operand.meta["val"]
        for dimension, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt) and size.node.expr == symbol:
                return operand, dimension
    return None
