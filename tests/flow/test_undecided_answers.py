"""What a program asks about results of branches and loops, and only the data decide: memory, identity, histories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.flow.test_programs import outcome, same

SQUARE = torch.arange(1.0, 10).reshape(3, 3)
VALUES = [SQUARE, -SQUARE, SQUARE * 0, SQUARE * 10]


# --- how it lies in memory ---------------------------------------------------------------------------------------


def strides(x):
    y = x.t() if x.sum() > 0 else x
    return y.stride()


def contiguous(x):
    y = (x * 2).t() if x.sum() > 0 else x
    return (y * 2).sum() if y.is_contiguous() else y.sum()


def contiguous_in_an_arm(x):
    y = x.t() if x.sum() > 0 else x
    if x.max() > 20:
        z = y * 2
        return z if z.is_contiguous() else z + 1
    return y


def offset(x):
    return (x[1:] if x.sum() > 0 else x[:2]).storage_offset()


def conjugated(x):
    c = torch.complex(x, x)
    return (c.conj() if x.sum() > 0 else c).is_conj()


def elements_in_order(x):
    y = x.t() * 1 if x.sum() > 0 else x * 2
    return torch.as_strided(y, (9,), (1,))


def after_a_loop(x):
    y = x * 2
    while y.sum() > 50:
        y = y.t() / 2
    return y.stride()


def in_a_step(x):
    y, n = x * 2, torch.zeros(())
    while y.sum() > 50:
        if y.is_contiguous():
            n = n + 1
        y = (y / 2).t()
    return n


def in_the_first_step(x):
    y, n = (x * 2).t(), torch.zeros(())
    while y.sum() > 50:
        if y.is_contiguous():
            n = n + 1
        y = y / 2
    return n


# --- which object it is ------------------------------------------------------------------------------------------


def is_the_input(x):
    y = x
    if x.sum() > 0:
        y = x + 1
    return x * 2 if y is x else x * 3


def is_none_of_them(x):
    a, b = x * 2, x * 3
    y = a if x.sum() > 0 else b
    return [y is not a, y is not b]


def is_what_the_loop_began_with(x):
    y = x
    while y.sum() > 10:
        y = y / 2
    return x * 2 if y is x else x * 3


def is_the_last_one(x):
    previous, n = x, torch.zeros(())
    current = x
    while current.sum() > 20:
        n = n + (1 if previous is current else 2)
        previous = current
        current = current / 2
    return n


def in_a_list(x):
    items = [x * 1, x * 2]
    y = items[0] if x.sum() > 0 else items[1]
    return items.index(y)


def as_a_key(x):
    items = [x * 1, x * 2]
    y = items[0] if x.sum() > 0 else items[1]
    return {items[0]: 1, items[1]: 2}[y]


def by_its_address(x):
    y = x if x.sum() > 0 else x * 1
    return id(y) == id(x)


def one_of_two(x):
    a = x * 2
    pair = (a, a) if x.sum() > 0 else (a, a + 1)
    return pair[0] is pair[1]


def a_tuple(x):
    first, second = (x, 1), (x + 1, 1)
    pair = first if x.sum() > 0 else second
    return pair is first


# --- whether it has a history --------------------------------------------------------------------------------------


def requires_gradient(x):
    y = x.detach() if x.sum() > 0 else x
    return x * 2 if y.requires_grad else x * 3


def requires_gradient_without_a_step(x):
    with torch.no_grad():
        y = x
        while y.sum() > 50:
            y = y / 2
    return x * 2 if y.requires_grad else x * 3


def is_a_leaf(x):
    y = x if x.sum() > 0 else x * 2
    return x * 2 if y.is_leaf else x * 3


REFUSED = [
    strides, contiguous, contiguous_in_an_arm, offset, conjugated, elements_in_order, after_a_loop, in_a_step,
    in_the_first_step, is_the_input, is_none_of_them, is_what_the_loop_began_with, is_the_last_one, in_a_list,
    as_a_key, by_its_address, one_of_two, a_tuple, requires_gradient, requires_gradient_without_a_step, is_a_leaf,
]  # fmt: skip


@pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_a_question_that_the_data_decide_is_refused_with_its_line(function: Callable[..., Any], strict: bool) -> None:
    with pytest.raises(tintype.CaptureError, match=r"data|eager mode it is one of several") as caught:
        tintype.export(function, (SQUARE.clone().requires_grad_(),), strict=strict)
    location = caught.value.location
    assert location is not None and location.filename == __file__
    assert location.line > function.__code__.co_firstlineno and caught.value.remedy is not None


@pytest.mark.parametrize("function", [requires_gradient, requires_gradient_without_a_step])
def test_so_it_is_in_a_joint_graph(function: Callable[..., Any]) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x * self.scale).sum()

    with pytest.raises(tintype.CaptureError, match="gradient"):
        tintype.export_joint(Model(), (SQUARE,))


# --- what is certain -----------------------------------------------------------------------------------------------


def lies_alike(x):
    y = x + 1 if x.sum() > 0 else x
    while y.sum() > 50:
        if y.is_contiguous():
            y = y / 2
    return y, y.stride(), y.is_contiguous()


def is_laid_out(x):
    y = (x.t() if x.sum() > 0 else x).contiguous()
    return y.stride(), y


def is_certain(x):
    y, other = (x * 1 if x.sum() > 0 else x * 2), x * 3
    same = y
    return [y is other, y is same, y is not x, y is None, y in [same]], y


def is_swapped(x):
    a, b = x * 1, x * 2
    other = x * 3
    while a.sum() > 50:
        a, b = a / 2, a
    return [a is other, b is other], a, b


def has_a_history(x):
    y = x * 2 if x.sum() > 0 else x
    return x * 2 if y.requires_grad else x * 3


def takes_values_in(x):
    row = x[0] if x.sum() > 0 else x.t()[1]
    y = torch.select_scatter(x * 2, row, 0, 1)
    return y * 2 if y.is_contiguous() else y, y.stride()


CERTAIN = [lies_alike, is_laid_out, is_certain, is_swapped, has_a_history, takes_values_in]


@pytest.mark.parametrize("function", CERTAIN)
def test_what_is_the_same_for_all_data_is_answered(function: Callable[..., Any]) -> None:
    module = tintype.export(function, (SQUARE.clone().requires_grad_(),)).module()
    for value in VALUES:
        assert same(outcome(function, (value,)), outcome(module, (value,)))


def test_an_input_that_takes_values_in_is_as_conjugated_as_before() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        part = x.real

        def written(part: torch.Tensor) -> torch.Tensor:
            part[0].zero_()
            return part.clone()

        tintype.cond(y.sum() > 0, written, torch.clone, (part,))
        return part

    given = (torch.complex(SQUARE, SQUARE), SQUARE)
    once = tintype.export(function, given).module()
    again = tintype.export(once, given).module()
    for value in VALUES:
        expected = (torch.complex(value, value), value)
        found = (torch.complex(value, value), value)
        assert same(function(*expected), again(*found))
        assert same(expected[0], found[0])


def test_what_an_arm_can_t_capture_is_refused_where_it_is_captured() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * x.data_ptr()
        return x

    with pytest.raises(tintype.CaptureError, match="data pointer"):
        tintype.export(function, (SQUARE,))
