"""Symbols, guards, requirements, specialisations: what is recorded and what is not."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tintype.symbolic import (
    DataDependentError,
    Environment,
    Range,
    RequirementError,
    and_,
    eq,
    ge,
    gt,
    le,
    lt,
    ne,
    not_,
    or_,
    sizes,
)
from tintype.symbolic.ranges import INFINITY


@pytest.fixture
def environment() -> Environment:
    return Environment()


def conditions(environment: Environment) -> list[str]:
    return [str(guard.condition) for guard in environment.guards]


def test_names(environment: Environment) -> None:
    made = [environment.backed(2), environment.backed(3, name="s1"), environment.backed(4)]
    assert [str(size) for size in made] == ["s0", "s1", "s2"]
    assert str(environment.unbacked_int()) == "u0"
    assert str(environment.unbacked_float()) == "zuf0"
    assert environment.unbacked_bool().kind == "bool"
    with pytest.raises(ValueError, match="already"):
        environment.backed(3, name="s1")


def test_declared_ranges(environment: Environment) -> None:
    assert environment.range(environment.backed(0)) == Range(0, INFINITY)
    assert environment.range(environment.backed(1)) == Range(0, INFINITY)
    assert environment.range(environment.backed(4, lower=3, upper=6)) == Range(3, 6)
    assert environment.range(environment.unbacked_int()) == Range(-INFINITY, INFINITY)
    with pytest.raises(ValueError, match=r"the example size 7 is outside the declared range \[3, 6\]"):
        environment.backed(7, lower=3, upper=6)


def test_hints(environment: Environment) -> None:
    a, u = environment.backed(4), environment.unbacked_int()
    assert environment.hint(2 * a + 1) == 9
    assert environment.hint(a / 8) == 0.5
    assert environment.hint(eq(a, 4)) is True
    assert environment.hint(a + u) is None
    assert environment.hint(7) == 7
    environment.require(eq(u, a + 1), "")
    assert environment.hint(u) == 5


def test_known_never_guards(environment: Environment) -> None:
    a = environment.backed(4)
    assert environment.known(eq(a, 4)) is None
    assert environment.known(ge(a, 0)) is True
    assert environment.known(True) is True
    assert environment.guards == []


def test_guards_record_what_held_and_where(environment: Environment) -> None:
    a, b = environment.backed(4), environment.backed(6)
    assert environment.guard(lt(a, b)) is True
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    assert environment.guard(eq(a, 7)) is False
    assert conditions(environment) == ["s0 < s1", "Ne(s0, 7)"]
    location = environment.guards[0].location
    assert location is not None
    assert (location.filename, location.line) == (__file__, line)
    assert location.function == "test_guards_record_what_held_and_where"


def test_a_guard_is_a_fact(environment: Environment) -> None:
    a, b = environment.backed(4), environment.backed(6)
    environment.guard(lt(a, b))
    assert environment.guard(le(a, b + 2)) is True
    assert environment.guard(not_(lt(a, b))) is False
    assert len(environment.guards) == 1
    environment.guard(ge(a, 3))
    assert environment.ranges[a] == Range(3, INFINITY)


def test_equal_sizes_are_replaced(environment: Environment) -> None:
    a, b, c = (environment.backed(4) for _ in range(3))
    environment.guard(eq(b, c))
    environment.guard(eq(a, b))
    assert environment.replacements == {c: a, b: a}
    assert environment.simplify(b * c + a) is a**2 + a
    assert environment.guard(eq(a, c)) is True
    assert len(environment.guards) == 2


def test_specialisations_are_listed(environment: Environment) -> None:
    a, b = environment.backed(4), environment.backed(6)
    assert environment.specialize(a) == 4
    assert environment.specialize(a) == 4
    assert environment.guard(eq(2 * b, 12)) is True
    assert environment.specialize(7) == 7
    assert [(str(entry.expression), entry.value) for entry in environment.specializations] == [
        ("s0", 4),
        ("s1", 6),
    ]
    assert environment.specializations[0].location is not None


def test_specialising_an_expression(environment: Environment) -> None:
    a, b = environment.backed(4), environment.backed(6)
    assert environment.specialize(a * b) == 24
    assert conditions(environment) == ["Eq(s0*s1, 24)"]
    assert [str(entry.expression) for entry in environment.specializations] == ["s0*s1"]


def test_a_range_that_shrinks_to_a_point_specialises(environment: Environment) -> None:
    a = environment.backed(4)
    environment.guard(ge(a, 4))
    environment.guard(le(a, 4))
    assert environment.simplify(a + 1) == 5
    assert [entry.value for entry in environment.specializations] == [4]


def test_unknown_data_can_not_be_branched_on(environment: Environment) -> None:
    u = environment.unbacked_int()
    condition = gt(u, 3)
    with pytest.raises(DataDependentError) as caught:
        environment.guard(condition)
    assert caught.value.id == "data-dependent"
    assert caught.value.condition is condition
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__
    assert "data-dependent expression u0 >= 4" in str(caught.value)
    assert "because of u0" in str(caught.value)
    with pytest.raises(DataDependentError, match=r"its value is not known"):
        environment.specialize(u)
    assert environment.guards == []


def test_requirements_on_unknown_data_are_assertions(environment: Environment) -> None:
    u = environment.unbacked_int()
    environment.require(and_(ge(u, 4), le(u, 7)), "Invalid value range")
    assert environment.range(u) == Range(4, 7)
    assert environment.guard(gt(u, 3)) is True
    environment.require(ge(u, 2), "known by now")
    (assertion,) = environment.assertions
    assert str(assertion.condition) == "And(u0 <= 7, u0 >= 4)"
    assert assertion.message == "Invalid value range"
    assert assertion.location is not None
    with pytest.raises(RequirementError, match="too small"):
        environment.require(gt(u, 9), "too small")


def test_requirements_that_contradict_each_other(environment: Environment) -> None:
    u, v = environment.unbacked_int(), environment.unbacked_int()
    environment.require(eq(u % 2, 0), "even")
    environment.require(eq(v % 2, 1), "odd")
    with pytest.raises(RequirementError, match="equal"):
        environment.require(eq(u, v), "equal")


def test_requirements_on_input_sizes_are_guards(environment: Environment) -> None:
    a, b = environment.backed(4), environment.backed(4)
    environment.require(eq(a, b), "sizes must match")
    assert environment.guards[0].message == "sizes must match"
    assert environment.assertions == []
    with pytest.raises(RequirementError, match="no"):
        environment.require(gt(a, 5), "no")


def test_requirements_may_be_deferred() -> None:
    environment = Environment(defer_requirements=True)
    a = environment.backed(4)
    environment.require(ne(a % 3, 0), "not divisible")
    assert environment.guards == []
    assert [entry.message for entry in environment.assertions] == ["not divisible"]


def test_unbacked_sizes_give_way_to_backed_ones(environment: Environment) -> None:
    a, u, v = environment.backed(4), environment.unbacked_int(lower=0), environment.unbacked_int(lower=0)
    environment.require(eq(u + v, a), "")
    assert environment.replacements == {v: a - u}
    assert environment.known(le(u, a)) is True
    assert environment.known(eq(v + u, a)) is True


def test_operators_take_the_general_path(environment: Environment) -> None:
    """No guard where the example agrees with the path that is right in every case."""
    a, b, u = environment.backed(4), environment.backed(6), environment.unbacked_int()
    assert environment.guard_or(eq(a, 1), False) is False
    assert environment.guard_or(eq(a, b), False) is False
    assert environment.guard_or(gt(u, 3), False) is False
    assert environment.guard_or(gt(u, 3), True) is True
    assert environment.guards == []
    assert environment.guard_or(lt(a, b), False) is True
    assert conditions(environment) == ["s0 < s1"]


@pytest.mark.parametrize("hint", [0, 1])
def test_sizes_zero_and_one_are_like_any_other(environment: Environment, hint: int) -> None:
    a = environment.backed(hint)
    for condition in (eq(a, 0), eq(a, 1), le(a, 1), le(a, 0), or_(eq(a, 0), eq(a, 1)), eq(3 * a, 0)):
        assert environment.guard_or(condition, False) is False
        assert environment.guard_or(not_(condition), True) is True
    assert environment.guards == []
    with environment.following_hints():
        assert environment.guard_or(eq(a, hint), False) is True
    assert environment.specializations[0].value == hint


# -- what shape rules call


def test_same(environment: Environment) -> None:
    a, b, u, v = (*(environment.backed(4) for _ in range(2)), *(environment.unbacked_int() for _ in range(2)))
    c = environment.backed(5)
    assert sizes.same(3, 3) and not sizes.same(3, 4)
    assert sizes.same(a, a) and sizes.same(a + 1, 1 + a)
    assert not sizes.same(u, v)
    assert not sizes.same(a, c)
    assert environment.guards == []
    assert sizes.same(a, b)
    assert conditions(environment) == ["Eq(s0, s1)"]


def test_one_and_zero(environment: Environment) -> None:
    a, n = environment.backed(1), environment.backed(0)
    assert sizes.is_one(1) and not sizes.is_one(2)
    assert sizes.is_zero(0) and not sizes.is_zero(2)
    assert not sizes.is_one(a) and not sizes.is_zero(n)
    assert environment.guards == []
    environment.specialize(a)
    assert sizes.is_one(a)


def test_comparisons(environment: Environment) -> None:
    a, b, u = environment.backed(4), environment.backed(6), environment.unbacked_int()
    assert sizes.at_least(4, 4) and sizes.less(3, 4)
    assert sizes.less(a, b)
    assert not sizes.at_least(a, b)
    assert not sizes.less(u, 3) and not sizes.at_least(u, 3)
    assert conditions(environment) == ["s0 < s1"]


def test_require_same(environment: Environment) -> None:
    a, b, u = environment.backed(4), environment.backed(6), environment.unbacked_int()
    sizes.require_same(4, 4, "fine")
    with pytest.raises(RuntimeError, match="The size of tensor a"):
        sizes.require_same(3, 4, lambda: "The size of tensor a")
    with pytest.raises(RuntimeError, match="different"):
        sizes.require_same(a, b, "different")
    sizes.require_same(a, 4, lambda: "guarded")
    assert environment.guards[0].message == "guarded"
    sizes.require_same(u, b, "asserted")
    assert environment.assertions[0].message == "asserted"
    sizes.require(True, "fine")
    with pytest.raises(RuntimeError, match="false"):
        sizes.require(False, "false")


def test_broadcasting(environment: Environment) -> None:
    a, b, u = environment.backed(4), environment.backed(4), environment.unbacked_int(lower=0)

    def describe() -> str:
        return "can't broadcast"

    assert sizes.broadcast_dim(1, 5, describe) == 5
    assert sizes.broadcast_dim(5, 1, describe) == 5
    assert sizes.broadcast_dim(0, 1, describe) == 0
    assert sizes.broadcast_dim(a, 1, describe) is a
    assert sizes.broadcast_dim(1, a, describe) is a
    assert sizes.broadcast_dim(a, a, describe) is a
    assert environment.guards == []
    assert sizes.broadcast_dim(a, b, describe) is a
    assert conditions(environment) == ["Eq(s0, s1)"]
    assert sizes.broadcast_dim(u, 7, describe) == 7
    assert str(environment.assertions[0].condition) == "Eq(u0, 7)"
    with pytest.raises(RuntimeError, match="can't broadcast"):
        sizes.broadcast_dim(3, 4, describe)
    with pytest.raises(RuntimeError, match="can't broadcast"):
        sizes.broadcast_dim(a, 5, describe)


def test_broadcasting_an_example_of_one(environment: Environment) -> None:
    """Two sizes that are both 1 stay general; 1 against another size can only be a broadcast."""
    a, b, c = environment.backed(1), environment.backed(1), environment.backed(8)
    assert sizes.broadcast_dim(a, b, "") is a
    assert environment.specializations == []
    assert sizes.broadcast_dim(a, c, "") is c
    assert {str(entry.expression) for entry in environment.specializations} >= {"s0"}


def test_products_and_strides(environment: Environment) -> None:
    a, u = environment.backed(4), environment.unbacked_int(lower=0)
    assert sizes.total(()) == 0
    assert sizes.total((1, a, 2, u, -1 * u)) is a + 3
    with pytest.raises(ValueError, match="another environment"):
        sizes.total((a, Environment().backed(1)))
    assert sizes.product(()) == 1
    assert sizes.product((2, 3, 4)) == 24
    assert sizes.product((2, a, u)) is 2 * a * u
    assert sizes.contiguous_strides((2, 3, 4)) == (12, 4, 1)
    assert sizes.contiguous_strides((2, 0, 4)) == (4, 4, 1)
    assert sizes.contiguous_strides(()) == ()
    assert sizes.contiguous_strides((5, a, 3, u)) == (3 * a * u, 3 * u, u, 1)
    assert sizes.contiguous_strides((a, 1)) == (1, 1)


def test_strides_are_those_of_torch() -> None:
    import torch

    for shape in ((2, 3), (0, 3), (3, 0, 2), (1, 1, 4), (5,), ()):
        assert sizes.contiguous_strides(shape) == torch.empty(shape).stride()


def test_public_data(environment: Environment) -> None:
    a = environment.backed(4, source="x.shape[0]")
    value: Any = environment.symbols["s0"]
    assert value is a and value.source == "x.shape[0]"
    assert list(environment.ranges) == [a]
