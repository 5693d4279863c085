"""``strict_mode``: a function that is kept as a graph of its own.

``strict_mode(strict_graph, operands)`` calls the graph on the operands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tintype import tree
from tintype.errors import CaptureError
from tintype.ir.operators import HigherOrderOperator, declare
from tintype.ir.printing import describe_value
from tintype.ops.functional import add_new_values, functional_graphs, functionalizes
from tintype.ops.gradients import (
    Backward,
    differentiable,
    gradient_of_call,
    real_results,
    with_gradient,
)
from tintype.ops.subgraphs import (
    SYMBOLIC,
    Body,
    captured,
    graph_node,
    mark_writes,
    operand_nodes,
    record_call,
    results_of,
)
from tintype.symbolic.location import user_location
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder
from tintype.transforms.functionalize import Functionalization

target = torch.ops.higher_order.strict_mode


def strict_mode(callable: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """Call ``callable(*operands)``; in a captured program it is a graph inside of the graph.

    >>> import torch, tintype
    >>> ep = tintype.export(lambda x: strict_mode(torch.sin, (x,)), (torch.ones(2),))
    >>> [str(node.target) for node in ep.graph_module.strict_graph_0.graph.nodes if node.op == "call_function"]
    ['aten.sin.default']
    """
    return captured(capture, run, callable, operands)


def mark_strict(cls: type) -> type:
    """Let calls of the modules of a class be kept as graphs of their own. The modules take tensors only.

    >>> import torch, tintype
    >>> @mark_strict
    ... class Double(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x * 2
    >>> ep = tintype.export(torch.nn.Sequential(Double()), (torch.ones(2),))
    >>> [name for name, _ in ep.graph_module.named_children()]
    ['strict_graph_0']
    """
    call = cls.__call__

    def strict_call(self: Any, *args: Any) -> Any:
        return strict_mode(functools.partial(call, self), args)

    cls.__call__ = strict_call  # type: ignore[method-assign]
    return cls


def run(function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """The operator on tensors with data."""
    return function(*operands)


@captures(target)
def capture(recorder: Recorder, function: Any, operands: Sequence[Any]) -> Any:
    for position, operand in enumerate(operands):
        if not isinstance(operand, (torch.Tensor, *SYMBOLIC, int, float, bool, type(None))):
            raise CaptureError(
                "strict_mode HOO doesn't work unless its operands are tensors and numbers, but operand "
                f"{position} is {describe_value(operand)}",
                location=user_location(),
                remedy="pass the tensors in the container one by one",
            )
    body = Body(recorder, "the function that strict_mode calls")
    body.run(function, [body.operand(operand) for operand in operands], always=True)
    given = body.inner.operands
    wanted = differentiable(recorder, given)
    if any(wanted):
        body.lay_out_all()
    results = results_of(body)
    mark_writes(recorder, [body])
    module = body.finish()

    def call(graph: GraphModule, operands: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        arguments = (graph_node(recorder, "strict_graph", graph), operand_nodes(recorder, operands))
        return record_call(recorder, target, arguments, results)

    values = call(module, given, results)
    if any(wanted):
        backward = Backward(recorder, module, wanted, real_results(results))
        rule = gradient_of_call(given, wanted, backward, call)
        values = with_gradient(recorder, values, rule, given, wanted)
    return tree.unflatten(values, body.spec)


@functionalizes(target)
def _functionalize(functional: Functionalization, node: Node) -> None:
    """What the function writes to becomes a result of it."""
    (graph,) = functional_graphs(functional, node)
    written = sorted(graph.new_values)
    graph.return_values(written)
    operands: Any = node.args[1]
    add_new_values(functional, node, [operands[position] for position in written])


def _shared(node: Node) -> list[Any]:
    operands: Any = node.args[1]
    return list(operands)


declare(HigherOrderOperator(target, {0: "strict_graph"}, _shared, run, functools.partial(captured, capture, run)))
