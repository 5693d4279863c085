"""Arrays of NumPy's that a program makes tensors of: they are one memory in eager mode, and two in a program."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tintype
from tests.export.test_observations import runnable
from tintype.errors import LostStateWarning, MutationError

HELD = np.zeros(3, dtype=np.float32)


class WithArray(torch.nn.Module):
    """A model that keeps an array."""

    def __init__(self) -> None:
        super().__init__()
        self.array = np.zeros(3, dtype=np.float32)
        self.parts = {"part": np.zeros(6, dtype=np.float32)[1:4]}
        self.register_buffer("held", torch.zeros(3))
        self.of_buffer = self.held.numpy()


class WritesToItsArray(WithArray):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.from_numpy(self.array).add_(x)
        return x * torch.from_numpy(self.array)


class WritesToAPart(WithArray):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.as_tensor(self.parts["part"][1:]).add_(1)
        return x * 2


class WritesToAGlobal(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.asarray(HELD).mul_(x)
        return x * 2


class WritesToMemoryOfABuffer(WithArray):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.from_numpy(self.of_buffer).add_(x)
        return x * self.held


class WritesToOneOfTwo(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        array = np.ones(3, dtype=np.float32)
        tensor, other = torch.from_numpy(array), torch.from_numpy(array[::2])
        tensor.add_(x)
        return x * other.sum()


class WritesAfterwards(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        array = np.ones(3, dtype=np.float32)
        tensor = torch.from_numpy(array)
        array[0] = 5
        return x * tensor


@pytest.mark.parametrize("through", ["module", "training", "aot"])
@pytest.mark.parametrize(
    "kind",
    [
        WritesToItsArray, WritesToAPart, WritesToAGlobal, WritesToMemoryOfABuffer, WritesToOneOfTwo,
        WritesAfterwards,
    ],
)  # fmt: skip
def test_writes_to_memory_that_is_not_the_programs(kind: type[torch.nn.Module], through: str) -> None:
    x = torch.ones(3)
    with pytest.raises(MutationError, match="array"):
        if through == "aot":
            tintype.aot.module(kind())(x)
        else:
            runnable(through, kind(), (x,))
    assert HELD.tolist() == [0, 0, 0]


class Fresh(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        array = np.arange(6, dtype=np.float32)
        array[0] = 7
        return torch.from_numpy(array[::2]).add_(x) + torch.as_tensor(np.ones(3)).mul_(2) + torch.tensor(HELD).add_(x)


class Reads(WithArray):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tensor = torch.from_numpy(self.array)
        return (x + tensor).add_(torch.as_tensor(self.parts["part"])) + torch.from_numpy(HELD).sum()


@pytest.mark.parametrize("how", ["module", "decomposed", "saved", "training", "retraced"])
@pytest.mark.parametrize("kind", [Fresh, Reads])
def test_arrays_that_nobody_else_sees(kind: type[torch.nn.Module], how: str) -> None:
    x = torch.ones(3)
    program = runnable(how, kind(), (x,))
    for _ in range(2):
        torch.testing.assert_close(program(x), kind()(x))


class Counts(WithArray):
    def forward(self, x: torch.Tensor) -> Any:
        self.array[0] += 1
        return x * torch.from_numpy(self.array)


def test_an_array_that_changes_before_it_is_a_tensor() -> None:
    x, model = torch.ones(3), Counts()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        program = tintype.export(model, (x,)).module()
    assert [warning.category for warning in found] == [LostStateWarning]
    torch.testing.assert_close(program(x), Counts()(x))
    model(x)
    torch.testing.assert_close(program(x), Counts()(x))  # the program's own
