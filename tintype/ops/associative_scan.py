"""``associative_scan``: every prefix of the rows of tensors, combined by an associative function.

``associative_scan(combine_graph, xs, additional)``: the graph takes two sets of rows and the additional values, and
returns a set of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from tintype import tree
from tintype.errors import BranchMismatchError, InvalidRequestError
from tintype.fake.tensor import FakeTensor
from tintype.ir.operators import HigherOrderOperator, declare
from tintype.ops.functional import functional_graphs, functionalizes, refuse_writes
from tintype.ops.gradients import differentiable
from tintype.ops.rows import as_fakes, check_rows, name_of, row_of, stack, stacked
from tintype.ops.scan import rows_along, scan, slices_along
from tintype.ops.subgraphs import Body, captured, graph_node, mark_writes, operand_nodes, record_call
from tintype.symbolic.location import user_location
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder
from tintype.transforms.functionalize import Functionalization

target = torch.ops.higher_order.associative_scan


def associative_scan(
    combine_fn: Callable[..., Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "generic"
) -> Any:
    """Combine the slices of ``xs`` along ``dim``: the i-th of the result is ``x0 . x1 . ... . xi``.

    ``combine_fn`` takes two slices and must be associative. ``xs`` may be a container of tensors with equally many
    slices. ``combine_mode`` is accepted as torch has it; both modes do the same here.

    >>> import torch, tintype
    >>> def running_maximum(x):
    ...     return tintype.associative_scan(torch.maximum, x, dim=0)
    >>> tintype.export(running_maximum, (torch.ones(4),)).module()(torch.tensor([1.0, 3.0, 2.0, 4.0]))
    tensor([1., 3., 3., 4.])
    """
    if not callable(combine_fn):
        raise InvalidRequestError(f"Combine_fn must be a callable, but got {combine_fn}", location=user_location())
    if combine_mode not in ("pointwise", "generic"):
        raise InvalidRequestError(
            f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}", location=user_location()
        )
    leaves, spec = tree.flatten(xs)
    leaves = rows_along(leaves, dim, reverse)
    check_rows("associative_scan", leaves)

    def combine(*values: Any) -> Any:
        left = tree.unflatten(list(values[: len(leaves)]), spec)
        right = tree.unflatten(list(values[len(leaves) : 2 * len(leaves)]), spec)
        results, result_spec = tree.flatten(combine_fn(left, right))
        if not tree.same_structure(result_spec, spec):
            raise BranchMismatchError(
                f"combine_fn must return what it takes:\n  it takes   {spec}\n  it returns {result_spec}",
                location=user_location(),
            )
        return tuple(results)

    results = captured(capture, run, combine, leaves, ())
    return tree.unflatten([slices_along(result, dim, reverse) for result in results], spec)


def run(combine: Callable[..., Any], xs: Sequence[torch.Tensor], additional: Sequence[Any]) -> tuple[Any, ...]:
    """The operator on tensors with data."""
    columns = [x.unbind() for x in xs]
    prefix: tuple[Any, ...] = ()
    rows: list[tuple[Any, ...]] = []
    for row in zip(*columns, strict=True):
        prefix = tuple(combine(*prefix, *row, *additional)) if rows else row
        rows.append(prefix)
    if not rows:
        return tuple(x.clone() for x in xs)
    return tuple(stack(list(column)) for column in zip(*rows, strict=True))


# --- capture ---------------------------------------------------------------------------------------------


@captures(target)
def capture(recorder: Recorder, combine_fn: Any, xs: Sequence[Any], additional_inputs: Sequence[Any]) -> Any:
    if any(differentiable(recorder, [*as_fakes(recorder, xs), *additional_inputs])):
        return recorder.resumed(lambda: _by_scan(combine_fn, xs, additional_inputs))
    mapped = as_fakes(recorder, xs)
    body = Body(recorder, "combine_fn")
    sides = [[body.inner.add_tensor(row_of(fake), name_of(fake)) for fake in mapped] for _ in range(2)]
    body.run(combine_fn, [*sides[0], *sides[1], *(body.operand(value) for value in additional_inputs)])
    for index, (leaf, fake) in enumerate(zip(body.leaves, mapped, strict=True)):
        row = row_of(fake)
        if type(leaf) is not FakeTensor or (leaf.info.sizes, leaf.info.dtype) != (row.sizes, row.dtype):
            raise BranchMismatchError(
                f"combine_fn must return slices like those it takes, f.e. {list(row.sizes)} of {row.dtype}, but "
                f"returns {leaf}",
                location=user_location(),
            )
        body.lay_out(index)
    length = mapped[0].info.sizes[0]
    results = [stacked(body, index, length) for index in range(len(body.leaves))]
    for result, fake in zip(results, mapped, strict=True):
        result.requires_grad = result.requires_grad or fake.info.requires_grad
    mark_writes(recorder, [body])
    graph = graph_node(recorder, "associative_scan_combine_graph", body.finish())
    operands = operand_nodes(recorder, body.inner.operands[2 * len(mapped) :])
    return tuple(record_call(recorder, target, (graph, [fake.node for fake in mapped], operands), results))


def _by_scan(combine: Callable[..., Any], xs: Sequence[Any], additional: Sequence[Any]) -> tuple[Any, ...]:
    """The same by a scan that begins with the first row, whose gradient is known."""

    def step(carry: Any, row: Any) -> Any:
        following = list(combine(*carry, *row, *additional))
        return following, [value.clone() for value in following]

    if type(xs[0].shape[0]) is int and xs[0].shape[0] == 0:
        return tuple(x.clone() for x in xs)
    first = [x[0] for x in xs]
    _, rows = scan(step, first, [x[1:] for x in xs])
    return tuple(torch.cat([value.unsqueeze(0), column]) for value, column in zip(first, rows, strict=True))


@functionalizes(target)
def _functionalize(functional: Functionalization, node: Node) -> None:
    """The order in which rows are combined is open, so nothing may depend on it."""
    refuse_writes(functional, node, functional_graphs(functional, node), "combine_fn of an associative_scan")


def _shared(node: Node) -> list[Any]:
    _, xs, additional = node.args
    return [*(None for _ in xs), *(None for _ in xs), *additional]  # type: ignore[union-attr,misc]


declare(
    HigherOrderOperator(
        target,
        {0: "associative_scan_combine_graph"},
        _shared,
        run,
        functools.partial(captured, capture, run),
        copies=True,
    )
)
