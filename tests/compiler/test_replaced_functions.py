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


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ["relu", "softmax", "layer_norm", "leaky_relu", "linear", "gelu"])
def test_a_function_that_is_wrapped(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch has in Python tells modes of itself by its name, which leads to the wrapper."""
    arguments: dict[str, Any] = {"softmax": (-1,), "layer_norm": ((4,),), "linear": (torch.eye(4),)}
    original, heard = getattr(F, name), []

    def wrapper(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        heard.append(tuple(x.shape))
        return original(x, *args, **kwargs) * 2

    def function(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = getattr(F, name)(x, *arguments.get(name, ())) + 1
        return result

    x = torch.linspace(-1, 1, 8).view(2, 4)
    expected = function(x)
    compiled = tintype.compile(function, backend=backend)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), expected)
    monkeypatch.setattr(F, name, wrapper)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), expected * 2 - 1)
    assert heard == [(2, 4)] * 3
    monkeypatch.undo()
    torch.testing.assert_close(compiled(x), expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_function_that_is_wrapped_in_the_program(backend: str) -> None:
    original, heard = F.relu, []

    def function(x: torch.Tensor) -> torch.Tensor:
        def wrapper(value: torch.Tensor, inplace: bool = False) -> torch.Tensor:
            heard.append(tuple(value.shape))
            return original(value) * 2

        F.relu = wrapper  # type: ignore[assignment]
        try:
            return F.relu(x) + nn.ReLU()(x)
        finally:
            F.relu = original

    compiled = tintype.compile(function, backend=backend)
    for rows in (1, 2, 2, 3):
        heard.clear()
        assert torch.equal(compiled(torch.ones(rows)), torch.full((rows,), 4.0))
        assert heard == [(rows,)] * 2
    assert F.relu is original


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "own"])
def test_graphs_call_what_they_were_made_of(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of graphs names functions; the program has held on to those that were there."""
    sine, relu = torch.sin, F.relu
    compiled = tintype.compile(
        lambda x: relu(sine(x)) + 1, backend=(lambda module, examples: module) if backend == "own" else backend
    )
    x = torch.linspace(-1, 1, 4)
    expected = relu(sine(x)) + 1
    for _ in range(3):
        torch.testing.assert_close(compiled(x), expected)
    monkeypatch.setattr(torch, "sin", torch.cos)
    monkeypatch.setattr(F, "relu", lambda value: value * 100)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), expected)


def test_a_builtin_that_is_replaced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        print("hello")
        return x * abs(-2)

    compiled, x, printed = tintype.compile(function), torch.ones(2), []
    for _ in range(2):
        assert torch.equal(compiled(x), x * 2)
    assert capsys.readouterr().out == "hello\n" * 2
    monkeypatch.setattr("builtins.print", printed.append)
    monkeypatch.setattr("builtins.abs", lambda value: 5)
    for _ in range(2):
        assert torch.equal(compiled(x), x * 5)
    assert printed == ["hello"] * 2 and not capsys.readouterr().out
