"""Checkpoints in and around what is differentiated: what is computed again draws the same random numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import tintype
from tests.aot.comparison import check


def again(function: Any, *args: Any, **options: Any) -> Any:
    return checkpoint(function, *args, use_reentrant=False, **options)


def dropout(x: torch.Tensor) -> torch.Tensor:
    return again(lambda z: F.dropout(z.sin(), 0.5), x)


def two(x: torch.Tensor) -> torch.Tensor:
    """Draws before, between and after."""
    x = x * torch.rand_like(x)
    x = again(lambda z: F.dropout(z, 0.4) * torch.rand(4), x)
    x = x + torch.randn(4)
    return again(lambda z: F.dropout(F.dropout(z, 0.3).exp(), 0.2), x) * torch.rand(4)


def nested(x: torch.Tensor) -> torch.Tensor:
    return again(lambda z: again(lambda y: F.dropout(y, 0.5).sin(), z) * torch.rand(4).exp(), x)


def in_place(x: torch.Tensor) -> torch.Tensor:
    def block(z: torch.Tensor) -> torch.Tensor:
        noise = torch.empty(4).uniform_(0.5, 2)
        noise.mul_(2)
        mask = F.dropout(z, 0.5)
        mask.add_(noise)
        return (mask * noise).bernoulli_(0.7).mul_(z)

    return again(block, x)


def under_a_branch(x: torch.Tensor) -> torch.Tensor:
    return again(lambda z: z * z * tintype.cond(z.sum() > 0, lambda: torch.rand(4), lambda: torch.zeros(4)), x)


PROGRAMS = [dropout, two, nested, in_place, under_a_branch]


@pytest.mark.parametrize("options", [{}, {"partitioner": "min_cut"}, {"partitioner": "min_cut", "memory_budget": 0}])
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_those_of_the_numbers_that_were_drawn(program: Any, options: dict[str, Any]) -> None:
    def arguments() -> Any:
        leaf = torch.linspace(0.5, 2, 4).requires_grad_()
        return (leaf,), (leaf,)

    check(program, arguments, **options)


@pytest.mark.parametrize("program", PROGRAMS)
def test_joint_programs(program: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(0.5, 2, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return program(x * self.weight).sum()

    model, x = Model(), torch.ones(4)
    joint = tintype.export_joint(model, (x,))
    for exported in (joint, joint.run_decompositions()):
        exported.validate()
        torch.manual_seed(1)
        loss, gradients, _ = exported.module()(x)
        torch.manual_seed(1)
        expected = model(x)
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(gradients["weight"], torch.autograd.grad(expected, model.weight)[0])


def test_numbers_that_are_not_kept_are_drawn_anew() -> None:
    def arguments() -> Any:
        leaf = torch.ones(8).requires_grad_()
        return (leaf,), (leaf,)

    check(lambda x: again(lambda z: F.dropout(z, 0.5), x, preserve_rng_state=False), arguments)


@pytest.mark.parametrize("compiled_before", [False, True])
def test_a_checkpoint_around_a_compiled_function(compiled_before: bool) -> None:
    compiled = tintype.aot.function(lambda x: F.dropout(x.sin(), 0.5) * 2)
    x = torch.linspace(0.5, 2, 4).requires_grad_()
    if compiled_before:
        compiled(x)
    torch.manual_seed(0)
    result = again(compiled, x)
    result.sum().backward()
    torch.testing.assert_close(x.grad, result.detach() * x.detach().cos() / x.detach().sin())


def test_hooks_on_saved_tensors_see_what_is_saved() -> None:
    seen: list[type] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(type(tensor))
        return tensor

    compiled = tintype.aot.function(lambda x: x.sin())
    x = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = compiled(x)
    y.sum().backward()
    assert seen == [torch.Tensor]
    torch.testing.assert_close(x.grad, x.detach().cos())
