"""Some of the wider random programs; ``python -m tests.compiler.wider_programs`` tries more of them."""

from __future__ import annotations

import warnings

import pytest

import tintype
from tests.compiler.wider_programs import check, checked_beside

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("start", range(0, 24, 8))
def test_wider_random_programs_are_as_in_eager_mode(start: int, backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tintype.RecompileWarning)
        problems = [check(seed, backend)[0] for seed in range(start, start + 8)]
    assert not any(problems), "\n".join(problem for problem in problems if problem)


def test_wider_random_programs_beside_another_thread() -> None:
    problems = [checked_beside(seed, "eager")[0] for seed in range(30, 34)]
    assert not any(problems), "\n".join(problem for problem in problems if problem)
