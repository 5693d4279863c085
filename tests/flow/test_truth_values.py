"""Truth values that the data decide, compared and searched for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype

EXAMPLES = [torch.tensor(values) for values in ([1.0, 2.0], [-1.0, -2.0], [5.0, 10.0], [-20.0, 8.0])]


def different(x: Any) -> Any:
    return x if bool(x.sum() > 0) != bool(x.max() > 5) else -x


def same(x: Any) -> Any:
    return x if bool(x.sum() > 0) == bool(x.max() > 5) else -x


def compared_with_what_is_known(x: Any) -> Any:
    found = bool(x.sum() > 0)
    if found == True:  # noqa: E712
        x = x + 1
    if found != 1.0:
        x = x * 3
    return x * 2 if found == 2 or found == None else -x  # noqa: E711


@pytest.mark.parametrize("function", [different, same, compared_with_what_is_known])
def test_truth_values_are_compared(function: Callable[[Any], Any]) -> None:
    program = tintype.export(function, (EXAMPLES[0],))
    for known in (program, program.run_decompositions()):
        for x in EXAMPLES:
            assert torch.equal(known.module()(x), function(x))


def test_numbers_that_the_data_decide_fill_tensors_in_decomposed_programs() -> None:
    def filled(x: Any) -> Any:
        return x.new_full((2,), x.sum().item() * 0.5) + x.new_full((2,), x.max().item() * 0.5)

    module = tintype.export(filled, (EXAMPLES[0],)).run_decompositions().module()
    for x in EXAMPLES:
        assert torch.equal(module(x), filled(x))


ROWS = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]])


def any_of_a_list(x: Any) -> Any:
    return x * 2 if any([r.sum() > 3 for r in x]) else x  # noqa: C419


def any_of_a_generator(x: Any) -> Any:
    return x * 2 if any(r.sum().item() > 3 for r in x) else x


def none_of_a_generator(x: Any) -> Any:
    return x * 2 if not any(r.sum() > 3 for r in x) and x.max() < 9 else x


def all_of_a_tuple(x: Any) -> Any:
    return x * 2 if all((x.sum() > 0, True, x.max() > 1, int(x.max()))) else x


def known_from_what_is_plain(x: Any) -> Any:
    return x * 2 if any([x.sum() > 0, 1, x > 0]) and not all([x.sum() > 0, None]) and all([]) else x


def as_a_number(x: Any) -> Any:
    found = any([x[0].sum() > 3, x[1].sum() > 3])
    return x * found + all(r.max() > 1 for r in x)


def within_each_other(x: Any) -> Any:
    return x * 2 if any(all(n > 1 for n in r) for r in x) else x


def inside_of_an_arm(x: Any) -> Any:
    if x.sum() > 5:
        return x * 3 if any(r.sum() > 3 for r in x) else x
    return -x if all([x.max() < 2, x.min() < 0]) else x


def largest_of_a_generator(x: Any) -> Any:
    return x * max(float(r.sum()) for r in x)


@pytest.mark.parametrize(
    "function",
    [
        any_of_a_list, any_of_a_generator, none_of_a_generator, all_of_a_tuple, known_from_what_is_plain,
        as_a_number, within_each_other, inside_of_an_arm, largest_of_a_generator,
    ],
)  # fmt: skip
def test_several_of_them_are_asked_at_once(function: Callable[[Any], Any]) -> None:
    module = tintype.export(function, (ROWS,)).module()
    for x in (ROWS, -ROWS, ROWS * 5, ROWS - 1, ROWS * 0.1):
        assert torch.equal(module(x), function(x))


def test_random_numbers_behind_the_first_that_is_true_are_not_drawn() -> None:
    def drawn(x: Any) -> Any:
        found = any(torch.rand(()) < n for n in x)
        return torch.rand(2) if found else torch.rand(2) + 1

    x = torch.tensor([0.5, 0.5, 0.5])
    module = tintype.export(drawn, (x,)).module()
    for seed in range(8):
        torch.manual_seed(seed)
        expected = drawn(x)
        torch.manual_seed(seed)
        assert torch.equal(module(x), expected)
