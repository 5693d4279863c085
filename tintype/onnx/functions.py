"""``functions=True``: the modules of the model as ONNX functions, one for each distinct body.

The nodes that a call of a module was translated to stand beside each other. From the inside out, each such run
becomes a function of the values that come in, weights included, and one call of it. Two runs that differ in nothing
but those values share a function: the layers of a model that is one layer many times over are one function, called
by the layers' names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tintype.onnx.cleaning import detach
from tintype.onnx.libraries import ir

# One call of a module: its name ("layers.0", "layers.0@1" the second time) and its class.
Call = tuple[str, str]
_LARGEST_CONSTANT = 64


class Outlined:
    """The nodes of a graph with calls of functions in place of what modules did."""

    def __init__(
        self, nodes: Sequence[ir.Node], outputs: Sequence[ir.Value], constants: set[int], opset: int
    ) -> None:
        self.functions: dict[Any, ir.Function] = {}
        self.replaced: dict[ir.Value, ir.Value] = {}
        self._outputs = {id(value) for value in outputs}
        self._constants = constants
        self._opset = opset
        self._bodies: dict[Any, ir.Function] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self.nodes = self._outline([(node, _calls(node)) for node in nodes], 0)

    def outside(self, value: ir.Value) -> ir.Value:
        """The value that stands for another one outside of all functions."""
        while value in self.replaced:
            value = self.replaced[value]
        return value

    def _outline(self, items: Sequence[tuple[ir.Node, list[Call]]], depth: int) -> list[ir.Node]:
        made: list[ir.Node] = []
        position = 0
        while position < len(items):
            node, calls = items[position]
            if len(calls) <= depth:
                made.append(node)
                position += 1
                continue
            end = position
            while end < len(items) and items[end][1][depth : depth + 1] == [calls[depth]]:
                end += 1
            inner = self._outline(items[position:end], depth + 1)
            made.append(self._called(inner, calls[depth]))
            position = end
        return made

    def _called(self, nodes: Sequence[ir.Node], call: Call) -> ir.Node:
        """One call of a function in the place of nodes."""
        body = _Body(nodes, self._outputs, self._constants)
        known = self._bodies.get((call[1], body.key()))
        if known is None:
            known = self._bodies[call[1], body.key()] = self._function(body, call[1])
            self.functions[known.identifier()] = known
        outer = []
        for value in body.outputs:
            copied = ir.Value(name=value.name, type=value.type, shape=value.shape)
            copied.meta.update(value.meta)
            outer.append(copied)
        made = ir.Node(known.domain, known.name, body.inputs, outputs=outer, name=call[0], version=1)
        made.meta["node"] = nodes[-1].meta.get("node")
        inside = {id(node) for node in all_nodes(nodes)}
        for old, new in zip(body.outputs, outer):
            self.replaced[old] = new
            for user, index in list(old.uses()):
                if id(user) not in inside:
                    user.replace_input_with(index, new)
            if id(old) in self._outputs:
                self._outputs.add(id(new))
        for node in nodes:
            detach(node)
        return made

    def _function(self, body: _Body, class_name: str) -> ir.Function:
        domain, _, name = class_name.rpartition(".")
        domain = domain or "model"
        name = re.sub(r"\W", "_", name)
        count = self._counts[domain, name] = self._counts.get((domain, name), 0) + 1
        graph = body.graph(name)
        graph.opset_imports[""] = self._opset
        for node in all_nodes(list(graph)):
            if node.domain:
                graph.opset_imports[node.domain] = node.version or 1
        return ir.Function(domain, name if count == 1 else f"{name}_{count}", graph=graph, attributes=())


def _calls(node: ir.Node) -> list[Call]:
    """The calls of modules that a node was made in, outermost first."""
    source = node.meta.get("node")
    stack: Mapping[str, Any] = (source.meta.get("nn_module_stack") if source is not None else None) or {}
    found = []
    for name, (path, kind) in stack.items():
        if path:
            full = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
            found.append((name, full))
    return found


def _graphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            yield attribute.value


def all_nodes(nodes: Sequence[ir.Node]) -> Iterator[ir.Node]:
    """Nodes, and those of the graphs inside of them."""
    for node in nodes:
        yield node
        for graph in _graphs(node):
            yield from all_nodes(list(graph))


class _Body:
    """What nodes take in and give out, and what they are apart from that."""

    def __init__(self, nodes: Sequence[ir.Node], outputs: set[int], constants: set[int]) -> None:
        self.nodes = nodes
        self._constants = constants
        inside = {id(node) for node in all_nodes(nodes)}
        local: set[int] = set()
        self.inputs: list[ir.Value] = []
        seen: set[int] = set()
        for node in all_nodes(nodes):
            local.update(id(value) for value in node.outputs)
            for graph in _graphs(node):
                local.update(id(value) for value in graph.inputs)
        for node in all_nodes(nodes):
            for value in node.inputs:
                if value is None or id(value) in local or id(value) in seen or self._is_constant(value):
                    continue
                seen.add(id(value))
                self.inputs.append(value)
        self.outputs = [
            value
            for node in nodes
            for value in node.outputs
            if id(value) in outputs or any(id(user) not in inside for user, _ in value.uses())
        ]
        self._key: Any = None

    def _is_constant(self, value: ir.Value) -> bool:
        return (
            id(value) in self._constants
            and value.const_value is not None
            and (value.const_value.size <= _LARGEST_CONSTANT)
        )

    def key(self) -> Any:
        """What two bodies have in common that can be one function."""
        if self._key is None:
            places = {id(value): ("input", number) for number, value in enumerate(self.inputs)}
            parts = self._described(self.nodes, places)
            self._key = (len(self.inputs), parts, tuple(places[id(value)] for value in self.outputs))
        return self._key

    def _described(self, nodes: Sequence[ir.Node], places: dict[int, tuple[str, int]]) -> Any:
        described = []
        for node in nodes:
            inputs = tuple(self._reference(value, places) for value in node.inputs)
            attributes = tuple(
                (name, self._attribute(attribute, places)) for name, attribute in sorted(node.attributes.items())
            )
            for value in node.outputs:
                places[id(value)] = ("value", len(places))
            described.append((node.domain, node.op_type, inputs, attributes, len(node.outputs)))
        return tuple(described)

    def _reference(self, value: ir.Value | None, places: Mapping[int, tuple[str, int]]) -> Any:
        if value is None:
            return None
        place = places.get(id(value))
        return place if place is not None else _content(value.const_value)

    def _attribute(self, attribute: Any, places: dict[int, tuple[str, int]]) -> Any:
        if attribute.type is ir.AttributeType.GRAPH:
            graph = attribute.value
            for value in graph.inputs:
                places[id(value)] = ("value", len(places))
            parts = self._described(list(graph), places)
            return parts, tuple(self._reference(value, places) for value in graph.outputs)
        value = attribute.value
        if attribute.type is ir.AttributeType.TENSOR:
            return _content(value)
        return attribute.type, tuple(value) if isinstance(value, (list, tuple)) else value

    def graph(self, name: str) -> ir.Graph:
        """The body as a graph of its own."""
        values: dict[int, ir.Value] = {}
        inputs = [_copied(value, values) for value in self.inputs]
        made: list[ir.Node] = []
        self._constants_into(made, values)
        for number, node in enumerate(made):
            node.outputs[0].name = f"constant_{number}"
        made += _copies(self.nodes, values)
        outputs = [values[id(value)] for value in self.outputs]
        return ir.Graph(inputs, outputs, nodes=made, opset_imports={}, name=name)

    def _constants_into(self, made: list[ir.Node], values: dict[int, ir.Value]) -> None:
        for node in all_nodes(self.nodes):
            for value in node.inputs:
                if value is not None and id(value) not in values and self._is_constant(value):
                    copied = _copied(value, values)
                    tensor = ir.Attr("value", ir.AttributeType.TENSOR, value.const_value)
                    made.append(ir.Node("", "Constant", [], [tensor], outputs=[copied]))


def _content(tensor: Any) -> Any:
    return tensor.dtype, tuple(tensor.shape), tensor.numpy().tobytes()


def _copied(value: ir.Value, values: dict[int, ir.Value]) -> ir.Value:
    copied = values[id(value)] = ir.Value(name=value.name, type=value.type, shape=value.shape)
    return copied


def _copies(nodes: Sequence[ir.Node], values: dict[int, ir.Value]) -> list[ir.Node]:
    made = []
    for node in nodes:
        attributes = [_copied_attribute(attribute, values) for attribute in node.attributes.values()]
        inputs = [None if value is None else values[id(value)] for value in node.inputs]
        outputs = [_copied(value, values) for value in node.outputs]
        made.append(
            ir.Node(
                node.domain, node.op_type, inputs, attributes, outputs=outputs, name=node.name, version=node.version
            )
        )
    return made


def _copied_attribute(attribute: Any, values: dict[int, ir.Value]) -> Any:
    if attribute.type is not ir.AttributeType.GRAPH:
        return attribute
    graph = attribute.value
    inputs = [_copied(value, values) for value in graph.inputs]
    nodes = _copies(list(graph), values)
    outputs = [values[id(value)] for value in graph.outputs]
    return ir.Attr(attribute.name, attribute.type, ir.Graph(inputs, outputs, nodes=nodes, name=graph.name))
