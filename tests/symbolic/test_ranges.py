"""Range arithmetic holds every value that the operator gives, by brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from tests.symbolic import strategies
from tintype.symbolic import Environment, Expr, Range, ranges
from tintype.symbolic.intervals import declared_range
from tintype.symbolic.ranges import INFINITY

# Members of an interval that reaches to infinity: far enough to show what it does there.
FAR = (7, 12, 1000)


def small_ranges(lowest: int = -4, highest: int = 4) -> Iterator[Range]:
    ends = range(lowest, highest + 1)
    for lower, upper in itertools.combinations_with_replacement(ends, 2):
        yield Range(lower, upper)
    for end in ends:
        yield Range(end, INFINITY)
        yield Range(-INFINITY, end)
    yield Range(-INFINITY, INFINITY)


def members(operand: Range) -> list[int]:
    lower = -6 if operand.lower == -INFINITY else int(operand.lower)
    upper = 6 if operand.upper == INFINITY else int(operand.upper)
    values = list(range(lower, upper + 1))
    if operand.lower == -INFINITY:
        values.extend(-value for value in FAR)
    if operand.upper == INFINITY:
        values.extend(FAR)
    return values


BINARY: dict[str, tuple[Callable[..., Range], Callable[..., Any]]] = {
    "add": (ranges.add, lambda a, b: a + b),
    "subtract": (ranges.subtract, lambda a, b: a - b),
    "multiply": (ranges.multiply, lambda a, b: a * b),
    "floor_divide": (ranges.floor_divide, lambda a, b: a // b),
    "modulo": (ranges.modulo, lambda a, b: a % b),
    "true_divide": (ranges.true_divide, lambda a, b: a / b),
    "true_divide_integers": (ranges.true_divide_integers, lambda a, b: a / b),
    "minimum": (ranges.minimum, min),
    "maximum": (ranges.maximum, max),
    "bitwise_and": (ranges.bitwise_and, lambda a, b: a & b),
    "bitwise_or": (ranges.bitwise_or, lambda a, b: a | b),
    "bitwise_xor": (ranges.bitwise_xor, lambda a, b: a ^ b),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    function, python = BINARY[name]
    for left, right in itertools.product(small_ranges(-3, 3), small_ranges(-3, 3)):
        bounds = function(left, right)
        for one, other in itertools.product(members(left), members(right)):
            if other or ("divide" not in name and name != "modulo"):
                assert python(one, other) in bounds, f"{name}({left}, {right}): {one}, {other}"


UNARY: dict[str, tuple[Callable[..., Range], Callable[..., Any]]] = {
    "negative": (ranges.negative, lambda a: -a),
    "absolute": (ranges.absolute, abs),
    "to_float": (ranges.to_float, float),
    "square": (lambda a: ranges.power(a, 2), lambda a: a**2),
    "cube": (lambda a: ranges.power(a, 3), lambda a: a**3),
    "zeroth": (lambda a: ranges.power(a, 0), lambda a: a**0),
    "twice": (lambda a: ranges.scale(a, 2), lambda a: 2 * a),
    "minus three times": (lambda a: ranges.scale(a, -3), lambda a: -3 * a),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    function, python = UNARY[name]
    for operand in small_ranges():
        bounds = function(operand)
        assert all(python(value) in bounds for value in members(operand))


def test_general_power() -> None:
    for base, exponent in itertools.product(small_ranges(-3, 3), small_ranges(0, 3)):
        if exponent.lower < 0:
            continue
        bounds = ranges.general_power(base, exponent)
        for one, other in itertools.product(members(base), members(exponent)):
            assert one**other in bounds


@pytest.mark.parametrize(
    ("function", "python"),
    [
        (ranges.floor, math.floor),
        (ranges.ceiling, math.ceil),
        (ranges.truncated, math.trunc),
        (ranges.rounded, round),
    ],
    ids=["floor", "ceil", "trunc", "round"],
)
def test_to_integers(function: Callable[[Range], Range], python: Callable[[float], int]) -> None:
    steps = [step / 4 for step in range(-10, 11)]
    for lower, upper in itertools.combinations_with_replacement(steps, 2):
        bounds = function(Range(lower, upper))
        assert all(python(step) in bounds for step in steps if lower <= step <= upper)


def test_square_root() -> None:
    for operand in small_ranges(0, 6):
        if operand.lower >= 0:
            assert all(math.sqrt(value) in ranges.square_root(operand) for value in members(operand))


def test_exact_where_it_matters() -> None:
    """Bounds are not only sound but tight for the operators that sizes go through."""
    three_to_nine = Range(3, 9)
    assert ranges.floor_divide(three_to_nine, ranges.point(2)) == Range(1, 4)
    assert ranges.modulo(three_to_nine, ranges.point(4)) == Range(0, 3)
    assert ranges.modulo(Range(5, 7), ranges.point(4)) == Range(1, 3)
    assert ranges.multiply(three_to_nine, Range(0, INFINITY)) == Range(0, INFINITY)
    assert ranges.power(Range(-3, 2), 2) == Range(0, 9)


def test_huge_integers_do_not_overflow() -> None:
    huge = ranges.point(10**400)
    assert ranges.add(huge, Range(0, INFINITY)).upper == INFINITY
    assert ranges.to_float(huge).upper == INFINITY
    assert ranges.multiply(huge, huge).lower == 10**800


def test_text() -> None:
    assert repr(Range(0, INFINITY)) == "[0, oo]"
    assert repr(Range(-INFINITY, 7)) == "[-oo, 7]"


@settings(max_examples=250, deadline=None)
@given(strategies.integers())
def test_expressions(recipe: Any) -> None:
    leaves = strategies.symbols(Environment(), {"x": 2, "y": 2, "z": 2}, lower=-2, upper=3)
    try:
        bounds = declared_range(strategies.build(recipe, leaves))
    except ZeroDivisionError:
        return
    for values in strategies.assignments(-2, 3):
        expected = strategies.python_value(recipe, values)
        assert expected is None or expected in bounds, f"{recipe} at {values} is outside {bounds}"


def test_sums_with_shared_symbols() -> None:
    environment = Environment()
    size = environment.backed(4, lower=2, upper=8)
    grown = size + size // 2
    assert isinstance(grown, Expr)
    assert declared_range(grown) == Range(3, 12)
