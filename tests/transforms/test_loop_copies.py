"""Programs for training whose loops may make no step: what they give is then what they began with."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype


def writes_to_the_result(x):
    before = x.clone()
    after = before
    while after.sum() < 10:
        after = after + 1
    after.add_(7)
    return before, after


def writes_to_the_beginning(x):
    before = x.clone()
    after = before
    while after.sum() < 10:
        after = after + 1
    before.add_(7)
    return before, after


def writes_to_a_view_of_an_input(x):
    after = x
    for _ in range(int(x[0])):
        after = after + 1
    after[1:].mul_(2)
    return after


def writes_in_an_arm(x):
    before = x.clone()
    after = before
    while after.sum() < 10:
        after = after + 1
    if x[0] > 2:
        after.add_(7)
    return before, after


def loops_in_an_arm(x):
    if x[0] > 2:
        before = x.clone()
        after = before
        while after.sum() < 100:
            after = after + 1
        after.add_(1)
        return before + after
    return x


@pytest.mark.parametrize(
    "function",
    [writes_to_the_result, writes_to_the_beginning, writes_to_a_view_of_an_input, writes_in_an_arm, loops_in_an_arm],
)
def test_writes_that_a_loop_would_hide_are_refused(function: Any) -> None:
    with pytest.raises(tintype.errors.MutationError, match=r"the loop makes no step[\s\S]*clone\(\)"):
        tintype.export_for_training(function, (torch.ones(3),))


def nobody_sees_the_beginning(x):
    after = x.clone()
    while after.sum() < 10:
        after = after + 1
    after.add_(7)
    return after


def writes_before(x):
    before = x.clone()
    before.add_(1)
    after = before
    while after.sum() < 10:
        after = after + 1
    return before + after


@pytest.mark.parametrize("function", [nobody_sees_the_beginning, writes_before])
def test_other_writes_are_taken(function: Any) -> None:
    module = tintype.export_for_training(function, (torch.ones(3),)).module()
    for x in (torch.ones(3), torch.ones(3) * 5, torch.zeros(3)):
        torch.testing.assert_close(module(x), function(x))
