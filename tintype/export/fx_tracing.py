"""Modules of a tree under fx's symbolic tracer: what their graphs do, with values that are not there yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Proxy
from torch.fx.proxy import TracerBase

from tintype.errors import InvalidRequestError
from tintype.export.own_attributes import CHANGING
from tintype.ir.operators import OPERATORS

# whose graphs call modules just now: one that takes nothing (it computes a weight) has no value that tells who traces
_calling: list[TracerBase] = []


def tracer_of(values: Sequence[Any]) -> TracerBase | None:
    """Who traces, if one of the values is not there yet."""
    tracer = next((value.tracer for value in values if isinstance(value, Proxy)), None)
    return _calling[-1] if tracer is None and _calling else tracer


def traced_by_fx(module: torch.nn.Module, graph: Graph, tracer: TracerBase, leaves: Sequence[Any]) -> Any:
    """The results of a module's graph; nothing is asked of values that are not there yet."""
    changing = any(CHANGING in vars(each) for each in module.modules())
    if changing or any(node.target in OPERATORS for node in graph.nodes if node.op == "call_function"):
        what = "calls that write to state" if changing else "operators that take functions"
        raise InvalidRequestError(
            f"torch.fx.symbolic_trace has no form for {what}, which the module has",
            remedy="use program.graph, or torch.compile, which takes such modules",
        )
    return _Run(module, graph, tracer).run(*leaves, enable_io_processing=False)


class _Run(torch.fx.Interpreter):
    """Parameters and buffers are values of the traced graph, too: what is computed from them may change with them."""

    def __init__(self, module: torch.nn.Module, graph: Graph, tracer: Any) -> None:
        super().__init__(module, graph=graph)
        self._tracer = tracer
        path = tracer.path_of_module(module)
        self._prefix = f"{path}." if path else ""

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        if not isinstance(value, torch.Tensor):
            return value
        return self._tracer.create_proxy("get_attr", f"{self._prefix}{target}", (), {})

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        _calling.append(self._tracer)
        try:
            return super().call_module(target, args, kwargs)
        finally:
            _calling.pop()
