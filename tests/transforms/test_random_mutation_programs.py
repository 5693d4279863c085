"""Random programs of in-place operations, views and aliases do what they do in eager mode.

Each program is run in eager mode and as exported, decomposed, training-stage and retraced module; results, their
structure, written inputs and buffers, and which tensors share memory must be the same. ``make test`` tries the
same few hundred programs every time. To try 2,000 new ones:

    TINTYPE_MUTATION_PROGRAMS=2000 python -m pytest tests/transforms/test_random_mutation_programs.py

A program that fails is shrunk and printed as a script that can be run from the repository's root.
"""

from __future__ import annotations

import collections
import os
import warnings
from collections.abc import Sequence
from typing import TypeVar

import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.transforms.comparison import EagerRefused, compare
from tests.transforms.mutation_programs import Program, write_program
from tintype.errors import CaptureReport, TintypeError

Item = TypeVar("Item")

REQUESTED = os.environ.get("TINTYPE_MUTATION_PROGRAMS")
PROGRAMS = int(REQUESTED or 300)

# What a program may be refused for, by a part of the message. Everything else must be captured.
REFUSALS = [
    "cannot mutate tensors with frozen storage",
    "changes the size or strides of a tensor that it was given or that the model holds",
    "writes to a tensor whose elements share memory with each other",
    "through as_strided() that lies between or beyond the elements",
    "writes through a view made by aten.as_strided",
]
MOST_REFUSED = 0.08


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
    """Programs of up to twelve lines."""
    return write_program(Drawn(draw))


def refusal(error: TintypeError) -> str:
    """The reason why a program was refused, which must be one of those that are expected."""
    problems = error.problems if isinstance(error, CaptureReport) else (error,)
    for problem in problems:
        if not any(reason in problem.fact for reason in REFUSALS):
            raise AssertionError(f"refused, but should not be: {problem}") from error
    return next(reason for reason in REFUSALS if reason in problems[0].fact)


def test_captured_programs_write_and_share_memory_as_in_eager_mode() -> None:
    outcomes: collections.Counter[str] = collections.Counter()

    @settings(
        max_examples=PROGRAMS,
        deadline=None,
        database=None,
        derandomize=REQUESTED is None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def run(program: Program) -> None:
        try:
            compare(*program.build(), program.build_with_copies(), shares=not program.assigns_buffers())
        except EagerRefused:
            assume(False)
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


def report(outcomes: collections.Counter[str]) -> None:
    """Show how programs fared; few may be refused."""
    total = sum(outcomes.values())
    for outcome, count in outcomes.most_common():
        print(f"{count:6} {outcome}")
    assert total - outcomes["same as eager mode"] <= MOST_REFUSED * total
