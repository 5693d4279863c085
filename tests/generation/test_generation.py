"""Prefill and decode of a few architectures; ``python -m tests.generation`` goes through all."""

from __future__ import annotations

import importlib
import inspect

import pytest
import transformers

from tests.generation.architectures import ARCHITECTURES
from tests.generation.judging import STAGES, differences, export
from tintype.interop.general_forms import TORCH_FORMS, digest, function_of, general_forms
from tintype.interop.library_plug_in import FORMS

SIZES = [(1, 1), (1, 3), (3, 4), (1, 9), (4, 5), (2, 11), (5, 2), (3, 12), (2, 7), (1, 15), (2, 5)]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("step", ["prefill", "decode"])
@pytest.mark.parametrize("name", ["llama", "t5"])
def test_one_program_serves_every_batch_and_length(name: str, step: str, stage: str) -> None:
    architecture = ARCHITECTURES[name]()
    assert differences(STAGES[stage](export(architecture, step)), architecture, step, SIZES) == []


def test_states() -> None:
    architecture = ARCHITECTURES["mamba2"]()
    assert differences(export(architecture, "decode"), architecture, "decode", SIZES[:4]) == []


@pytest.mark.parametrize("stage", STAGES)
def test_a_prefill_that_goes_through_pictures_of_one_size(stage: str) -> None:
    architecture = ARCHITECTURES["qwen2_5_vl"]()
    program = STAGES[stage](export(architecture, "prefill"))
    assert differences(program, architecture, "prefill", [(2, 6), (2, 1), (2, 11)]) == []
    (refused,) = differences(program, architecture, "prefill", [(3, 6)])
    assert "refused" in refused


@pytest.mark.parametrize("example", [(2, 6), (2, 20)])
def test_one_program_serves_a_window_before_and_after_it_is_full(example: tuple[int, int]) -> None:
    architecture = ARCHITECTURES["gemma3"]()
    sizes = [(1, 3), (2, 14), (3, 15), (1, 16), (2, 17), (1, 33)]
    for step in ("prefill", "decode"):
        assert differences(export(architecture, step, example), architecture, step, sizes) == []


def test_the_general_forms_are_of_functions_that_are_there() -> None:
    forms = (*FORMS, *TORCH_FORMS)
    for module, name in {(form.module, form.name) for form in forms}:
        importlib.import_module(module)
        known = {form.digest: form for form in forms if (form.module, form.name) == (module, name)}
        found = function_of(next(iter(known.values())))
        assert digest(found) in known, f"look whether the edits still leave {name} what it is"
        assert all(old in inspect.getsource(found) for old, _ in known[digest(found)].edits), name


def test_the_general_form_of_mask_sizes() -> None:
    layer = transformers.cache_utils.DynamicSlidingWindowLayer(sliding_window=5)
    for layer.cumulative_length in range(12):
        for length in (1, 2, 7):
            own = layer.get_mask_sizes(length)
            with general_forms(FORMS):
                code = layer.get_mask_sizes.__func__.__code__
                assert layer.get_mask_sizes(length) == own
            before = layer.get_mask_sizes.__func__.__code__
            assert code is not before and code.co_firstlineno == before.co_firstlineno
