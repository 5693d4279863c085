"""Every rewrite into normal form is an equality: by brute force over small integers and by z3."""

from __future__ import annotations

from typing import Any

import pytest
import z3  # type: ignore[import-untyped]
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.symbolic import strategies
from tests.symbolic.strategies import build
from tintype.symbolic import Environment, Expr, evaluate, substitute
from tintype.symbolic.decide import canonical, quotients_as_remainders, remainders_as_quotients

HINTS = {"x": 3, "y": 5, "z": 2}


UNDEFINED = object()


def built(recipe: Any, leaves: dict[str, Any]) -> Any:
    """The recipe over symbols; UNDEFINED where it divides by a constant 0."""
    try:
        return build(recipe, leaves)
    except ZeroDivisionError:
        return UNDEFINED


def check_everywhere(recipe: Any, result: Any, leaves: dict[str, Any], lower: int, upper: int) -> None:
    """``result`` is what Python computes from ``recipe``, wherever Python can."""
    for values in strategies.assignments(lower, upper):
        expected = strategies.python_value(recipe, values)
        if expected is not None:
            assert result is not UNDEFINED, f"{recipe} is defined at {values}"
            found = evaluate(result, {leaves[name]: value for name, value in values.items()})
            assert found == expected, f"{recipe} is {expected}, but {result} is {found} at {values}"


@settings(max_examples=250, deadline=None)
@given(strategies.integers())
def test_integers_over_all_signs(recipe: Any) -> None:
    leaves = strategies.symbols(Environment(), HINTS, lower=-100)
    check_everywhere(recipe, built(recipe, leaves), leaves, -3, 3)


@settings(max_examples=250, deadline=None)
@given(strategies.integers())
def test_integers_that_are_sizes(recipe: Any) -> None:
    leaves = strategies.symbols(Environment(), HINTS, lower=0)
    check_everywhere(recipe, built(recipe, leaves), leaves, 0, 5)


@settings(max_examples=150, deadline=None)
@given(strategies.integers())
def test_integers_with_declared_ranges(recipe: Any) -> None:
    leaves = strategies.symbols(Environment(), HINTS, lower=1, upper=5)
    check_everywhere(recipe, built(recipe, leaves), leaves, 1, 5)


@settings(max_examples=250, deadline=None)
@given(strategies.conditions(strategies.integers()))
def test_conditions(recipe: Any) -> None:
    leaves = strategies.symbols(Environment(), HINTS, lower=0)
    check_everywhere(recipe, built(recipe, leaves), leaves, 0, 4)


@settings(max_examples=100, deadline=None)
@given(strategies.conditions(strategies.integers()), strategies.integers(), strategies.integers())
def test_choices(condition: Any, chosen: Any, otherwise: Any) -> None:
    leaves = strategies.symbols(Environment(), HINTS, lower=0)
    recipe = ("choose", condition, chosen, otherwise)
    result = built(recipe, leaves)
    for values in strategies.assignments(0, 3):
        parts = [strategies.python_value(part, values) for part in recipe[1:]]
        if None not in parts:
            found = evaluate(result, {leaves[name]: value for name, value in values.items()})
            assert found == (parts[1] if parts[0] else parts[2])


@settings(max_examples=150, deadline=None)
@given(strategies.linear_integers())
def test_forms_for_decisions(recipe: Any) -> None:
    leaves = strategies.symbols(Environment(), HINTS, lower=-100)
    result = build(recipe, leaves)
    if isinstance(result, Expr):
        check_everywhere(recipe, canonical(result), leaves, -4, 4)
        check_everywhere(recipe, quotients_as_remainders(result), leaves, -4, 4)
        check_everywhere(recipe, remainders_as_quotients(result), leaves, -4, 4)


@settings(max_examples=150, deadline=None)
@given(strategies.linear_integers(), strategies.linear_integers(), st.sampled_from(["min", "max"]))
def test_equal_to_an_extremum(left: Any, right: Any, extremum: str) -> None:
    """``a == Min(a, b)`` is ``a <= b``."""
    leaves = strategies.symbols(Environment(), HINTS, lower=-100)
    recipe = ("==", left, (extremum, left, right))
    check_everywhere(recipe, built(recipe, leaves), leaves, -3, 3)


def test_equal_to_an_extremum_is_an_order() -> None:
    leaves = strategies.symbols(Environment(), HINTS, lower=0)
    for recipe, simpler in (
        (("==", "x", ("min", "x", "y")), ("<=", "x", "y")),
        (("==", ("max", "x", "y"), "x"), (">=", "x", "y")),
        (("==", ("+", "x", 1), ("min", ("+", "x", 1), "y")), ("<", "x", "y")),
    ):
        assert built(recipe, leaves) is built(simpler, leaves)


@settings(max_examples=150, deadline=None)
@given(strategies.integers(), strategies.polynomials())
def test_substitution(recipe: Any, replacement: Any) -> None:
    leaves = strategies.symbols(Environment(), HINTS, lower=-100)
    original = built(recipe, leaves)
    assume(original is not UNDEFINED)
    try:
        replaced = substitute(original, {leaves["x"]: build(replacement, leaves)})
    except ZeroDivisionError:
        replaced = UNDEFINED
    for values in strategies.assignments(-2, 2):
        inner = strategies.python_value(replacement, values)
        expected = strategies.python_value(recipe, values | {"x": inner})
        if expected is not None:
            assert replaced is not UNDEFINED
            assert evaluate(replaced, {leaves[name]: value for name, value in values.items()}) == expected


@settings(max_examples=200, deadline=None)
@given(strategies.polynomials(), st.data())
def test_equal_polynomials_are_one_object(recipe: Any, data: st.DataObject) -> None:
    leaves = strategies.symbols(Environment(), HINTS)
    shuffled = data.draw(rearranged(recipe))
    assert build(recipe, leaves) is build(shuffled, leaves) or build(recipe, leaves) == build(shuffled, leaves)
    assert isinstance(build(("-", recipe, shuffled), leaves), int)


@st.composite
def rearranged(draw: st.DrawFn, recipe: Any) -> Any:
    """The same polynomial, written otherwise."""
    if not isinstance(recipe, tuple):
        return recipe
    operation, *arguments = recipe
    arguments = [draw(rearranged(argument)) for argument in arguments]
    if operation == "square":
        return ("*", *arguments, *arguments)
    if operation == "neg":
        return ("*", -1, *arguments)
    if operation == "-":
        return ("+", ("neg", arguments[1]), arguments[0])
    if operation == "*" and isinstance(arguments[0], tuple) and arguments[0][0] in ("+", "-"):
        inner, left, right = arguments[0]
        return (inner, ("*", left, arguments[1]), ("*", right, arguments[1]))
    return (operation, *reversed(arguments))


@pytest.mark.parametrize(
    "recipe",
    [
        # A remainder is not negative only where its divisor is positive.
        ("<", 0, ("%", "x", ("^", "x", -1))),
        ("<=", ("%", "x", ("neg", "y")), 0),
    ],
    ids=str,
)
def test_found_before(recipe: Any) -> None:
    leaves = strategies.symbols(Environment(), HINTS, lower=0)
    check_everywhere(recipe, built(recipe, leaves), leaves, 0, 5)


# -- proofs over all integers


def z3_value(recipe: Any, leaves: dict[str, Any]) -> Any:
    """The recipe in z3's integers; divisors are positive constants, where its division is floor."""
    if isinstance(recipe, str):
        return leaves[recipe]
    if isinstance(recipe, int):
        return z3.IntVal(recipe)
    operation, *arguments = recipe
    return Z3[operation](*(z3_value(argument, leaves) for argument in arguments))


Z3 = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "neg": lambda a: -a,
    "//": lambda a, b: a / b,
    "%": lambda a, b: a % b,
    "ceil": lambda a, b: -((-a) / b),
    "min": lambda a, b: z3.If(a <= b, a, b),
    "max": lambda a, b: z3.If(a >= b, a, b),
    "abs": lambda a: z3.If(a >= 0, a, -a),
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "and": z3.And,
    "or": z3.Or,
    "not": z3.Not,
}


def z3_expression(value: Any, leaves: dict[Any, Any]) -> Any:
    """One of our expressions in z3's integers."""
    if isinstance(value, bool):
        return z3.BoolVal(value)
    if isinstance(value, int):
        return z3.IntVal(value)
    if value.operation == "symbol":
        return leaves[value]
    if value.operation == "sum":
        total = z3.IntVal(value.constant)
        for monomial, coefficient in value.terms.items():
            total = total + coefficient * z3_expression(monomial, leaves)
        return total
    if value.operation == "product":
        total = z3.IntVal(1)
        for factor in value.factors:
            total = total * z3_expression(factor, leaves)
        return total
    arguments = [z3_expression(argument, leaves) for argument in value.arguments]
    if value.operation in ("eq", "ne", "le"):
        return {"eq": arguments[0] == 0, "ne": arguments[0] != 0, "le": arguments[0] <= 0}[value.operation]
    if value.operation in ("min", "max"):
        total = arguments[0]
        for argument in arguments[1:]:
            total = Z3[value.operation](total, argument)
        return total
    return Z3[{"floordiv": "//", "mod": "%"}.get(value.operation, value.operation)](*arguments)


def refutation(claim: Any, assumptions: list[Any]) -> Any:
    """A counterexample to the claim; None when z3 proves it or runs out of time."""
    solver = z3.Solver()
    solver.set("timeout", 400)
    solver.add(*assumptions, z3.Not(claim))
    return solver.model() if solver.check() == z3.sat else None


@pytest.mark.parametrize("sizes", [True, False], ids=["sizes", "all integers"])
@settings(max_examples=60, deadline=None)
@given(recipe=strategies.linear_integers(("x", "y")))
def test_z3_proves_numbers(sizes: bool, recipe: Any) -> None:
    environment = Environment()
    leaves = strategies.symbols(environment, {"x": 3, "y": 5}, lower=0 if sizes else -(10**9))
    if not sizes:
        leaves = {"x": environment.unbacked_int(), "y": environment.unbacked_int()}
    unknowns = {name: z3.Int(name) for name in leaves}
    assumptions = [unknown >= 0 for unknown in unknowns.values()] if sizes else []
    ours = z3_expression(build(recipe, leaves), {leaves[name]: unknowns[name] for name in leaves})
    assert refutation(ours == z3_value(recipe, unknowns), assumptions) is None


@settings(max_examples=60, deadline=None)
@given(strategies.conditions(strategies.linear_integers(("x", "y"))))
def test_z3_proves_conditions(recipe: Any) -> None:
    leaves = strategies.symbols(Environment(), {"x": 3, "y": 5}, lower=0)
    unknowns = {name: z3.Int(name) for name in leaves}
    ours = z3_expression(build(recipe, leaves), {leaves[name]: unknowns[name] for name in leaves})
    assumptions = [unknown >= 0 for unknown in unknowns.values()]
    assert refutation(ours == z3_value(recipe, unknowns), assumptions) is None
