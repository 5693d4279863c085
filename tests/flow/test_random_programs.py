"""A few of the random programs; ``make fuzz-flow`` runs thousands."""

from __future__ import annotations

import pytest

from tests.flow import wider_programs
from tests.flow.random_programs import judged


@pytest.mark.parametrize("seed", range(30))
def test_a_random_program_is_right_or_refused(seed: int) -> None:
    verdict, why = judged(seed)
    assert verdict in ("right", "refused"), why


@pytest.mark.parametrize("seed", range(30))
def test_a_wider_random_program_is_right_or_refused(seed: int) -> None:
    verdict, why = wider_programs.judged(seed)
    assert verdict in ("right", "refused"), why
