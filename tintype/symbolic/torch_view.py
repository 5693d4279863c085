"""The environment as torch's operator library sees it.

torch's Python kernels reach past the symbolic numbers in a few places: they
read ``node.expr`` (a sympy expression) and call methods of ``node.shape_env``.
This file answers those calls.  It is off our own paths.
"""

from __future__ import annotations

from typing import Any

from .environment import Environment
from .expression import Expr
from .ranges import INFINITY, Range
from .relations import and_, ge, le


def sympy_expression(value: Any) -> Any:
    """``value`` for sympy, kept on the expression and remembered for the way back."""
    from .sympy_conversion import to_sympy

    if not isinstance(value, Expr):
        return to_sympy(value)
    if value._sympy is None:
        value._sympy = to_sympy(value)
        value.environment.interned["sympy", value._sympy] = value
    return value._sympy


class _Bounds:
    """A range with the names that torch uses for it."""

    def __init__(self, bounds: Range) -> None:
        self.lower = bounds.lower
        self.upper = bounds.upper

    def is_singleton(self) -> bool:
        return self.lower == self.upper


class ShapeEnvironmentView:
    """Answers what torch's operator library asks of a shape environment."""

    prefer_deferred_runtime_asserts_over_guards = False

    def __init__(self, environment: Environment) -> None:
        self.environment = environment

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeEnvironmentView) and other.environment is self.environment

    def __hash__(self) -> int:
        return hash(id(self.environment))

    def _own(self, expression: Any) -> Any:
        if isinstance(expression, (Expr, int, float)):
            return expression
        found = self.environment.interned.get(("sympy", expression))
        if found is not None:
            return found
        from .sympy_conversion import from_sympy

        return from_sympy(expression, self.environment)

    def evaluate_sym_node(self, node: Any, size_oblivious: bool = False, fallback_value: bool | None = None) -> Any:
        if fallback_value is None:
            return node.evaluate(size_oblivious)
        return self.environment.guard_or(node.value, fallback_value)

    def _maybe_evaluate_static(self, expression: Any, **options: Any) -> Any:
        value = self._own(expression)
        if not isinstance(value, Expr):
            return value
        if value.kind == "bool":
            return self.environment.known(value)
        reduced = self.environment.simplify(value)
        return None if isinstance(reduced, Expr) else reduced

    def evaluate_expr(self, expression: Any, *arguments: Any, **options: Any) -> Any:
        value = self._own(expression)
        if isinstance(value, Expr) and value.kind == "bool":
            return self.environment.guard(value)
        return self.environment.specialize(value)

    def bound_sympy(self, expression: Any, *arguments: Any) -> _Bounds:
        return _Bounds(self.environment.range(self._own(expression)))

    def simplify(self, expression: Any) -> Any:
        return sympy_expression(self.environment.simplify(self._own(expression)))

    replace = simplify

    def is_unbacked_symint(self, symbol: Any) -> bool:
        value = self._own(symbol)
        return isinstance(value, Expr) and value.has_unbacked

    def guarding_hint_or_throw(self, expression: Any) -> Any:
        value = self._own(expression)
        hint = self.environment.hint(value)
        return self.environment.specialize(value) if hint is None else hint

    def optimization_hint(self, expression: Any, fallback: int | None = None) -> Any:
        hint = self.environment.hint(self._own(expression))
        return fallback if hint is None else hint

    def _constrain_range(self, expression: Any, lower: Any, upper: Any) -> None:
        self._promise(expression, lower, upper)

    def _constrain_range_for_size(self, expression: Any, lower: Any = None, upper: Any = None) -> None:
        self._promise(expression, 0 if lower is None else lower, upper)

    def _constrain_is_bounded(self, expression: Any, upper: Any) -> None:
        self._promise(expression, None, upper)

    def _promise(self, expression: Any, lower: Any, upper: Any) -> None:
        value = self._own(expression)
        conditions = []
        # torch writes its infinities as objects of its own, which are no int.
        if type(lower) is int and lower > -INFINITY:
            conditions.append(ge(value, lower))
        if type(upper) is int and upper < INFINITY:
            conditions.append(le(value, upper))
        shown = Range(lower if type(lower) is int else -INFINITY, upper if type(upper) is int else INFINITY)
        self.environment.require(and_(*conditions), f"Invalid value range for {value} between {shown}")
