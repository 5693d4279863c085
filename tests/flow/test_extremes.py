"""``min`` and ``max`` of numbers of which only a run can tell which is the smallest."""

from __future__ import annotations

import builtins
import io
import math
import warnings
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
        tintype.export(lambda x: x * min(x.max().item(), 3), (EXAMPLES[0],), control_flow="refuse")
    assert "3.0 for 3" in str(raised.value.remedy) and "min(x.max().item(), 3)" in str(raised.value)


def test_where_branches_are_not_captured_the_message_names_the_function_and_the_line() -> None:
    with pytest.raises(tintype.DataDependentError) as raised:
        tintype.export(loop, (EXAMPLES[0],), control_flow="refuse")
    assert "in loop: for _ in range(min(steps, 3)):" in str(raised.value)
    assert "in loop: steps = int(x.abs().max())" in str(raised.value)
    assert f"{type(raised.value).__module__}.{type(raised.value).__qualname__}" == "tintype.errors.DataDependentError"


def test_where_no_call_of_the_function_is_seen_the_message_says_how_to_write_it() -> None:
    def smaller(x: Any) -> Any:
        return x * builtins.min(int(x.abs().max()), 3)

    with pytest.raises(tintype.DataDependentError) as raised:
        tintype.export(smaller, (EXAMPLES[0],), control_flow="refuse")
    assert "torch.sym_min(a, b)" in str(raised.value.remedy)


SIZES: dict[str, Callable[[Any], Any]] = {
    "a slice of at most so many": lambda x: x[: min(x.shape[0], 4)] * min(x.shape[0], 4),
    "a divisor that is not zero": lambda x: (x - x.sum(0)) / max(len(x) - 1, 1),
    "of three": lambda x: x.new_zeros(max(1, x.shape[0] - 3, 2 - x.shape[0])),
    "of the shape": lambda x: x.sum() * max(x.shape) + min(x.shape),
    "of a list": lambda x: x.sum() * max([x.shape[0], x.shape[1], 3]),
    "of a generator": lambda x: x.sum() * max(len(part) for part in (x, x[:-2], x.T)),
    "of each other": lambda x: x * min(max(x.shape[0], 2), 5),
    "floats": lambda x: x * max(x.shape[0] / 4, 1.0),
    "largest scores": lambda x: x[:, 0].topk(min(5, x.shape[0])).values,
    "padding": lambda x: torch.nn.functional.pad(x, (0, 0, 0, max(0, 6 - x.shape[0]))),
    "as many windows as fit": lambda x: x.unfold(0, min(3, x.shape[0]), 1) * 2,
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("options", [{}, {"strict": True}, {"control_flow": "refuse"}], ids=str)
@pytest.mark.parametrize("example", [2, 6])
def test_of_sizes_they_fix_none(name: str, options: Any, example: int) -> None:
    function = SIZES[name]
    shapes: Any = {"x": {0: tintype.Dim("rows", min=1)}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = tintype.export(function, (torch.randn(example, 3),), dynamic_shapes=shapes, **options)
    general = tintype.export(function, (torch.randn(example, 3),), dynamic_shapes="auto", **options)
    file = io.BytesIO()
    tintype.save(program, file)
    for known in (program, tintype.load(file), program.run_decompositions(), general):
        for rows in (1, 2, 3, 4, 5, 6, 9):
            x = torch.randn(rows, 3)
            assert torch.allclose(known.module()(x), function(x))


def test_what_is_known_of_sizes_decides() -> None:
    rows = tintype.Dim("rows", max=8)
    program = tintype.export(lambda x: x[: min(x.shape[0], 8)], (torch.ones(5),), dynamic_shapes={"x": {0: rows}})
    assert "sym_min" not in program.code


def test_python_decides_between_numbers_of_two_types() -> None:
    program = tintype.export(lambda x: x * max(x.shape[0] / 4, 1), (torch.ones(9),), dynamic_shapes="auto")
    assert torch.equal(program.module()(torch.ones(10)), torch.full((10,), 2.5))
    with pytest.raises(tintype.TintypeError):
        program.module()(torch.ones(3))


def test_a_number_as_an_index_is_told_to_choose_among_tensors() -> None:
    with pytest.raises(tintype.DataDependentError) as raised:
        tintype.export(lambda x: x * [1, 2, 3][int(x.max())], (EXAMPLES[0],))
    assert "torch.tensor(values)[n]" in str(raised.value.remedy) and "(from this line)" in raised.value.fact
