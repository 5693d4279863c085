"""Intervals with infinities, and what each operator does to them.

A bound is an ``int``, or ``-inf`` / ``inf``; for float expressions it is a
float.  Every function returns an interval that holds each value the operator
can give on operands from the given intervals: never too small, at times too
large.  Division takes operands as Python does (floor; the divisor is never 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

Bound: TypeAlias = int | float
INFINITY = math.inf


class Range(NamedTuple):
    """All numbers from ``lower`` to ``upper``, both included; empty when lower > upper."""

    lower: Bound
    upper: Bound

    @property
    def is_empty(self) -> bool:
        return self.lower > self.upper

    @property
    def is_point(self) -> bool:
        return self.lower == self.upper

    @property
    def is_bounded(self) -> bool:
        return self.lower != -INFINITY and self.upper != INFINITY

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and self.lower <= value <= self.upper

    def intersect(self, other: Range) -> Range:
        return Range(max(self.lower, other.lower), min(self.upper, other.upper))

    def hull(self, other: Range) -> Range:
        """The smallest range that holds both."""
        return Range(min(self.lower, other.lower), max(self.upper, other.upper))

    def __repr__(self) -> str:
        lower = "-oo" if self.lower == -INFINITY else self.lower
        upper = "oo" if self.upper == INFINITY else self.upper
        return f"[{lower}, {upper}]"


EVERYTHING = Range(-INFINITY, INFINITY)


def point(value: Bound) -> Range:
    """The range that holds one value."""
    return Range(value, value)


# -- bounds.  Python's int + inf overflows for huge ints and 0 * inf is nan, so
# -- infinities are told apart by hand.


def _infinite(bound: Bound) -> bool:
    return bound == INFINITY or bound == -INFINITY


def _plus(left: Bound, right: Bound) -> Bound:
    if type(left) is int and type(right) is int:
        return left + right
    if left == INFINITY or left == -INFINITY:
        return left
    if right == INFINITY or right == -INFINITY:
        return right
    return _finite(lambda: left + right, left, right)


def _times(left: Bound, right: Bound) -> Bound:
    if type(left) is int and type(right) is int:
        return left * right
    if left == 0 or right == 0:
        return 0
    if _infinite(left) or _infinite(right):
        return INFINITY if (left > 0) == (right > 0) else -INFINITY
    return _finite(lambda: left * right, left, right)


def _finite(compute: Callable[[], Bound], left: Bound, right: Bound) -> Bound:
    """``compute()``, where an int too large for a float counts as infinite."""
    try:
        return compute()
    except OverflowError:
        return INFINITY if (left > 0) == (right > 0) else -INFINITY


def _floor_quotient(left: Bound, right: Bound) -> Bound:
    if _infinite(left):
        return left if right > 0 else -left
    if _infinite(right):
        return 0 if left == 0 or (left > 0) == (right > 0) else -1
    return left // right


# -- linear arithmetic


def negative(operand: Range) -> Range:
    """The range of ``-x``."""
    return Range(-operand.upper, -operand.lower)


def add(left: Range, right: Range) -> Range:
    """The range of ``x + y``."""
    return Range(_plus(left.lower, right.lower), _plus(left.upper, right.upper))


def subtract(left: Range, right: Range) -> Range:
    """The range of ``x - y``."""
    return add(left, negative(right))


def sum_of(constant: int, parts: Iterable[tuple[Range, int]]) -> Range:
    """The range of ``constant + factor * x + ...``, from the range of each ``x`` and its factor."""
    lower: Bound = constant
    upper: Bound = constant
    for (low, high), factor in parts:
        if factor != 1:
            low, high = _times(low, factor), _times(high, factor)
            if factor < 0:
                low, high = high, low
        lower, upper = _plus(lower, low), _plus(upper, high)
    return Range(lower, upper)


def scale(operand: Range, factor: int) -> Range:
    """The range of ``factor * x``."""
    if factor >= 0:
        return Range(_times(operand.lower, factor), _times(operand.upper, factor))
    return Range(_times(operand.upper, factor), _times(operand.lower, factor))


def multiply(left: Range, right: Range) -> Range:
    """The range of ``x * y``."""
    corners = [_times(one, other) for one in left for other in right]
    return Range(min(corners), max(corners))


def power(base: Range, exponent: int) -> Range:
    """The range of ``x ** n`` for a constant natural ``n``."""
    if exponent == 0:
        return point(1)
    lower, upper = _raised(base.lower, exponent), _raised(base.upper, exponent)
    if exponent % 2 == 1:
        return Range(lower, upper)
    if base.lower >= 0:
        return Range(lower, upper)
    if base.upper <= 0:
        return Range(upper, lower)
    return Range(0, max(lower, upper))


def _raised(bound: Bound, exponent: int) -> Bound:
    if _infinite(bound):
        return bound if exponent % 2 else INFINITY
    return _finite(lambda: bound**exponent, bound if exponent % 2 else 1, 1)


def general_power(base: Range, exponent: Range) -> Range:
    """The range of ``x ** y`` for integers with y >= 0."""
    if exponent.is_point and type(exponent.lower) is int:
        return power(base, exponent.lower)
    if base.lower < 0:
        return EVERYTHING
    least = max(exponent.lower, 0)
    if base.lower == 0:
        lower: Bound = 0
    else:
        lower = _small_power(base.lower, least)
    return Range(lower, max(1, _small_power(base.upper, exponent.upper)))


def _small_power(base: Bound, exponent: Bound) -> Bound:
    """``base ** exponent`` for base >= 0, infinite when it would be a number too long to write."""
    if base in (0, 1):
        return 1 if base == 1 or exponent == 0 else 0
    if _infinite(base):
        return INFINITY
    if _infinite(exponent) or exponent * math.log2(base) > 4096:
        return INFINITY
    return base**exponent


# -- division


def floor_divide(left: Range, right: Range) -> Range:
    """The range of ``x // y`` for y other than 0."""
    pieces = []
    if right.upper >= 1:
        pieces.append(_corner_quotients(left, Range(max(right.lower, 1), right.upper)))
    if right.lower <= -1:
        pieces.append(_corner_quotients(left, Range(right.lower, min(right.upper, -1))))
    if not pieces:
        return EVERYTHING
    result = pieces[0]
    for piece in pieces[1:]:
        result = result.hull(piece)
    return result


def _corner_quotients(left: Range, right: Range) -> Range:
    corners = [_floor_quotient(one, other) for one in left for other in right]
    return Range(min(corners), max(corners))


def modulo(left: Range, right: Range) -> Range:
    """The range of ``x % y``; the result has the divisor's sign."""
    if right.is_point and right.lower != 0 and left.is_bounded:
        if left.lower // right.lower == left.upper // right.lower:
            ends = (left.lower % right.lower, left.upper % right.lower)
            return Range(min(ends), max(ends))
    if right.lower >= 1 and left.lower >= 0:
        if left.upper < right.lower:
            return left
        return Range(0, min(left.upper, _plus(right.upper, -1)))
    lower = min(0, _plus(right.lower, 1)) if right.lower < 0 else 0
    upper = max(0, _plus(right.upper, -1)) if right.upper > 0 else 0
    return Range(lower, upper)


# -- choice


def minimum(left: Range, right: Range) -> Range:
    """The range of ``min(x, y)``."""
    return Range(min(left.lower, right.lower), min(left.upper, right.upper))


def maximum(left: Range, right: Range) -> Range:
    """The range of ``max(x, y)``."""
    return Range(max(left.lower, right.lower), max(left.upper, right.upper))


def absolute(operand: Range) -> Range:
    """The range of ``abs(x)``."""
    if operand.lower >= 0:
        return operand
    if operand.upper <= 0:
        return negative(operand)
    return Range(0, max(-operand.lower, operand.upper))


# -- bits


def bitwise_and(left: Range, right: Range) -> Range:
    """The range of ``x & y``: a nonnegative operand bounds the result."""
    uppers = [operand.upper for operand in (left, right) if operand.lower >= 0]
    if uppers:
        return Range(0, min(uppers))
    if left.upper < 0 and right.upper < 0:
        return Range(_all_ones_below(left, right), min(left.upper, right.upper))
    return Range(_all_ones_below(left, right), max(left.upper, right.upper, 0))


def bitwise_or(left: Range, right: Range) -> Range:
    """The range of ``x | y``."""
    if left.lower >= 0 and right.lower >= 0:
        return Range(max(left.lower, right.lower), _all_ones_above(left, right))
    return Range(_all_ones_below(left, right), max(_all_ones_above(left, right), -1))


def bitwise_xor(left: Range, right: Range) -> Range:
    """The range of ``x ^ y``."""
    if left.lower >= 0 and right.lower >= 0:
        return Range(0, _all_ones_above(left, right))
    magnitude = max(_all_ones_above(left, right), -_all_ones_below(left, right) - 1, 0)
    return Range(-magnitude - 1, magnitude)


def _all_ones_above(left: Range, right: Range) -> Bound:
    """The largest number with no more bits than either operand's upper bound."""
    upper = max(left.upper, right.upper, 0)
    return upper if _infinite(upper) else (1 << int(upper).bit_length()) - 1


def _all_ones_below(left: Range, right: Range) -> Bound:
    """The least number with no more bits than either operand's lower bound."""
    lower = min(left.lower, right.lower, 0)
    return lower if _infinite(lower) else -(1 << int(-lower).bit_length())


# -- floats.  Rounding is monotone, so the correctly rounded corners bound the
# -- rounded result.


def true_divide(left: Range, right: Range) -> Range:
    """The range of ``x / y``; everything when the divisor may be 0."""
    if right.lower <= 0 <= right.upper:
        return EVERYTHING
    corners = [_true_quotient(one, other) for one in left for other in right]
    return Range(min(corners), max(corners))


def true_divide_integers(left: Range, right: Range) -> Range:
    """The range of ``x / y`` for integers, of which the divisor is never 0."""
    if right.lower == 0:
        right = Range(1, right.upper)
    if right.upper == 0:
        right = Range(right.lower, -1)
    return EVERYTHING if right.is_empty else true_divide(left, right)


def _true_quotient(left: Bound, right: Bound) -> float:
    if _infinite(right):
        # inf / inf: the quotient may be anything of that sign, the other corners tell how large.
        return 0.0
    if _infinite(left):
        return INFINITY if (left > 0) == (right > 0) else -INFINITY
    return float(_finite(lambda: left / right, left, right))


def to_float(operand: Range) -> Range:
    """The range of ``float(x)``."""
    return Range(_as_float(operand.lower), _as_float(operand.upper))


def _as_float(bound: Bound) -> float:
    return float(_finite(lambda: float(bound), bound, 1))


def square_root(operand: Range) -> Range:
    """The range of ``sqrt(x)`` for x >= 0."""
    return Range(math.sqrt(max(operand.lower, 0)), math.sqrt(max(operand.upper, 0)))


def floor(operand: Range) -> Range:
    """The range of ``floor(x)``, an integer."""
    return Range(_rounded(operand.lower, math.floor), _rounded(operand.upper, math.floor))


def ceiling(operand: Range) -> Range:
    """The range of ``ceil(x)``, an integer."""
    return Range(_rounded(operand.lower, math.ceil), _rounded(operand.upper, math.ceil))


def truncated(operand: Range) -> Range:
    """The range of ``trunc(x)``, an integer."""
    return Range(_rounded(operand.lower, math.trunc), _rounded(operand.upper, math.trunc))


def rounded(operand: Range) -> Range:
    """The range of ``round(x)``, an integer."""
    return Range(_rounded(operand.lower, round), _rounded(operand.upper, round))


def _rounded(bound: Bound, function: Callable[[float], int]) -> Bound:
    return bound if _infinite(bound) else function(bound)
