"""Prefill and decode of a few architectures; ``python -m tests.generation`` goes through all."""

from __future__ import annotations

import pytest

from tests.generation.architectures import ARCHITECTURES
from tests.generation.judging import STAGES, differences, export

SIZES = [(1, 3), (3, 4), (1, 9), (4, 5), (2, 11), (5, 2), (3, 12), (2, 7), (1, 15), (2, 5)]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("step", ["prefill", "decode"])
@pytest.mark.parametrize("name", ["llama", "t5"])
def test_one_program_serves_every_batch_and_length(name: str, step: str, stage: str) -> None:
    architecture = ARCHITECTURES[name]()
    assert differences(STAGES[stage](export(architecture, step)), architecture, step, SIZES) == []


@pytest.mark.parametrize("name", ["mamba2", "gemma3"])
def test_other_states(name: str) -> None:
    architecture = ARCHITECTURES[name]()
    assert differences(export(architecture, "decode"), architecture, "decode", SIZES[:4]) == []
