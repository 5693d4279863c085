"""Sizes of a promised range at which the model itself fails break no promise; those at which it works do."""

from __future__ import annotations

import pytest
import torch

import tintype
from tintype import ConstraintViolationError, Dim


def pooled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 4:
        return x.unfold(0, 4, 1).sum(-1) + y[:1]
    return x[:7].view(9) + y[:1]  # fails: there are not so many


def working(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y[:1] if x.shape[0] > 4 else x - y[:1]


def failing_at_some(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 4:
        return x + y[:1]
    return x - y[:1] if y.shape[0] == 2 else x.view(9)  # fails for the example's y, but not for every y


def out_of_range(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 4:
        return x + y[:1]
    return torch.arange(x.shape[0]).gather(0, torch.tensor([7])) + x  # which only a run shows


X, Y = torch.randn(8), torch.randn(3)


@pytest.mark.parametrize("function", [pooled, out_of_range])
@pytest.mark.parametrize("decompose", [False, True])
def test_sizes_that_the_model_refuses(function: object, decompose: bool) -> None:
    shapes = {"x": {0: Dim("length", min=2, max=64)}, "y": {0: Dim("other", min=2)}}
    program = tintype.export(function, (X, Y), dynamic_shapes=shapes)
    module = (program.run_decompositions() if decompose else program).module()
    (line,) = [line for line in program.contract() if line.condition is not None]
    assert line.text == "x.shape[0] = length, 5 <= length <= 64"
    for length in (5, 6, 64):
        x, y = torch.randn(length), torch.randn(length)
        torch.testing.assert_close(module(x, y), function(x, y))
    for length in (2, 3, 4):
        with pytest.raises((RuntimeError, IndexError)):
            function(torch.randn(length), Y)
        with pytest.raises(RuntimeError, match="s0 >= 5"):
            module(torch.randn(length), Y)


@pytest.mark.parametrize("function", [working, failing_at_some])
def test_sizes_that_the_model_takes(function: object) -> None:
    shapes = {"x": {0: Dim("length", min=2, max=64)}, "y": {0: Dim("other", min=2)}}
    with pytest.raises(ConstraintViolationError, match=r"length = Dim\('length', min=5, max=64\)"):
        tintype.export(function, (X, Y), dynamic_shapes=shapes)


def test_too_many_sizes_to_try() -> None:
    with pytest.raises(ConstraintViolationError, match="max=6"):
        tintype.export(
            lambda x: x if x.shape[0] <= 6 else x.view(-1, 7, 0), (torch.randn(3),), dynamic_shapes=[{0: Dim("n")}]
        )


def test_the_model_is_as_it_was() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x + 1 if x.shape[0] > 4 else x.view(9)

    model = Counting()
    tintype.export(model, (X,), dynamic_shapes={"x": {0: Dim("length", min=2, max=64)}})
    assert model.calls == 0
