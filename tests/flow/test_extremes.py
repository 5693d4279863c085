"""``min`` and ``max`` of numbers of which only a run can tell which is the smallest."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype


def loop(x: Any) -> Any:
    steps = int(x.abs().max())
    for _ in range(min(steps, 3)):
        x = x * 2
    return x


def clamped_size(x: Any) -> Any:
    return torch.zeros(max(1, min(int(x.max()), 5)))


def largest_of_a_list(x: Any) -> Any:
    return torch.zeros(max(x.long().abs().tolist()))


def beside_a_size(x: Any) -> Any:
    return x * min(x.shape[0], int(x.max()), 7)


def safe_quotient(x: Any) -> Any:
    return x / max(x.abs().max().item(), 1e-6)


def inside_of_an_arm(x: Any) -> Any:
    if x.sum() > 0:
        return x * max((int(x.max()), 2))
    return x


EXAMPLES = [torch.tensor(values) for values in ([2.5, 1.0], [0.0, 0.0], [1.0, -9.5], [7.0, 5.0])]


@pytest.mark.parametrize(
    "function", [loop, clamped_size, largest_of_a_list, beside_a_size, safe_quotient, inside_of_an_arm]
)
def test_programs_choose_as_python_does(function: Callable[[Any], Any]) -> None:
    program = tintype.export(function, (EXAMPLES[0],))
    file = io.BytesIO()
    tintype.save(program, file)
    for known in (program, tintype.load(file), program.run_decompositions()):
        for x in EXAMPLES:
            assert torch.equal(known.module()(x), function(x))


def smaller(x: Any) -> Any:
    return torch.full((2,), min(x[0].item(), x[1].item()))


def larger_than_zero(x: Any) -> Any:
    return torch.full((2,), max(0.0, x[0].item()))


@pytest.mark.parametrize("function", [smaller, larger_than_zero])
def test_floats_that_are_equal_or_no_numbers_are_chosen_by_their_order(function: Callable[[Any], Any]) -> None:
    module = tintype.export(function, (EXAMPLES[0],)).module()
    for values in ([math.nan, 1.0], [1.0, math.nan], [0.0, -0.0], [-0.0, 0.0], [-math.inf, 3.0]):
        x = torch.tensor(values)
        expected, got = function(x), module(x)
        assert torch.equal(expected.isnan(), got.isnan())
        assert torch.equal(expected.nan_to_num(0), got.nan_to_num(0))
        assert expected.isnan().all() or torch.equal(expected.signbit(), got.signbit())


def test_the_type_of_the_result_is_never_guessed() -> None:
    with pytest.raises(tintype.DataDependentError, match=r"^min\(\) is given numbers of different types") as raised:
        tintype.export(lambda x: x * min(x.max().item(), 3), (EXAMPLES[0],))
    assert "3.0 for 3" in str(raised.value.remedy) and "min(x.max().item(), 3)" in str(raised.value)


def test_where_branches_are_not_captured_the_message_names_the_function_and_the_line() -> None:
    with pytest.raises(tintype.DataDependentError) as raised:
        tintype.export(loop, (EXAMPLES[0],), control_flow="refuse")
    assert "torch.sym_min(a, b)" in str(raised.value.remedy)
    assert "in loop: for _ in range(min(steps, 3)):" in str(raised.value)
    assert "in loop: steps = int(x.abs().max())" in str(raised.value)
    assert f"{type(raised.value).__module__}.{type(raised.value).__qualname__}" == "tintype.errors.DataDependentError"


def test_a_number_as_an_index_is_told_to_choose_among_tensors() -> None:
    with pytest.raises(tintype.DataDependentError) as raised:
        tintype.export(lambda x: x * [1, 2, 3][int(x.max())], (EXAMPLES[0],))
    assert "torch.tensor(values)[n]" in str(raised.value.remedy) and "(from this line)" in raised.value.fact
