"""Operators that users define: with fake kernels, Meta kernels, mutations, several results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._library import simple_registry
from torch.utils._python_dispatch import TorchDispatchMode

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


# --- results that are no tensors -------------------------------------------------------------------------------

_LIBRARY.define("lists_and_one(Tensor self) -> (Tensor[], Tensor)")
_LIBRARY.define("two_lists(Tensor self) -> (Tensor[], Tensor[])")
_LIBRARY.define("with_count(Tensor self) -> (Tensor, int)")
_LIBRARY.define("count(Tensor self) -> int")
_LIBRARY.define("symbolic_count(Tensor self) -> SymInt")
_LIBRARY.define("calls() -> int")
_LIBRARY.define("ratio(Tensor self) -> float")
_LIBRARY.define("label(Tensor self) -> str")
_LIBRARY.define("add_into(Tensor(a!)? into, Tensor self) -> Tensor")
_CALLS = [0]


def _count_calls() -> int:
    _CALLS[0] += 1
    return 6 + _CALLS[0]


def _add_into(into: torch.Tensor | None, self: torch.Tensor) -> torch.Tensor:
    if into is not None:
        into.add_(self)
    return self * 2


for name, kernel in {
    "lists_and_one": lambda self: ([self * 1, self * 2], self * 3),
    "two_lists": lambda self: ([self * 1], [self * 2, self * 3]),
    "with_count": lambda self: (self * 1, 2),
    "count": lambda self: 3,
    "symbolic_count": lambda self: self.shape[0] * 2,
    "ratio": lambda self: 2.5,
    "label": lambda self: "a",
    "add_into": _add_into,
}.items():
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")

_LIBRARY.impl("calls", _count_calls, "CompositeExplicitAutograd")
old = torch.ops.tintype_behaviour_old


def test_lists_among_several_results(mode: str) -> None:
    def function(value: torch.Tensor) -> Any:
        (first, second), third = old.lists_and_one(value)
        return first + second * third, old.two_lists(value)[1][1]

    compare(mode, function, (x(),))


def test_numbers_among_the_results(mode: str) -> None:
    def function(value: torch.Tensor) -> Any:
        copied, count = old.with_count(value)
        return copied * count, value.reshape(old.count(value), -1)

    compare(mode, function, (x(),))


def test_a_number_that_follows_the_sizes() -> None:
    program = tintype.export(lambda value: value * old.symbolic_count(value), (x(),), dynamic_shapes="auto")
    for rows in (3, 5):
        value = torch.randn(rows, 4)
        torch.testing.assert_close(program.module()(value), value * (2 * rows))


def test_another_number_than_the_fake_kernel_said_is_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="takes neither tensors nor a device"):
        tintype.export(lambda value: value * old.calls(), (x(),))
    torch.library.register_fake("tintype_behaviour_old::calls", lambda: 7, lib=_LIBRARY)
    program = tintype.export(lambda value: value * old.calls(), (x(),))
    assert _CALLS == [0]
    value = x()
    torch.testing.assert_close(program.module()(value), value * 7)
    with pytest.raises(RuntimeError, match="for 8 between"):
        program.module()(value)


@pytest.mark.parametrize("name", ["ratio", "label"])
def test_results_that_can_not_be_asserted_are_refused(name: str) -> None:
    with pytest.raises(
        tintype.CaptureError, match=r"returns a (float|str), which is only known when it runs"
    ) as caught:
        tintype.export(lambda value: (getattr(old, name)(value), value)[1], (x(),))
    assert caught.value.location.filename == __file__


def test_an_operator_that_could_write_and_has_nothing_to_write_to(mode: str) -> None:
    compare(mode, lambda value: old.add_into(None, value) + 1, (x(),))
    compare(mode, lambda value: old.add_into(value, value * 2) + value, (x(),))


class Exact(TorchDispatchMode):
    """A mode that operators may have rules for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_rules_for_modes_of_the_users_hold_while_a_program_is_captured() -> None:
    torch.library.register_torch_dispatch(
        "tintype_behaviour::scaled_sin", Exact, lambda mode, func, types, args, kwargs: args[0] * 0.25
    )

    def program(value: torch.Tensor) -> torch.Tensor:
        with Exact():
            return scaled_sin(value, 2.0) + 1

    before = simple_registry.find_torch_dispatch_rule.__code__
    value = x()
    exported = tintype.export(program, (value,))
    assert simple_registry.find_torch_dispatch_rule.__code__ is before
    assert targets(exported) == ["aten.mul.Tensor", "aten.add.Tensor"]
    torch.testing.assert_close(exported.module()(value), program(value))
