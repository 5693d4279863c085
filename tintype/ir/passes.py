"""A base for passes that rewrite a graph node by node."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tintype.ir.graph import LazyGraphModule, add_placeholder, meta_of


class GraphPass:
    """Copies a graph; a subclass says what becomes of its calls.

    >>> class SinusToCosine(GraphPass):
    ...     def call(self, graph, node, args, kwargs):
    ...         if node.target is torch.ops.aten.sin.default:
    ...             return graph.call_function(torch.ops.aten.cos.default, args, kwargs)
    ...         return super().call(graph, node, args, kwargs)
    >>> import tintype
    >>> program = tintype.export(torch.sin, (torch.zeros(2),))
    >>> SinusToCosine()(program.graph_module)(torch.zeros(2))
    (tensor([1., 1.]),)
    """

    def __call__(self, graph_module: GraphModule) -> GraphModule:
        graph = Graph()
        values: dict[Node, Any] = {}
        for node in graph_module.graph.nodes:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            if node.op == "placeholder":
                values[node] = add_placeholder(graph, node.name, meta_of(node).copy())
            elif node.op == "call_function":
                values[node] = self.call(graph, node, args, kwargs)
            else:
                values[node] = graph.create_node(node.op, node.target, args, kwargs, node.name)
                values[node].meta = meta_of(node).copy()
        return LazyGraphModule(graph_module, graph, type(self).__name__)

    def call(self, graph: Graph, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What stands for a call in the new graph; ``args`` and ``kwargs`` are nodes of the new graph already."""
        new = graph.create_node("call_function", node.target, args, kwargs, node.name)
        new.meta = meta_of(node).copy()
        return new
