"""Minimum, maximum, absolute value, powers, and the choice between two values."""

from __future__ import annotations

from collections.abc import Iterable
from math import comb
from typing import Any

from .expression import (
    HIGHEST_DEGREE,
    HIGHEST_POWER,
    MOST_TERMS,
    Expr,
    Size,
    as_int,
    atom,
    environment_of,
    is_float,
    product_of,
)
from .intervals import declared_range
from .terms import ordered_terms


def minimum(left: Any, right: Any) -> Any:
    """The smaller of two sizes (or floats)."""
    if type(left) is int and type(right) is int:
        return left if left <= right else right
    return _extremum("min", left, right)


def maximum(left: Any, right: Any) -> Any:
    """The larger of two sizes (or floats)."""
    if type(left) is int and type(right) is int:
        return left if left >= right else right
    return _extremum("max", left, right)


def _extremum(operation: str, left: Any, right: Any) -> Any:
    left, right = as_int(left), as_int(right)
    if is_float(left) or is_float(right):
        from .floating import extremum

        return extremum(operation, left, right)
    kept = _undominated(operation, (*_flattened(operation, left), *_flattened(operation, right)))
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=_argument_order)
    return atom(environment_of(*kept), "int", operation, *kept)


def _flattened(operation: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, Expr) and value.operation == operation:
        return value.arguments
    return (value,)


def _undominated(operation: str, candidates: Iterable[Size]) -> list[Size]:
    """The candidates that no other one always beats."""
    kept: list[Size] = []
    for candidate in candidates:
        if any(_beats(operation, other, candidate) for other in kept):
            continue
        kept = [other for other in kept if not _beats(operation, candidate, other)]
        kept.append(candidate)
    return kept


def _beats(operation: str, one: Size, other: Size) -> bool:
    if one is other:
        return True
    difference = declared_range(one - other)
    if difference.upper <= 0 if operation == "min" else difference.lower >= 0:
        return True
    return _is_smaller_part(one, other) if operation == "min" else _is_smaller_part(other, one)


def _is_smaller_part(one: Size, other: Size) -> bool:
    """Whether one size is that of a smaller part of something than the other: ``s0 // 4`` and ``s0 // 2``."""
    if not (isinstance(one, Expr) and isinstance(other, Expr) and one.operation == other.operation == "floordiv"):
        return False
    (whole, parts), (other_whole, fewer) = one.arguments, other.arguments
    is_part = whole is other_whole and type(parts) is int and type(fewer) is int and parts >= fewer > 0
    return is_part and declared_range(whole).lower >= 0


def _argument_order(value: Size) -> Any:
    # Constants first, then as text: Max(1, s0).
    if type(value) is int:
        return (0, value, "")
    assert isinstance(value, Expr)
    return (1, 0, [(monomial.order, -coefficient) for monomial, coefficient in ordered_terms(value)])


def absolute(value: Any) -> Any:
    """``abs(value)``."""
    value = as_int(value)
    if not isinstance(value, Expr):
        return abs(value)
    if value.kind == "float":
        from .floating import absolute as absolute_float

        return absolute_float(value)
    bounds = declared_range(value)
    if bounds.lower >= 0:
        return value
    if bounds.upper <= 0:
        return -value
    if ordered_terms(value)[0][1] < 0:
        value = -value
    return atom(value.environment, "int", "abs", value)


def power(base: Size, exponent: Size) -> Any:
    """``base ** exponent``; a negative exponent gives a float, as in Python."""
    if type(exponent) is int:
        if type(base) is int:
            return base**exponent
        assert isinstance(base, Expr)
        if exponent < 0:
            from .floating import arithmetic

            return arithmetic("pow", base, exponent)
        return _constant_power(base, exponent)
    if type(base) is int and base in (0, 1) and declared_range(exponent).lower >= 1:
        return base
    return atom(environment_of(base, exponent), "int", "pow", base, exponent)


def _constant_power(base: Expr, exponent: int) -> Size:
    if exponent == 0:
        return 1
    if base.operation == "sum":
        # One term more for the constant; the count of terms when it is multiplied out.
        grown = comb(len(base.terms) + exponent, exponent)
        opaque = exponent > HIGHEST_POWER or grown > MOST_TERMS
    else:
        opaque = len(base.factors) * exponent > HIGHEST_DEGREE
    if opaque:
        return atom(base.environment, "int", "pow", base, exponent)
    if base.operation != "sum":
        factors = sorted(base.factors * exponent, key=lambda factor: factor.serial)
        return product_of(base.environment, tuple(factors))
    result: Size = base
    for _ in range(exponent - 1):
        result = result * base
    return result


def choose(condition: Any, chosen: Any, otherwise: Any) -> Any:
    """``chosen if condition else otherwise``, for values of one kind."""
    if isinstance(condition, bool):
        return chosen if condition else otherwise
    if chosen is otherwise or (not isinstance(chosen, Expr) and _identical(chosen, otherwise)):
        return chosen
    kind = _kind(chosen)
    if kind != _kind(otherwise):
        raise TypeError(f"a choice between {chosen} and {otherwise}, which are of different kinds")
    if kind == "bool":
        from .relations import and_, not_, or_

        return or_(and_(condition, chosen), and_(not_(condition), otherwise))
    if condition.operation in ("ne", "not"):
        # One form for a choice and for the same choice the other way round.
        from .relations import not_

        condition, chosen, otherwise = not_(condition), otherwise, chosen
    return atom(environment_of(condition, chosen, otherwise), kind, "choose", condition, chosen, otherwise)


def _kind(value: Any) -> Any:
    if isinstance(value, Expr):
        return value.kind
    return type(value).__name__


def _identical(left: Any, right: Any) -> bool:
    return not isinstance(right, Expr) and repr(left) == repr(right)
