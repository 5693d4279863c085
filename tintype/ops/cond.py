"""``cond``: one of two functions, as a truth value decides when the program runs.

``cond(pred, true_graph, false_graph, operands)`` calls one of the graphs on the operands.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype import tree
from tintype.errors import BranchMismatchError, InvalidRequestError
from tintype.fake.info import Storage, TensorInfo, fresh
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import output_node, placeholders
from tintype.ir.operators import HigherOrderOperator, declare
from tintype.ir.printing import describe_value
from tintype.ops.functional import add_new_values, functional_graphs, functionalizes
from tintype.ops.gradients import (
    Backward,
    Rule,
    Tangents,
    chosen,
    differentiable,
    gradient_info,
    having_effect,
    is_real,
    refuse_lost_histories,
    results_with_history,
    there,
    with_gradient,
)
from tintype.ops.subgraphs import (
    SYMBOLIC,
    Body,
    FailingFunctionError,
    alias_storage,
    captured,
    described,
    graph_node,
    is_decided_against,
    kind_of,
    mark_writes,
    next_number,
    operand_nodes,
    record_call,
)
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Expr
from tintype.symbolic.location import user_location
from tintype.symbolic.ranges import Range, point
from tintype.trace.inner import call_or_replay
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder
from tintype.trace.undecided import note_undecided_history, note_undecided_layout
from tintype.transforms.emit import Emitter
from tintype.transforms.functionalize import Functionalization

aten = torch.ops.aten
target = torch.ops.higher_order.cond


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """Call ``true_fn(*operands)`` if ``pred`` holds and ``false_fn(*operands)`` if not.

    ``pred`` is a truth value or a tensor with one element. In a captured program both functions are kept, and
    which of them runs is decided when the program runs. They may use tensors from around them; what they
    return must agree in structure, dtype and device.

    >>> import torch, tintype
    >>> def f(x):
    ...     return tintype.cond(x.sum() > 0, torch.cos, torch.sin, (x,))
    >>> program = tintype.export(f, (torch.ones(2),)).module()
    >>> x = -torch.ones(2)
    >>> bool((program(x) == x.sin()).all())
    True
    """
    _check_request(pred, true_fn, false_fn, operands)
    return captured(capture, run, pred, true_fn, false_fn, operands)


def _check_request(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> None:
    if not isinstance(pred, (bool, torch.Tensor, torch.SymBool)):
        raise InvalidRequestError(f"Expected pred to be bool or tensor, but got {pred}.", location=user_location())
    if isinstance(pred, torch.Tensor) and pred.numel() != 1:
        raise InvalidRequestError(
            f"Expected pred to be bool or single-element tensor, but got {describe_value(pred)}.",
            location=user_location(),
            remedy="reduce it first: pred.any() or pred.all()",
        )
    if not callable(true_fn) or not callable(false_fn):
        raise InvalidRequestError("Expect both branches to be callable.", location=user_location())
    if not isinstance(operands, (tuple, list)):
        raise InvalidRequestError(
            f"Expect operands to be a tuple or a list, but got {type(operands).__name__}.",
            location=user_location(),
            remedy="write (x,) for a single operand",
        )


def run(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """The operator on tensors with data."""
    return true_fn(*operands) if pred else false_fn(*operands)


# --- capture ---------------------------------------------------------------------------------------------


@captures(target)
def capture(recorder: Recorder, pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
    leaves, spec = tree.flatten(tuple(operands))
    answer, other = True, false_fn
    by_sizes = not isinstance(pred, torch.Tensor)
    try:
        first = _record_branch(recorder, "true_fn", true_fn, leaves, spec, (), by_sizes)
        answer, other = False, true_fn
        second = _record_branch(recorder, "false_fn", false_fn, leaves, spec, first.inner.operands, by_sizes)
    except FailingFunctionError:
        if not is_decided_against(recorder, pred, answer):
            raise
        return recorder.resumed(lambda: call_or_replay(recorder, other, operands))
    first.take(second.inner.operands[len(first.inner.operands) :])
    return tree.unflatten(_record(recorder, pred, first, second), first.spec)


def capture_arms(
    recorder: Recorder,
    pred: Any,
    arms: Sequence[Callable[[], Any]],
    agree: Callable[[], Sequence[tuple[Any, Any]]],
) -> list[Any]:
    """A cond of two functions that agree on what they return when both have run: ``agree()`` gives the pairs.

    What the functions themselves return are values of theirs that may become results. A value of a pair may be a
    function that makes the value in the arm, once the other arm's is known.
    """
    bodies: list[Body] = []
    for title, arm in zip(("the branch that is taken", "the other branch"), arms, strict=True):
        body = Body(recorder, title)
        body.take(bodies[0].inner.operands if bodies else ())
        body.run(arm, ())
        bodies.append(body)
    first, second = bodies
    first.take(second.inner.operands[len(first.inner.operands) :])
    pairs = agree()
    for position, body in enumerate(bodies):
        body.leaves = [body.returned(pair[position]) for pair in pairs]
        bodies[1 - position].take(body.inner.operands[len(bodies[1 - position].inner.operands) :])
        body.spec = tree.flatten([0] * len(pairs))[1]
    return _record(recorder, pred, first, second)


def _record(recorder: Recorder, pred: Any, first: Body, second: Body) -> list[Any]:
    """Record the call of two functions that were recorded."""
    operands = first.inner.operands
    wanted = differentiable(recorder, operands)
    returned = [operand for body in (first, second) for operand in _returned_operands(body)]
    refuse_lost_histories(recorder, returned, "a branch below torch.no_grad() returns its operand")
    results = _agreed(first, second, contiguous=any(wanted))
    mark_writes(recorder, (first, second))
    (predicate,) = operand_nodes(recorder, (pred,))
    branches = first.finish(), second.finish()
    wanted = having_effect(wanted, branches)
    histories = _histories(first, second, branches, wanted)
    differing = {index for index, (one, other) in enumerate(histories) if one is not other}

    values = _record_call(recorder, predicate, branches, operand_nodes(recorder, operands), results)
    if any(wanted):
        rule = _gradient(recorder, predicate, branches, operands, wanted, results)
        values = with_gradient(recorder, values, rule, operands, wanted, histories=[*map(any, histories)])
    for index, value in enumerate(values):
        if index in first.copied | second.copied:
            note_undecided_layout(value)
        if index in differing:
            note_undecided_history(value)
    return values


def _histories(first: Body, second: Body, branches: Any, wanted: Sequence[bool]) -> list[tuple[bool, bool]]:
    """Which results require a gradient, in the one branch and in the other."""
    pairs: Any = (
        (type(leaf) is FakeTensor and leaf.info.requires_grad for leaf in body.leaves) for body in (first, second)
    )
    if any(wanted):
        pairs = (results_with_history(branch, wanted) for branch in branches)
    return list(zip(*pairs, strict=False))


def _returned_operands(body: Body) -> list[Any]:
    """The operands that a branch returns as they are."""
    given = dict(zip(placeholders(body.inner.graph), body.inner.operands, strict=True))
    found = (given.get(leaf.node) for leaf in body.leaves if type(leaf) is FakeTensor and leaf.node is not None)
    return [operand for operand in found if operand is not None]


def _record_call(recorder: Recorder, predicate: Any, branches: Any, operands: Any, results: Any) -> list[Any]:
    first = graph_node(recorder, "true_graph", branches[0])
    second = graph_node(recorder, "false_graph", branches[1])
    return record_call(recorder, target, (predicate, first, second, operands), results)


def _gradient(
    recorder: Recorder, predicate: Any, branches: Any, operands: list[Any], wanted: list[bool], results: list[Any]
) -> Rule:
    """The gradient of a cond is a cond of the branches' gradients."""
    real = [index for index, result in enumerate(results) if is_real(result)]
    backward = [Backward(recorder, branch, wanted, real) for branch in branches]
    gradients = [gradient_info(operand) for operand in chosen(operands, wanted)]

    def rule(tangents: Tangents, _: list[Any]) -> Any:
        values = operand_nodes(recorder, [*operands, *there(tangents)])
        return _record_call(recorder, predicate, [graph.of(tangents) for graph in backward], values, gradients)

    return rule


def _record_branch(
    recorder: Recorder,
    title: str,
    function: Any,
    leaves: list[Any],
    spec: Any,
    known: Sequence[Any],
    by_sizes: bool,
) -> Body:
    body = Body(recorder, title)
    values = [body.operand(leaf) for leaf in leaves]
    body.take(known[len(body.inner.operands) :])
    body.run(function, tree.unflatten(values, spec), by_sizes=by_sizes)
    return body


# --- what both branches return ---------------------------------------------------------------------------


def _agreed(first: Body, second: Body, contiguous: bool) -> list[Any]:
    """The results of the operator; sizes and numbers in which the branches differ are known only at run time."""
    if not tree.same_structure(first.spec, second.spec):
        raise BranchMismatchError(
            "the branches of cond return different structures:\n"
            f"  true_fn:  {_structure(first)}\n  false_fn: {_structure(second)}",
            location=user_location(),
            remedy="return the same containers with the same number of values from both",
        )
    memory = _memory(first, second)  # first: results are copied where they must lie in memory alike
    if contiguous:
        for body in (first, second):
            for index, leaf in enumerate(body.leaves):
                if type(leaf) is FakeTensor:
                    body.lay_out(index)
    sizes: dict[Any, Any] = {}
    return [_agreed_leaf(first, second, index, sizes, memory[index]) for index in range(len(first.leaves))]


def _structure(body: Body) -> str:
    return str(tree.unflatten([describe_value(leaf) for leaf in body.leaves], body.spec))


def _agreed_leaf(first: Body, second: Body, index: int, sizes: dict[Any, Any], memory: Storage | None) -> Any:
    one, other = first.leaves[index], second.leaves[index]
    if type(one) is FakeTensor and type(other) is FakeTensor:
        return _agreed_tensor(first, second, index, sizes, memory)
    if type(one) is FakeTensor or type(other) is FakeTensor or (one is None) != (other is None):
        raise _mismatch(first, second, index)
    if one is None:
        return None
    one, other = (from_torch(value) if isinstance(value, SYMBOLIC) else value for value in (one, other))
    if kind_of(one) != kind_of(other):
        raise _mismatch(first, second, index)
    return _agreed_number(first, second, one, other, sizes)


def _agreed_number(first: Body, second: Body, one: Any, other: Any, known: dict[Any, Any]) -> Any:
    kind = kind_of(one)
    if _alike(one, other) and one not in first.private and other not in second.private:
        return one
    # False, 0 and 0.0 are equal in Python, and are three numbers here; so are 0.0 and -0.0
    key = (kind, one, other, _sign(one), _sign(other))
    if key not in known:
        bounds = _union(_range(first, one), _range(second, other)) if kind == "int" else None
        known[key] = next_number(first.environment, kind, bounds)
    return known[key]


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, Expr) or isinstance(other, Expr):
        return one is other
    return bool(one == other) and _sign(one) == _sign(other)


def _sign(number: Any) -> float:
    return math.copysign(1.0, number) if type(number) is float else 0.0


def _union(one: Range, other: Range) -> Range:
    return Range(min(one.lower, other.lower), max(one.upper, other.upper))


def _range(body: Body, number: Any) -> Range:
    if not isinstance(number, Expr):
        return point(int(number))
    return body.private[number] if number in body.private else body.environment.range(number)


def _agreed_tensor(
    first: Body, second: Body, index: int, sizes: dict[Any, Any], memory: Storage | None
) -> TensorInfo:
    one, other = first.leaves[index].info, second.leaves[index].info
    if (one.dtype, one.device, one.dim) != (other.dtype, other.device, other.dim):
        raise _mismatch(first, second, index)
    agreed = tuple(_agreed_number(first, second, a, b, sizes) for a, b in zip(one.sizes, other.sizes, strict=True))
    if one.strides != other.strides or agreed != one.sizes or _bits(one) or _bits(other):
        first.lay_out(index)
        second.lay_out(index)
        one, other = first.leaves[index].info, second.leaves[index].info
        info = fresh(agreed, one.dtype, one.device)
    else:
        info = one.with_storage(None)
        info.offset = 0
    info.storage = memory  # type: ignore[assignment]
    info.requires_grad = one.requires_grad or other.requires_grad
    return info


def _memory(first: Body, second: Body) -> list[Storage | None]:
    """The memory of each result that may be an operand, or share memory with another result, as the branch decides;
    None for one that has memory of its own in any case."""
    sources: list[dict[Storage, None]] = [{} for _ in first.leaves]
    for body in (first, second):
        together: dict[Storage, list[int]] = {}
        for index, leaf in enumerate(body.leaves):
            if type(leaf) is FakeTensor:
                alias = alias_storage(body, leaf)
                sources[index].update(dict.fromkeys(() if alias is None else alias.sources))
                together.setdefault(leaf.info.storage, []).append(index)
        for positions in together.values():
            if len(positions) > 1:
                shared = Storage()  # nobody's but theirs
                for index in positions:
                    sources[index][shared] = None
    return [
        Storage(frozen=True, source=next(iter(found)), others=tuple(found)[1:]) if found else None
        for found in sources
    ]


def _bits(info: TensorInfo) -> bool:
    return info.conjugate or info.negative


def _mismatch(first: Body, second: Body, index: int) -> BranchMismatchError:
    paths = tree.flatten_with_paths(tree.unflatten([0] * len(first.leaves), first.spec))[0]
    where = tree.path_text(paths[index][0])
    return BranchMismatchError(
        f"the branches of cond return different values{' at ' + where if where else ''}:\n"
        f"  true_fn:  {described(first.leaves[index])}\n  false_fn: {described(second.leaves[index])}",
        location=user_location(),
        remedy="convert one of them, so that both have the same number of dimensions, dtype and device",
    )


# --- functionalization -----------------------------------------------------------------------------------


@functionalizes(target)
def _functionalize(functional: Functionalization, node: Node) -> None:
    """What a branch writes to becomes a result of both branches."""
    graphs = functional_graphs(functional, node)
    written = sorted({index for graph in graphs for index in graph.new_values})
    for graph in graphs:
        for position in written:
            if position not in graph.new_values:
                graph.new_values[position] = _copy_of_input(functional, graph.module.graph, position)
        graph.return_values(written)
    operands: Any = node.args[3]
    add_new_values(functional, node, [operands[index] for index in written])


def _copy_of_input(functional: Functionalization, graph: Graph, position: int) -> Node:
    """What the other branch writes to: a value of its own here, too. Were it the tensor itself, what is computed from
    it would seem to be overwritten when the new value is copied there, and autograd would refuse the gradient."""
    emitter = Emitter(graph, functional.context)
    emitter.at = output_node(graph)
    return emitter.call(aten.clone.default, placeholders(graph)[position])


def _shared(node: Node) -> list[Any]:
    operands: Any = node.args[3]
    return list(operands)


declare(
    HigherOrderOperator(
        target, {1: "true_graph", 2: "false_graph"}, _shared, run, functools.partial(captured, capture, run)
    )
)
