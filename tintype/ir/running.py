"""Running a graph node by node: on tensors, or on fakes while a program is captured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.ir.graph import placeholders, subgraph_at
from tintype.ir.operators import callable_of
from tintype.symbolic.bridge import sym_ite

Call = Callable[[Node, tuple[Any, ...], dict[str, Any]], Any]


def call_node(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a node computes from values."""
    if node.target is torch.sym_ite and type(args[1]) is not type(args[2]):
        return sym_ite(*args)  # torch's own wants two numbers of one class, also where one is a plain one
    return callable_of(node.target)(*args, **kwargs)


def run_graph(
    graph: Graph,
    inputs: Iterable[Any],
    call: Call = call_node,
    fetch: Callable[[Node], Any] = subgraph_at,
    values: dict[Node, Any] | None = None,
) -> Any:
    """The results of a graph: ``call`` is asked for the value of each call, given its arguments, and ``fetch`` for
    that of each attribute. ``values`` gets the value of every node.

    >>> import torch, tintype
    >>> graph = tintype.export(lambda x: (x + 1).sin(), (torch.zeros(2),)).graph
    >>> def show(node, args, kwargs):
    ...     print(node.target)
    ...     return call_node(node, args, kwargs)
    >>> run_graph(graph, [torch.ones(2)], show)
    aten.add.Tensor
    aten.sin.default
    (tensor([0.9093, 0.9093]),)
    """
    values = {} if values is None else values
    values.update(zip(placeholders(graph), inputs, strict=True))
    for node in graph.nodes:
        if node.op == "output":
            return torch.fx.node.map_arg(node.args[0], values.__getitem__)
        if node.op == "get_attr":
            values[node] = fetch(node)
        elif node.op != "placeholder":
            args: Any
            kwargs: Any
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = call(node, args, kwargs)
    raise AssertionError("a graph without an output")
