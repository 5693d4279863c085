"""Expressions as text, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from tests.symbolic import strategies
from tintype.errors import CaptureError
from tintype.symbolic import (
    Environment,
    Expr,
    ExpressionSyntaxError,
    absolute,
    and_,
    choose,
    eq,
    evaluate,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    ne,
    not_,
    or_,
    parse,
    python_source,
    text,
)
from tintype.symbolic.floating import (
    ceil,
    floor,
    function,
    round_to_digits,
    round_to_integer,
    to_float,
    trunc,
)

ENVIRONMENT = Environment()
S0, S1, S2 = (ENVIRONMENT.backed(hint) for hint in (4, 6, 3))
U0 = ENVIRONMENT.unbacked_int()
DIM = ENVIRONMENT.backed(5, name="dim")
ZUF0 = ENVIRONMENT.unbacked_float()

CASES = [
    (S0, "s0"),
    (U0, "u0"),
    (ZUF0, "zuf0"),
    (2 * DIM + 1, "2*dim + 1"),
    (3 * DIM - 1, "3*dim - 1"),
    (S0 - S1, "s0 - s1"),
    (-S0, "-s0"),
    (S1 * S0 * 2, "2*s0*s1"),
    (S0 + S0**2 + 1, "s0**2 + s0 + 1"),
    (S1 + S0 * S1 + S0, "s0*s1 + s0 + s1"),
    (S0 // 2, "s0//2"),
    ((S0 + 1) // 2, "(s0 + 1)//2"),
    ((S0 * S1) // 3, "s0*s1//3"),
    (2 * (S0 // 3), "2*(s0//3)"),
    (-(S0 // 2), "-(s0//2)"),
    (S1 - S0 // 2, "s1 - s0//2"),
    (S0 * (S1 // 2), "s0*(s1//2)"),
    ((S0 // 2) ** 2, "(s0//2)**2"),
    (S0 // S1, "s0//s1"),
    (S0 // (S1 + 1), "s0//(s1 + 1)"),
    (S0 % 2, "Mod(s0, 2)"),
    (maximum(S0, 1), "Max(1, s0)"),
    (minimum(S1, S0), "Min(s0, s1)"),
    (minimum(S0 // 2, S0 // 4), "s0//4"),
    (minimum(S0 // 4, S0 // 2), "s0//4"),
    (maximum(S0 // 2, S0 // 4), "s0//2"),
    (minimum(U0 // 2, U0 // 4), "Min(u0//2, u0//4)"),
    (minimum(S0 // 4, S1 // 2), "Min(s0//4, s1//2)"),
    (absolute(U0), "Abs(u0)"),
    (2**S0, "2**s0"),
    ((S0 + 1) ** S1, "(s0 + 1)**s1"),
    (eq(S0**2, 3 * S1), "Eq(s0**2, 3*s1)"),
    (eq(2 * S0, 2 * S1), "Eq(s0, s1)"),
    (ne(S0, 20), "Ne(s0, 20)"),
    (ne(S0 % 20, 0), "Ne(Mod(s0, 20), 0)"),
    (ne(S0, S1**3), "Ne(s0, s1**3)"),
    (lt(S0, S1), "s0 < s1"),
    (gt(S0, S1), "s1 < s0"),
    (le(S0, 5), "s0 <= 5"),
    (ge(S0, 3), "s0 >= 3"),
    (ge(S0, 1), "s0 >= 1"),
    (le(S0 + S1, 7), "s0 + s1 <= 7"),
    (ge(S0 * S1**2, 1), "And(s0 >= 1, s1 >= 1)"),
    (eq(S0 * S1**2, 0), "Or(Eq(s0, 0), Eq(s1, 0))"),
    (le(U0, 0), "u0 <= 0"),
    (ge(U0, 0), "u0 >= 0"),
    (and_(ge(S0, 3), ne(S0, S1)), "And(Ne(s0, s1), s0 >= 3)"),
    (or_(eq(S0, 3), le(S1, 2)), "Or(Eq(s0, 3), s1 <= 2)"),
    (choose(eq(S0, 3), S0, 1), "Where(Eq(s0, 3), s0, 1)"),
    (S0 & 5, "BitAnd(s0, 5)"),
    (S0 | S1, "BitOr(s0, s1)"),
    (S0 / 2, "s0/2"),
    (S0 / S1, "s0/s1"),
    (to_float(S0), "float(s0)"),
    (to_float(S0) * 0.3, "float(s0)*0.3"),
    (ZUF0 + 1, "zuf0 + 1.0"),
    (-ZUF0, "-zuf0"),
    (function("sqrt", S0), "sqrt(float(s0))"),
    (floor(ZUF0), "floor(zuf0)"),
    (ceil(ZUF0 * 2), "ceil(zuf0*2.0)"),
    (trunc(ZUF0) + 1, "trunc(zuf0) + 1"),
    (round_to_integer(ZUF0), "round(zuf0)"),
    (round_to_digits(ZUF0, 2), "round(zuf0, 2)"),
    (lt(ZUF0, 0.5), "zuf0 < 0.5"),
    (not_(le(ZUF0, 0.5)), "Not(zuf0 <= 0.5)"),
]


@pytest.mark.parametrize(("expression", "expected"), CASES, ids=[expected for _, expected in CASES])
def test_text(expression: Any, expected: str) -> None:
    assert str(expression) == text(expression) == expected
    assert parse(expected, ENVIRONMENT.symbols) is expression


PYTHON_CASES = [
    (S0 % 2, "s0 % 2"),
    (2 * (S0 % 3), "2*(s0 % 3)"),
    (maximum(S0, 1), "max(1, s0)"),
    (eq(S0, 2 * S1), "s0 == 2*s1"),
    (and_(ne(S0, 3), ge(S1, 2)), "s0 != 3 and s1 >= 2"),
    (choose(eq(S0, 3), S0, 1), "s0 if s0 == 3 else 1"),
    (function("sqrt", S0), "math.sqrt(float(s0))"),
    (floor(ZUF0), "math.floor(zuf0)"),
]


@pytest.mark.parametrize(("expression", "expected"), PYTHON_CASES)
def test_python_source(expression: Any, expected: str) -> None:
    assert python_source(expression) == expected


def test_python_source_with_other_names() -> None:
    assert python_source(2 * S0 + S1, {S0: "x.shape[0]"}) == "2*x.shape[0] + s1"


@settings(max_examples=250, deadline=None)
@given(strategies.conditions(strategies.integers()))
def test_round_trips(recipe: Any) -> None:
    environment = Environment()
    leaves = strategies.symbols(environment, {"x": 3, "y": 5, "z": 2}, lower=-9)
    try:
        result = strategies.build(recipe, leaves)
    except ZeroDivisionError:
        return
    if isinstance(result, Expr):
        assert parse(str(result), environment.symbols) is result
        source = compile(python_source(result), "test", "eval")
        for values in strategies.assignments(-2, 2):
            try:
                expected = evaluate(result, {leaves[name]: value for name, value in values.items()})
            except ZeroDivisionError:
                continue
            assert eval(source, {}, values) == expected


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("", "expected '(' but found the end"),
        ("s0 +", "but found the end"),
        ("s0 s1", "expected the end but found 's1'"),
        ("(s0", "expected ')'"),
        ("s9", "unknown symbol 's9'"),
        ("__import__(s0)", "unknown function '__import__'"),
        ("s0.real", "expected an expression but found '.'"),
        ("s0[0]", "found '['"),
        ("'s0'", 'found "\'"'),
        ("Mod(s0)", "Mod with 1 arguments"),
        ("9**9**9", "is too high"),
        ("(" * 500 + "s0" + ")" * 500, "nested too deeply"),
    ],
)
def test_bad_text(source: str, complaint: str) -> None:
    with pytest.raises(ExpressionSyntaxError) as caught:
        parse(source, ENVIRONMENT.symbols)
    assert complaint in str(caught.value)


def test_a_formula_that_doubles_with_every_step_is_refused_before_it_fills_the_memory() -> None:
    number = ENVIRONMENT.backed(5)
    with pytest.raises(CaptureError, match="formula has"):
        for step in range(60):
            number = minimum(number // 2 + step, number // 3 + 1) + minimum(number // 5, number - step)
