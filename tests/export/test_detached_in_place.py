"""``detach_()`` of what a program was given and of its buffers, and writes to what has no part in the gradients."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tintype.errors import MutationError


class Unrolled(nn.Module):
    """Each call begins with what the call before left, and without its history."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.Linear(3, 3)
        self.register_buffer("hidden", torch.ones(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden.detach_()
        after = torch.tanh(self.cell(x) + self.hidden * 2)
        self.hidden.copy_(after)
        return self.hidden


def _saved(program: tintype.ExportedProgram) -> tintype.ExportedProgram:
    file = io.BytesIO()
    tintype.save(program, file)
    return tintype.load(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize(
    "make",
    [
        lambda model, x: tintype.export(model, (x,)).module(),
        lambda model, x: tintype.export_for_training(model, (x,)).module(),
        lambda model, x: tintype.export(model, (x,)).run_decompositions().module(),
        lambda model, x: _saved(tintype.export(model, (x,))).module(),
        lambda model, x: tintype.unflatten(tintype.export(model, (x,))),
        lambda model, x: tintype.export(tintype.export(model, (x,)).module(), (x,)).module(),
    ],
    ids=["exported", "training", "decomposed", "saved", "unflattened", "retraced"],
)
def test_steps_of_training_whose_histories_end_between_them(make: Any) -> None:
    seen = []
    for module in (Unrolled(), make(Unrolled(), torch.ones(2, 3))):
        for step in range(3):
            module.zero_grad()
            result = module(torch.full((2, 3), float(step)))
            assert result.requires_grad
            result.sum().backward()
        gradients = [parameter.grad for parameter in module.parameters()]
        seen.append([result.detach(), *gradients, *module.buffers()])
    torch.testing.assert_close(*seen)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("leaf", [False, True])
def test_the_callers_tensor_is_detached(written: bool, leaf: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.detach_()
        if written:
            x.mul_(2)
        return x * 3

    for called in (function, tintype.export(function, (torch.ones(3),)).module()):
        weight = torch.ones(3, requires_grad=True)
        given = weight if leaf else weight * 1
        result = called(given)
        assert not result.requires_grad and not given.requires_grad and given.is_leaf
        assert torch.equal(result, given * 3) and given[0] == (2 if written else 1)


def test_a_write_behind_the_back_of_gradients_leaves_none() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((3,), 2.0))
            self.register_buffer("state", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.state.detach().mul_(self.weight)
            return self.state * x

    for model in (Model(), tintype.export(Model(), (torch.ones(3),)).module()):
        result = model(torch.ones(3))
        assert not result.requires_grad and not model.state.requires_grad
        assert torch.equal(result, torch.full((3,), 2.0))


def test_two_histories_of_one_memory_are_refused() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        x = x * 2
        detached = x.detach()
        detached.mul_(y)
        return x, detached

    with pytest.raises(MutationError, match="gradient of its own"):
        tintype.export(function, (torch.ones(3), torch.ones(3)))
