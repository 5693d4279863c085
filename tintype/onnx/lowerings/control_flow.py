"""Operators that take functions: branches are If, loops are Loop and Scan, regions are written out.

A graph inside of a node sees the values around it, so what a function uses of its surroundings is simply used. Inputs
of its own has only what changes from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import placeholders
from tintype.onnx.builder import Builder
from tintype.onnx.cleaning import remove_unused
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering
from tintype.onnx.values import Value
from tintype.ops import associative_scan as _associative_scan
from tintype.ops import invoke_subgraph as _invoke_subgraph
from tintype.ops import map as _map
from tintype.ops import out_dtype as _out_dtype
from tintype.ops import scan as _scan
from tintype.ops import strict_mode as _strict_mode
from tintype.ops import while_loop as _while_loop
from tintype.ops import wrap_with_set_grad_enabled as _wrap_with_set_grad_enabled
from tintype.symbolic import Expr

_INT64, _BOOL = ir.DataType.INT64, ir.DataType.BOOL
_CONDITION = torch.ops.higher_order.cond


def _finished(op: Builder, name: str, inputs: Sequence[Value], translator: Any, results: Sequence[Any]) -> ir.Graph:
    outputs = [_made_inside(translator.builder, result) for result in results]
    for index, output in enumerate(outputs):  # nothing may be there twice
        if any(output is other for other in outputs[:index]):
            outputs[index] = _copied(translator.builder, output)
    store = op.store
    for value in (*inputs, *outputs):
        if value.name is None:
            value.name = store.free_name(f"{op.node.name}_{name}")
    nodes = remove_unused(translator.builder.nodes, outputs)
    store.name_results(nodes)
    return ir.Graph(list(inputs), outputs, nodes=nodes, name=store.free_name(f"{op.node.name}_{name}"))


def _of_branches(inside: Sequence[Any], results: Sequence[Sequence[Any]]) -> tuple[list[list[Any]], list[Any]]:
    """The results of two branches with what either of them asserts behind them, which holds in the other one; and
    those assertions."""
    checks = [[assertion.value for assertion in each.asserted] for each in inside]
    asserted = [assertion for each in inside for assertion in each.asserted]
    holds = [[each.builder.constant(True)] * len(asserted) for each in inside]
    holds[0][: len(checks[0])] = checks[0]
    holds[1][len(checks[0]) :] = checks[1]
    return [[*result, *held] for result, held in zip(results, holds)], asserted


def _of_steps(translator: Any) -> tuple[list[Value], list[Value]]:
    """What the steps of a loop assert, as state of the loop: whether it held before a step, and after it."""
    before = []
    for _ in translator.asserted:
        value = Value(translator.builder)
        value.dtype, value.shape = _BOOL, ir.Shape([])
        before.append(value)
    after = [translator.builder.And(held, each.value) for held, each in zip(before, translator.asserted)]
    return before, after


def _asserted_outside(op: Builder, values: Sequence[Value], asserted: Sequence[Any]) -> None:
    """Hand on what graphs inside of a node asserted, in the graph that the node stands in."""
    for value, assertion in zip(values, asserted, strict=True):
        value.dtype = _BOOL
        op.program.assert_that(value, assertion.message, assertion.at)


def _made_inside(builder: Builder, value: Any) -> Value:
    """A result of an inner graph, which one of its own nodes must make."""
    if not isinstance(value, ir.Value):
        value = builder.constant(value)
    assert isinstance(value, Value)
    producer = value.producer()
    if producer is None or not any(producer is node for node in reversed(builder.nodes)):
        return _copied(builder, value)
    return value


def _copied(builder: Builder, value: Any) -> Value:
    copy = Value(builder)
    copy.dtype, copy.shape = value.dtype, value.shape
    builder.nodes.append(ir.Node("", "Identity", [value], outputs=[copy]))
    return copy


def _inputs(op: Builder, module: GraphModule, count: int, first: int = 0) -> list[Value]:
    """Values for the inputs of a function that change from step to step, in the graph that they are inputs of."""
    found = []
    for node in placeholders(module.graph)[first : first + count]:
        value = Value(op)
        op.program.shared.describe(value, node.meta["val"])
        found.append(value)
    return found


def _node(
    op: Builder, operation: str, inputs: Sequence[Any], attributes: dict[str, Any], outputs: int
) -> list[Value]:
    made = [Value(op) for _ in range(outputs)]
    kinds = ir.AttributeType
    converted = []
    for name, value in attributes.items():
        kind = kinds.GRAPH if isinstance(value, ir.Graph) else kinds.INTS if isinstance(value, list) else kinds.INT
        converted.append(ir.Attr(name, kind, value))
    op.nodes.append(ir.Node("", operation, list(inputs), converted, outputs=made))
    return made


def _truth(op: Builder, value: Any) -> Value:
    """A truth value without dimensions."""
    value = op.cast(value, _BOOL)
    if value.shape is None or len(value.shape) != 0:
        value = op.Reshape(value, op.constant([], _INT64))
        value.shape = ir.Shape([])
    return value


def _as_value(op: Builder, value: Any) -> Value:
    if isinstance(value, Value):
        return value
    return op.constant(value, ir.DataType.DOUBLE if type(value) is float else None)


@lowering(_CONDITION)
def cond(op: Builder, predicate: Any, true_graph: Any, false_graph: Any, operands: Sequence[Any]) -> Any:
    inside = [op.program.scope() for _ in range(2)]
    results = [each.translate(module.graph, operands) for each, module in zip(inside, (true_graph, false_graph))]
    count = len(results[0])
    results, asserted = _of_branches(inside, results)
    then_branch = _finished(op, "then", (), inside[0], results[0])
    else_branch = _finished(op, "else", (), inside[1], results[1])
    for left, right in zip(then_branch.outputs, else_branch.outputs):
        if left.dtype is not right.dtype:
            raise LoweringError(f"its branches return {left.dtype} and {right.dtype}")
        for each in (left, right):  # sizes may differ between branches
            each.shape = _general(left.shape, right.shape)
    attributes = {"then_branch": then_branch, "else_branch": else_branch}
    made = _node(op, "If", [_truth(op, predicate)], attributes, len(then_branch.outputs))
    _asserted_outside(op, made[count:], asserted)
    return made[:count]


def _general(left: Any, right: Any) -> Any:
    if left is None or right is None or len(left) != len(right):
        return None
    return ir.Shape([a if a == b else None for a, b in zip(left, right)])


@lowering(_while_loop.target)
def while_loop(op: Builder, condition: Any, body: Any, carried: Sequence[Any], additional: Sequence[Any] = ()) -> Any:
    values = [_as_value(op, value) for value in carried]
    (first,) = op.program.inline(condition, [*values, *additional])
    iteration, going = Value(op), Value(op)
    iteration.dtype, iteration.shape = _INT64, ir.Shape([])
    going.dtype, going.shape = _BOOL, ir.Shape([])
    inside = op.program.scope()
    state = _inputs(inside.builder, body, len(values))
    following = inside.translate(body.graph, [*state, *additional])[: len(values)]
    (again,) = inside.inline(condition, [*following, *additional])
    before, after = _of_steps(inside)
    again = _truth(inside.builder, again)
    for held in after:  # a loop that does not do what it asserts may never end
        again = inside.builder.And(again, held)
    graph = _finished(op, "body", [iteration, going, *state, *before], inside, [again, *following, *after])
    started = [*values, *[op.constant(True)] * len(before)]
    made = _node(op, "Loop", [None, _truth(op, first), *started], {"body": graph}, len(started))
    _asserted_outside(op, made[len(values) :], inside.asserted)
    return made[: len(values)]


def _scanned(
    op: Builder,
    module: GraphModule,
    init: Sequence[Any],
    rows: Sequence[Any],
    additional: Sequence[Any],
    *,
    keeps_state: bool = False,
    is_checked: bool = True,
) -> list[Value]:
    """A Scan over the first dimension; ``keeps_state``: the results are the state, and stacked as well."""
    state = [_as_value(op, value) for value in init]
    inside = op.program.scope()
    inputs = _inputs(inside.builder, module, len(init) + len(rows))
    results = inside.translate(module.graph, [*inputs, *additional])
    if keeps_state:
        results = [*results, *results]
    if not is_checked:
        inside.asserted.clear()
    before, after = _of_steps(inside)
    last = len(init)
    ordered = [*inputs[:last], *before, *inputs[last:]]
    graph = _finished(op, "body", ordered, inside, [*results[:last], *after, *results[last:]])
    started = [*state, *[op.constant(True)] * len(before), *rows]
    attributes = {"body": graph, "num_scan_inputs": len(rows)}
    made = _node(op, "Scan", started, attributes, len(results) + len(after))
    end = last + len(before)
    _asserted_outside(op, made[last:end], inside.asserted)
    return [*made[:last], *made[end:]]


def _with_few_rows(
    op: Builder,
    row: Any,
    most: int,
    few: Callable[[Builder], Sequence[Any]],
    make: Callable[[Builder], Sequence[Any]],
) -> Sequence[Any]:
    """What ``make`` builds, except for so few rows that ONNX Runtime has no steps: then what ``few`` does."""
    count = op.size(row, 0)
    if isinstance(count, int):
        return few(op) if count <= most else make(op)
    inside = [op.program.scope() for _ in range(2)]
    for each in inside:
        each.builder.node = op.node
    results = [list(build(each.builder)) for build, each in zip((few, make), inside)]
    number = len(results[0])
    for value, example in zip((*results[0], *results[1]), (*op.node.meta["val"], *op.node.meta["val"])):
        value.dtype = op.program.dtype_of(example)
    results, asserted = _of_branches(inside, results)
    then_branch = _finished(op, "few", (), inside[0], results[0])
    else_branch = _finished(op, "rows", (), inside[1], results[1])
    for branch in (then_branch, else_branch):
        for value, example in zip(branch.outputs, op.node.meta["val"]):
            value.shape = op.program.shared.shape_of(example)
    attributes = {"then_branch": then_branch, "else_branch": else_branch}
    made = _node(op, "If", [op.LessOrEqual(count, op.constant(most, _INT64))], attributes, len(results[0]))
    _asserted_outside(op, made[number:], asserted)
    return made[:number]


def _nothing(op: Builder, example: Any, operands: Sequence[Any]) -> Value | None:
    """A stack of no rows, like an example of one; None if the sizes of a row are none of its operands'."""
    known = {
        size: (node, dimension)
        for node in _nodes(operands)
        if type(node.meta.get("val")) is FakeTensor
        for dimension, size in enumerate(node.meta["val"].info.sizes)
        if isinstance(size, Expr)
    }
    sizes: list[Any] = [0]
    for size in example.info.sizes[1:]:
        if isinstance(size, Expr):
            if size not in known:
                return None
            node, dimension = known[size]
            size = op.size(_seen(op.program, node), dimension)
        sizes.append(size)
    if example.info.dtype.is_complex:
        sizes.append(2)
    empty = op.Expand(op.constant(0, op.program.dtype_of(example)), op.vector(sizes))
    empty.shape = op.program.shared.shape_of(example)
    return empty


def _seen(program: Any, node: Node) -> Any:
    """The value of a node of this graph or of one around it."""
    while node not in program.values:
        program = program.outer
    return program.values[node]


def _nodes(arguments: Any) -> list[Node]:
    if isinstance(arguments, Node):
        return [arguments]
    return [node for each in arguments for node in _nodes(each)] if isinstance(arguments, (list, tuple)) else []


def _over_rows(
    op: Builder, body: Any, init: Sequence[Any], rows: Sequence[Any], additional: Sequence[Any]
) -> Sequence[Any]:
    examples = op.node.meta["val"]

    def of_nothing(inner: Builder) -> list[Any]:
        stacks = [_nothing(inner, example, op.node.args) for example in examples[len(init) :]]
        if None in stacks:
            stacks = _after_one_row(inner, body, init, rows, additional)
        return [*(_as_value(inner, value) for value in init), *stacks]

    return _with_few_rows(op, rows[0], 0, of_nothing, lambda inner: _scanned(inner, body, init, rows, additional))


def _after_one_row(
    op: Builder, body: Any, init: Sequence[Any], rows: Sequence[Any], additional: Sequence[Any]
) -> list[Any]:
    """Stacks of no rows, of sizes that only the function itself knows: it is run on a row of zeros, of which nothing
    is asserted."""
    zeros = []
    for row in rows:
        shape = op.Concat(op.constant([1], _INT64), op.Shape(row, start=1), axis=0)
        zeros.append(op.Expand(op.constant(0, row.dtype), shape))
    made = _scanned(op, body, init, zeros, additional, is_checked=False)
    nothing = op.constant([0], _INT64)
    return [op.Slice(stack, nothing, nothing, nothing) for stack in made[len(init) :]]


@lowering(_scan.target)
def scan(op: Builder, combine: Any, init: Sequence[Any], rows: Sequence[Any], additional: Sequence[Any] = ()) -> Any:
    return _over_rows(op, combine, init, rows, additional)


@lowering(_map.target)
def map_(op: Builder, body: Any, rows: Sequence[Any], args: Sequence[Any] = ()) -> Any:
    return _over_rows(op, body, (), rows, args)


@lowering(_associative_scan.target)
def associative_scan(op: Builder, combine: Any, rows: Sequence[Any], additional: Sequence[Any] = ()) -> Any:
    """One row is itself, and none is none."""
    return _with_few_rows(
        op, rows[0], 1, lambda inner: rows, lambda inner: _combined(inner, combine, rows, additional)
    )


def _combined(op: Builder, combine: Any, rows: Sequence[Any], additional: Sequence[Any]) -> list[Any]:
    """Row by row: the first is itself, each other one combined with what is before it."""
    count = len(rows)
    first = [op.Gather(row, op.constant(0, _INT64), axis=0) for row in rows]
    rest = [op.Slice(row, [1], [9223372036854775807], [0]) for row in rows]
    for value, row in zip((*first, *rest), (*rows, *rows)):
        value.dtype = row.dtype
    results = _scanned(op, combine, first, rest, additional, keeps_state=True)
    for value, row in zip(results[count:], rows):
        value.dtype = row.dtype
    return [op.Concat(op.Unsqueeze(value, [0]), rows, axis=0) for value, rows in zip(first, results[count:])]


@lowering(_invoke_subgraph.target)
def invoke_subgraph(op: Builder, module: Any, identifier: Any, *operands: Any) -> Any:
    return op.program.inline(module, operands)


@lowering(_strict_mode.target)
def strict_mode(op: Builder, module: Any, operands: Sequence[Any]) -> Any:
    return op.program.inline(module, operands)


@lowering(_wrap_with_set_grad_enabled.target)
def wrap_with_set_grad_enabled(op: Builder, enabled: bool, module: Any, *operands: Any) -> Any:
    return op.program.inline(module, operands)


@lowering(_out_dtype.target)
def out_dtype(op: Builder, target: Any, dtype: Any, *args: Any) -> Any:
    """The operator in a wider dtype than that of its operands."""
    wide = [
        op.cast(argument, ir.DataType(dtype)) if isinstance(argument, ir.Value) else argument for argument in args
    ]
    return op.program.call_operator(target, wide)
