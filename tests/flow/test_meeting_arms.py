"""Arms that can't be merged where they meet go on by themselves."""

from __future__ import annotations

import pytest
import torch

import tintype


class Filtering(torch.nn.Module):
    """Leaves early inside of a branch, and goes on with tensors of different numbers of dimensions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x
        if x.sum() > 0:
            kept = kept[kept > 0]
            if kept.sum() > 5:
                return x * 2
        return x + kept.sum()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("value", [-1.0, 0.25, 3.0])
def test_dimensions_that_differ_where_arms_meet(value: float, strict: bool) -> None:
    x = torch.full((2, 3), value)
    x[0, 0] = -0.5
    program = tintype.export(Filtering(), (torch.ones(2, 3),), strict=strict)
    torch.testing.assert_close(program.module()(x), Filtering()(x))


def leaves_a_loop_on_either_of_two(a, b):
    steps = 1
    if a.sum() > 1:
        steps += 1
        if b.sum() > 1:
            steps = steps + 1
    else:
        for _ in range(2):
            a = torch.sin(b)
            if b.max() < 0 or steps > 2:
                return b - b, a
    if 0 < a.sum() < 5:
        a = a + steps
    return a, b * steps


def leaves_loops_in_loops(a, b):
    for _ in range(2):
        for shift in (1, 2):
            if a.sum() > 3 or b.sum() + shift > 3:
                return a * shift, b
            a = a + 1
        b = b + 1
    return a, b


def leaves_a_loop_that_calls(a, b):
    for shift in range(3):
        if a.sum() > 2:
            if b.max() < 2:
                return torch.sin(b), a
            a = a - shift
        a = torch.maximum(a, b if b.sum() > 0 else b + 1)
    return a, b


@pytest.mark.parametrize(
    "function", [leaves_a_loop_on_either_of_two, leaves_loops_in_loops, leaves_a_loop_that_calls]
)
def test_arms_that_meet_in_different_steps_of_a_loop(function) -> None:
    module = tintype.export(function, (torch.ones(3), torch.ones(3))).module()
    for first in (-1.0, 0.1, 0.5, 2.0):
        for second in (-1.0, 0.1, 0.7, 3.0):
            given = torch.full((3,), first), torch.full((3,), second)
            torch.testing.assert_close(module(*given), function(*given))


def assigned_by_one_arm_of_a_step(x):
    while x.sum() < 10:
        x = x + 1
        if x[0] > 2:
            last = x * 2
            continue
        x = x + 0.5
    return x + last


def test_a_variable_that_one_arm_of_a_step_assigns_is_no_python_error_after_the_loop() -> None:
    with pytest.raises(tintype.CaptureError, match="the variable 'last' is something else in each arm of a branch"):
        tintype.export(assigned_by_one_arm_of_a_step, (torch.ones(3),))
