"""The normal form: what is one object, what is a plain int, what Python's protocols do."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy
import pytest

from tintype.symbolic import (
    Congruence,
    Environment,
    Expr,
    absolute,
    ceil_div,
    choose,
    eq,
    evaluate,
    exact_quotient,
    floor_div,
    lt,
    maximum,
    minimum,
    ne,
    not_,
    solve_congruence,
    solve_divisibility,
    solve_linear,
    substitute,
)


@pytest.fixture
def environment() -> Environment:
    return Environment()


@pytest.fixture
def sizes(environment: Environment) -> list[Any]:
    return [environment.backed(4), environment.backed(6), environment.backed(3)]


def test_constants_are_plain_integers(sizes: list[Any]) -> None:
    a, b, _ = sizes
    for value, expected in (
        (a * (b + 1) - a * b - a, 0),
        (a - a, 0),
        (0 * a, 0),
        ((6 * a + 4) % 2, 0),
        (a**0, 1),
        (a // a, 1),
        (a % a, 0),
        ((a * b) % b, 0),
        (a ^ a, 0),
        (1 - a + a, 1),
    ):
        assert type(value) is int
        assert value == expected


def test_one_object_per_value(sizes: list[Any]) -> None:
    a, b, c = sizes
    for left, right in (
        (a + b, b + a),
        ((a + b) * c, a * c + c * b),
        ((2 * a) // 2, a),
        ((4 * a) // 2, 2 * a),
        ((a * b) // b, a),
        ((a * (b + 1)) // (b + 1), a),
        ((a * b + a) // b, a + a // b),
        ((a * b) // (2 * a), b // 2),
        ((a - 1) // 2 + 1, (a + 1) // 2),
        (((a + 1) // 2 + 1) // 2, (a + 3) // 4),
        (-((-a) // 2), ceil_div(a, 2)),
        ((2 * a + 1) // 6, a // 3),
        ((a % 6) % 3, a % 3),
        ((2 * a + 1) % 4, 2 * (a % 2) + 1),
        ((a + 5 * b) % 5, a % 5),
        (maximum(a, maximum(b, c)), maximum(maximum(c, a), b)),
        (maximum(a, a + 1), a + 1),
        (maximum(a, 0), a),
        (minimum(a, 0), 0),
        (absolute(a), a),
        (a << 2, 4 * a),
        (a >> 1, a // 2),
        (a & 7, a % 8),
        (a * a, a**2),
        ((a**9) ** 2, a**18),
        ((a + 1) ** 7, (a + 1) ** 3 * (a + 1) ** 4),
        (a + True, a + 1),
        (a + numpy.int64(3), a + 3),
        (numpy.int64(3) * a, 3 * a),
        (eq(2 * a, 2 * b), eq(b, a)),
        (lt(a, b), not_(lt(b, a + 1))),
        (ne(a, b), not_(eq(a, b))),
        (choose(ne(a, b), 1, 2), choose(eq(a, b), 2, 1)),
    ):
        assert left is right or left == right, (left, right)


def test_relations_that_are_certain(sizes: list[Any]) -> None:
    a, b, _ = sizes
    assert eq(a, a) is True
    assert lt(a, a + 1) is True
    assert eq(2 * a, 2 * b + 1) is False
    assert lt(a, 0) is False
    assert eq(3 * a, 3 * a + 1) is False


def test_sizes_in_tuples(sizes: list[Any]) -> None:
    a, b, _ = sizes
    assert (a, 2, a + b) == (a, 2, b + a)
    assert {(a, b): 1}[a, b] == 1
    assert (a, b) != (b, a)
    assert a != 4


def test_truth_is_refused(sizes: list[Any]) -> None:
    with pytest.raises(TypeError, match=r"the truth of Eq\(s0, s1\)"):
        bool(eq(sizes[0], sizes[1]))
    with pytest.raises(TypeError):
        sizes[0] < 3  # noqa: B015 - the operator must not exist


def test_attributes(environment: Environment, sizes: list[Any]) -> None:
    a, b, _ = sizes
    unknown = environment.unbacked_int()
    total = 2 * a + b // 2
    assert total.symbols == {a, b}
    equal: Any = eq(a, b)
    assert (total.kind, equal.kind, (a / 2).kind) == ("int", "bool", "float")
    assert total.environment is environment
    assert (total + unknown).has_unbacked
    assert not total.has_unbacked


def test_environments_do_not_mix(sizes: list[Any]) -> None:
    other = Environment().backed(4)
    for operation in (lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, floor_div, maximum, eq):
        with pytest.raises(ValueError, match="another environment"):
            operation(sizes[0], other)


def test_substitution_into_another_environment(sizes: list[Any]) -> None:
    a, b, _ = sizes
    other = Environment()
    x, y = other.backed(4, name="x"), other.backed(6, name="y")
    moved = substitute(2 * a + b // 3, {a: x, b: y})
    assert moved is 2 * x + y // 3


def test_copies_are_the_same_and_pickling_is_refused(sizes: list[Any]) -> None:
    a = sizes[0]
    assert copy.deepcopy([a + 1])[0] is a + 1
    assert copy.copy(a) is a
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(a)


def test_unknown_operands(sizes: list[Any]) -> None:
    with pytest.raises(TypeError):
        sizes[0] + "1"
    with pytest.raises(ZeroDivisionError):
        sizes[0] // 0
    with pytest.raises(ZeroDivisionError):
        sizes[0] % 0


def test_products_do_not_explode(environment: Environment) -> None:
    product: Any = 1
    for _ in range(40):
        product = product * (environment.backed(2) + environment.backed(3) + 1)
    assert evaluate(product, {symbol: symbol.hint for symbol in product.symbols}) == 6**40


def test_memory_dies_with_the_environment() -> None:
    environment = Environment()
    size: Any = environment.backed(4)
    kept = weakref.ref(size + 1)
    environment.guard(eq(size % 2, 0))
    del environment, size
    gc.collect()
    assert kept() is None


# -- solving


def test_solve_linear(sizes: list[Any]) -> None:
    a, b, c = sizes
    assert solve_linear(eq(2 * a + 4 * b, 6), a) is 3 - 2 * b
    assert solve_linear(eq(a, 2 * b + 1), a) is 2 * b + 1
    assert solve_linear(eq(a, 2 * b + 1), b) is None
    assert solve_linear(eq(a, b * c), a) is b * c
    assert solve_linear(eq(a, a % 3 + 1), a) is None
    assert solve_linear(3 * a - 12, a) == 4


def test_congruences(sizes: list[Any]) -> None:
    a, b, _ = sizes
    assert solve_divisibility(eq(3 * a, 2 * b), a) == Congruence(2, 0)
    assert solve_divisibility(eq(3 * b - 1, a), a) == Congruence(3, 2)
    for factor in range(-7, 8):
        for modulus in range(1, 8):
            for remainder in range(modulus):
                solution = solve_congruence(factor, remainder, modulus)
                expected = [x for x in range(30) if (factor * x - remainder) % modulus == 0]
                found = [] if solution is None else [x for x in range(30) if x in solution]
                assert found == expected


def test_intersections_of_congruences() -> None:
    for one in (Congruence(m, r) for m in range(1, 8) for r in range(m)):
        for other in (Congruence(m, r) for m in range(1, 8) for r in range(m)):
            both = one.intersect(other)
            expected = [x for x in range(60) if x in one and x in other]
            assert expected == ([] if both is None else [x for x in range(60) if x in both])


def test_exact_quotients(sizes: list[Any]) -> None:
    a, b, c = sizes
    assert exact_quotient((a + b) * (b + c), a + b) is b + c
    assert exact_quotient(a**2 - b**2, a - b) is a + b
    assert exact_quotient(a * b + 1, a) is None
    assert exact_quotient(6 * a + 4, 2) is 3 * a + 2


# -- sympy


def test_sympy_both_ways(environment: Environment, sizes: list[Any]) -> None:
    from tintype.symbolic.sympy_conversion import from_sympy, to_sympy

    a, b, _ = sizes
    for expression in (
        2 * a + 1,
        a**2 - 3 * a * b,
        (a + 1) // 2,
        a // b,
        a % 3,
        maximum(a, 1),
        minimum(a, b),
        eq(a**2, 3 * b),
        lt(a, b),
        choose(lt(a, b), a, b),
    ):
        assert isinstance(expression, Expr)
        assert from_sympy(to_sympy(expression), environment) is expression


def test_sympy_stays_off_the_hot_path() -> None:
    import subprocess
    import sys

    program = (
        "import sys, tintype.symbolic as s, tintype.symbolic.bridge as b;"
        "e = s.Environment(); x = e.backed(3);"
        "print(b.to_torch(x // 2 + 1), e.guard(s.gt(x % 2, 0)), 'sympy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "s0//2 + 1 True False"
