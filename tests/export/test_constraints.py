"""Promises about sizes against what the guards of a capture say: the report, the fixes, the contract.

No program is captured here: guards are put into an environment by hand, as a capture would.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tintype.errors import ConstraintViolationError
from tintype.export.constraints import (
    ContractLine,
    DynamicSize,
    check_constraints,
    complex_guards,
)
from tintype.export.contract import contract_lines
from tintype.export.dimensions import Dim, DimHint, dims
from tintype.export.solution import is_implied
from tintype.ir.sources import Argument
from tintype.symbolic import Environment, Symbol, and_, eq, evaluate, ge, le, lt, mod, ne, or_

Build = Callable[..., Any]


class Capture:
    """An environment as it is after a program was traced that asked the questions ``asks``.

    ``inputs`` are (dimension, example size, source). Each function of ``asks`` gets the sizes and gives a
    condition, on which the program branches.
    """

    def __init__(self, inputs: Sequence[tuple[Dim | DimHint, int, str]], *asks: Build) -> None:
        self.environment = Environment()
        self.sizes: list[DynamicSize] = []
        symbols: dict[str, Symbol] = {}
        for dimension, hint, source in inputs:
            key, scale, offset, bounds = source, 1, 0, dimension
            if isinstance(dimension, Dim):
                key, scale, offset, bounds = dimension.root.name, dimension.scale, dimension.offset, dimension.root
            if key not in symbols:
                upper = None if bounds.max == math.inf else int(bounds.max)
                root_hint = (hint - offset) // scale
                name = f"s{len(symbols)}"
                symbols[key] = self.environment.backed(root_hint, name=name, lower=int(bounds.min), upper=upper)
            self.sizes.append(DynamicSize(dimension, scale * symbols[key] + offset, Argument(source)))
        for ask in asks:
            self.environment.guard(ask(*(size.expression for size in self.sizes)))

    def violation(self, **options: bool) -> ConstraintViolationError | None:
        try:
            check_constraints(self.environment, self.sizes, **options)
        except ConstraintViolationError as error:
            return error
        return None

    def report(self, **options: bool) -> str:
        """The report without source locations, which end the lines of problems."""
        error = self.violation(**options)
        assert error is not None
        assert str(error) == error.args[0]
        return re.sub(r" \([^()]*\.py:\d+ in .*\)$", "", str(error), flags=re.MULTILINE)

    def fixes(self, **options: bool) -> dict[str, str]:
        error = self.violation(**options)
        return {} if error is None else {name: repr(fix) for name, fix in error.suggested_fixes.items()}

    def asserted(self) -> list[str]:
        return [str(guard.condition) for guard in complex_guards(self.environment, self.sizes)]

    def contract(self) -> list[tuple[str, str]]:
        return [(line.kind, line.text) for line in contract_lines(self.environment, self.sizes)]


def of_shape(*named: tuple[Dim | DimHint, int]) -> list[tuple[Dim | DimHint, int, str]]:
    """Inputs x, y, z, w of one dimension each."""
    return [(dimension, hint, f"{name}.shape[0]") for name, (dimension, hint) in zip("xyzw", named)]


HEAD = "For more information: tintype explain constraint-violation"


# -- the reports of the behaviour tests

LEFT_TO_VARY = (
    "What is too complex can also be left to vary: Dim.AUTO takes what the model allows, and "
    "prefer_deferred_runtime_asserts_over_guards=True checks it in every call."
)


def test_a_range_that_the_program_narrows() -> None:
    capture = Capture(of_shape((Dim("dim", min=3), 5)), lambda x: le(x, 6))
    assert capture.report() == (
        f"Constraints violated (dim)! {HEAD}\n"
        "  - Not all values of dim = x.shape[0] in the specified range dim >= 3 satisfy the generated guard "
        "x.shape[0] <= 6.\n"
        "Suggested fixes:\n"
        "  dim = Dim('dim', min=3, max=6)"
    )


def test_a_relation_between_two_names() -> None:
    inputs = of_shape((Dim("dimx", min=3, max=6), 5), (Dim("dimy", min=4, max=7), 6))
    capture = Capture(inputs, lambda x, y: eq(x, y - 1))
    assert capture.report() == (
        f"Constraints violated (dimy)! {HEAD}\n"
        "  - The values of dimy = y.shape[0] must always be related to the values of dimx = x.shape[0] by "
        "dimy = dimx + 1.\n"
        "Suggested fixes:\n"
        "  dimy = dimx + 1"
    )


def test_a_derived_dimension_whose_root_is_fixed() -> None:
    dy = Dim("dy", min=6)
    capture = Capture(of_shape((dy - 6, 6), (dy, 12)), lambda x, y: eq(2 * x, y))
    assert capture.report() == (
        f"Specializations unexpectedly required (dy)! {HEAD}\n"
        "  - dy - 6 = x.shape[0] must be specialized to 6 because the guards generated for it are too complex: "
        "y.shape[0] == 12.\n"
        "  - dy = y.shape[0] must be specialized to 12 because of the guard y.shape[0] == 12.\n"
        "Suggested fixes:\n"
        "  dy = 12"
    )


def test_a_symbolic_modulus_is_fixed_and_the_rest_looked_at_again() -> None:
    inputs = [(Dim("dim0_x", min=3), 3, "x.shape[0]"), (Dim("dim1_x", max=8000), 4, "x.shape[1]")]
    capture = Capture(inputs, lambda x0, x1: eq(mod(x0 * x1, x0 - 1), 0))
    assert capture.report() == (
        f"Specializations unexpectedly required (dim0_x)! {HEAD}\n"
        "  - dim0_x = x.shape[0] must be specialized to 3 because the guards generated for it are too complex: "
        "x.shape[0]*x.shape[1] % (x.shape[0] - 1) == 0.\n"
        f"Constraints violated (dim1_x)! {HEAD}\n"
        "  - Not all values of dim1_x = x.shape[1] in the specified range dim1_x <= 8000 satisfy the generated "
        "guard x.shape[0]*x.shape[1] % (x.shape[0] - 1) == 0.\n"
        "Suggested fixes:\n"
        "  dim0_x = 3\n"
        "  _dim1_x = Dim('_dim1_x', max=4000)\n"
        "  dim1_x = 2*_dim1_x\n"
        f"{LEFT_TO_VARY}"
    )


def test_a_congruence_makes_a_new_root() -> None:
    dx, dy, dz = dims("dx", "dy", "dz")
    capture = Capture(
        of_shape((dx, 11), (dy, 12), (dz, 14)),
        lambda x, y, z: ge(x, 5),
        lambda x, y, z: le(x, 36),
        lambda x, y, z: eq(mod(y, 3), 0),
        lambda x, y, z: eq(x, y - 1),
        lambda x, y, z: eq(x, z - 3),
    )
    assert capture.report().splitlines()[-5:] == [
        "Suggested fixes:",
        "  _dx = Dim('_dx', max=12)  # min=2",
        "  dx = 3*_dx - 1",
        "  dy = 3*_dx",
        "  dz = 3*_dx + 2",
    ]
    assert capture.fixes()["_dx"] == "Dim('_dx', min=2, max=12)"
    assert "y.shape[0] % 3 == 0" in capture.report()
    assert "by dz = dx + 3." in capture.report()


def disable_forced_specializations() -> Capture:
    sources = ["w.shape[0]", "w.shape[1]", "x.shape[0]", "y.shape[0]", "z.shape[0]"]
    inputs = zip(dims("dw0", "dw1", "dx0", "dy", "dz"), (3, 4, 12, 4, 4), sources)
    return Capture(list(inputs), lambda a, b, c, y, z: eq(a * b, c), lambda a, b, c, y, z: eq(y, z))


def test_a_complex_guard_fixes_all_its_sizes() -> None:
    capture = disable_forced_specializations()
    assert capture.fixes() == {"dw0": "3", "dw1": "4", "dx0": "12", "dz": "Dim('dy')"}
    lines = capture.report().splitlines()
    assert lines[0] == f"Specializations unexpectedly required (dw0, dw1, dx0)! {HEAD}"
    assert lines[4] == f"Constraints violated (dz)! {HEAD}"
    assert lines[-6:] == ["Suggested fixes:", "  dw0 = 3", "  dw1 = 4", "  dx0 = 12", "  dz = dy", LEFT_TO_VARY]


def test_complex_guards_may_be_assertions_but_relations_stay_errors() -> None:
    capture = disable_forced_specializations()
    assert capture.fixes(complex_as_assertions=True) == {"dz": "Dim('dy')"}
    assert capture.report(complex_as_assertions=True).startswith("Constraints violated (dz)!")
    alone = Capture(of_shape(*zip(dims("a", "b", "c"), (3, 4, 12))), lambda a, b, c: eq(a * b, c))
    assert alone.violation(complex_as_assertions=True) is None
    assert alone.asserted() == ["Eq(s0*s1, s2)"]
    assert alone.contract()[-1] == ("assertion", "x.shape[0]*y.shape[0] == z.shape[0]")


def test_holes_in_a_range_may_be_assertions() -> None:
    inputs = [(Dim("batch"), 1024, "x.shape[0]")]
    capture = Capture(inputs, lambda x: eq(x, 20), lambda x: eq(mod(x, 20), 0))
    assert capture.violation(complex_as_assertions=True) is None
    assert capture.asserted() == ["Ne(s0, 20)", "Ne(Mod(s0, 20), 0)"]
    assert capture.fixes() == {"batch": "1024"}


def test_explicit_guards_may_be_assertions() -> None:
    capture = Capture(
        of_shape((Dim("dx", min=4), 6), (Dim("dy", min=4), 12)),
        lambda x, y: eq(x, y),
        lambda x, y: eq(x, y**3),
        lambda x, y: eq(x**2, 3 * y),
    )
    assert capture.violation(complex_as_assertions=True) is None
    assert capture.asserted() == ["Ne(s0, s1)", "Ne(s0, s1**3)", "Eq(s0**2, 3*s1)"]
    assert capture.fixes() == {"dx": "6", "dy": "12"}


# -- fixes


@pytest.mark.parametrize(
    ("inputs", "asks", "expected"),
    [
        pytest.param([(Dim("a"), 4), (Dim("b"), 4)], [eq], {"b": "Dim('a')"}, id="equal names"),
        pytest.param(
            [(Dim("a", max=9), 4), (Dim("b", max=7), 4)],
            [eq],
            {"a": "Dim('a', max=7)", "b": "Dim('a', max=7)"},
            id="equal names share the smaller range",
        ),
        pytest.param(
            [(Dim("a"), 4), (Dim("b"), 2)], [lambda a, b: eq(a, 2 * b)], {"a": "2*b"}, id="the later one is the root"
        ),
        pytest.param(
            [(Dim("a"), 6), (Dim("b"), 4)],
            [lambda a, b: eq(2 * a, 3 * b)],
            {"_a": "Dim('_a')", "a": "3*_a", "b": "2*_a"},
            id="neither is the root",
        ),
        pytest.param(
            [(Dim("a"), 5), (Dim("_a"), 3)],
            [lambda a, b: eq(mod(a, 2), 1)],
            {"__a": "Dim('__a')", "a": "2*__a + 1"},
            id="a new name that is taken",
        ),
        pytest.param(
            [(Dim("a"), 5)], [lambda a: eq(mod(a, 2), 0)], {"_a": "Dim('_a')", "a": "2*_a + 1"}, id="an odd size"
        ),
        pytest.param(
            [(Dim("a"), 6)],
            [lambda a: eq(mod(a, 4), 2), lambda a: eq(mod(a, 6), 0)],
            {"_a": "Dim('_a')", "a": "12*_a + 6"},
            id="congruences combine",
        ),
        pytest.param([(Dim("a"), 5)], [lambda a: ge(a, 5), lambda a: le(a, 5)], {"a": "5"}, id="bounds that meet"),
        pytest.param(
            [(Dim("a"), 5)], [lambda a: eq(a, 4)], {"a": "Dim('a', min=5)"}, id="the example's side of a hole"
        ),
        pytest.param([(Dim("a"), 3)], [lambda a: eq(a, 4)], {"a": "Dim('a', max=3)"}, id="the other side"),
        pytest.param(
            [(Dim("a"), 3), (Dim("b"), 4)],
            [le],
            {"a": "Dim('a', max=4)", "b": "Dim('b', min=4)"},
            id="an inequality of two",
        ),
        pytest.param(
            [(Dim("a"), 3), (Dim("b"), 4)],
            [lambda a, b: le(a * b, 1000)],
            {"a": "Dim('a', max=16)", "b": "Dim('b', max=16)"},
            id="a product that is at most something",
        ),
        pytest.param(
            [(Dim("a", max=4), 3), (Dim("b"), 4)],
            [lambda a, b: le(a * b, 1000)],
            {"b": "Dim('b', max=128)"},
            id="a product of which one factor has a bound",
        ),
        pytest.param(
            [(Dim("a"), 16), (Dim("b"), 16)],
            [lambda a, b: ge(a * b, 20)],
            {"a": "Dim('a', min=8)", "b": "Dim('b', min=8)"},
            id="a product that is at least something",
        ),
        pytest.param(
            [(Dim("a"), 0), (Dim("b"), 4)],
            [lambda a, b: le(a * b, 3)],
            {"a": "0", "b": "4"},
            id="a product of nothing in the example",
        ),
        pytest.param(
            [(Dim("a"), 4), (Dim("b"), 1)],
            [lambda a, b: le(a // b, 4)],
            {"a": "Dim('a', max=4)"},
            id="a quotient that is at most something",
        ),
        pytest.param(
            [(Dim("a"), 3), (Dim("b"), 4)], [lambda a, b: eq(a + b, 7)], {"a": "3", "b": "4"}, id="a falling relation"
        ),
        pytest.param(
            [(Dim("a"), 3), (Dim("b"), 3)],
            [lambda a, b: or_(eq(a, 1), eq(a, b))],
            {"b": "Dim('a')"},
            id="the example's alternative",
        ),
        pytest.param(
            [(Dim("a"), 3), (Dim("b"), 5)],
            [lambda a, b: and_(ge(a, 2), eq(b, a + 2))],
            {"a": "Dim('a', min=2)", "b": "a + 2"},
            id="parts of a conjunction",
        ),
        pytest.param(
            [(Dim("a"), 3), (Dim("b"), 4)],
            [le, lambda a, b: le(a, 3), lambda a, b: ge(b, 3)],
            {"a": "Dim('a', max=3)", "b": "Dim('b', min=3)"},
            id="a complex guard that simple ones imply",
        ),
    ],
)
def test_fixes(inputs: list[Any], asks: list[Build], expected: dict[str, str]) -> None:
    assert Capture(of_shape(*inputs), *asks).fixes() == expected


def test_only_roots_are_fixed() -> None:
    dx = Dim("dx")
    capture = Capture(of_shape((2 * dx, 8), (dx + 1, 5)), lambda x, y: le(x, 11))
    assert capture.fixes() == {"dx": "Dim('dx', max=5)"}
    assert "Not all values of dx (where 2*dx = x.shape[0]) in the specified range dx >= 0" in capture.report()


def test_what_is_implied_is_no_violation() -> None:
    dx = Dim("dx", min=2, max=8)
    capture = Capture(of_shape((dx, 4), (2 * dx, 8)), lambda x, y: lt(x, y), lambda x, y: eq(mod(y, 2), 0))
    assert capture.environment.guards == []
    assert capture.violation() is None
    assert capture.asserted() == []


def test_a_problem_says_where_it_comes_from() -> None:
    capture = Capture(of_shape((Dim("dx"), 4)))
    capture.environment.guard(le(capture.sizes[0].expression, 9))
    report = str(capture.violation())
    assert re.search(r"test_constraints\.py:\d+ in test_a_problem_says.*: capture\.environment\.guard\(le\(", report)


# -- sizes without a name


AUTO, DYNAMIC = Dim.AUTO, Dim.DYNAMIC


@pytest.mark.parametrize(
    ("inputs", "asks", "expected"),
    [
        pytest.param([(AUTO, 4), (AUTO, 4)], [eq, lambda x, y: eq(x, 4)], {}, id="AUTO may be anything"),
        pytest.param(
            [(DYNAMIC, 4), (AUTO, 4)], [eq, lambda x, y: le(x, 9)], {}, id="DYNAMIC may be related and narrowed"
        ),
        pytest.param([(DYNAMIC, 4)], [lambda x: eq(x, 4)], {"x.shape[0]": "4"}, id="but not fixed"),
        pytest.param(
            [(DYNAMIC, 4), (AUTO, 4)],
            [eq, lambda x, y: eq(y, 4)],
            {"x.shape[0]": "4"},
            id="nor by way of another",
        ),
        pytest.param([(DYNAMIC, 4), (AUTO, 5)], [lambda x, y: eq(x * y, 20)], {}, id="a complex guard is asserted"),
        pytest.param([(Dim("a"), 4), (AUTO, 5)], [lambda x, y: eq(y, x + 1)], {}, id="AUTO follows a name"),
        pytest.param(
            [(Dim("a"), 4), (AUTO, 4)], [eq, lambda x, y: le(y, 6)], {"a": "Dim('a', max=6)"}, id="a name is narrowed"
        ),
        pytest.param(
            [(Dim("a"), 4), (AUTO, 4)],
            [lambda x, y: le(y, 6), eq],
            {"a": "Dim('a', max=6)"},
            id="a name is narrowed, order does not matter",
        ),
        pytest.param(
            [(Dim("a"), 4), (AUTO, 2)],
            [lambda x, y: eq(x, 2 * y)],
            {"_a": "Dim('_a')", "a": "2*_a"},
            id="a name has to be even",
        ),
        pytest.param(
            [(Dim("a"), 4), (AUTO, 6)], [lambda x, y: eq(x + y, 10)], {"a": "Dim('a', max=10)"}, id="AUTO falls"
        ),
        pytest.param(
            [(Dim("a"), 4), (Dim("b"), 3), (AUTO, 12)], [lambda x, y, z: eq(x * y, z)], {}, id="AUTO is a product"
        ),
        pytest.param([(Dim("a"), 4), (AUTO, 6)], [le], {}, id="AUTO can be large enough"),
        pytest.param(
            [(Dim("a"), 4), (AUTO(max=9), 6)], [le], {"a": "Dim('a', max=9)"}, id="AUTO can't be large enough"
        ),
        pytest.param([(Dim("a"), 4), (AUTO, 6)], [lambda x, y: eq(mod(x * y, 8), 0)], {}, id="AUTO can be divisible"),
        pytest.param([(Dim("a"), 4), (AUTO, 6)], [eq], {}, id="AUTO can be different"),
        pytest.param([(Dim("a"), 4), (AUTO, 3)], [lambda x, y: eq(x * y, 12)], {"a": "4"}, id="a name is fixed"),
    ],
)
def test_sizes_without_a_name(inputs: list[Any], asks: list[Build], expected: dict[str, str]) -> None:
    assert Capture(of_shape(*inputs), *asks).fixes() == expected


def test_a_dynamic_size_that_is_fixed() -> None:
    assert Capture(of_shape((DYNAMIC, 4)), lambda x: eq(x, 4)).report() == (
        f"Specializations unexpectedly required (x.shape[0])! {HEAD}\n"
        "  - x.shape[0] must be specialized to 4 because of the guard x.shape[0] == 4.\n"
        "Suggested fixes:\n"
        "  x.shape[0] = 4"
    )


# -- the contract


def test_the_contract_of_names() -> None:
    batch, seq = Dim("batch", min=1, max=64), Dim("seq")
    inputs = [
        (batch, 4, "x.shape[0]"),
        (seq, 5, "x.shape[1]"),
        (batch, 4, "y.shape[0]"),
        (2 * seq + 1, 11, "y.shape[1]"),
    ]
    assert Capture(inputs).contract() == [
        ("size", "x.shape[0] = batch, 1 <= batch <= 64"),
        ("size", "x.shape[1] = seq, seq >= 0"),
        ("size", "y.shape[0] = batch"),
        ("size", "y.shape[1] = 2*seq + 1"),
    ]


def test_the_contract_of_auto() -> None:
    capture = Capture(
        of_shape((AUTO, 6), (AUTO, 7), (AUTO, 3), (AUTO, 5)),
        lambda x, y, z, w: eq(y, x + 1),
        lambda x, y, z, w: ge(y, 4),
        lambda x, y, z, w: eq(mod(x, 2), 0),
        lambda x, y, z, w: eq(z, 3),
        lambda x, y, z, w: eq(w, x * x),
    )
    assert capture.contract() == [
        ("size", "x.shape[0] >= 3"),
        ("size", "x.shape[0] % 2 == 0"),
        ("relation", "y.shape[0] = x.shape[0] + 1"),
        ("specialization", "z.shape[0] = 3"),
        ("size", "w.shape[0] >= 0"),
        ("assertion", "x.shape[0]**2 != w.shape[0]"),
    ]
    lines = contract_lines(capture.environment, capture.sizes)
    caused = [line.kind for line in lines if line.location is not None]
    assert caused == ["size", "size", "relation", "specialization", "assertion"]
    assert all(isinstance(line, ContractLine) for line in lines)


def test_the_contract_says_a_relation_once() -> None:
    capture = Capture(of_shape((AUTO, 3), (AUTO, 4), (AUTO, 12)), lambda x, y, z: eq(x * y, z))
    assert capture.asserted() == ["Eq(s0*s1, s2)"]
    assert capture.contract()[-1] == ("relation", "z.shape[0] = x.shape[0]*y.shape[0]")


# -- random guards, compared with brute force

LIMIT = 13
Recipe = tuple[str, tuple[int, ...]]


def condition(recipe: Recipe, values: Sequence[Any], hints: Sequence[int]) -> Any:
    """A condition over the values that holds for the hints."""
    kind, (first, second, a, b, c, m) = recipe
    first, second = first % len(values), second % len(values)

    def linear(sizes: Sequence[Any]) -> Any:
        return a * sizes[first] - b * sizes[second]

    def single(sizes: Sequence[Any]) -> Any:
        return a * sizes[first] + c

    if kind == "bound":
        return le(values[first], hints[first] + c) if a % 2 else ge(values[first], max(hints[first] - c, 0))
    if kind == "congruence":
        return eq(mod(single(values), m), single(hints) % m)
    if kind == "equation":
        return eq(linear(values), linear(hints))
    if kind == "hole":
        return ne(values[first], hints[first] + (c + 1 if a % 2 else -c - 1))
    if kind == "inequality":
        return le(linear(values), linear(hints) + c)
    if kind == "sum":
        return eq(values[first] + values[second], hints[first] + hints[second])
    return eq(mod(values[first] * values[second] + c, m), (hints[first] * hints[second] + c) % m)


SIMPLE = ("bound", "congruence", "equation")
ALL = (*SIMPLE, "hole", "inequality", "sum", "product")
small = st.integers(0, 3)


def recipes(kinds: Sequence[str], most: int) -> st.SearchStrategy[list[Recipe]]:
    numbers = st.tuples(
        st.integers(0, 2), st.integers(0, 2), st.integers(1, 3), st.integers(1, 3), small, st.integers(2, 4)
    )
    return st.lists(st.tuples(st.sampled_from(kinds), numbers), min_size=1, max_size=most)


@st.composite
def named_sizes(draw: st.DrawFn) -> list[tuple[Dim, int]]:
    found = []
    for name in ("a", "b", "c")[: draw(st.integers(2, 3))]:
        hint = draw(st.integers(0, 9))
        upper = draw(st.one_of(st.none(), st.integers(hint + 1, hint + 9)))
        found.append((Dim(name, min=draw(st.integers(0, hint)), max=upper), hint))
    return found


def capture_of(sizes: Sequence[tuple[Any, int]], guards: list[Recipe]) -> Capture:
    hints = [hint for _, hint in sizes]
    asks = [lambda *values, recipe=recipe: condition(recipe, values, hints) for recipe in guards]
    return Capture(of_shape(*sizes), *asks)


def box(bounds: Sequence[Any]) -> Iterator[tuple[int, ...]]:
    """Every assignment of small values in the ranges."""
    yield from itertools.product(*(range(int(b.min), int(min(b.max, LIMIT)) + 1) for b in bounds))


def satisfying(sizes: Sequence[tuple[Any, int]], guards: list[Recipe]) -> set[tuple[int, ...]]:
    hints = [hint for _, hint in sizes]
    return {
        values
        for values in box([dimension for dimension, _ in sizes])
        if all(condition(recipe, values, hints) for recipe in guards)
    }


def allowed(sizes: Sequence[tuple[Dim, int]], fixes: dict[str, Dim | int]) -> set[tuple[int, ...]]:
    """The assignments, of values up to the limit, that the dimensions allow once they are fixed."""
    definitions = [fixes.get(dim.name, dim) for dim, _ in sizes]
    roots = {each.root.name: each.root for each in definitions if isinstance(each, Dim)}
    found = set()
    for values in box(list(roots.values())):
        chosen = dict(zip(roots, values))
        assignment = tuple(
            each if isinstance(each, int) else each.scale * chosen[each.root.name] + each.offset
            for each in definitions
        )
        if max(assignment) <= LIMIT:
            found.add(assignment)
    return found


def from_two(assignments: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Assignments without sizes of 0 and 1: what only rules those out is asserted by the program, not promised."""
    return {values for values in assignments if min(values) >= 2}


def suggested(capture: Capture) -> dict[str, Any]:
    error = capture.violation()
    return {} if error is None else error.suggested_fixes


def test_what_only_rules_out_0_and_1_is_no_violation_but_asserted() -> None:
    capture = Capture(of_shape((Dim("batch", min=1), 4)), lambda batch: ne(batch, 1))
    assert capture.violation() is None
    assert [str(guard.condition) for guard in complex_guards(capture.environment, capture.sizes)] == ["s0 >= 2"]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 6), st.integers(0, 12) | st.none(), recipes(ALL, 1))
def test_what_is_implied_holds_everywhere(lower: int, width: int | None, guards: list[Recipe]) -> None:
    environment = Environment()
    upper = None if width is None else lower + width
    symbol = environment.backed(lower, lower=lower, upper=upper)
    for recipe in guards:
        found = condition(recipe, [symbol] * 3, [lower] * 3)
        if not isinstance(found, bool) and is_implied(found):
            for value in range(lower, (lower + 100 if upper is None else upper) + 1):
                assert evaluate(found, {symbol: value}) is True, f"{found} at {value}"


def test_implied_by_cases_and_proof() -> None:
    symbol = Environment().backed(16, lower=5)
    assert is_implied(ne((symbol + 1) // 2, (symbol + 3) // 4))
    assert not is_implied(ne(symbol, 70))
    assert not is_implied(ne(symbol, 6))


@settings(max_examples=300, deadline=None)
@given(named_sizes(), recipes(SIMPLE, 5))
def test_fixes_for_simple_guards_are_exact(sizes: list[tuple[Dim, int]], guards: list[Recipe]) -> None:
    fixes = suggested(capture_of(sizes, guards))
    assert from_two(allowed(sizes, fixes)) == from_two(satisfying(sizes, guards))


@settings(max_examples=300, deadline=None)
@given(named_sizes(), recipes(ALL, 4))
def test_fixes_are_sound_and_keep_the_example(sizes: list[tuple[Dim, int]], guards: list[Recipe]) -> None:
    found = allowed(sizes, suggested(capture_of(sizes, guards)))
    assert from_two(found) <= satisfying(sizes, guards)
    assert tuple(hint for _, hint in sizes) in found


@settings(max_examples=300, deadline=None)
@given(named_sizes(), recipes(ALL, 4), st.lists(st.sampled_from([None, None, AUTO, DYNAMIC]), min_size=3, max_size=3))
def test_fixed_sizes_have_no_problem(
    sizes: list[tuple[Dim, int]], guards: list[Recipe], kinds: list[DimHint | None]
) -> None:
    hints = [hint for _, hint in sizes]
    inputs = of_shape(*((kind or dim, hint) for (dim, hint), kind in zip(sizes, kinds)))
    asks = [lambda *values, recipe=recipe: condition(recipe, values, hints) for recipe in guards]
    fixes = suggested(Capture(inputs, *asks))
    definitions = [
        fixes.get(dimension.name if isinstance(dimension, Dim) else source, dimension)
        for dimension, _, source in inputs
    ]

    def ask(recipe: Recipe) -> Build:
        def asked(*values: Any) -> Any:
            left = iter(values)
            return condition(recipe, [each if isinstance(each, int) else next(left) for each in definitions], hints)

        return asked

    varying = [(each, hint) for each, hint in zip(definitions, hints) if not isinstance(each, int)]
    assert suggested(Capture(of_shape(*varying), *map(ask, guards))) == {}


@settings(max_examples=200, deadline=None)
@given(named_sizes(), recipes(ALL, 4))
def test_every_fix_is_reported(sizes: list[tuple[Dim, int]], guards: list[Recipe]) -> None:
    capture = capture_of(sizes, guards)
    if capture.violation() is None:
        assert from_two(satisfying(sizes, guards)) == from_two(set(box([dim for dim, _ in sizes])))
        return
    report = capture.report()
    fixes = suggested(capture)
    assert "\n  - " in report
    for name in fixes.keys() & {"a", "b", "c"}:
        assert re.search(rf"^[^-].*\([^)]*\b{name}\b.*\)!", report, flags=re.MULTILINE)
        assert re.search(rf"^  {name} = ", report, flags=re.MULTILINE)


def checked_at_the_inputs(capture: Capture, values: Sequence[int]) -> bool:
    """Whether the input checks that ``complex_guards`` counts on let the values pass."""
    environment = capture.environment
    given_values = dict(zip(environment.symbols.values(), values))
    for size in capture.sizes:
        symbol = size.expression
        assert isinstance(symbol, Symbol)
        if isinstance(size.dimension, Dim):
            continue
        value = environment.replacements.get(symbol, symbol)
        if isinstance(value, int) or len(value.symbols) == 1:
            if evaluate(value, given_values) != given_values[symbol]:
                return False
        if given_values[symbol] not in environment.range(symbol):
            return False
    return True


@settings(max_examples=200, deadline=None)
@given(named_sizes(), recipes(ALL, 4), st.booleans())
def test_assertions_and_input_checks_are_all_guards(
    sizes: list[tuple[Dim, int]], guards: list[Recipe], automatic: bool
) -> None:
    if automatic:
        capture = capture_of([(Dim.AUTO(min=int(dim.min)), hint) for dim, hint in sizes], guards)
        ranges: list[Any] = [size.dimension for size in capture.sizes]
    else:
        capture = capture_of(sizes, guards)
        ranges = [dim for dim, _ in sizes]
    if capture.violation(complex_as_assertions=True) is not None:
        return
    symbols = list(capture.environment.symbols.values())
    asserted = complex_guards(capture.environment, capture.sizes)
    for values in box(ranges):
        chosen = dict(zip(symbols, values))
        accepted = checked_at_the_inputs(capture, values) and all(
            evaluate(guard.condition, chosen) for guard in asserted
        )
        assert accepted == all(evaluate(guard.condition, chosen) for guard in capture.environment.guards)


@settings(max_examples=200, deadline=None)
@given(named_sizes(), recipes(ALL, 1), st.integers(0, 2))
def test_a_guard_on_a_name_and_others_leaves_the_name_free(
    sizes: list[tuple[Dim, int]], guards: list[Recipe], position: int
) -> None:
    """Without an error there is a choice of the other sizes for each value of the one name."""
    position %= len(sizes)
    mixed = [
        (dim if index == position else Dim.AUTO(min=int(dim.min)), hint) for index, (dim, hint) in enumerate(sizes)
    ]
    if capture_of(mixed, guards).violation() is not None:
        return
    hints = [hint for _, hint in sizes]
    others: list[Any] = [range(LIMIT * 4) if dim is not sizes[position][0] else [None] for dim, _ in sizes]
    for value in range(max(int(sizes[position][0].min), 2), int(min(sizes[position][0].max, LIMIT)) + 1):
        others[position] = [value]
        assert any(
            all(condition(recipe, values, hints) for recipe in guards) for values in itertools.product(*others)
        )


def test_what_is_divided_is_a_multiple() -> None:
    inputs = [(Dim("H", min=32, max=512), 64, "x.shape[2]"), (Dim("W", min=32, max=512), 48, "x.shape[3]")]
    capture = Capture(inputs, lambda h, w: eq(h * w, 128 * (h // 16) * (w // 8)))
    report = capture.report()
    assert "must be specialized" not in report
    assert report.endswith(
        "  _H = Dim('_H', max=32)  # min=2\n  H = 16*_H\n  _W = Dim('_W', min=4, max=64)\n  W = 8*_W"
    )
