"""What symbolic sizes cost: one operation at a time, and growth with their number.

python -m benchmarks.symbolic_sizes
"""

from __future__ import annotations

import itertools
import timeit
from collections.abc import Callable
from typing import Any

from tintype.symbolic import Environment, eq, ge, lt, sizes
from tintype.symbolic.bridge import from_torch, to_torch


def microseconds(function: Callable[[], Any], number: int = 2000) -> float:
    return min(timeit.repeat(function, number=number, repeat=5)) / number * 1e6


ENVIRONMENT = Environment()
A, B = ENVIRONMENT.backed(4), ENVIRONMENT.backed(6)
SYMBOLIC = to_torch(A)
OPERATIONS: list[tuple[str, Callable[[], Any]]] = [
    ("add", lambda: A + B),
    ("multiply", lambda: A * B),
    ("floor division", lambda: A // 2),
    ("eq", lambda: eq(A, B)),
    ("lt", lambda: lt(A, B)),
    ("same integers", lambda: sizes.same(3, 3)),
    ("same symbols", lambda: sizes.same(A, A)),
    ("same, unknown", lambda: sizes.same(A, B)),
    ("is_one", lambda: sizes.is_one(A)),
    ("strides of integers", lambda: sizes.contiguous_strides((2, 3, 4, 5))),
    ("strides of symbols", lambda: sizes.contiguous_strides((A, 3, B, 5))),
    ("to torch", lambda: to_torch(A)),
    ("from torch", lambda: from_torch(SYMBOLIC)),
    ("torch adds", lambda: SYMBOLIC + 1),
]


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
        sizes.same(one, other)


def many_bounds(count: int) -> None:
    environment = Environment()
    for _ in range(count):
        environment.guard(ge(environment.backed(4), 2))


def main() -> None:
    """Print both tables."""
    print("| operation | us |\n| --- | ---: |")
    for name, function in OPERATIONS:
        print(f"| {name} | {microseconds(function):.2f} |")
    print("\n| work | 8 times as much costs |\n| --- | ---: |")
    for work in (many_sizes, many_equal_sizes, many_bounds):
        print(f"| {work.__name__} | {growth(work, 100):.1f} times |")


if __name__ == "__main__":
    main()
