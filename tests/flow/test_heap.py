"""What a capture costs must not depend on how much the process has in memory: nothing looks at all of it."""

from __future__ import annotations

import types
import warnings
from typing import Any

import pytest
import torch

import tintype
import tintype.flow.growing
import tintype.flow.merging
import tintype.trace.effects
import tintype.trace.tensor_rows
from tests.flow.programs import PROGRAMS
from tests.flow.row_programs import ROW_PROGRAMS
from tests.flow.test_programs import outcome, same

ROWS = {"x": {0: tintype.Dim("rows")}}


@pytest.fixture
def small_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wants to go through all objects of the process fails."""

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("somebody looks at everything that the process has")

    import gc

    blind = types.SimpleNamespace(**{**vars(gc), "collect": refuse, "get_referrers": refuse, "get_objects": refuse})
    for module in (tintype.flow.growing, tintype.flow.merging, tintype.trace.effects, tintype.trace.tensor_rows):
        monkeypatch.setattr(module, "gc", blind)


@pytest.mark.usefixtures("small_heap")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ROW_PROGRAMS)
def test_loops_over_rows(name: str, strict: bool) -> None:
    function, _ = ROW_PROGRAMS[name]
    tintype.export(function, (torch.randn(3, 3),), dynamic_shapes=ROWS, strict=strict)


@pytest.mark.usefixtures("small_heap")
@pytest.mark.parametrize("name", PROGRAMS)
def test_strict_programs(name: str) -> None:
    function, inputs = PROGRAMS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tintype.LostEffectWarning)
        module = tintype.export(function, inputs[0], strict=True).module()
    for given in inputs:
        assert same(outcome(function, given), outcome(module, given)), given


def slices(x):
    collected = {"states": [x, x + 1, x + 2]}
    collected["states"] = collected["states"][:-1]
    collected["states"].append(x * 2)
    both = collected["states"] + [x * 3]
    both.pop()
    first, *others = both
    others[0] = first
    return {"out": tuple(both), "others": others}


@pytest.mark.usefixtures("small_heap")
def test_what_operators_make_is_the_programs_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", tintype.LostEffectWarning)
        program = tintype.export(slices, (torch.ones(2),), strict=True)
    assert not program.report
