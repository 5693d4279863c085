"""Modules that compiled functions make and change, and hooks that hear all modules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as hooks_of_all
from torch.utils.checkpoint import checkpoint

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 4))
        self.count: torch.Tensor
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * self.weight + self.count


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_run_is_taken_over_whose_modules_are_gone(backend: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            fresh = Counting()
            y = fresh(x)
        return y * 2 if float(x.sum()) > 0 else -y

    compiled = tintype.compile(function, backend=backend)
    for sign in (1, 1, -1, -1, 1):
        x = torch.ones(4) * sign
        torch.testing.assert_close(compiled(x), function(x))


def doubled(module: nn.Module, given: Any, result: torch.Tensor) -> torch.Tensor:
    return result * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_hooks_that_come_and_go_inside_of_a_function(backend: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def function(x: torch.Tensor, model: nn.Module) -> torch.Tensor:
        before = model(x)
        handle = model.register_forward_hook(doubled)
        after = model(x)
        handle.remove()
        return before + after if after.sum().item() > x.sum().item() else before - after

    compiled = tintype.compile(function, backend=backend)
    other = copy.deepcopy(model)
    for scale in (1, 1, -9, -9, 1, 20):
        x = torch.ones(4) * scale
        torch.testing.assert_close(compiled(x, model), function(x, other))
    assert not model._forward_hooks


BACKENDS: dict[str, Any] = {
    "eager": "eager",
    "aot_eager": "aot_eager",
    "the graph": lambda graph_module, example_inputs: graph_module,
    "its forward": lambda graph_module, example_inputs: graph_module.forward,
}


@pytest.mark.parametrize("name", list(BACKENDS))
@pytest.mark.parametrize("first", [0, 2])
def test_hooks_of_all_modules_hear_the_users(name: str, first: int) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    heard: list[str] = []
    register: Callable[..., Any] = hooks_of_all.register_module_forward_hook  # type: ignore[attr-defined]
    compiled = tintype.compile(lambda x: model(x) * 2, backend=BACKENDS[name])
    handle = None
    try:
        for call in range(5):
            if call == first:
                handle = register(lambda module, given, result: heard.append(type(module).__name__))
            compiled(torch.ones(4))
            assert heard == (["Linear", "ReLU", "Sequential"] if call >= first else [])
            heard.clear()
    finally:
        if handle is not None:
            handle.remove()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_checkpoint_around_a_compiled_module(backend: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.Linear(4, 4))
    compiled = tintype.compile(model, backend=backend)
    for _ in range(4):
        gradients = []
        for module in (model, compiled):
            torch.manual_seed(0)
            x = torch.ones(2, 4, requires_grad=True)
            checkpoint(module, x, use_reentrant=False).square().sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)
