"""Tensors without elements: some of ONNX Runtime's kernels end the process when they meet one, or refuse it.

What runs then is another model, in which those nodes stand beside what they compute of nothing, and an If chooses.
Files keep their operators, and so does what runs on other inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx_ir.passes import common as passes

from tintype.onnx.inlining import inlined
from tintype.onnx.libraries import ir
from tintype.symbolic import ExpressionSyntaxError, parse

_INT64 = ir.DataType.INT64
_TRIED = (1, 2, 3, 5)


class _Nodes:
    """What is computed of nothing, in a graph of its own that sees the values around it."""

    def __init__(self, taken: Callable[[str], str]) -> None:
        self.taken = taken
        self.nodes: list[ir.Node] = []

    def emit(self, operation: str, *inputs: ir.Value, dtype: Any = None, **attributes: Any) -> ir.Value:
        made = ir.Value(name=self.taken(f"of_nothing_{operation}"))
        if dtype is not None:
            made.type = ir.TensorType(dtype)
        converted = [ir.convenience.convert_attribute(name, value) for name, value in attributes.items()]
        self.nodes.append(ir.Node("", operation, list(inputs), converted, outputs=[made]))
        return made

    def numbers(self, *numbers: int) -> ir.Value:
        """A vector of integers."""
        return self.emit("Constant", dtype=_INT64, value=ir.tensor(np.array(numbers, dtype=np.int64)))

    def sizes(self, value: ir.Value, start: int, end: int | None = None) -> ir.Value:
        """Some of the sizes of a tensor."""
        until = {} if end is None else {"end": end}
        return self.emit("Shape", value, dtype=_INT64, start=start, **until)

    def zeros(self, like: ir.Value, *sizes: ir.Value) -> ir.Value:
        """Zeros of a tensor's dtype."""
        zero = ir.tensor(np.zeros(1, dtype=like.dtype.numpy()), dtype=like.dtype)  # type: ignore[union-attr]
        shape = self.emit("Concat", *sizes, dtype=_INT64, axis=0)
        return self.emit("ConstantOfShape", shape, dtype=like.dtype, value=zero)


# What a node computes where one of the inputs that are named has no elements: results for its outputs.
_Rule = Callable[[_Nodes, ir.Node], Sequence[ir.Value]]


def _product(make: _Nodes, node: ir.Node) -> Sequence[ir.Value]:
    """Each row times each column: sums of nothing, or nothing at all."""
    left, right = (value for value in node.inputs if value is not None)
    columns = make.emit("Unsqueeze", left, make.numbers(-1), dtype=left.dtype)
    rows = make.emit("Unsqueeze", right, make.numbers(-3), dtype=left.dtype)
    products = make.emit("Mul", columns, rows, dtype=left.dtype)
    sizes = make.sizes(products, 0, -2), make.sizes(products, -1)
    return [make.zeros(left, *sizes)]


def _same(make: _Nodes, node: ir.Node) -> Sequence[ir.Value]:
    value = node.inputs[0]
    assert value is not None
    return [make.emit("Identity", value, dtype=value.dtype)]


def _attention(make: _Nodes, node: ir.Node) -> Sequence[ir.Value]:
    query, value = node.inputs[0], node.inputs[2]
    assert query is not None and value is not None
    return [make.zeros(query, make.sizes(query, 0, -1), make.sizes(value, 3))]


def _recurrent(make: _Nodes, node: ir.Node) -> Sequence[ir.Value]:
    """No sequences, or none with a step: outputs of all steps, and of the last one."""
    rows, recurrence = node.inputs[0], node.inputs[2]
    assert rows is not None and recurrence is not None
    directions, width = make.sizes(recurrence, 0, 1), make.sizes(recurrence, 2)
    steps, batch = make.sizes(rows, 0, 1), make.sizes(rows, 1, 2)
    every = make.zeros(rows, steps, directions, batch, width)
    last = [make.zeros(rows, directions, batch, width) for _ in node.outputs[1:]]
    return [every, *last]


def _einsum(make: _Nodes, node: ir.Node) -> Sequence[ir.Value]:
    """The sizes of the letters that stay, and of dimensions that have none."""
    terms, result = _letters(node)
    first = node.inputs[0]
    assert first is not None
    sizes: list[ir.Value] = []
    for letter in result:
        found: ir.Value | None = None
        for term, value in zip(terms, node.inputs):
            if letter not in term:
                continue
            assert value is not None
            place = term.index(letter)
            size = make.sizes(value, place, place + 1)
            found = size if found is None else _broadcast(make, found, size)
        assert found is not None
        sizes.append(found)
    return [make.zeros(first, *(sizes or [make.numbers()]))]


def _broadcast(make: _Nodes, left: ir.Value, right: ir.Value) -> ir.Value:
    """The size of two dimensions that are equal, or of which one is 1."""
    product = make.emit("Mul", left, right, dtype=_INT64)
    least = make.emit("Min", left, right, dtype=_INT64)
    return make.emit("Div", product, make.emit("Max", least, make.numbers(1), dtype=_INT64), dtype=_INT64)


def _letters(node: ir.Node) -> tuple[list[list[str]], list[str]]:
    """What dimensions are called, in each operand and in the result; those behind dots by how far from the end."""
    left, _, right = node.attributes["equation"].as_string().replace(" ", "").partition("->")
    terms, most = [], 0
    for term, value in zip(left.split(","), node.inputs):
        hidden = len(value.shape or ()) - len(term.replace("...", "")) if value is not None else 0
        most = max(most, hidden if "..." in term else 0)
        terms.append(_expanded(term, hidden))
    return terms, _expanded(right, most)


def _expanded(term: str, hidden: int) -> list[str]:
    before, dots, behind = term.partition("...")
    return [*before, *(str(number) for number in range(hidden, 0, -1) if dots), *behind]


# By operator: which of its inputs are looked at, and what it computes then.
_RULES: dict[str, tuple[tuple[int, ...], _Rule]] = {
    "MatMul": ((0, 1), _product),
    "Einsum": ((0, 1, 2, 3), _einsum),
    "InstanceNormalization": ((0,), _same),
    "GroupNormalization": ((0,), _same),
    "LayerNormalization": ((0,), _same),
    "RMSNormalization": ((0,), _same),
    "LRN": ((0,), _same),
    "Attention": ((0, 1, 2), _attention),
    "LSTM": ((0,), _recurrent),
    "GRU": ((0,), _recurrent),
    "RNN": ((0,), _recurrent),
}


def may_be_empty_inside(model: ir.Model) -> bool:
    """Whether a tensor may have no elements where all inputs have some: by a size that is a difference or a quotient
    of the inputs' sizes, or that data decide."""
    known = {
        str(size.value) for value in model.graph.inputs for size in value.shape or () if not isinstance(size, int)
    }
    return any(_may_be_zero(text, known) for text in _sizes(model) - known)


def _may_be_zero(text: str, known: set[str]) -> bool:
    """Whether a size is 0 for some small sizes of the inputs."""
    for number in _TRIED:
        try:
            size = parse(text, dict.fromkeys(known, number))
        except (ExpressionSyntaxError, ArithmeticError):  # of other names
            return True
        if not isinstance(size, int) or size <= 0:
            return True
    return False


def _sizes(model: ir.Model) -> set[str]:
    found = set()
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        for value in node.outputs:
            for size in value.shape or ():
                if not isinstance(size, int) and size.value is not None:
                    found.add(str(size.value))
    return found


def with_choices(model: ir.Model) -> ir.Model:
    """A model like this one that computes with tensors without elements, too; the model itself if no node of it
    minds them."""
    nodes = [*ir.traversal.RecursiveGraphIterator(model.graph)]
    for function in model.functions.values():
        nodes += ir.traversal.RecursiveGraphIterator(function)
    if not any(node.op_type in _RULES and not node.domain for node in nodes):
        return model
    copy = inlined(model.clone())
    copy = passes.ShapeInferencePass(check_type=False, strict_mode=False)(copy).model
    nodes = [*ir.traversal.RecursiveGraphIterator(copy.graph)]
    names = {value.name for node in nodes for value in node.outputs}
    names |= {value.name for value in (*copy.graph.inputs, *copy.graph.initializers.values())}

    def free(stem: str) -> str:
        number = len(names)
        while f"{stem}_{number}" in names:
            number += 1
        names.add(f"{stem}_{number}")
        return f"{stem}_{number}"

    minding = [node for node in nodes if _minds(node)]
    for node in minding:
        _choose(node, free)
    return copy if minding else model


def _minds(node: ir.Node) -> bool:
    """Whether a node does not take tensors without elements, may be given one, and is known well enough."""
    if node.op_type not in _RULES or node.domain:
        return False
    seen = _looked_at(node)
    if any(value.dtype is None or value.shape is None for value in seen):
        return False
    if node.op_type == "MatMul" and any(len(value.shape or ()) < 2 for value in seen):
        return False
    if node.op_type == "Attention" and any(len(value.shape or ()) != 4 for value in seen):
        return False
    if node.op_type == "Einsum" and "->" not in node.attributes["equation"].as_string():
        return False
    results = 3 if node.op_type in ("LSTM", "GRU", "RNN") else 1
    if any(value.uses() or value.is_graph_output() for value in node.outputs[results:]):
        return False
    return not all(_is_full(value) for value in seen)


def _is_full(value: ir.Value) -> bool:
    return value.shape is not None and all(isinstance(size, int) and size > 0 for size in value.shape)


def _looked_at(node: ir.Node) -> list[ir.Value]:
    places = _RULES[node.op_type][0]
    return [value for place, value in enumerate(node.inputs) if place in places and value is not None]


def _choose(node: ir.Node, free: Callable[[str], str]) -> None:
    """Put a node into one branch of an If, and what it computes of nothing into the other one."""
    graph = node.graph
    assert graph is not None
    asking = _Nodes(free)
    counts = [asking.emit("Size", value, dtype=_INT64) for value in _looked_at(node)]
    count = counts[0]
    for other in counts[1:]:
        count = asking.emit("Mul", count, other, dtype=_INT64)
    zero = asking.emit("Constant", dtype=_INT64, value=ir.tensor(np.array(0, dtype=np.int64)))
    empty = asking.emit("Equal", count, zero, dtype=ir.DataType.BOOL)
    rule = _Nodes(free)
    of_nothing = list(_RULES[node.op_type][1](rule, node))[: len(node.outputs)]
    before = list(node.outputs)
    as_usual = [ir.Value(name=free("as_usual"), type=value.type, shape=value.shape) for value in before]
    inner = ir.Node("", node.op_type, list(node.inputs), list(node.attributes.values()), outputs=as_usual)
    branches = {
        "then_branch": ir.Graph([], of_nothing, nodes=rule.nodes, name=free("of_nothing")),
        "else_branch": ir.Graph([], as_usual[: len(of_nothing)], nodes=[inner], name=free("as_usual")),
    }
    before = before[: len(of_nothing)]
    after = [ir.Value(name=value.name, type=value.type, shape=value.shape) for value in before]
    attributes = [ir.Attr(name, ir.AttributeType.GRAPH, branch) for name, branch in branches.items()]
    choice = ir.Node("", "If", [empty], attributes, outputs=after)
    graph.insert_before(node, [*asking.nodes, choice])
    for old, new in zip(before, after):
        old.name = free("before")
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
