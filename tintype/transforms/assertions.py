"""Runtime assertions: what a program relies on and only knows when it runs, as nodes of its graph.

Ranges of numbers that come from data are checked right after the node that gives the number; relations after the
last number in them is there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.fake.tensor import FakeTensor, is_symbolic
from tintype.ir.graph import append_call, meta_of
from tintype.ir.node_info import NodeMeta
from tintype.symbolic import Environment, Expr, Range, ge, le
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Symbol
from tintype.trace.numbers import Numbers, is_tangent, tangents_last

aten = torch.ops.aten


class AssertionWriter:
    """Inserts assertions into a recorded graph."""

    def __init__(self, graph: Graph, environment: Environment) -> None:
        self.graph = graph
        self.environment = environment
        self.order = {node: position for position, node in enumerate(graph.nodes)}
        # where each symbol becomes known: the node that has it as its value or as a size
        self.homes: dict[Symbol, Node] = {}
        self.numbers = Numbers(graph)
        for node in tangents_last(graph):
            if node.op != "placeholder" and len(self.homes) == len(environment.symbols):
                break  # inputs tell all there is to know
            self._note(node)

    def _note(self, node: Node) -> None:
        value = node.meta.get("val")
        if type(value) is FakeTensor:  # first: most are, and a fake is slow to tell what it is not
            if is_symbolic(value.info):
                self._note_sizes(node, value.info.sizes)
        elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            number = from_torch(value)
            # a node that computes what inputs before it tell may come after the place that needs it
            news = isinstance(number, Symbol) and number not in self.homes
            if news or (node.op == "placeholder" and isinstance(number, Expr)):
                self.numbers.define_value(node, number)
                for symbol in number.symbols:
                    self.homes.setdefault(symbol, node)

    def _note_sizes(self, node: Node, sizes: Sequence[Any]) -> None:
        is_input = node.op == "placeholder" and not is_tangent(node)
        for dimension, size in enumerate(sizes):
            # a size over symbols that are known already may be asked for before this node is there
            if type(size) is not int and (is_input or not size.symbols <= self.homes.keys()):
                self.numbers.define_size(node, dimension, size)
        for size in sizes:
            if type(size) is not int and not size.symbols <= self.homes.keys():
                for symbol in size.symbols:
                    self.homes.setdefault(symbol, node)

    def write(self, conditions: Sequence[tuple[Expr, str]]) -> None:
        """Assert the ranges of all numbers from data, and these conditions."""
        for symbol, home in list(self.homes.items()):
            if symbol.hint is None and symbol.kind == "int" and _is_number(home) and home.op != "placeholder":
                self._write_range(symbol, home)
        self.write_conditions(conditions)

    def write_conditions(self, conditions: Sequence[tuple[Expr, str]]) -> None:
        """Assert conditions, each where the last number in it becomes known."""
        for condition, message in conditions:
            if self.environment.known(condition) is True and not self._is_news(condition):
                continue
            homes = [self.homes[symbol] for symbol in condition.symbols if symbol in self.homes]
            if len(homes) == len(condition.symbols):
                place = max(homes, key=self.order.__getitem__)
                self._write_condition(condition, message, place)

    def _is_news(self, condition: Expr) -> bool:
        """Whether a condition says more than the ranges of numbers from data, which are asserted anyway."""
        if len(condition.symbols) != 1:
            return True
        (symbol,) = condition.symbols
        if symbol.hint is not None or not _is_number(self.homes.get(symbol)):
            return True
        return condition not in _range_conditions(symbol, self.environment.range(symbol))

    def _write_range(self, symbol: Symbol, home: Node) -> None:
        bounds = self.environment.range(symbol)
        limits: dict[str, Any] = {}
        if bounds.lower > -math.inf:
            limits["min"] = int(bounds.lower)
        if bounds.upper < math.inf:
            limits["max"] = int(bounds.upper)
        if not limits:
            return
        with self._after(home):
            node = append_call(self.graph, aten.sym_constrain_range.default, (home,), limits, "sym_constrain_range")
            node.meta = meta_of(home).derived(val=None)
        for condition in _range_conditions(symbol, bounds):
            self._write_condition(condition, "", self._last_at(home))

    def _write_condition(self, condition: Expr, message: str, place: Node) -> None:
        with self._after(self._last_at(place)):
            value = self.numbers.node(condition, meta_of(place).origin)
            text = message or f"Runtime assertion failed for expression {condition} on node {value.name!r}"
            node = append_call(self.graph, aten._assert_scalar.default, (value, text), {}, "_assert_scalar")
            node.meta = NodeMeta({"val": None}, meta_of(place).origin)
        self.numbers.forget_nodes()

    def _after(self, node: Node) -> Any:
        return self.graph.inserting_before(node.next)

    def _last_at(self, node: Node) -> Node:
        """The last node of those that were inserted after a node; inputs stay together."""
        while node.op == "placeholder" and node.next.op == "placeholder":
            node = node.next
        while node.next not in self.order and node.next.op == "call_function":
            node = node.next
        return node


def _is_number(node: Node | None) -> bool:
    return node is not None and isinstance(node.meta.get("val"), torch.SymInt)


def _range_conditions(symbol: Symbol, bounds: Range) -> list[Expr]:
    conditions = []
    if bounds.lower > -math.inf:
        conditions.append(ge(symbol, int(bounds.lower)))
    if bounds.upper < math.inf:
        conditions.append(le(symbol, int(bounds.upper)))
    return [condition for condition in conditions if isinstance(condition, Expr)]
