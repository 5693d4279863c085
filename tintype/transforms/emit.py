"""Inserting operators into a graph that is being transformed, with their values worked out."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.fake.context import FakeContext
from tintype.fake.info import TensorInfo
from tintype.fake.meta_kernels import NoMetaKernel, infer
from tintype.fake.rules import RULES
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import append_call, append_item, location_of, meta_of, subgraph_at
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Expr
from tintype.trace.numbers import Numbers
from tintype.transforms.layouts import Layouts
from tintype.transforms.memory import info_of

__all__ = ["Emitter", "evaluate", "info_of", "location_of"]


def as_infos(arguments: Any) -> Any:
    """Arguments of a node as shape rules take them."""
    if isinstance(arguments, Node):
        value = arguments.meta.get("val")
        if type(value) is FakeTensor:
            return value.info
        return from_torch(value) if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value
    if isinstance(arguments, (list, tuple)):
        return [as_infos(item) for item in arguments]
    if isinstance(arguments, dict):
        return {key: as_infos(item) for key, item in arguments.items()}
    return arguments


def evaluate(context: FakeContext, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The infos of an operator's results, or None where neither a rule nor a meta kernel knows them."""
    infos, options = as_infos(args), as_infos(kwargs)
    rule = RULES.get(target)
    if rule is not None:
        try:
            return rule(*infos, **options)
        except NotImplementedError:
            pass
    try:
        return infer(target, infos, options, context.inferred)
    except NoMetaKernel:
        return None


def _looks_at_bits(graph: Graph) -> bool:
    if graph.find_nodes(op="call_function", target=torch.ops.aten.view.dtype, sort=False):
        return True
    inner = (subgraph_at(node) for node in graph.find_nodes(op="get_attr", sort=False))
    return any(_looks_at_bits(module.graph) for module in inner if module is not None)


class Emitter:
    """Inserts calls before a given node; they take over that node's origin.

    ``seen_as_bits``: whether a graph around this one looks at the bits of numbers."""

    def __init__(self, graph: Graph, context: FakeContext, seen_as_bits: bool = False) -> None:
        self.graph = graph
        self.context = context
        self.at: Node | None = None
        self.layouts = Layouts()
        self._numbers: Numbers | None = None
        self._seen_as_bits = seen_as_bits

    @functools.cached_property
    def looks_at_bits(self) -> bool:
        """Whether the program, which this graph may be a part of, looks at the bits of numbers."""
        return self._seen_as_bits or _looks_at_bits(self.graph)

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Insert a call that returns one tensor (or, for several, see :meth:`item`)."""
        assert self.at is not None
        results = evaluate(self.context, target, args, kwargs)
        if results is None:
            raise AssertionError(f"nothing is known of the results of {target}")
        name = target.overloadpacket.__name__ if isinstance(target, torch._ops.OpOverload) else target.__name__
        meta = meta_of(self.at).derived(val=self._fakes(results))
        with self.graph.inserting_before(self.at):
            return append_call(self.graph, target, self._with_nodes(args), self._with_nodes(kwargs), name, meta)

    def _with_nodes(self, value: Any) -> Any:
        """Arguments in which symbolic numbers are the nodes that compute them."""
        if isinstance(value, Expr):
            return self._number_nodes().node(value, meta_of(self.at).origin)  # type: ignore[arg-type]
        if isinstance(value, (list, tuple)):
            return type(value)([self._with_nodes(item) for item in value])
        if isinstance(value, dict):
            return {name: self._with_nodes(item) for name, item in value.items()}
        return value

    def _number_nodes(self) -> Numbers:
        if self._numbers is None:
            self._numbers = Numbers(self.graph)
            self._numbers.define_all()
        return self._numbers

    def item(self, node: Node, index: int) -> Node:
        """Insert the selection of one of a call's results."""
        assert self.at is not None
        meta = meta_of(self.at).derived(val=node.meta["val"][index])
        with self.graph.inserting_before(self.at):
            return append_item(self.graph, node, index, meta)

    def _fakes(self, results: Any) -> Any:
        if type(results) is TensorInfo:
            return make_fake(results, self.context)
        if isinstance(results, (list, tuple)):
            return tuple(self._fakes(item) for item in results)
        return results
