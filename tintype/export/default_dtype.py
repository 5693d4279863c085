"""The default dtype in a decomposed program.

``torch.zeros(3)`` is of the default dtype when it runs. Decompositions write the dtype out, so that a decomposed
program is one for the default dtype at the time of its export, which is then checked when it is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.errors import Location
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import subgraph_at
from tintype.ir.node_info import NodeMeta
from tintype.ir.observations import Observation

_REAL = {torch.complex128: torch.float64, torch.complex64: torch.float32, torch.complex32: torch.float16}


def default_dtype_observation(graph: Graph) -> Observation | None:
    """What a decomposed program rests on, if an operator of the graph that it is made of takes the default dtype."""
    default = torch.get_default_dtype()
    for node in _nodes(graph):
        if node.op == "call_function" and _takes_default_dtype(node, default):
            origin = node.meta.origin if isinstance(node.meta, NodeMeta) else None
            line = origin.user_line() if origin is not None else None
            return Observation(None, "get_default_dtype", (), default, Location(*line) if line is not None else None)
    return None


def _nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        inner = subgraph_at(node) if node.op == "get_attr" else None
        if inner is not None:
            yield from _nodes(inner.graph)


def _takes_default_dtype(node: Node, default: torch.dtype) -> bool:
    """Whether an operator computes floating point from nothing of that kind, and nobody says of which."""
    value = node.meta.get("val")
    if type(value) is not FakeTensor or _REAL.get(value.dtype, value.dtype) is not default:
        return False
    if getattr(node.target, "namespace", "") != "aten":
        return False
    if any(_is_inexact(getattr(argument.meta.get("val"), "dtype", None)) for argument in node.all_input_nodes):
        return False
    return not any(isinstance(argument, torch.dtype) for argument in (*node.args, *node.kwargs.values()))


def _is_inexact(dtype: Any) -> bool:
    return isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype.is_complex)
