"""``map``: a function of every row of tensors, its results stacked.

``map_impl(body_graph, xs, arguments)`` calls the graph on the rows of all ``xs`` and on the arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from tintype import tree
from tintype.errors import BranchMismatchError
from tintype.fake.tensor import FakeTensor
from tintype.ir.operators import HigherOrderOperator, declare
from tintype.ops.functional import functional_graphs, functionalizes, refuse_writes
from tintype.ops.gradients import differentiable, having_effect, results_with_history, with_gradient
from tintype.ops.rows import as_fakes, check_rows, empty_results, name_of, row_of, stack, stacked
from tintype.ops.scan import Steps
from tintype.ops.subgraphs import Body, captured, graph_node, mark_writes, operand_nodes, record_call
from tintype.symbolic.location import user_location
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder
from tintype.transforms.functionalize import Functionalization

target = torch.ops.higher_order.map_impl


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """Call ``f(row, *args)`` for every row of ``xs`` and stack what it returns.

    ``xs`` is a tensor, or a container of tensors with equally many rows; ``f`` may use tensors from around it. In a
    captured program there is one copy of ``f``, however many rows there are.

    >>> import torch, tintype
    >>> def f(xs, y):
    ...     return tintype.map(lambda x, y: x.sum() * y, xs, y)
    >>> ep = tintype.export(f, (torch.ones(3, 2), torch.tensor(5.0)))
    >>> ep.module()(torch.ones(3, 2), torch.tensor(4.0))
    tensor([8., 8., 8.])
    """
    leaves, spec = tree.flatten(xs)
    check_rows("map", leaves)
    given, given_spec = tree.flatten(args)

    def body(*values: Any) -> Any:
        row = tree.unflatten(list(values[: len(leaves)]), spec)
        return f(row, *tree.unflatten(list(values[len(leaves) :]), given_spec))

    return captured(capture, run, body, leaves, given)


def run(body: Callable[..., Any], xs: Sequence[torch.Tensor], args: Sequence[Any]) -> Any:
    """The operator on tensors with data."""
    outcomes = [tree.flatten(body(*rows, *args)) for rows in zip(*(x.unbind() for x in xs), strict=True)]
    if not outcomes:
        return _of_no_rows(body, xs, args)
    columns = zip(*(leaves for leaves, _ in outcomes), strict=True)
    return tree.unflatten([stack(list(column)) for column in columns], outcomes[0][1])


def _of_no_rows(body: Callable[..., Any], xs: Sequence[torch.Tensor], args: Sequence[Any]) -> Any:
    """Without rows there is nothing to stack; what a row of zeros gives tells what there would be, where the function
    itself doesn't."""
    inputs = [*(x.new_zeros(x.shape[1:]) for x in xs), *args]
    known = empty_results(body, 0, inputs, xs)
    if known is not None:
        return tuple(known)
    leaves, spec = tree.flatten(body(*inputs))
    return tree.unflatten([leaf.new_empty((0, *leaf.shape)) for leaf in leaves], spec)


# --- capture ---------------------------------------------------------------------------------------------


@captures(target)
def capture(recorder: Recorder, function: Any, xs: Sequence[Any], args: Sequence[Any]) -> Any:
    mapped = as_fakes(recorder, xs)
    body = Body(recorder, "the function that map calls")
    rows = [body.inner.add_tensor(row_of(fake), name_of(fake)) for fake in mapped]
    body.run(function, [*rows, *(body.operand(value) for value in args)])
    for index, leaf in enumerate(body.leaves):
        if type(leaf) is not FakeTensor:
            raise BranchMismatchError(
                f"the function that map calls returns a {type(leaf).__name__}, but only tensors can be stacked",
                location=user_location(),
                remedy="return tensors: torch.tensor(number) for a number",
            )
        body.lay_out(index)
    results = [stacked(body, index, mapped[0].info.sizes[0]) for index in range(len(body.leaves))]
    mark_writes(recorder, [body])
    operands = body.inner.operands[len(mapped) :]
    module = body.finish()

    graph = graph_node(recorder, "body_graph", module)
    arguments = (graph, list(operand_nodes(recorder, mapped)), list(operand_nodes(recorder, operands)))
    values = record_call(recorder, target, arguments, results)
    wanted = having_effect(differentiable(recorder, [*mapped, *operands]), [module])
    if any(wanted) and mapped[0].info.sizes[0] != 0:  # of no rows nothing depends on anything
        steps = Steps(recorder, module, 0, mapped, operands, wanted)
        histories = results_with_history(module, wanted)
        inputs = [*mapped, *operands]
        values = with_gradient(recorder, values, steps.gradient(len(values)), inputs, wanted, histories=histories)
    return tree.unflatten(values, body.spec)


@functionalizes(target)
def _functionalize(functional: Functionalization, node: Node) -> None:
    """Every row would have to see what the rows before it wrote."""
    refuse_writes(functional, node, functional_graphs(functional, node), "the function that map calls")


def _shared(node: Node) -> list[Any]:
    _, xs, operands = node.args
    return [*(None for _ in xs), *operands]  # type: ignore[union-attr,misc]


declare(
    HigherOrderOperator(
        target, {0: "body_graph"}, _shared, run, functools.partial(captured, capture, run), copies=True
    )
)
