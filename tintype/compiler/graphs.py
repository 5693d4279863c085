"""Runs of calls as graphs for a backend.

Calls that follow each other, with tensors in and a tensor out, become one graph module. It takes the tensors that it
uses from outside, and gives those that anything later may use.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tintype.compiler.backends import Backend
from tintype.compiler.sources import Guard
from tintype.compiler.trace import Call, Expression, Item, expression_key, expressions_of, values_in


class CallsAsGraph:
    """Calls that are one graph: what goes in, what comes out, and who runs it."""

    def __init__(
        self, calls: list[Call], inputs: list[Expression], outputs: list[int], run: Callable[..., Any]
    ) -> None:
        self.calls = calls
        self.inputs = inputs
        self.outputs = outputs
        self.run = run


def make_graphs(items: list[Item], backend: Backend, value_of: Callable[[Expression], Any]) -> None:
    """Give the first call of each group its graph. ``value_of`` are the tensors of the run that was recorded."""
    start = 0
    while start < len(items):
        end = start
        while end < len(items) and is_part_of_graph(items[end]):
            end += 1
        if end > start:
            calls: list[Any] = items[start:end]
            calls[0].graph = graph_of(calls, items[end:], backend, value_of)
        start = max(end, start + 1)


def is_part_of_graph(item: Item) -> bool:
    """Whether an item is a call that a graph can hold."""
    if not isinstance(item, Call) or item.step is not None or item.careful or not item.gives_tensor:
        return False
    return item.function[0] == "constant" and all(map(_is_plain, (*item.arguments, *item.keywords.values())))


def _is_plain(expression: Expression) -> bool:
    if expression[0] == "make":
        return isinstance(expression[1], str) and all(map(_is_plain, expression[2]))
    return expression[0] in ("constant", "value", "part", "source")


def graph_of(calls: list[Call], later: list[Item], backend: Backend, value_of: Callable[[Expression], Any]) -> Any:
    graph = Graph()
    nodes: dict[Any, Node] = {}
    inputs: list[Expression] = []
    own = {call.number for call in calls}

    def argument(expression: Expression) -> Any:
        if expression[0] == "constant":
            return expression[1]
        if expression[0] == "make":
            return made(expression)
        key = expression_key(expression)
        if key not in nodes:
            nodes[key] = graph.placeholder(f"input_{len(inputs)}")
            inputs.append(expression)
        return nodes[key]

    def made(expression: Expression) -> Any:
        parts = [argument(part) for part in expression[2]]
        match expression[1]:
            case "dict":
                return dict(zip(parts[::2], parts[1::2], strict=True))
            case "slice":
                return slice(*parts)
            case how:
                return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[how](parts)

    # placeholders come first
    for call in calls:
        for expression in expressions_of(call):
            for leaf in _leaves(expression):
                if not own.intersection(values_in(leaf)):
                    argument(leaf)
    for call in calls:
        arguments = tuple(map(argument, call.arguments))
        keywords = {name: argument(value) for name, value in call.keywords.items()}
        nodes[("value", call.number)] = add_call(graph, call.function[1], arguments, keywords)
    used = {number for item in later for expression in expressions_of(item) for number in values_in(expression)}
    everything = any(isinstance(item, Guard) for item in later)
    outputs = [call.number for call in calls if call.alias is None and (everything or call.number in used)]
    graph.output(tuple(nodes[("value", number)] for number in outputs))
    module = GraphModule(torch.nn.Module(), graph)
    # what comes from calls before it is no business of the guards that were asked at the start
    module.meta["unchecked_inputs"] = tuple(n for n, expression in enumerate(inputs) if values_in(expression))
    return CallsAsGraph(calls, inputs, outputs, backend(module, [value_of(expression) for expression in inputs]))


def _leaves(expression: Expression) -> list[Expression]:
    if expression[0] == "make":
        return [leaf for part in expression[2] for leaf in _leaves(part)]
    return [] if expression[0] == "constant" else [expression]


def add_call(graph: Graph, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Node:
    """A call as graphs of torch's have it."""
    if isinstance(function, types.MethodDescriptorType) and arguments and isinstance(arguments[0], Node):
        return graph.call_method(function.__name__, arguments, keywords)
    if isinstance(function, types.WrapperDescriptorType) and function.__name__ == "__getitem__":
        return graph.call_function(operator.getitem, arguments, keywords)
    if isinstance(function, types.MethodWrapperType) and function.__name__ == "__get__":
        return graph.call_function(getattr, (arguments[0], function.__self__.__name__))  # type: ignore[attr-defined]
    return graph.call_function(function, arguments, keywords)
