"""Sizes and conditions in a form that the page can compute with: nested lists, whose first item is the operation.

A symbol is its own name as a string, an integer a number (or ``["int", text]`` where JavaScript's numbers end), a
float ``["float", text]``. ``page/expressions.js`` evaluates them.
"""

from __future__ import annotations

import math
from typing import Any

from tintype.symbolic import Expr, Range
from tintype.symbolic.terms import ordered_terms

# beyond this, numbers of JavaScript are no longer exact
_LARGEST = 2**53 - 1
# sizes are 64-bit integers: a bound up there is none
_UNBOUNDED = 2**62


def expression_data(value: Any) -> Any:
    """A number, a truth value or an expression.

    >>> from tintype.symbolic import Environment
    >>> batch = Environment().backed(4)
    >>> expression_data(2 * batch + 1)
    ['sum', 1, [2, 's0']]
    >>> expression_data(batch // 3)
    ['floordiv', 's0', 3]
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST else ["int", str(value)]
    if isinstance(value, float):
        return ["float", repr(value)]
    if not isinstance(value, Expr):
        raise TypeError(f"{value!r} is no expression")
    if value.operation == "symbol":
        return value.arguments[0]
    if value.operation == "sum":
        terms = [[expression_data(count), expression_data(part)] for part, count in ordered_terms(value)]
        return ["sum", expression_data(value.constant), *terms]
    if value.operation == "product":
        return ["product", *(expression_data(factor) for factor in value.factors)]
    return [value.operation, *(expression_data(argument) for argument in value.arguments)]


def bounds_data(bounds: Range | None) -> list[int | None]:
    """The smallest and the largest value; None where there is no bound."""
    if bounds is None:
        return [None, None]
    return [_bound(bounds.lower), _bound(bounds.upper)]


def _bound(value: float) -> int | None:
    return None if math.isinf(value) or abs(value) >= _UNBOUNDED else int(value)
