"""``sum`` of generator expressions and lists, ``min`` and ``max`` of tensors and of numbers of either kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tests.flow.test_programs import outcome, same

VECTORS = [
    torch.tensor(values)
    for values in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [5.0, -9.0, 1.0], [0.1, 0.1, 0.1], [0.0, -0.0, float("nan")])
]


def counts(x):
    return sum(1 for value in x if value > 0)


def adds_some(x):
    return sum(value for value in x if value > 0) + torch.zeros(())


def adds_to_a_start(x):
    return sum((value * 2 for value in x if value > 0), torch.zeros(()))


def adds_many(x):
    return sum(value for k in range(10) for value in x if value > k) + torch.zeros(())


def adds_products(x):
    return sum(a * b for a in x for b in x if a > b) + torch.zeros(())


def adds_sums(x):
    return sum(sum(value for value in x if value > k) + torch.zeros(()) for k in range(3))


def adds_in_arms(x):
    if x.sum() > 0:
        return sum(value for value in x if value > 1) + torch.zeros(())
    return sum((value for value in x), torch.zeros(()))


def adds_what_a_variable_holds(x):
    limit = 0.5
    values = (value * limit for value in x if value > limit)
    return sum(values) + torch.zeros(())


def adds_what_is_left(x):
    values = (value for value in x)
    next(values)
    return sum(values) + sum(values)


def clamps_a_number(x):
    return x * max(0, min(1, x.mean().item()))


def clamps_in_a_helper(x):
    def positive(value):
        return max(0, value.sum().item())

    return x + positive(x)


def has_the_larger_of_two(x):
    return x * max(x[0], x[1]), x * max(x.sum(), 0)


def has_the_smallest(x):
    return min(x[0], x[1], x[2]), max(list(x)), max(value * 2 for value in x)


PROGRAMS = [
    counts, adds_some, adds_to_a_start, adds_many, adds_products, adds_sums, adds_in_arms,
    adds_what_a_variable_holds, adds_what_is_left, clamps_a_number, clamps_in_a_helper, has_the_larger_of_two,
    has_the_smallest,
]  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_programs_add_and_choose_as_python_does(function: Any, strict: bool) -> None:
    module = tintype.export(function, (VECTORS[0],), strict=strict).module()
    for given in VECTORS:
        assert same(outcome(function, [given]), outcome(module, [given])), given


def adds_rows(x):
    return sum((row * 2 for row in x), torch.zeros(3))


def adds_rows_of_some_kind(x):
    return sum((row * 2 for row in x if row.sum() > 0), torch.zeros(3))


def adds_a_list_of_rows(x):
    return sum([row * 2 for row in x], torch.zeros(3))


def counts_rows(x):
    return sum(1 for row in x if row.sum() > 0)


def adds_numbers_up_to_a_size(x):
    return sum(i * i for i in range(x.shape[0])), sum(list(range(len(x))))


@pytest.mark.parametrize(
    "function",
    [adds_rows, adds_rows_of_some_kind, adds_a_list_of_rows, counts_rows, adds_numbers_up_to_a_size],
    ids=lambda function: function.__name__,
)
def test_sums_over_as_many_rows_as_there_are(function: Any) -> None:
    x = torch.randn(4, 3)
    module = tintype.export(function, (x,), dynamic_shapes={"x": {0: tintype.Dim("rows")}}).module()
    for given in (x, x[:0], x[:1], torch.randn(7, 3)):
        assert same(outcome(function, [given]), outcome(module, [given])), given


def returns_the_larger(x):
    return max(0, x.sum().item())


def test_a_number_of_either_kind_that_leaves_the_program_is_refused() -> None:
    with pytest.raises(tintype.CaptureError, match=r"'largest' is something else in each arm[^$]*\n  int|float"):
        tintype.export(returns_the_larger, (VECTORS[0],))


def _held_by_a_variable(x):
    numbers = (number for number in (1, 2, 3))
    if x.sum() > 0:
        x = x + 1
    return x + sum(numbers) + len(list(numbers))


def _held_by_a_list(x):
    held = [(number for number in (1, 2, 3))]
    if x.sum() > 0:
        x = x + 1
    return x + sum(held[0], 2) + len(list(held[0]))


@pytest.mark.parametrize("function", [_held_by_a_variable, _held_by_a_list], ids=lambda function: function.__name__)
def test_a_generator_that_somebody_else_has_is_gone_through(function):
    module = tintype.export(function, (torch.ones(3),)).module()
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(module(x), function(x))
