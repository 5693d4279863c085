"""The range of an expression from the ranges of its symbols.

``interval`` takes a function that says what is known of an expression beyond
its structure; the algebra passes none and gets the *declared* range, which
never changes and is kept on the expression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from . import ranges
from .expression import Expr, Symbol
from .ranges import EVERYTHING, Range, point

# What is known of an expression besides what follows from its parts.
Lookup: TypeAlias = Callable[[Expr], Range | None]


def interval(expression: Any, lookup: Lookup, cache: dict[Expr, Range]) -> Range:
    """The range of ``expression``; ``lookup`` narrows it at every level."""
    if not isinstance(expression, Expr):
        return point(expression)
    found = cache.get(expression)
    if found is None:
        if type(expression) is Symbol:
            found = expression.declared
        else:
            found = _structural(expression, lambda part: interval(part, lookup, cache))
        extra = lookup(expression)
        if extra is not None:
            found = found.intersect(extra)
        cache[expression] = found
    return found


def declared_range(expression: Any) -> Range:
    """The range that follows from the ranges its symbols were declared with."""
    if not isinstance(expression, Expr):
        return point(expression)
    found = expression._declared
    if found is None:
        found = expression._declared = _structural(expression, declared_range)
    return found


def _structural(expression: Expr, of: Callable[[Any], Range]) -> Range:
    operation = expression.operation
    if operation == "symbol":
        assert isinstance(expression, Symbol)
        return expression.declared
    if operation == "sum":
        return ranges.sum_of(expression.constant, [(of(part), factor) for part, factor in expression.terms.items()])
    if operation == "product":
        return _product(expression, of)
    rule = _RULES.get(operation)
    if rule is None:
        return Range(0, 1) if expression.kind == "bool" else EVERYTHING
    return rule(*(of(argument) for argument in expression.arguments))


def _product(expression: Expr, of: Callable[[Any], Range]) -> Range:
    counts: dict[Expr, int] = {}
    for factor in expression.factors:
        counts[factor] = counts.get(factor, 0) + 1
    total = point(1)
    for factor, count in counts.items():
        total = ranges.multiply(total, ranges.power(of(factor), count))
    return total


def _fold(rule: Callable[[Range, Range], Range]) -> Callable[..., Range]:
    def folded(*operands: Range) -> Range:
        total = operands[0]
        for operand in operands[1:]:
            total = rule(total, operand)
        return total

    return folded


def _choose(condition: Range, chosen: Range, otherwise: Range) -> Range:
    return chosen.hull(otherwise)


def _unit(operand: Range) -> Range:
    return Range(-1.0, 1.0)


_RULES: dict[str, Callable[..., Range]] = {
    "times": ranges.multiply,
    "floordiv": ranges.floor_divide,
    "mod": ranges.modulo,
    "min": _fold(ranges.minimum),
    "max": _fold(ranges.maximum),
    "abs": ranges.absolute,
    "pow": ranges.general_power,
    "bit_and": ranges.bitwise_and,
    "bit_or": ranges.bitwise_or,
    "bit_xor": ranges.bitwise_xor,
    "choose": _choose,
    "floor": ranges.floor,
    "ceil": ranges.ceiling,
    "trunc": ranges.truncated,
    "round": ranges.rounded,
    "to_float": ranges.to_float,
    "int_truediv": ranges.true_divide_integers,
    "float_add": ranges.add,
    "float_sub": ranges.subtract,
    "float_mul": ranges.multiply,
    "float_truediv": ranges.true_divide,
    "float_neg": ranges.negative,
    "float_abs": ranges.absolute,
    "float_min": _fold(ranges.minimum),
    "float_max": _fold(ranges.maximum),
    "sqrt": ranges.square_root,
    "sin": _unit,
    "cos": _unit,
    "tanh": _unit,
}
