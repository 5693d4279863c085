"""Functions of torch's, numpy's and Python's modules that somebody replaces between calls."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


def other(x: Any, *args: Any, **kwargs: Any) -> Any:
    return -x * 3


LAYER, ATTENTION = nn.Linear(4, 4), nn.MultiheadAttention(4, 1).eval()


def attends(x: torch.Tensor) -> torch.Tensor:
    q = x.view(1, 1, 4)
    return F.scaled_dot_product_attention(q, q, q)


CASES: dict[str, tuple[Callable[[torch.Tensor], Any], Any, str, Any]] = {
    "torch": (lambda x: torch.relu(x) + 1, torch, "relu", other),
    "functional": (lambda x: F.gelu(x), F, "gelu", other),
    "attention": (attends, F, "scaled_dot_product_attention", lambda q, k, v: q * 4),
    "of a layer": (lambda x: LAYER(x), F, "linear", lambda x, weight, bias: x * 3),
    "a layer's forward": (lambda x: LAYER(x), nn.Linear, "forward", lambda self, x: x * 3),
    "math": (lambda x: x * math.sin(2), math, "sin", lambda value: 7.0),
    "numpy": (lambda x: x * float(np.sqrt(4.0)), np, "sqrt", lambda value: 7.0),
    "time": (lambda x: x * (time.time() > 0), time, "time", lambda: -7.0),
    "functools": (lambda x: functools.reduce(torch.add, [x, x]), functools, "reduce", lambda f, items: items[0]),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", list(CASES))
def test_a_function_that_is_replaced_between_calls(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, module, attribute, replacement = CASES[name]
    compiled = tintype.compile(function, backend=backend)
    x = torch.linspace(-1, 1, 4)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), function(x))
    with monkeypatch.context() as patched:
        patched.setattr(module, attribute, replacement)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), function(x))
    captures = compiled.engine.captures
    torch.testing.assert_close(compiled(x), function(x))
    assert compiled.engine.captures == captures  # the first run fits again


def test_files_have_the_functions_by_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return LAYER(F.gelu(x)) * math.sin(2) * float(np.sqrt(4.0))

    compiled = tintype.compile(function)
    x = torch.linspace(-1, 1, 4)
    for _ in range(2):
        compiled(x)
    compiled.save(tmp_path / "function.ttc")
    loaded = tintype.compile.load(tmp_path / "function.ttc", function)
    assert torch.equal(loaded(x), function(x)) and loaded.engine.captures == 0
    monkeypatch.setattr(F, "gelu", other)
    assert torch.equal(loaded(x), function(x)) and loaded.engine.captures == 1
