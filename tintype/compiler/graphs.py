"""Runs of calls as graphs for a backend.

Calls that follow each other, with tensors in and a tensor out, become one graph module. It takes the tensors that it
uses from outside, and gives those that anything later may use.
"""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import _get_qualified_name

from tintype.aot.function import CompiledFunction
from tintype.compiler.backends import Backend
from tintype.compiler.expressions import Expression, expression_key, values_in
from tintype.compiler.fast_runs import FastRun
from tintype.compiler.sources import Guard, Raised
from tintype.compiler.trace import Call, Item, expressions_of


class GraphOfCalls(GraphModule):
    """A graph of calls. Hooks that somebody has registered for all modules do not hear it: it is none of theirs.

    Its code names functions, and calls those that it was made of, whatever their names lead to by now."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def recompile(self) -> Any:
        code = super().recompile()
        namespace: Any = type(self).forward.__globals__
        if "torch" in namespace:
            names = namespace["torch"] = _Names(torch)
            for function in {node.target for node in self.graph.nodes if node.op == "call_function"}:
                package, *path = _get_qualified_name(function).split(".")
                if package == "torch":
                    names.bind(path, function)
        return code


class _Names:
    """A module with functions as they were."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def bind(self, path: list[str], function: Any) -> None:
        """Let a function be found under its name."""
        name, *rest = path
        if not rest:
            self.__dict__[name] = function
            return
        if name not in self.__dict__:
            self.__dict__[name] = _Names(getattr(self.module, name))
        self.__dict__[name].bind(rest, function)


class CallsAsGraph:
    """Calls that are one graph: what goes in, what comes out, and who runs it."""

    def __init__(
        self, calls: list[Call], inputs: list[Expression], outputs: list[int], run: Callable[..., Any]
    ) -> None:
        self.calls = calls
        self.inputs = inputs
        self.outputs = outputs
        self.run = run
        # whether what our own graphs refuse is done without them; errors of a backend that was asked for are shown
        self.falls_back = isinstance(run, (CompiledFunction, FastRun))

    def one_by_one(self, inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...] | None, dict[str, Any]]:
        """Its outputs, by the calls of the program; None, and the results so far as variables of the program's
        code: a call has raised what the program may catch."""
        known = dict(zip(map(expression_key, self.inputs), inputs, strict=True))

        def value_of(expression: Expression) -> Any:
            if expression[0] == "constant":
                return expression[1]
            if expression[0] == "make":
                return _made(expression[1], [value_of(part) for part in expression[2]])
            key = expression_key(expression)
            return known[key] if key in known else value_of(expression[1])[expression[2]]

        results: dict[str, Any] = {}
        for call in self.calls:
            keywords = {name: value_of(value) for name, value in call.keywords.items()}
            try:
                result = call.function[1](*map(value_of, call.arguments), **keywords)
            except Exception as error:
                if not call.careful:
                    raise
                return None, {**results, f"v{call.number}": Raised(error)}
            known[("value", call.number)] = results[f"v{call.number}"] = result
        return tuple(results[f"v{number}"] for number in self.outputs), results


def of_free_sizes(items: Sequence[Item]) -> set[Any]:
    """The paths of tensors of which guards of a run leave sizes open."""
    guards = [item for item in items if isinstance(item, Guard) and item.kind == "tensor"]
    return {guard.source.path for guard in guards if None in guard.expected[2]}


def make_graphs(
    items: list[Item],
    backend: Backend,
    value_of: Callable[[Expression], Any],
    free: Collection[Any] = (),
    ahead: bool = False,
) -> None:
    """Give the first call of each group its graph. ``value_of`` are the tensors of the run that was recorded;
    ``free`` are those of which some sizes vary (see :func:`of_free_sizes`).

    ``ahead``: graphs of ``aot`` are made now, and an error is raised where there are none; else when they first run,
    and calls of which no graph can be made are done one by one."""
    ends = ends_of_graphs(items)
    start = after_double_backward(items)
    uses = Uses(items)
    while start < len(items):
        end = start
        calls: list[Call] = []
        numbers: set[int] = set()
        is_careful = writes = False
        while end < len(items):
            item = items[end]
            if is_part_of_graph(item):
                assert isinstance(item, Call)
                is_careful, writes = is_careful or item.careful, writes or item.writes
                if is_careful and writes:
                    break  # what raises an exception is done again, call by call
                calls.append(item)
                numbers.add(item.number)
            elif not is_transparent(item, numbers):
                break
            end += 1
            if end in ends:
                break
        if calls:
            calls[0].graph = made = graph_of(calls, outputs_of(calls, end, uses), backend, value_of, free)
            if ahead and isinstance(made.run, FastRun):
                made.run.prepare([value_of(expression) for expression in made.inputs])
        start = max(end, start + 1)


def ends_of_graphs(items: list[Item], later: Iterable[Item] = ()) -> set[int]:
    """The positions behind calls that give what the program returns, stores or hands on, and computes with, too.

    Gradients of one result of a graph by another are none: to autograd the graph is one step. So what is computed
    from a tensor that others get, with its history, is another graph than the one that it comes from."""
    seen: set[int] = set()
    for item in itertools.chain(items, later):
        if not is_part_of_graph(item):
            seen.update(number for expression in expressions_of(item) for number in values_in(expression))
    ready: dict[int, int] = {}  # where each of them has got what it holds in the end
    last: dict[int, int] = {}  # where it is computed with
    for position, item in enumerate(items):
        if not isinstance(item, Call) or not is_part_of_graph(item):
            continue
        if item.number in seen and item.has_history and item.alias is None:
            ready[item.number] = position
        for number in {number for expression in expressions_of(item) for number in values_in(expression)}:
            if number in ready:
                (ready if item.writes else last)[number] = position
    return {position + 1 for number, position in ready.items() if last.get(number, -1) > position}


def after_double_backward(items: list[Item]) -> int:
    """The position behind the last call that asks for gradients which have a history of their own: graphs have no
    second derivative, so what comes before is no part of one."""
    found = [position for position, item in enumerate(items) if isinstance(item, Call) and _keeps_history(item)]
    return found[-1] + 1 if found else 0


def _keeps_history(call: Call) -> bool:
    """Whether it is ``grad(..., create_graph=True)``, or ``backward``."""
    place = _CREATE_GRAPH.get(call.function[1]) if call.function[0] == "constant" else None
    if place is None:
        return False
    given = call.keywords.get("create_graph") or (call.arguments[place : place + 1] or [("constant", False)])[0]
    return given not in (("constant", False), ("constant", None))


def is_transparent(item: Item, numbers: set[int]) -> bool:
    """Whether a graph goes on behind an item: it asks for what is known, or whether a call of the graph returned."""
    if not isinstance(item, Guard):
        return False
    return item.kind == "assumed" or (item.kind == "returned" and item.source.key in numbers)


def is_part_of_graph(item: Item) -> bool:
    """Whether an item is a call that a graph can hold."""
    if not isinstance(item, Call) or item.step is not None or (not item.gives_tensor and item.tensors is None):
        return False
    if item.makes_leaf:  # others may ask for gradients of what is computed from it, and a graph has one history
        return False
    return item.function[0] == "constant" and all(map(_is_plain, (*item.arguments, *item.keywords.values())))


def _is_plain(expression: Expression) -> bool:
    if expression[0] == "make":
        return isinstance(expression[1], str) and all(map(_is_plain, expression[2]))
    return expression[0] in ("constant", "value", "part", "source")


def graph_of(
    calls: list[Call],
    outputs: list[int],
    backend: Backend,
    value_of: Callable[[Expression], Any],
    free: Collection[Any],
) -> CallsAsGraph:
    """Calls as one graph, in the hands of a backend."""
    graph = Graph()
    nodes: dict[Any, Node] = {}
    inputs: list[Expression] = []
    own = {call.number for call in calls}

    def argument(expression: Expression) -> Any:
        if expression[0] == "constant":
            return expression[1]
        if expression[0] == "make":
            return _made(expression[1], [argument(part) for part in expression[2]])
        key = expression_key(expression)
        if key not in nodes and expression[0] == "part" and expression_key(expression[1]) in nodes:
            nodes[key] = graph.call_function(operator.getitem, (nodes[expression_key(expression[1])], expression[2]))
        if key not in nodes:
            nodes[key] = graph.placeholder(f"input_{len(inputs)}")
            inputs.append(expression)
        return nodes[key]

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
    graph.output(tuple(nodes[("value", number)] for number in outputs))
    module = GraphOfCalls(torch.nn.Module(), graph)
    module.meta["unchecked_inputs"] = tuple(n for n, value in enumerate(inputs) if _is_unchecked(value, free))
    module.meta["sizes_vary"] = bool(free)
    module.meta["state_inputs"] = tuple(n for n, value in enumerate(inputs) if _is_state(value))
    run = run_of(backend, module, [value_of(expression) for expression in inputs])
    return CallsAsGraph(calls, inputs, outputs, run)


def _made(how: str, parts: list[Any]) -> Any:
    """A container among the arguments of a call, of nodes and constants."""
    match how:
        case "dict":
            return dict(zip(parts[::2], parts[1::2], strict=True))
        case "slice":
            return slice(*parts)
    return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[how](parts)


def _is_unchecked(expression: Expression, free: Collection[Any]) -> bool:
    """Whether guards leave something open of an input: it comes from calls before the graph, or its sizes vary."""
    return bool(values_in(expression)) or (expression[0] == "source" and expression[1].path in free)


def _is_state(expression: Expression) -> bool:
    """Whether an input is found in what is there between calls, such as the parameters of a module."""
    return expression[0] == "source" and expression[1].root.kind == "constant"


def run_of(backend: Backend, module: GraphModule, examples: list[Any]) -> Callable[..., Any]:
    """What runs a graph; graphs of ``aot`` without asking what guards have asked."""
    run = backend(module, examples)
    if isinstance(run, CompiledFunction):
        return FastRun(run, module.meta["unchecked_inputs"], module.meta["sizes_vary"])
    return run


class Uses:
    """Where the results of calls are used last among the items of a run, and where the last guard stands."""

    def __init__(self, items: list[Item]) -> None:
        self.last: dict[int, int] = {}
        self.last_guard = -1
        for position, item in enumerate(items):
            used = [number for expression in expressions_of(item) for number in values_in(expression)]
            if isinstance(item, Guard) and item.kind != "assumed":
                self.last_guard = position
                used += [number for source in item.sources for number in values_in(("source", source))]
            self.last.update(dict.fromkeys(used, position))


def outputs_of(calls: list[Call], end: int, uses: Uses) -> list[int]:
    """What anything from a position on may use: also another run, which goes on where a guard has another answer."""
    gone = {number for call in calls for number in call.frees}
    may_miss = uses.last_guard >= end
    return [
        call.number
        for call in calls
        if call.alias is None and (uses.last.get(call.number, -1) >= end or (may_miss and call.number not in gone))
    ]


def _leaves(expression: Expression) -> list[Expression]:
    if expression[0] == "make":
        return [leaf for part in expression[2] for leaf in _leaves(part)]
    return [] if expression[0] == "constant" else [expression]


def add_call(graph: Graph, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Node:
    """A call as graphs of torch's have it."""
    if isinstance(function, types.MethodDescriptorType) and arguments and isinstance(arguments[0], Node):
        return graph.call_method(function.__name__, arguments, keywords)
    method = _METHODS_OF_TENSORS.get(function) if isinstance(function, types.FunctionType) else None
    if method is not None and arguments and isinstance(arguments[0], Node):
        return graph.call_method(method, arguments, keywords)
    if isinstance(function, types.WrapperDescriptorType) and function.__name__ == "__getitem__":
        return graph.call_function(operator.getitem, arguments, keywords)
    if isinstance(function, types.MethodWrapperType) and function.__name__ == "__get__":
        return graph.call_function(getattr, (arguments[0], function.__self__.__name__))  # type: ignore[attr-defined]
    return graph.call_function(function, arguments, keywords)


# where create_graph stands among the arguments of what computes gradients
_CREATE_GRAPH = {torch.autograd.grad: 4, torch.autograd.backward: 3, torch.Tensor.backward: 3}

# methods of tensors that are written in Python: code of graphs can't name them but as methods
_METHODS_OF_TENSORS = {
    function: name for name, function in vars(torch.Tensor).items() if isinstance(function, types.FunctionType)
}
