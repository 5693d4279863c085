"""What is done for a program grows with its length, and not with the square of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tintype

X = torch.randn(4, 4)


def calls_of(function: Callable[[], Any]) -> int:
    """How many functions are called, which says what is done without a clock."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


class Repeated(nn.Module):
    """A step that is done again and again to a tensor, which is written to at the end."""

    def __init__(self, step: Callable[[torch.Tensor], torch.Tensor], count: int, *, writes: bool) -> None:
        super().__init__()
        self.step, self.count, self.writes = step, count, writes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start = x = x * 2
        for _ in range(self.count):
            x = self.step(x)
        if self.writes:
            x.add_(1)
        return start + x


class AssignedBuffers(nn.Module):
    """A number of buffers that are all replaced."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        for index in range(count):
            self.register_buffer(f"part_{index}", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in range(self.count):
            setattr(self, f"part_{index}", getattr(self, f"part_{index}") + 1)
            x = x + getattr(self, f"part_{index}")
        return x


STEPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "conversions": lambda x: x.to(torch.float32),
    "conversions of sums": lambda x: x.to(torch.float32) + 1,
    "views": lambda x: x.view(16).view(4, 4),
    "slices": lambda x: x[:],
    "reshaped": lambda x: x.t().reshape(4, 4).float(),
}


def assert_linear(make: Callable[[int], nn.Module], task: Callable[[nn.Module], Callable[[], Any]]) -> None:
    task(make(4))()  # what is done once in a process
    few, many = (calls_of(task(make(count))) for count in (50, 200))
    assert many < 4.5 * few


def exporting(module: nn.Module) -> Callable[[], Any]:
    return lambda: tintype.export(module, (X,))


def decomposing(module: nn.Module) -> Callable[[], Any]:
    return tintype.export(module, (X,)).run_decompositions


@pytest.mark.parametrize("task", [exporting, decomposing], ids=["export", "decompose"])
@pytest.mark.parametrize("writes", [False, True], ids=["read", "written"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_steps_in_a_row(step: Any, writes: bool, task: Any) -> None:
    assert_linear(lambda count: Repeated(step, count, writes=writes), task)


@pytest.mark.parametrize("task", [exporting, decomposing], ids=["export", "decompose"])
def test_buffers_that_are_replaced(task: Any) -> None:
    assert_linear(AssignedBuffers, task)


@pytest.mark.parametrize("writes", [False, True], ids=["read", "written"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_programs_of_many_steps_are_right(step: Any, writes: bool) -> None:
    module = Repeated(step, 9, writes=writes)
    program = tintype.export(module, (X,))
    for candidate in (program, program.run_decompositions(), tintype.export_for_training(module, (X,))):
        assert torch.equal(candidate.module()(X), module(X))
