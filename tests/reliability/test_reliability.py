"""Short runs of what ``make fuzz`` and ``make killtest`` do at length."""

from __future__ import annotations

import io
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tintype
from tests.reliability.kill import kill_once, program_of
from tests.reliability.mutations import archive, base_files, mutated

FILES = {name: (entries, archive(entries)) for name, entries in base_files().items()}


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(FILES)), st.randoms(use_true_random=False))
def test_damaged_files_load_or_are_refused(name: str, chance: random.Random) -> None:
    try:
        tintype.load(io.BytesIO(mutated(*FILES[name], chance)), extra_files={})
    except tintype.TintypeError as error:
        assert str(error)


def test_the_mutations_reach_deep() -> None:
    """Some damaged files must still load, and others be refused for many reasons: otherwise nothing is tested."""
    reasons = set()
    loads = 0
    for seed in range(300):
        chance = random.Random(seed)
        try:
            tintype.load(io.BytesIO(mutated(*FILES["everything-1.0"], chance)))
            loads += 1
        except tintype.TintypeError as error:
            reasons.add("".join(c for c in str(error).split("'")[0] if not c.isdigit())[:30])
    assert loads > 10
    assert len(reasons) > 15


def test_a_killed_save_leaves_a_whole_file() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tt"
        programs = [program_of(0.0), program_of(1.0)]
        tintype.save(programs[0], path)
        for seconds in (0.0, 0.01, 0.02, 0.05, 0.1):
            kill_once(path, seconds, programs)
