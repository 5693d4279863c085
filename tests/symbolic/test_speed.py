"""Sizes are the hot path of a tracer: costs stay small and grow no faster than what they describe.

The limits are far above what a quiet machine needs (see the numbers beside them), so that only a
change of kind fails.
"""

from __future__ import annotations

import itertools
import timeit
from collections.abc import Callable
from typing import Any

import pytest

from tintype.symbolic import Environment, eq, ge, lt, sizes
from tintype.symbolic.bridge import from_torch, to_torch


def microseconds(function: Callable[[], Any], number: int = 2000) -> float:
    return min(timeit.repeat(function, number=number, repeat=5)) / number * 1e6


ENVIRONMENT = Environment()
A, B = ENVIRONMENT.backed(4), ENVIRONMENT.backed(6)
SYMBOLIC = to_torch(A)
LIMITS: list[tuple[str, Callable[[], Any], float]] = [
    ("add", lambda: A + B, 2),  # 0.2
    ("multiply", lambda: A * B, 2),  # 0.2
    ("floor division", lambda: A // 2, 2),  # 0.2
    ("eq", lambda: eq(A, B), 2),  # 0.2
    ("lt", lambda: lt(A, B), 2),  # 0.2
    ("same integers", lambda: sizes.same(3, 3), 1),  # 0.1
    ("same symbols", lambda: sizes.same(A, A), 1),  # 0.1
    ("same, unknown", lambda: sizes.same(A, B), 5),  # 0.5
    ("is_one", lambda: sizes.is_one(A), 4),  # 0.4
    ("strides of integers", lambda: sizes.contiguous_strides((2, 3, 4, 5)), 4),  # 0.35
    ("strides of symbols", lambda: sizes.contiguous_strides((A, 3, B, 5)), 9),  # 0.9
    ("to torch", lambda: to_torch(A), 3),  # 0.25
    ("from torch", lambda: from_torch(SYMBOLIC), 2),  # 0.15
    ("torch adds", lambda: SYMBOLIC + 1, 25),  # 2.4, nearly all of it torch's
]


@pytest.mark.parametrize(("function", "limit"), [case[1:] for case in LIMITS], ids=[case[0] for case in LIMITS])
def test_hot_path(function: Callable[[], Any], limit: float) -> None:
    assert microseconds(function) < limit


def test_first_addition() -> None:
    environment = Environment()
    symbols: list[Any] = [environment.backed(4) for _ in range(400)]
    start = timeit.default_timer()
    for one, other in itertools.pairwise(symbols):
        2 * one + 3 * other + 1
    assert (timeit.default_timer() - start) / 399 * 1e6 < 100  # three operations and new results: 7


def growth(work: Callable[[int], Any], small: int) -> float:
    """How many times more 8 times the work costs."""
    times = [min(timeit.repeat(lambda: work(size), number=1, repeat=3)) for size in (small, 8 * small)]  # noqa: B023
    return times[1] / times[0]


def many_sizes(count: int) -> None:
    environment = Environment()
    sizes.total([environment.backed(3) + 1 for _ in range(count)])


def many_equal_sizes(count: int) -> None:
    environment = Environment()
    symbols = [environment.backed(4) for _ in range(count)]
    for one, other in itertools.pairwise(symbols):
        assert sizes.same(one, other)


def many_bounds(count: int) -> None:
    environment = Environment()
    for _ in range(count):
        environment.guard(ge(environment.backed(4), 2))


@pytest.mark.parametrize("work", [many_sizes, many_equal_sizes, many_bounds])
def test_linear_growth(work: Callable[[int], Any]) -> None:
    assert growth(work, 100) < 24
