"""Sums of terms: adding many of them up, and the order in which they are printed and compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .expression import Expr, is_int, linear


def add_all(values: Iterable[Any]) -> Any:
    """The sum of many integers, in time linear in their number."""
    terms: dict[Expr, int] = {}
    constant = 0
    environment = None
    for value in values:
        if type(value) is int:
            constant += value
            continue
        if not is_int(value):
            raise TypeError(f"expected integers, not {value!r}")
        if environment is not None and value.environment is not environment:
            raise ValueError(f"{value} belongs to another environment than its operand")
        environment = value.environment
        constant += value.constant
        for monomial, coefficient in value.terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
    if environment is None:
        return constant
    return linear(environment, {part: count for part, count in terms.items() if count}, constant)


def ordered_terms(expression: Expr) -> list[tuple[Expr, int]]:
    """The terms in the order in which they are printed and compared."""
    terms = expression.terms
    if len(terms) == 1:
        return list(terms.items())
    return sorted(terms.items(), key=lambda term: term[0].order)
