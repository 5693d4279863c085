"""Compiled functions that differentiate functions themselves, by the transforms of ``torch.func``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tintype


class Differentiating(nn.Module):
    """A layer, and a function of the input that differentiates it."""

    def __init__(self, function: Callable[[nn.Module, torch.Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.layer, x)


def by_sample(layer: nn.Module, x: torch.Tensor) -> Any:
    parameters = dict(layer.named_parameters())

    def loss(parameters: Any, sample: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, parameters, (sample,)).square().sum()

    return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x.expand(4, 3))


FUNCTIONS: dict[str, Callable[[nn.Module, torch.Tensor], Any]] = {
    "grad": lambda layer, x: torch.func.grad(lambda t: layer(t).sum())(x),
    "grad_and_value": lambda layer, x: torch.func.grad_and_value(lambda t: layer(t).sum())(x),
    "jacrev": lambda layer, x: torch.func.jacrev(layer)(x),
    "jacfwd": lambda layer, x: torch.func.jacfwd(lambda t: t.sin() * t.sum())(x),
    "hessian": lambda layer, x: torch.func.hessian(lambda t: layer(t).sum())(x),
    "vjp": lambda layer, x: torch.func.vjp(layer, x)[1](torch.ones(2)),
    "by sample": by_sample,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_are_those_of_eager_mode(name: str) -> None:
    eager, model = Differentiating(FUNCTIONS[name]), Differentiating(FUNCTIONS[name])
    compiled = tintype.aot.module(model)
    for _ in range(2):
        x = torch.randn(3)
        results = [torch.utils._pytree.tree_leaves(function(x)) for function in (eager, compiled)]
        torch.testing.assert_close(results[1], results[0])
        for leaves in results:
            if leaves[0].requires_grad:
                torch.stack([leaf.square().sum() for leaf in leaves]).sum().backward()
    gradients = [[parameter.grad for parameter in each.parameters()] for each in (eager, model)]
    torch.testing.assert_close(gradients[1], gradients[0])
