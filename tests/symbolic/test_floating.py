"""Float expressions compute what Python computes, bit for bit, also where they came back to integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tintype.symbolic import Environment, absolute, eq, evaluate, le, lt, maximum, minimum, substitute
from tintype.symbolic.floating import (
    FUNCTIONS,
    ceil,
    floor,
    function,
    is_integer,
    round_to_digits,
    round_to_integer,
    to_float,
    trunc,
)


@pytest.fixture
def environment() -> Environment:
    return Environment()


@pytest.fixture
def sizes(environment: Environment) -> list[Any]:
    return [environment.backed(4), environment.backed(6), environment.backed(3)]


# Each operation as this package builds it and as Python computes it.
OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "+": (lambda a, b: a + b, lambda a, b: a + b),
    "-": (lambda a, b: a - b, lambda a, b: a - b),
    "*": (lambda a, b: a * b, lambda a, b: a * b),
    "/": (lambda a, b: a / b, lambda a, b: a / b),
    "//": (lambda a, b: a // b, lambda a, b: a // b),
    "%": (lambda a, b: a % b, lambda a, b: a % b),
    "float": (to_float, float),
    "floor": (floor, math.floor),
    "ceil": (ceil, math.ceil),
    "trunc": (trunc, math.trunc),
    "round": (round_to_integer, round),
    "round2": (lambda a: round_to_digits(a, 2), lambda a: round(a, 2)),
    "abs": (absolute, abs),
    "neg": (lambda a: -a, lambda a: -a),
    "is_integer": (is_integer, lambda a: float(a).is_integer()),
    "<": (lt, lambda a, b: a < b),
    "<=": (le, lambda a, b: a <= b),
    "==": (eq, lambda a, b: a == b),
}
LEAVES = st.one_of(
    st.sampled_from(["x", "y"]), st.integers(-4, 9), st.sampled_from([0.5, 1.5, 0.3, 2.0, -0.25, 1.0, 1e-3])
)
NUMBERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner, inner),
        st.tuples(st.sampled_from(["float", "floor", "ceil", "trunc", "round", "round2", "abs", "neg"]), inner),
    ),
    max_leaves=5,
)
QUESTIONS = st.one_of(
    NUMBERS,
    st.tuples(st.just("is_integer"), NUMBERS),
    st.tuples(st.sampled_from(["<", "<=", "=="]), NUMBERS, NUMBERS),
)


def build(recipe: Any, leaves: dict[str, Any], which: int) -> Any:
    if isinstance(recipe, str):
        return leaves[recipe]
    if not isinstance(recipe, tuple):
        return recipe
    operation, *arguments = recipe
    return OPERATIONS[operation][which](*(build(argument, leaves, which) for argument in arguments))


UNDEFINED = (ZeroDivisionError, OverflowError, ValueError)


@settings(max_examples=400, deadline=None)
@given(
    recipe=QUESTIONS,
    values=st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 40)), min_size=4, max_size=8),
)
def test_bit_for_bit(recipe: Any, values: list[tuple[int, int]]) -> None:
    environment = Environment()
    leaves: dict[str, Any] = {"x": environment.backed(4), "y": environment.backed(6)}
    try:
        result = build(recipe, leaves, 0)
    except UNDEFINED:
        return
    for x, y in [*values, (0, 0), (0, 1), (1, 1), (7, 3), (2**40, 3)]:
        try:
            expected = build(recipe, {"x": x, "y": y}, 1)
        except UNDEFINED:
            continue
        found = evaluate(result, {leaves["x"]: x, leaves["y"]: y})
        # The sign of zero is told apart; nan is like itself.
        assert repr(found) == repr(expected), f"{recipe} became {result}, at {x}, {y}"
        assert repr(substitute(result, {leaves["x"]: x, leaves["y"]: y})) == repr(expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, sizes: list[Any]) -> None:
    a = sizes[0]
    result = function(name, a / 8)
    assert result.kind == "float"
    assert str(result) == f"{name}(s0/8)"
    assert evaluate(result, {a: 5}) == getattr(math, name)(5 / 8)
    assert function(name, 0.5) == getattr(math, name)(0.5)


def test_extrema(sizes: list[Any]) -> None:
    a, b, _ = sizes
    assert str(maximum(a, 2.5)) == "Max(float(s0), 2.5)"
    assert evaluate(minimum(a / 2, b / 4), {a: 5, b: 8}) == 2.0
    assert maximum(2, 2.5) == 2.5


def test_exact_floats_come_back_as_integers(sizes: list[Any]) -> None:
    a, b, _ = sizes
    assert floor(a / 2) is a // 2
    assert ceil(a / 2) is (a + 1) // 2
    assert trunc(a / b) is a // b
    assert floor(to_float(a) * 0.5) is a // 2
    assert floor(to_float(a) * 1.5) is (3 * a) // 2
    assert trunc(to_float(a)) is a
    assert round_to_integer(to_float(a) * 2.0) is 2 * a
    assert (2 * a) / 2 is to_float(a)
    assert to_float(a) + 1 is to_float(a + 1)
    assert is_integer(a / 2) is eq(a % 2, 0)
    assert eq(to_float(a), 2.0) is eq(a, 2)
    assert eq(to_float(a), 2.5) is False
    assert lt(a, 2.5) is lt(a, 3)


def test_rounded_floats_are_left_alone(sizes: list[Any]) -> None:
    a, b, _ = sizes
    third = floor(to_float(a) * 0.3)
    assert third.operation == "floor"
    for value in (10, 20, 30, 1000):
        assert evaluate(third, {a: value}) == math.floor(value * 0.3)
    assert (a / b) * b is not to_float(a)


def test_huge_integers_are_no_exact_floats(environment: Environment) -> None:
    unknown: Any = environment.unbacked_int(lower=0)
    half = floor(unknown / 2)
    assert half.operation == "floor"
    odd = 2**60 + 1
    assert evaluate(half, {unknown: odd}) == math.floor(odd / 2)
