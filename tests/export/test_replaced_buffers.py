"""Buffers that a program replaces (``self.buffer = tensor``)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tintype


class Transposing(nn.Module):
    """Its buffer gets other strides with every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(9.0).view(3, 3))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.table = self.table.t() + 1
        return value + self.table.reshape(-1)


def test_a_replacement_with_other_strides() -> None:
    eager, module = Transposing(), tintype.export(Transposing(), (torch.zeros(9),)).module()
    for _ in range(3):
        assert torch.equal(module(torch.ones(9)), eager(torch.ones(9)))
        assert torch.equal(module.table, eager.table)
        assert module.table.stride() == (3, 1)


class Counting(nn.Module):
    """The old value of its buffer is what the gradient needs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(3))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        result = value * self.total
        self.total = self.total + result.detach()
        return result


@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
@pytest.mark.parametrize("table", [None, {}, "not decomposed"])
def test_gradients_that_need_the_old_value(export: Any, table: Any) -> None:
    program = export(Counting(), (torch.ones(3),))
    if table != "not decomposed":
        program = program.run_decompositions(table)
    eager, module = Counting(), program.module()
    for _ in range(2):
        values = [torch.arange(3.0).requires_grad_() for _ in range(2)]
        for forward, value in zip((eager, module), values, strict=True):
            forward(value).sum().backward()
        assert torch.equal(values[0].grad, values[1].grad)
        assert torch.equal(module.total, eager.total)


class Multiplying(nn.Module):
    """Its buffer gets the history of what is assigned to it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(3))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.total = self.total * value
        return self.total * 2


def test_a_replacement_has_a_history() -> None:
    program = tintype.export(Multiplying(), (torch.ones(3),))
    outcomes = []
    for model in (Multiplying(), program.module(), tintype.unflatten(program), program.run_decompositions().module()):
        value = torch.arange(3.0).requires_grad_()
        model(value)
        assert model.total.requires_grad
        outcomes.append(torch.autograd.grad(model(value).sum(), value)[0])
    for outcome in outcomes[1:]:
        torch.testing.assert_close(outcome, outcomes[0])


def test_a_buffer_that_a_branch_replaces_is_refused_though_nobody_needs_the_branch() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def replacing(x: torch.Tensor) -> torch.Tensor:
                self.state = self.state * 2
                return x.clone()

            tintype.cond(x.sum() > 0, replacing, lambda x: x.clone(), (x,))
            return x * 2

    with pytest.raises(tintype.CaptureError, match="made inside of a branch"):
        tintype.export(Model(), (torch.ones(2),))
