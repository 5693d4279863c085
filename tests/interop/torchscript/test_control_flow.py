"""Branches and loops: followed where they are known, operators that take functions where they are not."""

from __future__ import annotations

from typing import Any, Optional

import pytest
import torch

import tintype
from tests.interop.torchscript.comparing import Case, cases, converted

ALL: list[Case] = []
case = cases(ALL)
UP, DOWN = torch.ones(3, 2), -torch.ones(3, 2)
ROWS = {"x": {0: tintype.Dim("rows", min=1)}}
ANY_ROWS = {"x": {0: tintype.Dim("rows", min=0)}}
SIZES = (torch.randn(3, 2), torch.randn(5, 2), torch.randn(1, 2))
WITH_NONE = (*SIZES, torch.randn(0, 2))


# --- branches on data ------------------------------------------------------------------------------------


@case(UP, DOWN)
def if_on_tensor(x):
    if x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    return y * 2


@case(UP, DOWN)
def early_return(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@case(UP, DOWN, torch.zeros(3, 2))
def several_early_returns(x):
    if x.sum() > 0:
        return x + 1
    y = x * 3
    if y.sum() < 0:
        return y - 1
    z = y + x
    if z.max() > 5:
        return z
    return z.cos()


@case(UP, DOWN)
def returns_in_both(x):
    if x.sum() > 0:
        if x.max() > 10:
            return x
        return x * 2
    else:
        return x * 3


@case(UP, DOWN)
def if_with_several_results(x):
    a, b, n = x, x, 0
    if x.sum() > 0:
        a, b, n = x + 1, x * 2, 3
    else:
        b, n = x.sin(), 4
    return a, b, n


@case(UP, DOWN)
def nested_ifs(x):
    y = x
    if x.sum() > 0:
        if x.max() > 3:
            y = x + 1
        else:
            y = x + 2
    elif x.min() < -3:
        y = x + 3
    return y


@case(UP, DOWN)
def if_without_else_on_python_and_tensor(x):
    if x.size(0) == 3 and bool(x.sum() > 0):
        x = x * 5
    return x


@case(UP, DOWN)
def truth_of_not_and_or(x):
    positive = bool(x.sum() > 0)
    large = bool(x.max() > 100)
    if not positive or large:
        return x - 7
    return x + 7


@case(UP, DOWN)
def conditional_expression(x):
    return (x + 1) if bool(x.sum() > 0) else (x - 1)


@case(UP, DOWN)
def sizes_differ_between_branches(x):
    if x.sum() > 0:
        y = x[:2]
    else:
        y = x
    return y.sum(0), y.size(0)


@case(UP, DOWN)
def dtypes_differ_until_converted(x):
    if x.sum() > 0:
        y = x.to(torch.int32)
    else:
        y = x
    return y.to(torch.float64)


@case(UP, DOWN)
def none_or_tensor(x):
    y: Optional[torch.Tensor] = None
    if x.sum() > 0:
        y = x * 2
    if y is not None:
        return y
    return x - 1


@case(UP, DOWN)
def lists_of_different_lengths(x):
    parts = [x]
    if x.sum() > 0:
        parts = [x, x * 2]
    return torch.cat(parts).sum(0)


@case(UP, DOWN)
def strings_decide_later(x):
    kind = "small"
    if x.sum() > 0:
        kind = "large"
    if kind == "large":
        return x * 10
    return x / 10


@case(UP, DOWN)
def write_in_a_branch(x):
    y = x.clone()
    if x.sum() > 0:
        y.add_(1)
    else:
        y.mul_(3)
    return y


@case(UP, DOWN)
def write_to_an_argument_in_a_branch(x):
    if x.sum() > 0:
        x.add_(1)
    return x.sum()


@case(UP, DOWN)
def write_through_a_view_in_a_branch(x):
    y = x.clone()
    row = y[0]
    if x.sum() > 0:
        row.zero_()
    return y


@case(UP, DOWN)
def bool_of_integer_tensor(x):
    n = (x > 0).sum()
    if n:
        return x + 1
    return x - 1


@case(UP, DOWN)
def branch_on_a_number_of_data(x):
    n = int((x > 0).sum())
    if n > 2:
        return x * n
    return x - n


# --- branches on sizes -----------------------------------------------------------------------------------


@case(*WITH_NONE, dynamic=ANY_ROWS)
def if_on_a_size(x):
    if x.size(0) > 2:
        return x + 1
    return x - 1


@case(*SIZES, dynamic=ANY_ROWS)
def if_on_two_sizes(x):
    if x.size(0) > x.size(1):
        y = x * 2
    else:
        y = x * 3
    return y.sum(0)


@case(*SIZES, dynamic=ANY_ROWS)
def shapes_compared(x):
    y = x.t()
    if x.shape == y.shape:
        return x + y.t()
    return x


# --- loops -----------------------------------------------------------------------------------------------


@case(*SIZES[:1])
def loop_over_a_fixed_size(x):
    for i in range(x.size(0)):
        x = x + x[i]
    return x


@case(*WITH_NONE, dynamic=ANY_ROWS)
def loop_over_a_size(x):
    for i in range(x.size(0)):
        x = x + x[i] * i
    return x


@case(*WITH_NONE, dynamic=ANY_ROWS)
def loop_with_start_and_step(x):
    total = torch.zeros(2)
    for i in range(1, x.size(0) + 3, 2):
        total = total * 0.5 + i
    return total


@case(*WITH_NONE, dynamic=ANY_ROWS)
def loop_backwards(x):
    total = torch.zeros(2)
    for i in range(x.size(0) - 1, -1, -1):
        total = total * 0.5 + x[i]
    return total


@case(*WITH_NONE, dynamic=ANY_ROWS)
def loop_that_counts(x):
    n = 0
    for i in range(x.size(0)):
        n += i
    return x + n, n


@case(*SIZES, dynamic=ROWS)
def loop_that_appends(x):
    rows = []
    state = torch.zeros(2)
    for i in range(x.size(0)):
        state = (state + x[i]).tanh()
        rows.append(state)
    return torch.stack(rows), len(rows), rows[0]


@case(*SIZES, dynamic=ROWS)
def loop_that_appends_to_two_lists(x):
    a = [x[0]]
    b = []
    for i in range(x.size(0)):
        a.append(x[i] * 2)
        b.append(x[i].unsqueeze(0))
        b.append(x[i].unsqueeze(0) * 3)
    return torch.stack(a, 1), torch.cat(b), torch.cat(b, -1)


@case(*WITH_NONE, dynamic=ANY_ROWS)
def iterate_over_a_tensor(x):
    total = torch.zeros(2)
    for row in x:
        total = total * 2 + row
    return total


@case(*WITH_NONE, dynamic=ANY_ROWS)
def nested_loops(x):
    total = torch.zeros(2)
    for i in range(x.size(0)):
        for j in range(2):
            total = total + x[i] * j
    return total


@case(*WITH_NONE, dynamic=ANY_ROWS)
def nested_loops_over_sizes(x):
    total = torch.zeros(())
    for i in range(x.size(0)):
        for j in range(x.size(0)):
            total = total + x[i, 0] * x[j, 1]
    return total


@case(*WITH_NONE, dynamic=ANY_ROWS)
def loop_that_writes(x):
    y = x.clone()
    for i in range(x.size(0)):
        y[i] = y[i] * i
    return y


@case(*WITH_NONE, dynamic=ANY_ROWS)
def if_inside_of_a_loop(x):
    total = torch.zeros(2)
    for i in range(x.size(0)):
        if x[i].sum() > 0:
            total = total + x[i]
        else:
            total = total - 2 * x[i]
    return total


@case(torch.zeros(3), torch.ones(3) * 20, torch.ones(3))
def while_on_a_tensor(x):
    while x.sum() < 10:
        x = x + 1
    return x


@case(torch.zeros(3), torch.ones(3) * 20)
def while_that_writes_in_place(x):
    while bool(x.sum() < 10):
        x += 1
    return x * 2


@case(torch.zeros(3), torch.ones(3) * 20)
def while_that_writes_to_something_else(x):
    seen = torch.zeros(())
    while bool(x.sum() < 10):
        x = x + 1
        seen.add_(x.sum())
    return x, seen


@case(torch.ones(3), torch.ones(3) * 50)
def while_that_counts(x):
    n = 0
    while bool(x.sum() < 100) and n < 5:
        x = x * 2
        n += 1
    return x, n


@case(UP, UP * 0.1, DOWN)
def break_on_a_tensor(x):
    for i in range(10):
        if x.sum() > 40:
            break
        x = x * 2
    return x


@case(UP, UP * 0.1, DOWN)
def continue_on_a_tensor(x):
    total = torch.zeros(2)
    for i in range(3):
        if x[i].sum() > 0:
            continue
        total = total + x[i]
    return total


@case(*WITH_NONE, dynamic=ANY_ROWS)
def break_and_continue_over_a_size(x):
    total = torch.zeros(2)
    for i in range(x.size(0)):
        if x[i].sum() < -3:
            continue
        if total.sum() > 2:
            break
        total = total + x[i]
    return total


@case(UP, DOWN)
def return_from_a_loop(x):
    for i in range(4):
        x = x * 2
        if x.sum() > 20:
            return x - 100
    return x


@case(UP)
def while_on_numbers(x):
    n = 1
    while n < 20:
        n = n * 3
        x = x + n
    return x, n


@case(torch.tensor([3, 4]), torch.tensor([1, 7]))
def loop_over_a_number_of_data(x):
    total = torch.zeros(2)
    for i in range(int(x[0])):
        total = total + i + x
    return total


@case(*SIZES, dynamic=ROWS)
def state_changes_from_none(x):
    state: Optional[torch.Tensor] = None
    for i in range(x.size(0)):
        if state is None:
            state = x[i]
        else:
            state = state * 0.5 + x[i]
    return state


@case(*WITH_NONE, dynamic=ANY_ROWS)
def list_of_states_in_a_loop(x):
    states = [torch.zeros(2), torch.ones(2)]
    for i in range(x.size(0)):
        states[0] = states[0] + x[i]
        states[1] = states[1] * 0.5 + states[0]
    return states[0], states[1]


@case(*WITH_NONE, dynamic=ANY_ROWS)
def tuple_of_states_in_a_loop(x):
    state = (torch.zeros(2), torch.ones(2))
    for i in range(x.size(0)):
        state = (state[1], state[0] + x[i])
    return state


@case(*WITH_NONE, dynamic=ANY_ROWS)
def list_anew_in_every_step(x):
    states = [torch.zeros(2), torch.ones(2)]
    for i in range(x.size(0)):
        states = [states[1], states[0] + x[i]]
    return states


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_does_what_the_script_does(case: Case) -> None:
    case.run()


# --- assertions ------------------------------------------------------------------------------------------


def raises_on_data(x):
    if bool(x.sum() < 0):
        raise RuntimeError("negative: {}".format(x.size(0)))
    return x * 2


def asserts_on_data(x):
    assert bool((x > 0).all()), "all must be positive"
    return x.log()


def raises_after_computing(x):
    y = x * 2
    if bool(y.sum() < 0):
        z = y.abs().sum()
        if bool(z > 0):
            raise RuntimeError("far off")
        y = y + 1
    return y


@pytest.mark.parametrize("function", [raises_on_data, asserts_on_data, raises_after_computing])
def test_exceptions_are_assertions(function: Any) -> None:
    script = torch.jit.script(function)
    program = converted(script, (UP,)).module()
    torch.testing.assert_close(program(UP), script(UP))
    with pytest.raises(torch.jit.Error):
        script(DOWN)
    with pytest.raises(RuntimeError):
        program(DOWN)


def test_the_message_of_an_exception_is_that_of_the_assertion() -> None:
    program = converted(torch.jit.script(raises_on_data), (UP,)).module()
    with pytest.raises(RuntimeError, match="negative: 3"):
        program(DOWN)


def test_a_script_that_raises_for_the_example_raises_that() -> None:
    def function(x):
        if x.size(0) == 3:
            raise ValueError("three rows")
        return x

    with pytest.raises(torch.jit.Error, match="three rows"):
        converted(torch.jit.script(function), (UP,))


def test_a_stack_of_no_rows_is_refused_as_in_the_script() -> None:
    def function(x):
        rows = []
        for i in range(x.size(0)):
            rows.append(x[i])
        return torch.stack(rows)

    program = converted(torch.jit.script(function), (UP,), {"x": {0: tintype.Dim("rows", min=0)}}).module()
    torch.testing.assert_close(program(UP), UP)
    with pytest.raises(RuntimeError):
        program(torch.ones(0, 2))


# --- what can't be one program -----------------------------------------------------------------------------


def different_results(x):
    y: Optional[torch.Tensor] = None
    if x.sum() > 0:
        y = x
    return y


def reads_what_it_appends(x):
    rows = [x[0]]
    for i in range(x.size(0)):
        rows.append(rows[-1] + x[i])
    return rows[-1]


def appends_until_the_data_say_stop(x):
    rows = [x]
    while bool(rows[0].sum() + x.sum() < 10):
        x = x + 1
        rows.append(x)
    return torch.stack(rows)


def changes_dtype_in_every_step(x):
    y = x
    while bool(y.sum() < 10):
        y = y.to(torch.float64) + 1
    return y


@pytest.mark.parametrize(
    "function, dynamic",
    [
        (different_results, None),
        (reads_what_it_appends, ROWS),
        (appends_until_the_data_say_stop, None),
        (changes_dtype_in_every_step, None),
    ],
)
def test_refused_with_a_line(function: Any, dynamic: Any) -> None:
    with pytest.raises(tintype.CaptureError) as caught:
        converted(torch.jit.script(function), (torch.randn(3, 2),), dynamic)
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__
