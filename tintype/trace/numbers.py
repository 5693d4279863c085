"""Symbolic numbers as graph nodes.

Arithmetic on symbolic sizes is not recorded while it happens. Every number is an expression in normal form over
symbols, and a symbol is the size of some tensor or the value of one; when an operator uses a number, the nodes
that compute it are made from its expression. So a size that is computed twice is one node, and one that nobody
uses is none.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.errors import CaptureError
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import append_call, meta_of, set_meta
from tintype.ir.node_info import NodeMeta
from tintype.symbolic import and_, choose, eq, maximum, minimum, or_
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.expression import Expr, Size, Symbol, is_int
from tintype.symbolic.floating import to_float
from tintype.symbolic.location import user_location
from tintype.symbolic.terms import ordered_terms
from tintype.symbolic.text import sides

aten = torch.ops.aten


def is_tangent(node: Node) -> bool:
    """Whether a node is the gradient that is handed to the backward half of a joint graph."""
    return "tangent" in node.meta


def tangents_last(graph: Graph) -> Iterator[Node]:
    """The nodes in order, but for tangents, which are there when the forward half is over: they tell what nothing
    else does."""
    tangents = []
    for node in graph.nodes:
        if node.op == "placeholder" and is_tangent(node):
            tangents.append(node)
        else:
            yield node
    yield from tangents


class Numbers:
    """The numbers of one graph: where symbols come from, and the nodes made so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        # a symbol is a node, or a dimension of a node's tensor; so are some expressions
        self._sources: dict[Expr, Node | tuple[Node, int]] = {}
        # a symbol that no tensor has as its size, but some have a multiple of it: (expression, factor, rest)
        self._derived: dict[Symbol, tuple[Expr, int, Size]] = {}
        self._nodes: dict[Expr, Node] = {}
        # makes an input of the graph for a symbol that nothing in it has
        self.fetch: Callable[[Symbol], Node] | None = None

    def copy_of_state(self) -> tuple[dict[Any, Any], ...]:
        """What :meth:`restore` takes: for a try that may fail, after which its nodes are gone."""
        return dict(self._sources), dict(self._derived), dict(self._nodes)

    def restore(self, state: tuple[dict[Any, Any], ...]) -> None:
        """Forget what was defined since the state was copied."""
        self._sources, self._derived, self._nodes = state

    def forget_nodes(self) -> None:
        """Make nodes anew for numbers that are asked for from here on: for a place that those made so far may come
        after."""
        self._nodes.clear()

    def define_number(self, number: Expr, node: Node) -> None:
        """Let a number be the value of a node."""
        self._sources.setdefault(number, node)

    def define(self, symbol: Expr, source: Node | tuple[Node, int]) -> None:
        """Say where a symbol comes from; the first definition stays."""
        assert isinstance(symbol, Symbol)
        self._sources.setdefault(symbol, source)

    def define_sizes(self, node: Node, sizes: tuple[Any, ...]) -> None:
        """Let the symbols that are sizes of a tensor come from there."""
        for dimension, size in enumerate(sizes):
            if isinstance(size, Expr):
                self._define(size, (node, dimension))

    def define_size(self, node: Node, dimension: int, size: Expr) -> None:
        """Let one size come from a tensor."""
        self._define(size, (node, dimension))

    def define_value(self, node: Node, number: Expr) -> None:
        """Let a number, and the symbol that it is a multiple of, come from a node."""
        self._define(number, node)

    def _define(self, number: Expr, source: Node | tuple[Node, int]) -> None:
        self._sources.setdefault(number, source)
        if not isinstance(number, Symbol) and len(number.symbols) == 1:
            (symbol,) = number.symbols
            factor = number.terms.get(symbol)
            rest = number - factor * symbol if factor else number
            if factor and type(rest) is int:
                self._derived.setdefault(symbol, (number, factor, rest))

    def define_new_sizes(self, node: Node, sizes: tuple[Any, ...]) -> None:
        """The same for symbols that come from nowhere yet. Other numbers are computed from their symbols: one may be
        needed before the tensor that has it as its size is there."""
        self.define_sizes(node, tuple(None if self.is_computable(size) else size for size in sizes))

    def is_computable(self, size: Any) -> bool:
        """Whether all that a number consists of comes from somewhere."""
        symbols = size.symbols if isinstance(size, Expr) else ()
        return all(symbol in self._sources or symbol in self._derived for symbol in symbols)

    def define_all(self) -> None:
        """Let symbols come from the nodes of the graph that have them, each from the first one; from tangents, which
        are there when the forward half is over, only what comes from nowhere else."""
        for node in tangents_last(self.graph):
            value = node.meta.get("val")
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                number = from_torch(value)
                news = isinstance(number, Symbol) and not self.is_computable(number)
                if news or (node.op == "placeholder" and isinstance(number, Expr)):
                    self.define_value(node, number)
            elif type(value) is FakeTensor:
                self.define_new_sizes(node, value.info.sizes)

    def mark_asserted(self, conditions: Iterable[Expr]) -> None:
        """Let the nodes stay that the numbers in conditions come from: assertions of these will be written."""
        for condition in conditions:
            for symbol in condition.symbols:
                source = self._sources.get(symbol)
                if source is not None:
                    meta_of(source[0] if isinstance(source, tuple) else source).asserted = True

    def known_node(self, number: Expr) -> Node | None:
        """The node that computes a number, if it is there already."""
        return self._nodes.get(number)

    def node(self, number: Any, origin: Any) -> Any:
        """The node that computes a number; a plain number as it is."""
        if not isinstance(number, Expr):
            return number
        found = self._nodes.get(number)
        if found is None:
            found = self._nodes[number] = self._make(number, origin)
        return found

    def _make(self, number: Expr, origin: Any) -> Node:
        source = self._sources.get(number)
        if isinstance(source, tuple):
            return self._call(aten.sym_size.int, source, number, origin, "sym_size_int")
        if source is not None:
            return source
        if isinstance(number, Symbol):
            return self._symbol(number, origin)
        if number.operation == "sum":
            result: Any = None
            for monomial, coefficient in ordered_terms(number):
                term = self.node(monomial, origin)
                if coefficient != 1:
                    term = self._call(operator.mul, (coefficient, term), coefficient * monomial, origin)
                partial = coefficient * monomial if result is None else result[1] + coefficient * monomial
                node = term if result is None else self._call(operator.add, (result[0], term), partial, origin)
                result = (node, partial)
            if number.constant:
                result = (self._call(operator.add, (result[0], number.constant), number, origin), number)
            return result[0]
        if number.operation == "product":
            node, partial = self.node(number.factors[0], origin), number.factors[0]
            for factor in number.factors[1:]:
                partial = partial * factor
                node = self._call(operator.mul, (node, self.node(factor, origin)), partial, origin)
            return node
        return self._atom(number, origin)

    def _symbol(self, symbol: Symbol, origin: Any) -> Node:
        derived = self._derived.get(symbol)
        if derived is None and self.fetch is not None:
            return self.fetch(symbol)
        if derived is None:
            raise CaptureError(
                f"the program needs a number ({symbol}) where no tensor gives it, as outside of the arm of a branch "
                "or the step of a loop that it was read in",
                location=user_location() or symbol.environment.made_at(symbol),
                remedy="read it (shape, item(), int()) before the branch or the loop, or again where it is needed",
            )
        size, factor, rest = derived
        node: Any = self.node(size, origin)
        if rest:
            node = self._call(operator.sub, (node, rest), size - rest, origin)
        return node if factor == 1 else self._call(operator.floordiv, (node, factor), symbol, origin)

    def _atom(self, number: Expr, origin: Any) -> Node:
        if number.operation in ("eq", "ne", "le"):
            left, right, symbol = sides(number.arguments[0], ordered=number.operation == "le")
            comparison = _COMPARISONS[symbol if number.operation == "le" else number.operation]
            return self._call(comparison, (self.node(left, origin), self.node(right, origin)), number, origin)
        if number.operation in _QUOTIENTS and _may_divide_by_zero(number):
            return self.node(_quotient_of_kernel(*number.arguments), origin)
        arguments = tuple(self.node(argument, origin) for argument in number.arguments)
        function = _FUNCTIONS.get(number.operation)
        if function is None:
            raise CaptureError(
                f"the symbolic number {number} can't be computed in a captured program",
                location=user_location(),
                remedy=_on_tensor(number),
            )
        if len(arguments) > 2 and number.operation in _FOLDED:  # the functions take two at a time
            combine = _FOLDED[number.operation]
            partial = number.arguments[0]
            node = arguments[0]
            for argument, operand in zip(arguments[1:], number.arguments[1:], strict=True):
                partial = combine(partial, operand)
                node = self._call(function, (node, argument), partial, origin)
            return node
        return self._call(function, arguments, number, origin)

    def _call(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], number: Any, origin: Any, name: str = ""
    ) -> Node:
        node = append_call(self.graph, function, arguments, {}, name or function.__name__)
        set_meta(node, NodeMeta({"val": to_torch(number)}, origin))
        return node


def _on_tensor(number: Expr) -> str:
    """What to write for a number that no operator of numbers computes."""
    if number.operation == "round_digits":
        return f"round on a tensor: torch.round(torch.tensor(value), decimals={number.arguments[1]})"
    name = number.operation if callable(getattr(torch, str(number.operation), None)) else "log"
    return f"compute it on a tensor (torch.{name}(torch.tensor(float(size)))), or from int(size)"


def _may_divide_by_zero(quotient: Expr) -> bool:
    """Whether a kernel divides by what may be zero: it does not raise then, as Python does."""
    environment: Any = quotient.environment
    divisor: Any = quotient.arguments[1]
    if quotient not in environment.kernel_quotients or 0 not in environment.range(divisor):
        return False
    return eq(divisor, 0) is not False  # a range may have numbers in it that a multiple never is


def _quotient_of_kernel(dividend: Any, divisor: Any) -> Any:
    """A quotient that is infinite, or no number, where the divisor is zero."""
    is_zero = eq(divisor, 0)
    one = 1 if is_int(divisor) else 1.0
    quotient = dividend / choose(is_zero, one, divisor)
    return choose(is_zero, to_float(dividend) * math.inf, quotient)


_QUOTIENTS = frozenset({"int_truediv", "float_truediv"})

_FOLDED: dict[str, Callable[..., Any]] = {"min": minimum, "max": maximum, "and": and_, "or": or_}

_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "times": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": torch.sym_min,
    "max": torch.sym_max,
    "abs": operator.abs,
    "pow": operator.pow,
    "bit_and": operator.and_,
    "bit_or": operator.or_,
    "bit_xor": operator.xor,
    "bit_rshift": operator.rshift,
    "not": torch.sym_not,
    "and": operator.and_,
    "or": operator.or_,
    "choose": torch.sym_ite,
    "float_eq": operator.eq,
    "float_lt": operator.lt,
    "float_le": operator.le,
    "to_float": torch.sym_float,
    "int_truediv": operator.truediv,
    "float_add": operator.add,
    "float_sub": operator.sub,
    "float_mul": operator.mul,
    "float_truediv": operator.truediv,
    "float_floordiv": operator.floordiv,
    "float_mod": operator.mod,
    "float_pow": operator.pow,
    "float_neg": operator.neg,
    "float_abs": operator.abs,
    "float_min": torch.sym_min,
    "float_max": torch.sym_max,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
    "sqrt": torch._sym_sqrt,  # type: ignore[attr-defined]
}
