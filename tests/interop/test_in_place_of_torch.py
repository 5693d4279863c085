"""tintype where a library calls torch.export.export."""

from __future__ import annotations

import os
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest
import torch

import tintype


def test_torch_export_is_replaced_and_put_back():
    theirs = torch.export.export
    holder = types.ModuleType("holder_of_export")
    holder.export = theirs
    sys.modules["holder_of_export"] = holder
    try:
        with tintype.interop.in_place_of_torch():
            assert torch.export.export is not theirs and holder.export is torch.export.export
            program = torch.export.export(
                torch.nn.Linear(3, 2), (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim("n")},)
            )
        assert torch.export.export is theirs and holder.export is theirs
    finally:
        del sys.modules["holder_of_export"]
    assert type(program) is torch.export.ExportedProgram
    assert program.module()(torch.ones(7, 3)).shape == (7, 2)


def test_it_is_put_back_after_an_error():
    theirs = torch.export.export
    with pytest.raises(ValueError, match="mine"), tintype.interop.in_place_of_torch():
        raise ValueError("mine")
    assert torch.export.export is theirs


def test_the_recipe_of_transformers_for_encoders_and_decoders():
    transformers = pytest.importorskip("transformers")
    from transformers.integrations.executorch import (
        Seq2SeqLMDecoderExportableModuleWithStaticCache,
        Seq2SeqLMExportableModule,
    )

    torch.manual_seed(3)
    config = transformers.T5Config(
        vocab_size=50, d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=0,
        initializer_factor=20.0,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).eval()
    with tintype.interop.in_place_of_torch(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recipe = Seq2SeqLMExportableModule(
            model, batch_size=1, max_hidden_seq_length=32, cache_implementation="static", max_cache_length=16
        ).export()
    assert any("'keys' of a DynamicLayer" in str(warning.message) for warning in caught)
    decoder = recipe.exported_decoder.module()
    for length in (4, 7):
        tokens = torch.randint(1, 50, (1, length))
        states = recipe.exported_encoder.module()(tokens)
        torch.testing.assert_close(states, model.encoder(tokens).last_hidden_state)
        eager = Seq2SeqLMDecoderExportableModuleWithStaticCache(model, max_static_cache_length=16, batch_size=1)
        answers = []
        for position, token in enumerate((0, 11, 7)):
            call = torch.tensor([[token]]), states, torch.tensor([position])
            answers.append(decoder(*call))
            torch.testing.assert_close(answers[-1], eager(*call), rtol=1e-4, atol=1e-4)
        assert not torch.allclose(answers[1], answers[2])


def test_caches_are_containers_as_we_know_them_after_a_recipe(tmp_path):
    """In a process of its own: what is registered stays so."""
    script = tmp_path / "recipe.py"
    script.write_text(
        "import torch, transformers, tintype\n"
        "from transformers.integrations.executorch import register_dynamic_cache_export_support\n"
        "with tintype.interop.in_place_of_torch():\n"
        "    register_dynamic_cache_export_support()\n"
        "cache = transformers.DynamicCache()\n"
        "cache.update(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), 0)\n"
        "program = tintype.export(lambda cache: cache.layers[0].keys * 2, (cache,))\n"
        "assert torch.equal(program.module()(cache), torch.full((1, 2, 3, 4), 2.0))\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(tintype.__file__).parents[1])}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_function_stays_one_when_it_was_used():
    for _ in range(2):
        program = tintype.interop.torch_export(torch.nn.ReLU(), (torch.ones(2),))
        assert type(program) is torch.export.ExportedProgram
