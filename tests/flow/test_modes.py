"""Gradients, autocast and devices that arms of branches and steps of loops switch, or leave the blocks of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype


class Passes(torch.overrides.TorchFunctionMode):
    """Hears of functions."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def returns(x):
    with torch.no_grad():
        if x.sum() > 2:
            return x * 2
        x = x + 0.5
    return x * 3


def returns_from_loop(x):
    with torch.no_grad():
        for _ in range(2):
            if x.sum() > 2:
                return x * 2
            x = x + 0.5
    return x * 3


def nested(x):
    with torch.no_grad():
        if x.sum() > 2:
            if x.sum() > 20:
                return x * 2
            x = x + 0.5
    return x * 3


def breaks(x):
    for _ in range(2):
        with torch.no_grad():
            if x.sum() > 2:
                break
            x = x + 0.5
    return x * 3


def breaks_out_of_while(x):
    while x.sum() < 9:
        with torch.no_grad():
            y = x + 1
            if y.sum() > 5:
                break
        x = x * 2 + y
    return x * 3


def gradients_in_an_arm(x):
    with torch.no_grad():
        if x.sum() > 2:
            with torch.enable_grad():
                return x * 2
        y = x + 0.5
    return x * y


def decorated(x):
    @torch.no_grad()
    def inner(value):
        if value.sum() > 2:
            return value * 2
        return value + 1

    return inner(x) + x * 2


def autocast_breaks(x):
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if x.sum() > 0:
                break
            x = x * 2
    return torch.outer(x, x) @ torch.outer(x, x)


def leaves_the_inner_one(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            if x.sum() > 0:
                return (torch.outer(x, x) @ torch.outer(x, x)).float()
        y = (torch.outer(x, x) @ torch.outer(x, x)).float()
    return y + torch.outer(x, x) @ torch.outer(x, x)


def autocast_returns(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if x.sum() > 2:
            return (torch.outer(x, x) @ torch.outer(x, x)).float()
        x = x + 1
    return torch.outer(x, x) @ torch.outer(x, x)


def autocast_left_in_two_steps(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", dtype=torch.float16):
            if x.sum() > 20:
                return (torch.outer(x, x) @ torch.outer(x, x)).float()
        y = (torch.outer(x, x) @ torch.outer(x, x)).float()
        if x.sum() > 2:
            return y
    with torch.no_grad():
        y = y + torch.outer(x, x) @ torch.outer(x, x)
    return y + torch.outer(x, x) @ torch.outer(x, x)


def device_returns(x):
    with torch.device("cpu"):
        if x.sum() > 0:
            return x + torch.ones(3)
    return x + torch.zeros(3)


def device_breaks(x):
    for _ in range(3):
        with torch.device("cpu"):
            if x.sum() > 4:
                break
            x = x + torch.ones(3)
    return x + torch.ones(3)


def mode_of_its_own(x):
    with Passes():
        if x.sum() > 0:
            return x * 2
    return x * 3


PROGRAMS = [
    returns, returns_from_loop, nested, breaks, breaks_out_of_while, gradients_in_an_arm, decorated,
    autocast_breaks, leaves_the_inner_one, autocast_returns, autocast_left_in_two_steps,
    device_returns, device_breaks, mode_of_its_own,
]  # fmt: skip
VALUES = [torch.tensor([0.3, 0.513, 0.7]) * factor for factor in (1.0, -1.0, 3.0, 30.0)]


@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training], ids=["functional", "training"])
@pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_modes_are_those_of_the_way_that_is_taken(function: Callable[..., Any], strict: bool, export: Any) -> None:
    module = export(function, (VALUES[0],), strict=strict).module()
    for value in VALUES:
        given, leaf = (value.clone().requires_grad_() for _ in range(2))
        expected, got = function(given), module(leaf)
        torch.testing.assert_close(got, expected)
        for result in (expected, got):
            if result.requires_grad:
                result.sum().backward()
        if given.grad is None:
            assert leaf.grad is None or not leaf.grad.any()
        else:
            torch.testing.assert_close(leaf.grad, given.grad)


def test_captures_leave_modes_as_they_were() -> None:
    for function in PROGRAMS:
        tintype.export(function, (VALUES[0],))
        assert torch.is_grad_enabled()
        assert not torch.is_autocast_enabled("cpu")
        assert not torch._C._len_torch_function_stack()


def test_a_mode_that_one_arm_switches_is_refused() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            torch.set_grad_enabled(False)
        y = x * 2
        torch.set_grad_enabled(True)
        return y

    with pytest.raises(tintype.TintypeError, match=r"only the data decide whether gradients[\s\S]*test_modes\.py"):
        tintype.export(function, (VALUES[0],))


# --- loops below no_grad that make no step -----------------------------------------------------------------------


def stays_as_it_is(x):
    with torch.no_grad():
        while x.sum() > 10:
            x = x / 2
    return x * 3


def counts_no_step(x):
    n, y = 0, (x * 2).t()
    with torch.no_grad():
        while y.sum() > 100:
            y, n = y / 2, n + 1
    return y * x * (n + 1)


def swaps(x):
    y, z, n = (x * 2).t(), x * 3, 0
    with torch.no_grad():
        while n < y.sum():
            y, z, n = z, y, n + 100
    return y * x + z * 5


def leaves_before_it_changes_anything(x):
    with torch.no_grad():
        while x.sum() > 0:
            if x.max() < 8:
                break
            x = x - 1
    return x * 2


def makes_no_round(x):
    with torch.no_grad():
        for i in range(int(x.sum().clamp(0, 5))):
            x = x + i
    return x * 2


def takes_no_row(x):
    y = x[0] * 1
    with torch.no_grad():
        for row in x[x[:, 0] > 2]:
            y = row
    return y * x


def lays_out_an_operand(x):
    z = x.t()
    with torch.no_grad():
        y = z if x.sum() > 0 else z.contiguous()
    return y * x


def enables_in_a_step(x):
    with torch.no_grad():
        y = x
        while y.sum() > 50:
            with torch.enable_grad():
                y = y * 0.5
    return y * x


LOOPS = [
    stays_as_it_is, counts_no_step, swaps, leaves_before_it_changes_anything, makes_no_round, takes_no_row,
    lays_out_an_operand, enables_in_a_step,
]  # fmt: skip
SQUARE = torch.arange(1.0, 10).reshape(3, 3)


@pytest.mark.parametrize("way", ["functional", "training", "decomposed"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("function", LOOPS, ids=lambda function: function.__name__)
def test_what_no_step_changes_keeps_its_history(function: Callable[..., Any], requires_grad: bool, way: str) -> None:
    example = SQUARE.clone().requires_grad_(requires_grad)
    if way == "training":
        module = tintype.export_for_training(function, (example,)).module()
    else:
        program = tintype.export(function, (example,))
        module = (program if way == "functional" else program.run_decompositions()).module()
    for factor in (1.0, -1.0, 0.0, 10.0):
        expected, got = ((SQUARE * factor).requires_grad_() for _ in range(2))
        results = function(expected), module(got)
        torch.testing.assert_close(results[1], results[0])
        for result in results:
            if result.requires_grad:
                result.sum().backward()
        wanted = torch.zeros_like(got) if expected.grad is None else expected.grad
        torch.testing.assert_close(torch.zeros_like(got) if got.grad is None else got.grad, wanted)


@pytest.mark.parametrize("function", [stays_as_it_is, counts_no_step, makes_no_round, lays_out_an_operand])
def test_a_joint_graph_refuses_what_may_keep_its_history(function: Callable[..., Any]) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x * self.scale).sum()

    with pytest.raises(tintype.CaptureError, match="which has a gradient in eager mode"):
        tintype.export_joint(Model(), (SQUARE,))


def test_a_list_that_gets_what_was_there_before_a_step_without_gradients_is_refused() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        items, s = [], x.sum(0)
        with torch.no_grad():
            for _ in range(int(x.sum().clamp(1, 4))):
                items.append(s)
                s = s * 2
        return torch.stack(items).sum(0) * x

    with pytest.raises(tintype.CaptureError, match="appends to a list what was there before"):
        tintype.export(function, (SQUARE,))
