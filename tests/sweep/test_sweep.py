"""The sweep itself: it sees what is wrong, survives what crashes, and counts rightly."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.sweep.judging import (
    ABSENT,
    CORRECT,
    DECOMPOSED,
    EAGER_FAILS,
    ERROR,
    EXPORT,
    IN_PLACE,
    NOT_REACHED,
    REFUSED,
    WRONG,
    Difference,
    Outcome,
    Result,
    compare_results,
    judge,
)
from tests.sweep.processes import run_jobs
from tests.sweep.programs import make_case, spread, writing_to_a_copy
from tests.sweep.report import OperatorReport, SweepReport

OPERATOR = SimpleNamespace(name="operator")
MEMORY = 64 << 30


def verdicts(function: Any, *args: Any, in_place: bool = False) -> dict[str, str]:
    case = make_case("sample", function, (args, {}), in_place)
    return {outcome.stage: outcome.verdict for outcome in judge(OPERATOR, case)}


def forgets_the_data(tensor: torch.Tensor) -> torch.Tensor:
    """In eager mode it depends on the data, in a captured program it can't."""
    return tensor * (1.0 if torch.compiler.is_compiling() else float(tensor.sum()))


def breaks_the_capture(tensor: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        raise KeyError("inside")
    return tensor


def asks_the_data(tensor: torch.Tensor) -> torch.Tensor:
    return tensor + float(str(tensor.sum().item()))


def always_fails(tensor: torch.Tensor) -> torch.Tensor:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("function", "verdict"),
    [
        (torch.sin, CORRECT),
        (forgets_the_data, WRONG),
        (breaks_the_capture, ERROR),
        (asks_the_data, REFUSED),
        (always_fails, EAGER_FAILS),
    ],
)
def test_verdicts(function: Any, verdict: str) -> None:
    assert verdicts(function, torch.rand(3, 4))[EXPORT] == verdict


def test_all_stages_are_judged() -> None:
    assert verdicts(torch.add, torch.rand(2), torch.rand(2))[DECOMPOSED] == CORRECT
    assert verdicts(torch.Tensor.add_, torch.rand(2), 1.0, in_place=True)[IN_PLACE] == CORRECT
    on_a_copy = writing_to_a_copy(torch.Tensor.unsqueeze_)
    assert verdicts(on_a_copy, torch.rand(2), 0, in_place=True)[IN_PLACE] == CORRECT


@pytest.mark.parametrize(
    ("expected", "actual", "what"),
    [
        (torch.ones(2), torch.ones(3), "shape"),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), "dtype"),
        (torch.ones(2), torch.zeros(2), "output 0"),
        ((torch.ones(2),), [torch.ones(2)], "structure"),
        (1, 1.0, "float"),
        (1.0, 2.0, "2.0"),
    ],
)
def test_differences_are_seen(expected: Any, actual: Any, what: str) -> None:
    with pytest.raises(Difference, match=what):
        compare_results(Result(expected, ()), Result(actual, ()), 1e-6, 1e-6, True)


def test_what_is_left_in_the_inputs_counts() -> None:
    left, other = (torch.ones(2),), (torch.zeros(2),)
    compare_results(Result(None, left), Result(None, left), 0.0, 0.0, True)
    with pytest.raises(Difference, match="input 0 after the call"):
        compare_results(Result(None, left), Result(None, other), 0.0, 0.0, True)


def test_inputs_keep_their_strides_and_shared_memory() -> None:
    base = torch.rand(4, 6)
    case = make_case("sample", torch.add, ((base[::2], base.t()[:, ::2].t()), {}))
    first, second = case.fresh_inputs()
    assert first.stride() == base[::2].stride()
    assert first.untyped_storage()._cdata == second.untyped_storage()._cdata
    (turned,) = make_case("sample", torch.sin, ((base[::2],), {})).with_other_values().inputs
    assert torch.equal(turned, base[::2].flip(0, 1))


@pytest.mark.parametrize(("count", "limit"), [(0, 5), (3, 5), (100, 5), (100, 1), (100, 0), (7, 6)])
def test_samples_are_spread(count: int, limit: int) -> None:
    chosen = spread(count, limit)
    assert len(chosen) == (min(count, limit) if limit else count)
    assert chosen == sorted(set(chosen)) and set(chosen) <= set(range(count))
    if limit > 1 and count:
        assert chosen[0] == 0 and chosen[-1] == count - 1


def misbehave(job: str) -> Iterator[str]:
    yield f"{job} begins"
    if job == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    elif job == "hang":
        time.sleep(60)
    elif job == "raise":
        raise ValueError("in the job")


def test_a_bad_job_is_one_result() -> None:
    jobs = ("good", "crash", "hang", "raise")
    finished = {f.job: f for f in run_jobs(jobs, misbehave, workers=4, timeout=3.0, memory=MEMORY)}
    assert all(finished[job].messages == [f"{job} begins"] for job in jobs)
    assert finished["good"].failure is None
    assert finished["crash"].failure == "crashed: SIGKILL"
    assert finished["hang"].failure == "took longer than 3 s"
    assert "in the job" in str(finished["raise"].failure)


def operator(name: str, *outcomes: tuple[str, str]) -> OperatorReport:
    report = OperatorReport(name, "float32")
    report.outcomes = [Outcome("sample", stage, verdict, "because") for stage, verdict in outcomes]
    return report


def test_the_report_counts() -> None:
    good = [operator(f"good{n}", (EXPORT, CORRECT), (DECOMPOSED, CORRECT)) for n in range(97)]
    refused = operator("refused", (EXPORT, CORRECT), (EXPORT, REFUSED), (DECOMPOSED, CORRECT))
    failing = operator("failing", (EXPORT, EAGER_FAILS))
    report = SweepReport([*good, refused, failing])
    assert refused.verdict(DECOMPOSED) == NOT_REACHED
    assert refused.verdict(IN_PLACE) == ABSENT
    assert report.counts(EXPORT) == {CORRECT: 97, REFUSED: 1, EAGER_FAILS: 1}
    assert report.percentage(EXPORT) == pytest.approx(100 * 97 / 98)
    assert report.good_enough()
    assert report.text().endswith("97 passed, 0 failed")
    assert "| `refused` | export | 1 of 2 | because |" in report.markdown("make sweep")


def test_one_wrong_operator_fails_the_sweep() -> None:
    good = [operator(f"good{n}", (EXPORT, CORRECT), (DECOMPOSED, CORRECT)) for n in range(200)]
    wrong = operator("wrong", (EXPORT, CORRECT), (DECOMPOSED, CORRECT), (IN_PLACE, WRONG))
    report = SweepReport([*good, wrong])
    assert not report.good_enough()
    assert report.text().endswith("200 passed, 1 failed")
