"""``while_loop``: a function applied again and again, as long as a condition on its results holds.

``while_loop(cond_graph, body_graph, carried, additional)``: both graphs take the carried values and the additional
ones; the body returns the next carried values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from tintype import tree
from tintype.errors import BranchMismatchError, InvalidRequestError
from tintype.fake.info import fresh
from tintype.fake.tensor import FakeTensor
from tintype.ir.operators import HigherOrderOperator, declare
from tintype.ops.carry import Carry, check_carry
from tintype.ops.functional import add_new_values, functional_graphs, functionalizes, refuse_writes, reorder_inputs
from tintype.ops.gradients import (
    LEFT_AS_IT_IS,
    differentiable,
    having_effect,
    histories_after_steps,
    refuse_lost_histories,
    with_gradient,
)
from tintype.ops.rows import laid_out, own, stack
from tintype.ops.scan import Steps
from tintype.ops.subgraphs import (
    Body,
    FailingFunctionError,
    captured,
    graph_node,
    is_decided_against,
    mark_writes,
    operand_nodes,
    record_call,
)
from tintype.symbolic.location import user_location
from tintype.trace.inner import call_or_replay
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder
from tintype.transforms.functionalize import Functionalization

target = torch.ops.higher_order.while_loop


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]) -> Any:
    """Replace the carried values by ``body_fn(*values)`` while ``cond_fn(*values)`` holds; returns the last ones.

    Carried values are tensors and numbers, or containers of them. They keep their dtype; a size that the body changes
    is known only when the program runs. Both functions may use tensors from around them.

    >>> import torch, tintype
    >>> def f(x):
    ...     return tintype.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))
    >>> tintype.export(f, (torch.ones(2),)).module()(torch.ones(2))
    (tensor(3), tensor([8., 8.]))
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise InvalidRequestError("Expect cond_fn and body_fn to be callable.", location=user_location())
    if not isinstance(carried_inputs, (tuple, list)):
        raise InvalidRequestError(
            f"carried_inputs must be a tuple or list but got {type(carried_inputs).__name__}",
            location=user_location(),
            remedy="write (x,) for a single value",
        )
    leaves, spec = tree.flatten(tuple(carried_inputs))

    def condition(*values: Any) -> Any:
        return cond_fn(*tree.unflatten(list(values), spec))

    def body(*values: Any) -> Any:
        results, result_spec = tree.flatten(body_fn(*tree.unflatten(list(values), spec)))
        if not tree.same_structure(result_spec, spec):
            raise BranchMismatchError(
                f"body_fn must return what it takes:\n  it takes   {spec}\n  it returns {result_spec}",
                location=user_location(),
            )
        return tuple(results)

    return tree.unflatten(list(captured(capture, run, condition, body, leaves, ())), spec)


def run(
    condition: Callable[..., Any], body: Callable[..., Any], carried: Sequence[Any], additional: Sequence[Any]
) -> tuple[Any, ...]:
    """The operator on tensors with data."""
    values = laid_out(carried)
    while _holds(condition(*values, *additional)):
        values = laid_out(body(*values, *additional))
    return tuple(own(values, (*carried, *additional)))


def _holds(answer: Any) -> bool:
    if isinstance(answer, tuple) and len(answer) == 1:  # what a captured graph returns
        (answer,) = answer
    if isinstance(answer, bool) or (
        isinstance(answer, torch.Tensor) and answer.dtype is torch.bool and answer.numel() == 1
    ):
        return bool(answer)
    raise InvalidRequestError(
        f"cond_fn must return a boolean scalar tensor or a boolean but got {answer}", location=user_location()
    )


# --- capture ---------------------------------------------------------------------------------------------


@captures(target)
def capture(
    recorder: Recorder,
    cond_fn: Any,
    body_fn: Any,
    carried: Sequence[Any],
    additional: Sequence[Any],
    *rest: Any,
    with_steps: bool = False,
) -> Any:
    refuse_lost_histories(recorder, carried, LEFT_AS_IT_IS)
    carry = Carry(recorder, carried, "while_loop")
    while True:
        condition = _record(recorder, "cond_fn", cond_fn, carry, additional, ())
        try:
            body = _record(recorder, "body_fn", body_fn, carry, additional, condition.inner.operands)
        except FailingFunctionError:
            if with_steps or not _makes_no_step(recorder, cond_fn, [*carried, *additional]):
                raise
            return recorder.resumed(lambda: tuple(_copy(value) for value in carried))
        check_carry(carry, body, body.leaves)
        if not carry.widen(body.leaves, [*condition.conditions, *body.conditions]):
            break
    _check_condition(condition)
    carry.lay_out(body)
    condition.take(body.inner.operands[len(condition.inner.operands) :])
    mark_writes(recorder, (condition, body))
    operands = body.inner.operands[len(carry) :]
    modules = condition.finish(), body.finish()
    values = [*carry.initial, *operands]
    wanted = having_effect(differentiable(recorder, values), modules[1:], first=len(carry))
    keep = with_steps or any(wanted)

    first = graph_node(recorder, "cond_graph", modules[0])
    second = graph_node(recorder, "body_graph", modules[1])
    arguments = (first, second, operand_nodes(recorder, carry.initial), operand_nodes(recorder, operands))
    results = carry.results()
    if not keep:
        return tuple(record_call(recorder, target, arguments, results))
    carry.refuse_gradient()
    results += _steps_of(recorder, results)
    results = record_call(recorder, while_loop_with_steps, arguments, results)
    if any(wanted):
        rule = Steps(recorder, modules[1], len(carry), (), operands, wanted).gradient(len(carry))
        histories = histories_after_steps(modules[1], wanted, len(carry))
        results = with_gradient(recorder, results, rule, values, wanted, len(carry), histories)
    return tuple(results)


def _copy(value: Any) -> Any:
    return value.clone(memory_format=torch.contiguous_format) if isinstance(value, torch.Tensor) else value


def _makes_no_step(recorder: Recorder, cond_fn: Any, values: Sequence[Any]) -> bool:
    """Whether sizes decide that the loop ends before its body is called."""
    (answer,), _ = tree.flatten(recorder.resumed(lambda: call_or_replay(recorder, cond_fn, values)))
    return is_decided_against(recorder, answer, True)


def _steps_of(recorder: Recorder, results: list[Any]) -> list[Any]:
    """What the carried values of all steps are when stacked."""
    count = recorder.context.environment.unbacked_int(lower=0)
    return [fresh((count, *info.sizes), info.dtype, info.device) for info in results]


def while_loop_with_steps(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: Sequence[Any], additional: Sequence[Any]
) -> tuple[Any, ...]:
    """A loop that also returns, for each carried value, the values that all steps began with, stacked.

    Joint graphs have it: the gradient goes back through the steps.

    >>> import torch
    >>> while_loop_with_steps(lambda x: x < 5, lambda x: (x * 2,), (torch.tensor(1),), ())
    (tensor(8), tensor([1, 2, 4]))
    """

    def capture_with_steps(recorder: Recorder, *args: Any) -> Any:
        return capture(recorder, *args, with_steps=True)

    return captured(capture_with_steps, _run_with_steps, cond_fn, body_fn, carried, additional)


def _run_with_steps(
    condition: Callable[..., Any], body: Callable[..., Any], carried: Sequence[Any], additional: Sequence[Any]
) -> tuple[Any, ...]:
    values = laid_out(carried)
    steps: list[tuple[Any, ...]] = []
    while _holds(condition(*values, *additional)):
        steps.append(values)
        values = laid_out(body(*values, *additional))
    columns = list(zip(*steps, strict=True)) if steps else [()] * len(values)
    stacked = [
        stack(list(column)) if column else value.new_empty((0, *value.shape))
        for column, value in zip(columns, carried, strict=True)
    ]
    return (*own(values, (*carried, *additional)), *stacked)


def _record(
    recorder: Recorder, title: str, function: Any, carry: Carry, additional: Sequence[Any], known: Sequence[Any]
) -> Body:
    body = Body(recorder, title)
    values = [*carry.enter(body), *(body.operand(value) for value in additional)]
    body.take(known[len(body.inner.operands) :])
    body.run(function, values)
    return body


def _check_condition(condition: Body) -> None:
    if len(condition.leaves) == 1:
        (leaf,) = condition.leaves
        if isinstance(leaf, (bool, torch.SymBool)):
            return
        if type(leaf) is FakeTensor and leaf.info.dtype is torch.bool and not leaf.info.sizes:
            return
    raise InvalidRequestError(
        f"cond_fn must return a boolean scalar tensor or a boolean but got {condition.leaves}",
        location=user_location(),
        remedy="compare, and reduce the result: (x > 0).all()",
    )


# --- functionalization -----------------------------------------------------------------------------------


@functionalizes(target)
def _functionalize(functional: Functionalization, node: Node) -> None:
    """An additional value that the body writes to is carried along."""
    condition, body = functional_graphs(functional, node)
    carried: Any = node.args[2]
    additional: Any = node.args[3]
    refuse_writes(functional, node, [condition], "the condition of a while_loop")
    if refuse_writes(functional, node, [body], "the body of a while_loop", below=len(carried)):
        return
    written = sorted(body.new_values)
    body.return_values(written)
    shared = [*carried, *additional]
    rest = [position for position in range(len(carried), len(shared)) if position not in written]
    order = [*range(len(carried)), *written, *rest]
    reorder_inputs(condition.module, order)
    reorder_inputs(body.module, order)
    operands = [shared[position] for position in written]
    node.args = (*node.args[:2], (*carried, *operands), tuple(shared[position] for position in rest))
    add_new_values(functional, node, operands)


@functionalizes(while_loop_with_steps)
def _functionalize_with_steps(functional: Functionalization, node: Node) -> None:
    refuse_writes(functional, node, functional_graphs(functional, node), "a while_loop with gradients")


def _shared(node: Node) -> list[Any]:
    carried, additional = node.args[2], node.args[3]
    return [*carried, *additional]  # type: ignore[misc]


_GRAPHS = {0: "cond_graph", 1: "body_graph"}
_loop = functools.partial(HigherOrderOperator, copies=True, repeats=2)
declare(_loop(target, _GRAPHS, _shared, run, functools.partial(captured, capture, run)))
declare(_loop(while_loop_with_steps, _GRAPHS, _shared, _run_with_steps, while_loop_with_steps))
