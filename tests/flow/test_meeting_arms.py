"""Arms that can't be merged where they meet go on by themselves."""

from __future__ import annotations

import collections
import copy
import types

import pytest
import torch

import tintype
from tests.flow.test_programs import outcome, same


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


class Optional(torch.nn.Module):
    """Leaves behind what can't be merged, and asks what it is."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(3, 3)
        self.down = torch.nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = None
        if x.sum() > 0:
            mask = x > 1
        layer = self.up if x.max() > 2 else self.down
        x = layer(x)
        self.calls += 1
        return x if mask is None else x.masked_fill(mask, 0) * self.calls


def grows_in_one_arm(x):
    found = [x]
    if x.sum() > 0:
        found.append(x * 2)
    if x.max() > 2:
        found.append(x * 3)
    return torch.cat(found).sum() + len(found)


def collects_some(x):
    found = [x.sum()]
    for value in x.unbind():
        if value > 0:
            found.insert(0, value)
    return sum(found)


def sets_one_attribute(x):
    held = types.SimpleNamespace(value=x)
    if x.sum() > 0:
        held.other = x * 2
    return held.other if hasattr(held, "other") else held.value


def inside_of_a_branch(x):
    y, found = None, []
    if x.sum() > 0:
        if x.max() > 2:
            y = x * 2
            found.append(y)
        z = x if y is None else sum(found)
        if z.min() < 1:
            return z, x
    else:
        found += [x, x]
        z = x * len(found)
    return z, z + 1


def in_steps(x):
    n = 0
    while x.sum() > n:
        mode = None
        if x.max() > 2:
            mode = "halve"
        x = x / 2 if mode == "halve" else x - 1
        n += 1
    for _ in range(2):
        scale = 2
        if x.min() < 0:
            scale = x.abs()
        x = x * scale
    return x, n


def of_other_kinds(x):
    scale = 1
    if x.sum() > 0:
        scale = x.double()
    with torch.no_grad():
        try:
            if x.max() > 2:
                scale = None
            if scale is None:
                raise ValueError
            y = (x * scale).float()
        except ValueError:
            y = x - 1
    return y * x


def in_an_endless_loop(x):
    while True:
        factor = None
        if x.sum() > 10:
            factor = 0.5
        if factor is None:
            break
        x = x * factor
    return x


def calls_what_it_found(x):
    functions, values = [], collections.deque(maxlen=2)
    if x.sum() > 3:
        functions.append(lambda value: value * 2)
    for function in functions:
        x = function(x)
    for value in x.unbind():
        if value > 0:
            values.append(value)
    return torch.stack(list(values)).sum() if values else x.sum()


APART = [
    in_an_endless_loop,
    calls_what_it_found,
    Optional,
    grows_in_one_arm,
    collects_some,
    sets_one_attribute,
    inside_of_a_branch,
    in_steps,
    of_other_kinds,
]


@pytest.mark.parametrize("way", ["plain", "strict", "training", "decomposed"])
@pytest.mark.parametrize("program", APART)
def test_what_follows_goes_with_each_arm_where_they_leave_other_things(program, way) -> None:
    model = program() if isinstance(program, type) else program
    export = tintype.export_for_training if way == "training" else tintype.export
    exported = export(model, (torch.ones(3),), strict=way == "strict")
    if way == "decomposed":
        exported = exported.run_decompositions()
    for values in ([1.0, 1, 1], [-1.0, -1, -1], [-9.0, 3, 1], [4.0, -1, 0.5], [0.4, 0.3, 0.1], [0.0, 0, 0]):
        found = outcome(exported.module(), (torch.tensor(values),))  # before eager mode writes to the buffer
        assert same(outcome(copy.deepcopy(model), (torch.tensor(values),)), found)


def test_lists_belong_to_nobody_else_once_torch_compile_has_run() -> None:
    """It takes over how Python calls functions: a caller keeps the arguments on its stack from then on."""
    from torch._dynamo.eval_frame import set_eval_frame

    before = set_eval_frame(False)
    try:
        program = tintype.export(grows_in_one_arm, (torch.ones(3),)).module()
    finally:
        set_eval_frame(before)
    for x in (torch.ones(3), -torch.ones(3), torch.full((3,), 4.0)):
        torch.testing.assert_close(program(x), grows_in_one_arm(x))


def returns_them(x):
    found = [x]
    if x.sum() > 0:
        found.append(x)
    return found


def another_list_holds_it(x):
    found = [x]
    held = [found]
    if x.sum() > 0:
        found.append(x)
    return held[0][-1]


def a_loop_carries_it(x):
    found = None
    while x.sum() > 1:
        if x.max() > 2:
            found = x
        x = x / 2
    return x if found is None else found


def too_many(x):
    found = []
    for value in x.repeat(5).unbind():
        if value > 0:
            found += [value]
    return sum(found) + len(found)


@pytest.mark.parametrize("function", [returns_them, another_list_holds_it, a_loop_carries_it, too_many])
def test_what_leaves_the_function_has_to_be_merged(function) -> None:
    with pytest.raises(tintype.CaptureError, match=r"something else[\s\S]*test_meeting_arms\.py") as caught:
        tintype.export(function, (torch.ones(3),))
    assert caught.value.remedy
