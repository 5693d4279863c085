"""``scan``: goes through the rows of tensors, carrying values from one row to the next.

``scan(combine_graph, init, xs, additional)``: the graph takes the carried values, one row of each of the ``xs`` and
the additional values; it returns the next carried values and a row of each output.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tintype import tree
from tintype.errors import BranchMismatchError, InvalidRequestError
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import output_node
from tintype.ir.operators import HigherOrderOperator, declare
from tintype.ops.carry import Carry, check_carry
from tintype.ops.functional import (
    add_new_values,
    functional_graphs,
    functionalizes,
    refuse_writes,
    reorder_inputs,
    shift_items,
)
from tintype.ops.gradients import (
    LEFT_AS_IT_IS,
    Backward,
    Rule,
    Tangents,
    call_graph,
    chosen,
    differentiable,
    having_effect,
    histories_after_steps,
    is_real,
    refuse_lost_histories,
    there,
    with_gradient,
    without_results,
)
from tintype.ops.rows import as_fakes, check_rows, empty_results, laid_out, name_of, own, row_of, stack, stacked
from tintype.ops.subgraphs import Body, captured, graph_node, mark_writes, operand_nodes, record_call
from tintype.symbolic.location import user_location
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder
from tintype.transforms.functionalize import Functionalization

aten = torch.ops.aten
target = torch.ops.higher_order.scan


def scan(combine_fn: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
    """Call ``carry, y = combine_fn(carry, x)`` for every slice of ``xs``; returns the last carry and the stacked ys.

    ``init``, ``xs`` and what is returned may be containers of tensors. ``dim`` is the dimension to go along, in
    ``xs`` and in the result; with ``reverse`` from its end.

    >>> import torch, tintype
    >>> def cumulative_sum(x):
    ...     return tintype.scan(lambda total, x: (total + x, total + x), torch.zeros(()), x)
    >>> tintype.export(cumulative_sum, (torch.ones(3),)).module()(torch.tensor([1.0, 2.0, 3.0]))
    (tensor(6.), tensor([1., 3., 6.]))
    """
    initial, init_spec = tree.flatten(init)
    leaves, spec = tree.flatten(xs)
    if not callable(combine_fn):
        raise InvalidRequestError(f"Combine_fn must be a callable, but got {combine_fn}", location=user_location())
    if not initial:
        raise InvalidRequestError("scan() operator requires init leaves.", location=user_location())
    if not leaves:
        return init, []
    leaves = rows_along(leaves, dim, reverse)
    check_rows("scan", leaves)
    output_spec: list[Any] = []

    def combine(*values: Any) -> Any:
        carry = tree.unflatten(list(values[: len(initial)]), init_spec)
        row = tree.unflatten(list(values[len(initial) : len(initial) + len(leaves)]), spec)
        result = combine_fn(carry, row)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise BranchMismatchError(
                f"combine_fn must return the next carry and an output, but returned {_described(result)}",
                location=user_location(),
                remedy="return both, (carry, output); (carry, carry) keeps every carry",
            )
        following, following_spec = tree.flatten(result[0])
        if not tree.same_structure(following_spec, init_spec):
            raise BranchMismatchError(
                f"combine_fn must return a carry like init:\n  init:   {init_spec}\n  return: {following_spec}",
                location=user_location(),
            )
        outputs, spec_of_outputs = tree.flatten(result[1])
        output_spec[:] = [spec_of_outputs]
        return (*following, *outputs)

    results = list(captured(capture, run, combine, initial, leaves, ()))
    outputs = [slices_along(output, dim, reverse) for output in results[len(initial) :]]
    return tree.unflatten(results[: len(initial)], init_spec), tree.unflatten(outputs, output_spec[0])


def rows_along(leaves: Sequence[Any], dim: int, reverse: bool) -> list[Any]:
    """Tensors whose rows are the slices of others along a dimension."""
    rows = [leaf.movedim(dim, 0) if dim and isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    return [row.flip(0) for row in rows] if reverse else rows


def slices_along(output: torch.Tensor, dim: int, reverse: bool) -> torch.Tensor:
    """Undo :func:`rows_along` for a result; one that has fewer dimensions stays as it is."""
    output = output.flip(0) if reverse else output
    return output.movedim(0, dim) if dim and dim < output.dim() else output


def _described(result: Any) -> str:
    if isinstance(result, (tuple, list)):
        return f"a {type(result).__name__} of {len(result)}"
    return "a tensor" if isinstance(result, torch.Tensor) else f"a {type(result).__name__}"


def run(
    combine: Callable[..., Any], init: Sequence[Any], xs: Sequence[torch.Tensor], additional: Sequence[Any]
) -> tuple[Any, ...]:
    """The operator on tensors with data."""
    init = laid_out(init)
    carry: tuple[Any, ...] = init
    rows: list[tuple[Any, ...]] = []
    for row in zip(*(x.unbind() for x in xs), strict=True):
        results = tuple(combine(*carry, *row, *additional))
        carry = laid_out(results[: len(init)])
        rows.append(results[len(init) :])
    if not rows:
        outputs = _of_no_rows(combine, init, xs, additional)
    else:
        outputs = [stack(list(column)) for column in zip(*rows, strict=True)]
    return (*own(carry, (*init, *xs, *additional)), *outputs)


def _of_no_rows(
    combine: Callable[..., Any], init: Sequence[Any], xs: Sequence[torch.Tensor], additional: Sequence[Any]
) -> list[torch.Tensor]:
    """The outputs where there is nothing to stack; a function that doesn't tell what there would be is called on rows
    of zeros."""
    inputs = [*init, *(x.new_zeros(x.shape[1:]) for x in xs), *additional]
    known = empty_results(combine, len(init), inputs, xs)
    if known is not None:
        return known
    results = tuple(combine(*inputs))
    return [row.new_empty((0, *row.shape)) for row in results[len(init) :]]


# --- capture ---------------------------------------------------------------------------------------------


@captures(target)
def capture(
    recorder: Recorder, combine_fn: Any, init: Sequence[Any], xs: Sequence[Any], additional_inputs: Sequence[Any]
) -> Any:
    mapped = as_fakes(recorder, xs)
    if _may_be_none(mapped):
        refuse_lost_histories(recorder, init, LEFT_AS_IT_IS)
    carry = Carry(recorder, init, "scan")
    while True:
        body = Body(recorder, "combine_fn")
        carried = carry.enter(body)
        rows = [body.inner.add_tensor(row_of(fake), name_of(fake)) for fake in mapped]
        body.run(combine_fn, [*carried, *rows, *(body.operand(value) for value in additional_inputs)])
        check_carry(carry, body, body.leaves[: len(carry)])
        if not carry.widen(body.leaves[: len(carry)], body.conditions):
            break
    for index, leaf in enumerate(body.leaves):
        if type(leaf) is not FakeTensor and index >= len(carry):
            raise BranchMismatchError(
                f"combine_fn returns a {type(leaf).__name__} as output, but only tensors can be stacked",
                location=user_location(),
            )
    carry.lay_out(body)
    additional = body.inner.operands[len(carry) + len(mapped) :]
    values = [*carry.initial, *mapped, *additional]
    wanted = differentiable(recorder, values)
    if mapped[0].info.sizes[0] == 0:  # no step: what init was is all there is
        wanted = [is_wanted and position < len(carry) for position, is_wanted in enumerate(wanted)]
    count = len(body.leaves)
    if any(wanted):
        carry.refuse_gradient()
        body.leaves += body.inner.inside(lambda: [aten.clone.default(value) for value in carried])
    outputs = _stacked_outputs(body, range(len(carry), len(body.leaves)), mapped[0].info.sizes[0])
    mark_writes(recorder, [body])
    module = body.finish()
    wanted = having_effect(wanted, [module], first=len(carry))

    arguments = (
        graph_node(recorder, "scan_combine_graph", module),
        list(operand_nodes(recorder, carry.initial)),
        list(operand_nodes(recorder, mapped)),
        operand_nodes(recorder, additional),
    )
    results = record_call(recorder, target, arguments, [*carry.results(), *outputs])
    if any(wanted):
        rule = Steps(recorder, without_results(module, count), len(carry), mapped, additional, wanted).gradient(count)
        histories = histories_after_steps(module, wanted, len(carry))
        results = with_gradient(recorder, results, rule, values, wanted, count, histories)
    # What comes after them is for gradients. torch's scan is given the next carry and the outputs as its function
    # returns them.
    return tree.unflatten(list(results[:count]), body.spec)


def _may_be_none(rows: Sequence[FakeTensor]) -> bool:
    """Whether there may be no rows."""
    count = rows[0].info.sizes[0]
    return type(count) is not int or count == 0


def _stacked_outputs(body: Body, positions: range, count: Any) -> list[Any]:
    outputs = []
    for index in positions:
        body.lay_out(index)
        outputs.append(stacked(body, index, count))
    return outputs


class Steps:
    """The steps of a loop in a joint graph, to go back through."""

    def __init__(
        self,
        recorder: Recorder,
        module: GraphModule,
        carry_count: int,
        xs: Sequence[FakeTensor],
        additional: Sequence[Any],
        wanted: Sequence[bool],
    ) -> None:
        self.recorder = recorder
        self.carry_count = carry_count
        self.xs = list(xs)
        self.additional = list(additional)
        results = output_node(module.graph).args[0]
        real = [index for index, node in enumerate(results) if is_real(node.meta["val"])]  # type: ignore[arg-type]
        self.real_carry = [index in real for index in range(carry_count)]
        self.wanted_init = list(wanted[:carry_count])
        self.wanted_xs = list(wanted[carry_count : carry_count + len(xs)])
        self.wanted_additional = list(wanted[carry_count + len(xs) :])
        needed = [*self.real_carry, *self.wanted_xs, *self.wanted_additional]
        self.backward = Backward(recorder, module, needed, real)

    def gradient(self, visible: int) -> Rule:
        """The rule: a scan from the last step to the first, over the carried values that each step began with, which
        are the results that follow the visible ones."""
        return lambda tangents, results: self._go_back(results, results[visible:], tangents)

    def _go_back(self, results: list[Any], saved: list[FakeTensor], tangents: Tangents) -> list[Any]:
        carried, summed = sum(self.real_carry), sum(self.wanted_additional)
        last = zip(tangents[:carried], chosen(results[: self.carry_count], self.real_carry), strict=True)
        of_last = [zeros_like(value) if tangent is None else tangent for tangent, value in last]
        begin = [*of_last, *map(zeros_like, chosen(self.additional, self.wanted_additional))]
        rows = [rows.flip(0) for rows in (*saved, *self.xs, *there(tangents[carried:]))]
        inputs = self.carry_count + len(self.xs)
        phases = self._phases(tangents)
        absent_rows = [tangent is None for tangent in tangents[carried:]]

        def differentiate(absent: Sequence[bool], given: Any, others: Any, following: Any) -> list[Any]:
            flowing = [tangent for tangent, is_absent in zip(following, absent) if not is_absent]
            backward = self.backward.without([*absent, *absent_rows])
            return list(call_graph(backward, [*given[:inputs], *others, *flowing, *given[inputs:]]))

        def step(*values: Any) -> Any:
            following, total, rest = values[:carried], values[carried : len(begin)], values[len(begin) :]
            number: Any = None
            if len(phases) > 1:
                number, rest = rest[0], rest[1:]
            given, others = rest[: len(rows)], rest[len(rows) :]
            *earlier, gradients = [differentiate(absent, given, others, following) for absent in phases]
            for phase, of_phase in enumerate(earlier):
                gradients = [torch.where(number == phase, *pair) for pair in zip(of_phase, gradients)]
            sums = [old + new for old, new in zip(total, gradients[len(gradients) - summed :], strict=True)]
            counted = () if number is None else (number + 1,)
            return (*gradients[:carried], *sums, *counted, *gradients[carried : len(gradients) - summed])

        counter = [torch.zeros((), dtype=torch.int64)] if len(phases) > 1 else []
        gradients = list(captured(capture, run, step, [*begin, *counter], rows, self.additional))
        of_carry = iter(gradients[:carried])
        of_init = [next(of_carry) if real else None for real in self.real_carry]
        of_xs = [rows.flip(0) for rows in gradients[len(begin) + len(counter) :]]
        return [*chosen(of_init, self.wanted_init), *of_xs, *gradients[carried : len(begin)]]

    def _phases(self, tangents: Tangents) -> list[list[bool]]:
        """For the last steps, from the very last one on, which of the carried values no gradient flows back to; all
        other steps are as the last entry says. As in eager mode, what does not flow is not computed: zero times an
        infinite slope would be nan."""
        carried = sum(self.real_carry)
        absent_rows = [tangent is None for tangent in tangents[carried:]]
        phases = [[tangent is None for tangent in tangents[:carried]]]
        while True:
            reached = self.backward.reached([*phases[-1], *absent_rows])
            absent = [not is_reached for is_reached in reached[:carried]]
            if absent == phases[-1]:
                return phases
            if absent in phases or len(phases) == _MOST_PHASES:  # it goes on changing: zeros stand in
                return [[all(flags) for flags in zip(*phases, absent)]]
            phases.append(absent)


# Each is one more copy of the body.
_MOST_PHASES = 4


def zeros_like(tensor: torch.Tensor) -> torch.Tensor:
    """Where a sum of gradients begins."""
    return torch.zeros_like(tensor, memory_format=torch.contiguous_format)


# --- functionalization -----------------------------------------------------------------------------------


@functionalizes(target)
def _functionalize(functional: Functionalization, node: Node) -> None:
    """An additional value that a step writes to is carried along."""
    (combine,) = functional_graphs(functional, node)
    init: Any = node.args[1]
    xs: Any = node.args[2]
    additional: Any = node.args[3]
    before = len(init) + len(xs)
    if refuse_writes(functional, node, [combine], "combine_fn of a scan", below=before):
        return
    written = sorted(combine.new_values)
    if not written:
        return
    combine.return_values(written, at=len(init))
    rest = [position for position in range(before, before + len(additional)) if position not in written]
    reorder_inputs(combine.module, [*range(len(init)), *written, *range(len(init), before), *rest])
    operands = [additional[position - before] for position in written]
    others = tuple(additional[position - before] for position in rest)
    node.args = (node.args[0], [*init, *operands], xs, others)
    shift_items(node, len(init), len(operands))
    add_new_values(functional, node, operands, at=len(init))


def _shared(node: Node) -> list[Any]:
    _, init, xs, additional = node.args
    return [*init, *(None for _ in xs), *additional]  # type: ignore[union-attr,misc]


declare(
    HigherOrderOperator(
        target,
        {0: "scan_combine_graph"},
        _shared,
        run,
        functools.partial(captured, capture, run),
        copies=True,
        repeats=1,
    )
)
