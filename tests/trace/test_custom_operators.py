"""Operators that users define: with fake kernels, Meta kernels, mutations, several results."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import compare, targets
from tintype.errors import UnsupportedOperatorError


@torch.library.custom_op("tintype_behaviour::scaled_sin", mutates_args=())
def scaled_sin(value: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.from_numpy(np.sin(value.detach().numpy()) * np.float32(scale))


@scaled_sin.register_fake
def _(value: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(value)


def _backward(ctx, gradient):  # type: ignore[no-untyped-def]
    (value,) = ctx.saved_tensors
    return gradient * value.cos() * ctx.scale, None


def _setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


scaled_sin.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("tintype_behaviour::split_signs", mutates_args=())
def split_signs(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return value.clamp(min=0), value.clamp(max=0)


@split_signs.register_fake
def _(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(value), torch.empty_like(value)


@torch.library.custom_op("tintype_behaviour::pieces", mutates_args=())
def pieces(value: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
    return [piece.clone() for piece in value.split(sizes)]


@pieces.register_fake
def _(value: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
    return [value.new_empty(size, *value.shape[1:]) for size in sizes]


@torch.library.custom_op("tintype_behaviour::accumulate", mutates_args=("total",))
def accumulate(value: torch.Tensor, total: torch.Tensor) -> None:
    total.add_(value.sum(0))


@torch.library.custom_op("tintype_behaviour::fill_and_count", mutates_args=("target",))
def fill_and_count(target: torch.Tensor, number: float) -> torch.Tensor:
    target.fill_(number)
    return torch.tensor(target.numel())


@fill_and_count.register_fake
def _(target: torch.Tensor, number: float) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64)


@torch.library.custom_op("tintype_behaviour::no_kernel", mutates_args=())
def no_kernel(value: torch.Tensor) -> torch.Tensor:
    return value.clone()


_LIBRARY = torch.library.Library("tintype_behaviour_old", "DEF")
_LIBRARY.define("shift(Tensor self, float amount=1.0) -> Tensor")
_LIBRARY.define("shift_(Tensor(a!) self, float amount=1.0) -> Tensor(a!)")
_LIBRARY.define("twice(Tensor self) -> Tensor")
_LIBRARY.impl("shift", lambda self, amount=1.0: torch.from_numpy(self.numpy() + np.float32(amount)), "CPU")
_LIBRARY.impl("shift", lambda self, amount=1.0: torch.empty_like(self), "Meta")
_LIBRARY.impl("shift_", lambda self, amount=1.0: self.add_(amount), "CPU")
_LIBRARY.impl("shift_", lambda self, amount=1.0: self, "Meta")
_LIBRARY.impl("twice", lambda self: self * 2, "CompositeImplicitAutograd")


def x() -> torch.Tensor:
    return torch.randn(3, 4)


def test_operator_with_fake_kernel(mode: str) -> None:
    program = compare(mode, lambda value: scaled_sin(value + 1, 2.0) * 2, (x().requires_grad_(),))
    assert "tintype_behaviour.scaled_sin.default" in targets(program)


def test_operator_called_through_torch_ops(mode: str) -> None:
    compare(mode, lambda value: torch.ops.tintype_behaviour.scaled_sin(value, scale=3.0), (x(),))


def test_operator_with_two_results(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        positive, negative = split_signs(value)
        return positive - negative * 2

    compare(mode, function, (x(),))


def test_operator_with_a_list_of_results(mode: str) -> None:
    compare(mode, lambda value: [piece * 2 for piece in pieces(value, [1, 2])], (x(),))


class Accumulating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        accumulate(value, self.total)
        return value + self.total


def test_operator_that_writes_to_a_buffer(mode: str) -> None:
    program = compare(mode, Accumulating(), (x(),))
    if not mode.endswith("training"):
        assert list(program.graph_signature.buffers_to_mutate.values()) == ["total"]


def test_operator_that_writes_to_an_input(mode: str) -> None:
    def function(value: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        accumulate(value, total)
        return total * 2

    program = compare(mode, function, (x(), torch.zeros(4)))
    if not mode.endswith("training"):
        assert list(program.graph_signature.user_inputs_to_mutate.values()) == ["total"]


def test_operator_that_writes_to_a_view(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        totals = torch.zeros(2, 4)
        accumulate(value, totals[1])
        return totals

    compare(mode, function, (x(),))


def test_operator_that_writes_and_returns(mode: str) -> None:
    def function(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        target = value.clone()
        count = fill_and_count(target, 3.0)
        return target, count

    compare(mode, function, (x(),))


def test_operator_with_a_meta_kernel(mode: str) -> None:
    compare(mode, lambda value: torch.ops.tintype_behaviour_old.shift(value, 2.0) * 2, (x(),))


def test_operator_with_default_arguments(mode: str) -> None:
    compare(mode, lambda value: torch.ops.tintype_behaviour_old.shift(value), (x(),))


def test_in_place_operator_of_a_library(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        value = value * 2
        torch.ops.tintype_behaviour_old.shift_(value, 3.0)
        return value

    compare(mode, function, (x(),))


def test_composite_operator_of_a_library(mode: str) -> None:
    program = compare(mode, lambda value: torch.ops.tintype_behaviour_old.twice(value), (x(),))
    expected = "aten.mul.Tensor" if mode.endswith("decomposed") else "tintype_behaviour_old.twice.default"
    assert targets(program) == [expected]


def test_operator_without_fake_kernel_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        tintype.export(lambda value: no_kernel(value), (x(),))
    message = str(caught.value)
    assert caught.value.id == "unsupported-operator"
    assert "tintype_behaviour" in message and "no_kernel" in message
    assert "register_fake" in message
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__


def test_fake_kernel_that_asks_for_the_data_is_refused() -> None:
    @torch.library.custom_op("tintype_behaviour::peeks", mutates_args=())
    def peeks(value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @peeks.register_fake
    def _(value: torch.Tensor) -> torch.Tensor:
        return value.new_empty(5) if value.sum() > 0 else value.new_empty(6)

    with pytest.raises(tintype.CaptureError):
        tintype.export(lambda value: peeks(value), (x(),))
