"""Some of the corpus's models, as `python -m benchmarks.round_trips` checks all of them."""

from __future__ import annotations

import pytest

from benchmarks.model_corpus import corpus_folder, load_cases
from benchmarks.round_trips import check

FOLDER = corpus_folder(None)
pytestmark = pytest.mark.skipif(FOLDER is None, reason="the corpus of models is not on this machine")
# small ones that need no other library
MODELS = ("resnet18", "lstm_tagger", "gnn", "vae")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("task", ["unflatten", "interop"])
def test_a_model(task, name):
    assert FOLDER is not None
    result = check(task, load_cases(FOLDER)[name])
    assert len(result["forms"]) == (5 if task == "unflatten" else 10)
    # recurrent layers are loops or written out in some of torch's programs, which round otherwise than the layer
    written_out = ("core", "functional, dynamic") if name == "lstm_tagger" and task == "interop" else ()
    others = {form: verdict for form, verdict in result["forms"].items() if not form.startswith(written_out)}
    assert set(others.values()) == {"equal"}, result["forms"]
    assert result["difference"] < 1e-4
