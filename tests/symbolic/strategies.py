"""Random expressions as recipes: nested tuples that can be built over symbols or over plain integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from tintype.symbolic import (
    Environment,
    absolute,
    and_,
    ceil_div,
    choose,
    eq,
    floor_div,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    mod,
    ne,
    not_,
    or_,
    shift_left,
    shift_right,
)

Recipe = Any
NAMES = ("x", "y", "z")

# Each operation twice: as this package builds it, and as Python computes it.
OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "+": (lambda a, b: a + b, lambda a, b: a + b),
    "-": (lambda a, b: a - b, lambda a, b: a - b),
    "*": (lambda a, b: a * b, lambda a, b: a * b),
    "neg": (lambda a: -a, lambda a: -a),
    "//": (floor_div, lambda a, b: a // b),
    "%": (mod, lambda a, b: a % b),
    "ceil": (ceil_div, lambda a, b: -(-a // b)),
    "min": (minimum, min),
    "max": (maximum, max),
    "abs": (absolute, abs),
    "square": (lambda a: a**2, lambda a: a**2),
    "cube": (lambda a: a**3, lambda a: a**3),
    "&": (lambda a, b: a & b, lambda a, b: a & b),
    "|": (lambda a, b: a | b, lambda a, b: a | b),
    "^": (lambda a, b: a ^ b, lambda a, b: a ^ b),
    "<<": (shift_left, lambda a, b: a << b),
    ">>": (shift_right, lambda a, b: a >> b),
    "==": (eq, lambda a, b: a == b),
    "!=": (ne, lambda a, b: a != b),
    "<": (lt, lambda a, b: a < b),
    "<=": (le, lambda a, b: a <= b),
    ">": (gt, lambda a, b: a > b),
    ">=": (ge, lambda a, b: a >= b),
    "and": (and_, lambda a, b: a and b),
    "or": (or_, lambda a, b: a or b),
    "not": (not_, lambda a: not a),
    "choose": (choose, lambda c, a, b: a if c else b),
}


def build(recipe: Recipe, leaves: dict[str, Any], *, python: bool = False) -> Any:
    """The recipe over ``leaves``: with this package's functions, or with Python's."""
    if isinstance(recipe, str):
        return leaves[recipe]
    if isinstance(recipe, int):
        return recipe
    operation, *arguments = recipe
    function = OPERATIONS[operation][1 if python else 0]
    return function(*(build(argument, leaves, python=python) for argument in arguments))


def polynomials(names: tuple[str, ...] = NAMES) -> st.SearchStrategy[Recipe]:
    """Sums, differences and products."""
    leaves = st.one_of(st.sampled_from(names), st.integers(-3, 3))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*"]), inner, inner),
            st.tuples(st.sampled_from(["neg", "square"]), inner),
        ),
        max_leaves=7,
    )


def linear_integers(names: tuple[str, ...] = NAMES) -> st.SearchStrategy[Recipe]:
    """What a solver for linear integer arithmetic understands: constant factors and divisors."""
    leaves = st.one_of(st.sampled_from(names), st.integers(-7, 7))
    divisors = st.integers(1, 6)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["+", "-", "min", "max"]), inner, inner),
            st.tuples(st.just("*"), st.integers(-4, 6), inner),
            st.tuples(st.sampled_from(["//", "%", "ceil"]), inner, divisors),
            st.tuples(st.sampled_from(["neg", "abs"]), inner),
        ),
        max_leaves=6,
    )


def integers(names: tuple[str, ...] = NAMES) -> st.SearchStrategy[Recipe]:
    """Every integer operation, with symbolic divisors and products."""
    leaves = st.one_of(st.sampled_from(names), st.integers(-5, 5))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "min", "max", "ceil"]), inner, inner),
            st.tuples(st.sampled_from(["&", "|", "^"]), inner, inner),
            st.tuples(st.sampled_from(["//", "%"]), inner, st.integers(-6, 6).filter(bool)),
            st.tuples(st.sampled_from(["<<", ">>"]), inner, st.integers(0, 3)),
            st.tuples(st.sampled_from(["neg", "abs", "square", "cube"]), inner),
        ),
        max_leaves=6,
    )


def conditions(numbers: st.SearchStrategy[Recipe]) -> st.SearchStrategy[Recipe]:
    """Comparisons between numbers, joined by logic."""
    relations = st.tuples(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), numbers, numbers)
    return st.recursive(
        relations,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["and", "or"]), inner, inner), st.tuples(st.just("not"), inner)
        ),
        max_leaves=3,
    )


def symbols(
    environment: Environment, hints: dict[str, int], lower: int = 0, upper: int | None = None
) -> dict[str, Any]:
    """A backed symbol for each name."""
    return {name: environment.backed(hint, name=name, lower=lower, upper=upper) for name, hint in hints.items()}


def assignments(lower: int, upper: int, names: tuple[str, ...] = NAMES) -> Iterator[dict[str, int]]:
    """Every assignment of small integers."""
    for values in itertools.product(range(lower, upper + 1), repeat=len(names)):
        yield dict(zip(names, values))


def python_value(recipe: Recipe, values: dict[str, int]) -> Any:
    """What Python computes, None where it is not defined."""
    try:
        result = build(recipe, values, python=True)
    except ZeroDivisionError:
        return None
    return None if isinstance(result, float) and math.isnan(result) else result
