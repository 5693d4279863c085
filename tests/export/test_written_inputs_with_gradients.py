"""Inputs that a program writes to, with gradients when it is called, whether the example had them or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype


def _under_no_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x.mul_(2)
    return x * 3


def _returned(x: torch.Tensor) -> torch.Tensor:
    return x.sin_()


def _twice(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    x.sin_().mul_(y)
    return x * x


def _part(x: torch.Tensor) -> Any:
    x[0].cos_()
    return x, x[1] * x[0]


def _strided(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.as_strided((2, 2), (1, 2), 1).mul_(x[:2])
    return y


PROGRAMS: dict[str, Callable[..., Any]] = {
    "returned": _returned,
    "twice": _twice,
    "part": _part,
    "strided": _strided,
}


def gradients(function: Callable[..., Any], x: torch.Tensor, leaf: bool) -> Any:
    x = x.clone().requires_grad_()
    given = x if leaf else x * 1
    results = function(given)
    results = results if isinstance(results, tuple) else (results,)
    sum((result * torch.arange(1.0, result.numel() + 1).view_as(result)).sum() for result in results).backward()
    return [result.detach() for result in results], given.detach(), x.grad


@pytest.mark.parametrize("with_gradients", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_input_with_a_history(name: str, with_gradients: bool) -> None:
    function, x = PROGRAMS[name], torch.randn(3, 2)
    example = (x.clone().requires_grad_() * 1 if with_gradients else x.clone(),)
    program = tintype.export(function, example)
    for made in (program, program.run_decompositions()):
        torch.testing.assert_close(gradients(made.module(), x, False), gradients(function, x, False))


def test_a_leaf_that_is_written_to_without_gradients() -> None:
    x = torch.randn(3, 2)
    module = tintype.export(_under_no_grad, (x.clone(),)).module()
    for leaf in (True, False):
        torch.testing.assert_close(gradients(module, x, leaf), gradients(_under_no_grad, x, leaf))


@pytest.mark.direct(reason="it is captured again here")
def test_a_layout_that_a_program_rests_on_is_checked_when_it_was_captured_again() -> None:
    def exchange(x: torch.Tensor) -> torch.Tensor:
        flat = x.ravel()
        flat[0], flat[-1] = flat[-1].clone(), flat[0].clone()
        return flat

    example = torch.randn(4, requires_grad=True)
    program = tintype.export(exchange, (example,))
    again = tintype.export(program.module(), (example,))
    for module in (program.module(), again.module()):
        with pytest.raises(tintype.errors.InputMismatchError, match="strides"):
            module(torch.randn(8)[::2])


class Decayed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.mul_(x)
        return self.state


def test_a_buffer_that_is_multiplied_by_what_has_gradients() -> None:
    model = Decayed()
    module = tintype.export(model, (torch.randn(()),)).module()
    found = []
    for function in (model, module):
        x = torch.tensor(2.0, requires_grad=True)
        found.append([torch.autograd.grad(function(x).sum(), x, retain_graph=True)[0] for _ in range(2)])
    assert found[0] == found[1] == [torch.tensor(4.0), torch.tensor(16.0)]


def test_an_input_that_is_multiplied_by_what_has_gradients() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(y)
        return x.sin()

    module = tintype.export(function, (torch.randn(4), torch.randn(4))).module()
    x, y = torch.randn(4), torch.randn(4, requires_grad=True)
    expected, got = (torch.autograd.grad(run(x.clone(), y).sum(), y)[0] for run in (function, module))
    torch.testing.assert_close(got, expected)


def test_memory_of_a_written_input_that_begins_elsewhere_than_the_example() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        view = x.diagonal(1)
        x.tanh_()
        return view.as_strided((1,), (1,))

    program = tintype.export(function, (torch.randn(1, 3, 3),), dynamic_shapes=({2: tintype.Dim("n", max=9)},))
    for size in (3, 5):
        memory = torch.randn(1 + 3 * size)
        mine, theirs = memory.clone(), memory.clone()
        expected = function(mine[1:].view(1, 3, size))
        torch.testing.assert_close(program.module()(theirs[1:].view(1, 3, size)), expected)
        torch.testing.assert_close(theirs, mine)
