"""Random programs with mutation, aliasing and shared inputs can't be told from their compiled form.

``make test`` tries the same programs every time. To try 1,000 new ones:

    TINTYPE_AOT_PROGRAMS=1000 python -m pytest -s tests/aot/test_random_programs.py
"""

from __future__ import annotations

import collections
import os
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tintype
from tests.aot.comparison import compare, observe
from tests.aot.random_programs import Program, write_program
from tintype.errors import CaptureReport, TintypeError

Item = TypeVar("Item")

REQUESTED = os.environ.get("TINTYPE_AOT_PROGRAMS")
PROGRAMS = int(REQUESTED or 150)

# What a program may be refused for, by a part of the message.
REFUSALS = [
    "writes to a tensor whose elements share memory with each other",
    "whose elements share memory with each other (expand())",
    "through as_strided() that lies between or beyond the elements",
    "writes through a view made by aten.as_strided",
    "share memory without being views of each other",
]
MOST_REFUSED = 0.05
PARTITIONERS: list[dict[str, Any]] = [
    {},
    {"partitioner": "min_cut"},
    {"partitioner": "min_cut", "memory_budget": 0.0},
]


class Drawn:
    """Decisions by hypothesis, which can shrink them."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def one_of(self, items: Sequence[Item]) -> Item:
        return items[self.number(0, len(items) - 1)]

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs of up to nine lines."""
    return write_program(Drawn(draw))


def test_compiled_programs_can_not_be_told_from_eager_mode() -> None:
    outcomes: collections.Counter[str] = collections.Counter()

    @settings(
        max_examples=PROGRAMS,
        deadline=None,
        database=None,
        derandomize=REQUESTED is None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(), st.sampled_from(PARTITIONERS))
    def run(program: Program, options: dict[str, Any]) -> None:
        function = program.build()
        assume(observe(function, program.arguments, 0).error is None)
        compiled = tintype.aot.function(function, **options)
        try:
            for seed in range(2):
                compare(function, compiled, program.arguments, seed)
        except TintypeError as error:
            outcomes[refusal(error)] += 1
        else:
            outcomes["same as eager mode"] += 1

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
    finally:
        torch.set_num_threads(threads)
    report(outcomes)


def refusal(error: TintypeError) -> str:
    """The reason why a program was refused, which must be one of those that are expected."""
    problems = error.problems if isinstance(error, CaptureReport) else (error,)
    for problem in problems:
        if not any(reason in problem.fact for reason in REFUSALS):
            raise AssertionError(f"refused, but should not be: {problem}") from error
    return next(reason for reason in REFUSALS if reason in problems[0].fact)


def report(outcomes: collections.Counter[str]) -> None:
    """Show how programs fared; few may be refused."""
    total = sum(outcomes.values())
    for outcome, count in outcomes.most_common():
        print(f"{count:6} {outcome}")
    assert total - outcomes["same as eager mode"] <= MOST_REFUSED * total
