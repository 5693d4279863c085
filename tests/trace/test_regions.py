"""Regions of a program in which torch behaves otherwise: gradient modes, autocast, checkpoints, transforms."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

import tintype
from tests.export.modes import compare, targets


def x(*sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (3, 4)), requires_grad=True)


class Model(nn.Module):
    """A linear layer and a function that gets it."""

    def __init__(self, function: Callable[[nn.Linear, torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.function = function

    def forward(self, value: torch.Tensor) -> Any:
        return self.function(self.layer, value)


# --- gradient modes ----------------------------------------------------------------------------------------


def no_grad(layer: nn.Linear, value: torch.Tensor) -> Any:
    with torch.no_grad():
        weight = layer(value)
    return value * weight


def enable_grad_inside(layer: nn.Linear, value: torch.Tensor) -> Any:
    with torch.no_grad():
        hidden = layer(value)
        with torch.enable_grad():
            inner = value.sin()
        hidden = hidden * 2
    return hidden + inner


def set_grad_enabled(layer: nn.Linear, value: torch.Tensor) -> Any:
    with torch.set_grad_enabled(False):
        hidden = layer(value)
    return hidden * value


def detach(layer: nn.Linear, value: torch.Tensor) -> Any:
    return layer(value).detach() * value + layer(value.detach())


def returned_from_no_grad(layer: nn.Linear, value: torch.Tensor) -> Any:
    with torch.no_grad():
        return layer(value)


def decorated(layer: nn.Linear, value: torch.Tensor) -> Any:
    @torch.no_grad()
    def scale(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.abs().max()

    return layer(value) / scale(value)


def mixed_results(layer: nn.Linear, value: torch.Tensor) -> Any:
    with torch.no_grad():
        mask = layer(value)
    return layer(value), mask, value > 0


def requires_grad_read(layer: nn.Linear, value: torch.Tensor) -> Any:
    with torch.no_grad():
        hidden = layer(value)
    return value * 2 if hidden.requires_grad else value * 3


@pytest.mark.parametrize(
    "function",
    [
        no_grad,
        enable_grad_inside,
        set_grad_enabled,
        detach,
        returned_from_no_grad,
        decorated,
        mixed_results,
        requires_grad_read,
    ],
)
def test_gradient_modes(mode: str, function: Any) -> None:
    compare(mode, Model(function), (x(),))


def test_inference_mode_region(mode: str) -> None:
    def function(layer: nn.Linear, value: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return layer(value) * 2

    compare(mode, Model(function), (x(),), gradients=False)


@pytest.mark.direct("the program holds the model's own tensors")
def test_export_under_no_grad_trains_all_the_same() -> None:
    model = Model(lambda layer, value: layer(value).relu())
    with torch.no_grad():
        program = tintype.export(model, (x(),))
    program.module()(x()).sum().backward()
    assert model.layer.weight.grad is not None


def test_export_under_inference_mode() -> None:
    model = Model(lambda layer, value: layer(value).relu())
    value = x()
    with torch.inference_mode():
        program = tintype.export(model, (value,))
    torch.testing.assert_close(program.module()(value), model(value))


def test_inputs_made_under_inference_mode(mode: str) -> None:
    with torch.inference_mode():
        value = torch.randn(3, 4)
    model = Model(lambda layer, value: layer(value).relu()).requires_grad_(False)
    program = tintype.export(model, (value,))
    torch.testing.assert_close(program.module()(value), model(value))


# --- autocast ----------------------------------------------------------------------------------------------


def autocast(layer: nn.Linear, value: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = layer(value)
        inner = hidden @ value.t()
        with torch.autocast("cpu", enabled=False):
            kept = value @ value.t()
    return hidden, inner, kept, layer(value)


def autocast_softmax(layer: nn.Linear, value: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.softmax(layer(value), -1), nn.functional.layer_norm(layer(value), (4,))


@pytest.mark.parametrize("function", [autocast, autocast_softmax])
def test_autocast_region(mode: str, function: Any) -> None:
    compare(mode, Model(function), (x(),))


def test_export_inside_of_autocast() -> None:
    model = Model(lambda layer, value: layer(value))
    value = x()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        program = tintype.export(model, (value,))
        expected = model(value)
    actual = program.module()(value)
    assert actual.dtype is expected.dtype is torch.bfloat16
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)


def test_autocast_does_not_keep_fakes() -> None:
    model = Model(lambda layer, value: layer(value))
    value = x()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        tintype.export(model, (value,))
        assert type(model(value)) is torch.Tensor


# --- autograd.Function, checkpoint -------------------------------------------------------------------------


class Straight(torch.autograd.Function):
    """Rounding with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.round()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Clipped(torch.autograd.Function):
    """A function with saved tensors and a setup_context."""

    @staticmethod
    def forward(value: torch.Tensor, bound: float) -> torch.Tensor:
        return value.clamp(-bound, bound)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        value, bound = inputs
        ctx.save_for_backward(value)
        ctx.bound = bound

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (value,) = ctx.saved_tensors
        return gradient * (value.abs() <= ctx.bound), None


def test_autograd_function_values(mode: str) -> None:
    def function(layer: nn.Linear, value: torch.Tensor) -> Any:
        return Straight.apply(layer(value)), Clipped.apply(value, 0.5)

    compare(mode, Model(function), (x(),), gradients=False)


def test_autograd_function_gradients(mode: str) -> None:
    compare(mode, Model(lambda layer, value: Clipped.apply(layer(value), 0.5)), (x(),))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint(mode: str, use_reentrant: bool) -> None:
    def function(layer: nn.Linear, value: torch.Tensor) -> torch.Tensor:
        hidden = torch.utils.checkpoint.checkpoint(layer, value, use_reentrant=use_reentrant)
        return hidden.relu() + value

    compare(mode, Model(function), (x(),))


def test_checkpoint_sequential(mode: str) -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return torch.utils.checkpoint.checkpoint_sequential(self.layers, 2, value, use_reentrant=False)

    compare(mode, Chain(), (x(),))


# --- function transforms -----------------------------------------------------------------------------------


def test_vmap(mode: str) -> None:
    def function(layer: nn.Linear, value: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: layer(row) * row.sum())(value)

    compare(mode, Model(function), (x(),))


def test_vmap_over_two_arguments(mode: str) -> None:
    compare(mode, torch.vmap(torch.dot), (x(), x()))


def test_functional_call(mode: str) -> None:
    def function(layer: nn.Linear, value: torch.Tensor) -> torch.Tensor:
        parameters = {name: tensor * 2 for name, tensor in layer.named_parameters()}
        return torch.func.functional_call(layer, parameters, (value,))

    compare(mode, Model(function), (x(),))


def test_grad_transform(mode: str) -> None:
    def function(layer: nn.Linear, value: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda v: layer(v).sin().sum())(value)

    compare(mode, Model(function), (torch.randn(3, 4),), gradients=False)


def test_gradient_inside_of_the_program_is_captured_or_refused_by_name(mode: str) -> None:
    """A model that differentiates (forces from an energy, gradient penalties)."""

    def function(layer: nn.Linear, value: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            position = value.detach().requires_grad_()
            energy = layer(position).pow(2).sum()
            return torch.autograd.grad(energy, position)[0]

    try:
        compare(mode, Model(function), (torch.randn(3, 4),), gradients=False)
    except tintype.CaptureError as error:
        assert "autograd" in str(error)
        assert error.location is not None and error.location.filename == __file__


def test_gradient_that_may_be_missing_is_captured_or_refused_by_name(mode: str) -> None:
    """With allow_unused torch answers None where no graph was recorded: that must not pass for an answer."""

    def function(value: torch.Tensor) -> torch.Tensor | None:
        return torch.autograd.grad((value * value).sum(), value, allow_unused=True)[0]

    try:
        compare(mode, function, (x(),), gradients=False)
    except tintype.CaptureError as error:
        assert "autograd" in str(error)


def test_backward_inside_of_the_program_is_captured_or_refused_by_name(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor | None:
        leaf = value.detach().requires_grad_()
        leaf.sin().sum().backward()
        return leaf.grad

    try:
        compare(mode, function, (torch.randn(3, 4),), gradients=False)
    except tintype.CaptureError as error:
        assert "autograd" in str(error) or "backward" in str(error)


@pytest.mark.parametrize(
    "function",
    [
        lambda value, start: torch.autograd.grad(value * value, value, start, allow_unused=True),
        lambda value, start: torch.autograd.grad(value * value, value, start, materialize_grads=True),
        lambda value, start: torch.autograd.functional.vjp(torch.sin, value, start),
        lambda value, start: torch.autograd.functional.jacobian(torch.sin, value.detach()),
    ],
)
def test_gradients_with_a_start_given_are_captured(function: Any) -> None:
    program = tintype.export(function, (x(), torch.ones(3, 4)))
    value, start = x(), torch.randn(3, 4)
    torch.testing.assert_close(program.module()(value, start), function(value, start))
    with pytest.raises(tintype.InputMismatchError, match="requires_grad"):
        program.module()(value.detach(), start)


@pytest.mark.parametrize(
    "function",
    [
        lambda value, start: (value * value).backward(start),
        lambda value, start: torch.autograd.backward([value * value], [start]),
    ],
)
def test_gradients_that_are_written_are_refused_by_name(function: Any) -> None:
    with pytest.raises(tintype.CaptureError, match="computes gradients itself") as caught:
        tintype.export(function, (x(), torch.ones(3, 4)))
    assert caught.value.location is not None and caught.value.location.filename == __file__
    value = x()
    value.sum().backward()  # nothing stays refused
    assert value.grad is not None


@pytest.mark.direct("the model notes how often it is called")
def test_gradients_in_another_thread_go_on_while_a_program_is_captured() -> None:
    found: list[torch.Tensor | None] = []

    def train() -> None:
        weight = x()
        (weight * 2).sum().backward()
        found.append(weight.grad)

    begins, ends = threading.Event(), threading.Event()

    def other_thread() -> None:
        begins.wait(60)
        train()
        ends.set()

    def function(value: torch.Tensor) -> torch.Tensor:
        begins.set()
        ends.wait(60)
        return value + 1

    thread = threading.Thread(target=other_thread)  # not the model's: those are refused
    thread.start()
    tintype.export(function, (torch.ones(3),))
    thread.join()
    assert len(found) == 1 and found[0] is not None and torch.equal(found[0], torch.full((3, 4), 2.0))


# --- random numbers ----------------------------------------------------------------------------------------


class Random(nn.Module):
    def forward(self, value: torch.Tensor) -> Any:
        return (
            torch.rand_like(value),
            torch.randn(2, 3),
            torch.randint(0, 100, (4,)),
            torch.randperm(6),
            torch.bernoulli(torch.full((8,), 0.5)),
            torch.rand(3, dtype=torch.float64),
            torch.empty(4).uniform_(-1, 1),
            torch.empty(4).normal_(2, 3),
            torch.normal(0.0, 1.0, (3,)),
            torch.multinomial(value.detach().abs() + 0.1, 2),
            value + torch.randn_like(value),
        )


def test_random_operators_draw_as_in_eager(mode: str) -> None:
    program = compare(mode, Random(), (x(),))
    module = program.module()
    assert not torch.equal(module(x())[0], module(x())[0])


def test_random_numbers_that_nobody_uses_are_drawn_too(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        torch.rand(5)
        return value + torch.rand(4)

    compare(mode, function, (x(),))


@pytest.mark.parametrize("training", [True, False])
def test_dropout(mode: str, training: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.AlphaDropout(0.3), nn.Dropout1d(0.2)).train(training)
    program = compare(mode, model, (x(2, 3, 4),))
    if not training:
        value = x(2, 3, 4)
        torch.testing.assert_close(program.module()(value), program.module()(value))


def test_functional_dropout_default_is_training(mode: str) -> None:
    compare(mode, lambda value: nn.functional.dropout(value, 0.5), (x(),))


def test_dropout_of_probability_one_and_zero(mode: str) -> None:
    compare(mode, nn.Sequential(nn.Linear(4, 4), nn.Dropout(1.0), nn.Dropout(0.0)), (x(),), gradients=False)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(mode: str, training: bool) -> None:
    program = compare(mode, nn.Sequential(nn.BatchNorm1d(4), nn.ReLU(inplace=True)).train(training), (x(),))
    mutated = set(program.graph_signature.buffers_to_mutate.values())
    if not mode.endswith("training"):
        running = {"0.num_batches_tracked", "0.running_mean", "0.running_var"}
        assert mutated == (running if training else set())
    else:
        assert ("aten.add_.Tensor" in targets(program)) is training


def test_seed_set_inside_of_the_program_does_not_stay_set() -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        return value + torch.rand(4)

    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    with contextlib.suppress(tintype.CaptureError):
        tintype.export(function, (torch.ones(4),))
    assert torch.equal(torch.rand(2), expected)


class WritesAParameter(torch.nn.Module):
    """What was made without gradients gets a history by a write, and what is then computed without them has none."""

    def __init__(self, make: Any, write: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(4))
        self.make, self.write = make, write

    def forward(self, x: torch.Tensor) -> Any:
        with torch.no_grad():
            made = self.make(x)
        self.write(made, self.weight)
        with torch.no_grad():
            later = made * 2
        return later, made


@pytest.mark.parametrize("make", [lambda x: x * 3, lambda x: x.clone(), lambda x: torch.dropout(x, 0.5, train=True)])
@pytest.mark.parametrize("write", [lambda made, w: made[0].copy_(w), lambda made, w: made[0, ::2].add_(w)])
def test_a_write_gives_a_history_to_what_was_made_without_one(make: Any, write: Any) -> None:
    model = WritesAParameter(make, write)
    x = torch.rand(3, 3, 4, requires_grad=True)
    program = tintype.export(model, (torch.rand(3, 3, 4),))
    for module in (program.module(), program.run_decompositions().module()):
        assert [result.requires_grad for result in module(x)] == [False, True]
        module(x)[1].sum().backward()
        assert x.grad is None and all(p.grad is not None for p in module.parameters())
