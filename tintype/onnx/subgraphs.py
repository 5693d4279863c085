"""Loops that lowerings of ours are made of: a body is written with a builder of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tintype.onnx.builder import Builder
from tintype.onnx.cleaning import remove_unused
from tintype.onnx.libraries import ir
from tintype.onnx.values import Value

_INT64, _BOOL = ir.DataType.INT64, ir.DataType.BOOL


def _input(op: Builder, stem: str, dtype: Any, shape: Any = None) -> Value:
    value = Value(op, op.store.free_name(stem))
    value.dtype, value.shape = dtype, shape
    return value


def _graph(op: Builder, inner: Builder, inputs: Sequence[Value], results: Sequence[Any]) -> ir.Graph:
    outputs = []
    for result in results:
        copy = Value(inner, op.store.free_name(f"{op.node.name}_body"))
        copy.dtype, copy.shape = result.dtype, result.shape
        inner.nodes.append(ir.Node("", "Identity", [result], outputs=[copy]))
        outputs.append(copy)
    nodes = remove_unused(inner.nodes, outputs)
    op.store.name_results(nodes)
    return ir.Graph(list(inputs), outputs, nodes=nodes, name=op.store.free_name(f"{op.node.name}_body"))


def _inner(op: Builder) -> Builder:
    inner = Builder(op.opset, op.store, op)
    inner.node, inner.program = op.node, op.program
    return inner


def while_true(
    op: Builder, going: Callable[..., Any], step: Callable[..., Sequence[Any]], state: Sequence[Any]
) -> list[Value]:
    """Change a state while a condition on it holds."""
    inner = _inner(op)
    iteration = _input(inner, "iteration", _INT64, ir.Shape([]))
    condition = _input(inner, "condition", _BOOL, ir.Shape([]))
    inputs = [_input(inner, "state", value.dtype, value.shape) for value in state]
    following = list(step(inner, *inputs))
    again = going(inner, *following)
    body = _graph(op, inner, [iteration, condition, *inputs], [again, *following])
    made = [Value(op) for _ in state]
    for value, old in zip(made, state):
        value.dtype = old.dtype
    attributes = [ir.Attr("body", ir.AttributeType.GRAPH, body)]
    op.nodes.append(ir.Node("", "Loop", [None, going(op, *state), *state], attributes, outputs=made))
    return made


def _turned(op: Builder, value: Any, source: int, destination: int, rank: int | None = None) -> Any:
    """A tensor with one of its axes at another place."""
    order = list(range(len(value.shape) if rank is None else rank))
    order.insert(destination, order.pop(source))
    return op.Transpose(value, perm=order)


def scanned(
    op: Builder, step: Callable[..., Sequence[Any]], state: Sequence[Any], rows: Sequence[Any], axis: int
) -> list[Value]:
    """Go along an axis: ``step(builder, *state, *rows)`` gives the new state and what is stacked along that axis."""
    if axis and not all(isinstance(size, int) and size > 0 for size in rows[0].shape):
        # ONNX Runtime's own way of going along another axis than the first divides by the number of elements
        turned = [_turned(op, each, axis, 0) for each in rows]
        done = scanned(op, step, state, turned, 0)
        rank = len(rows[0].shape)
        return [*done[: len(state)], *(_turned(op, each, 0, axis, rank) for each in done[len(state) :])]
    inner = _inner(op)
    inputs = [_input(inner, "state", value.dtype, value.shape) for value in state]
    inputs += [_input(inner, "row", value.dtype) for value in rows]
    results = list(step(inner, *inputs))
    body = _graph(op, inner, inputs, results)
    stacked = len(results) - len(state)
    made = [Value(op) for _ in results]
    for value, result in zip(made, results):
        value.dtype = result.dtype
    kinds = ir.AttributeType
    attributes = [
        ir.Attr("body", kinds.GRAPH, body),
        ir.Attr("num_scan_inputs", kinds.INT, len(rows)),
        ir.Attr("scan_input_axes", kinds.INTS, [axis] * len(rows)),
        ir.Attr("scan_output_axes", kinds.INTS, [axis] * stacked),
    ]
    op.nodes.append(ir.Node("", "Scan", [*state, *rows], attributes, outputs=made))
    return made


def repeated(
    op: Builder, count: Any, step: Callable[..., Sequence[Any]], state: Sequence[Any], until: Any = None
) -> list[Value]:
    """Change a state ``count`` times: ``step(builder, number, *state)`` gives the new one.

    ``until(builder, number, *state)`` is a truth value that ends it sooner.
    """
    inner = _inner(op)
    number = _input(inner, "iteration", _INT64, ir.Shape([]))
    condition = _input(inner, "condition", _BOOL, ir.Shape([]))
    inputs = [_input(inner, "state", value.dtype, value.shape) for value in state]
    following = list(step(inner, number, *inputs))
    going = inner.constant(True) if until is None else inner.Not(until(inner, number, *following))
    body = _graph(op, inner, [number, condition, *inputs], [going, *following])
    made = [Value(op) for _ in state]
    for value, old in zip(made, state):
        value.dtype, value.shape = old.dtype, old.shape
    attributes = [ir.Attr("body", ir.AttributeType.GRAPH, body)]
    steps = count if isinstance(count, ir.Value) else op.constant(count, _INT64)
    op.nodes.append(ir.Node("", "Loop", [steps, op.constant(True), *state], attributes, outputs=made))
    return made
