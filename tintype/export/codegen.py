"""Python code that runs a program: takes the user's arguments apart, checks them, calls the operators.

The code that fx generates is for reading. This is for running: it binds every operator, constant and container
once, and handles arguments without containers - most of them - without a pytree in sight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.fx import GraphModule, Node

from tintype.export.assembled_results import assembled
from tintype.export.direct_calls import DIRECT_CALLS, spelled
from tintype.export.fake_claims import held_against_claims, is_of_the_user
from tintype.export.run_instead import RUN_INSTEAD
from tintype.ir import writing
from tintype.ir.graph import placeholders
from tintype.ir.names import is_name
from tintype.ir.operators import OPERATORS
from tintype.ir.writing import spell, variable
from tintype.tree import TreeSpec, put
from tintype.tree.subclasses import has_parts


class Writer(writing.Writer):
    """Writes code that runs graphs, also those that its operators take."""

    def __init__(self) -> None:
        super().__init__()
        self._graphs: dict[Any, Callable[..., Any]] = {}

    def bind_graph(self, module: Any, node: Node) -> str:
        """A name for the function that runs a graph which a node stands for; one for all calls that take it."""
        if module not in self._graphs:
            self._graphs[module] = compile_graph(module)
        return self.bind(self._graphs[module])

    def function_of(self, node: Node) -> Any:
        """What is called for a node."""
        called = callable_for(node.target)
        return held_against_claims(called, node) if is_of_the_user(node.target) else called

    def expression_of(self, node: Node) -> str | None:
        """What computes a node sooner than a call of that function does; None if there is nothing."""
        return spelled(node, lambda value: spell(self, value), self.bind)


def callable_for(target: Any) -> Any:
    """What to call for a node's target: for operators, what lies below their Python wrapper."""
    if target in RUN_INSTEAD:
        return RUN_INSTEAD[target]
    if isinstance(target, torch._ops.OpOverload):
        return DIRECT_CALLS.get(target, target._op)
    declaration = OPERATORS.get(target)
    return target if declaration is None else declaration.run


def compile_graph(module: GraphModule) -> Callable[..., Any]:
    """The function that runs a graph which an operator takes: flat arguments, a tuple of results."""
    return function_of_graph(module, Writer())


def function_of_graph(module: GraphModule, writer: Writer, gives_one: bool = False) -> Callable[..., Any]:
    """Such a function, as a writer writes it; it may give one result as it is."""
    nodes = list(module.graph.nodes)
    released = last_uses(nodes)
    for node in nodes:
        if node.op == "output":
            results = tuple(node.args[0])
            writer.line(f"return {spell(writer, results[0] if gives_one else results)}")
        elif node.op == "get_attr":
            writer.line(f"{variable(node)} = {writer.bind_graph(getattr(module, str(node.target)), node)}")
        elif node.op == "call_function":
            write_call(writer, node)
        if node in released and node.op != "placeholder":
            writer.line(" = ".join(variable(argument) for argument in released[node]) + " = None")
    run: Any = writer.build("_run", f"({', '.join(variable(node) for node in placeholders(module.graph))})")
    run.graph_module = module  # for operators that do more with a graph than calling it
    return run


def write_call(writer: Writer, node: Node, condition: str = "") -> None:
    """The line that computes a node."""
    expression = writer.expression_of(node)
    if expression is not None:
        writer.line(f"{condition}{variable(node)} = {expression}")
        return
    function = writer.bind(writer.function_of(node), "_f")
    writer.line(f"{condition}{variable(node)} = {function}({spell_arguments(writer, node.args, node.kwargs)})")


def spell_arguments(writer: Writer, args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    """What stands between the parentheses of a call. Keywords can be called anything (``class``)."""
    arguments = [spell(writer, argument) for argument in args]
    arguments += [f"{name}={spell(writer, value)}" for name, value in kwargs.items() if is_name(name)]
    odd = {name: value for name, value in kwargs.items() if not is_name(name)}
    if odd:
        arguments.append(f"**{spell(writer, odd)}")
    return ", ".join(arguments)


def last_uses(nodes: list[Node], same: Mapping[Node, Node] | None = None) -> dict[Node, list[Node]]:
    """For each node the values that are not needed after it; ``same`` has nodes whose value is another one's."""
    seen: set[Node] = set()
    released: dict[Node, list[Node]] = {}
    for node in reversed(nodes):
        used = [same[node]] if same and node in same else node.all_input_nodes
        mine = [argument for argument in used if argument not in seen]
        seen.update(mine)
        if mine and node.op != "output":
            released[node] = mine
    return released


def build_container(
    writer: Writer,
    spec: TreeSpec,
    leaves: Iterator[str],
    given: Mapping[tuple[int, ...], int] | None = None,
) -> str:
    """An expression that puts leaves into containers again; ``given`` has the places of containers
    of the caller's, by their numbers in ``_given``, which what is made there is put into."""
    made = _container_of(writer, spec, leaves, given, ())
    return f"{writer.bind(assembled)}({made})" if has_parts(spec) else made


def _container_of(
    writer: Writer,
    spec: TreeSpec,
    leaves: Iterator[str],
    given: Mapping[tuple[int, ...], int] | None,
    path: tuple[int, ...],
) -> str:
    if spec.is_leaf():
        return next(leaves)
    children = [
        _container_of(writer, child, leaves, given, (*path, number)) for number, child in enumerate(spec.children())
    ]
    made = _container(writer, spec, children)
    return f"{writer.bind(put)}(_given[{given[path]}], {made})" if given and path in given else made


def _container(writer: Writer, spec: TreeSpec, children: list[str]) -> str:
    if spec.type is tuple:
        return "(" + "".join(f"{child}, " for child in children) + ")"
    if spec.type is list:
        return "[" + ", ".join(children) + "]"
    if spec.type is dict:
        pairs = zip(spec.context, children, strict=True)
        return "{" + ", ".join(f"{spell(writer, key)}: {child}" for key, child in pairs) + "}"
    if spec.type is torch.Size:  # the registered function makes a plain tuple of it
        return f"{writer.bind(torch.Size)}([{', '.join(children)}])"
    rebuild = pytree.SUPPORTED_NODES[spec.type].unflatten_fn
    return f"{writer.bind(rebuild)}([{', '.join(children)}], {writer.bind(spec.context)})"
