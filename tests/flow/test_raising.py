"""What a program raises where the data say so, and who catches it; nobody catches what tintype raises."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.flow.raising_programs import ALL, RAISING, REFUSALS_CAUGHT, REFUSED, RIGHT

VALUES = [torch.full((3,), value) for value in (1.0, -1.0, 0.3, 0.0, 9.0, -9.0, 50.0, -50.0, 2.5)]
by_name = pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])


def named(programs: list[Any]) -> Any:
    return pytest.mark.parametrize("function", programs, ids=lambda function: function.__name__)


def program_of(function: Callable[..., Any], example: torch.Tensor, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tintype.export(function, (example,), **options).module()


@by_name
@named(RIGHT)
def test_what_is_caught_is_captured(function: Callable[..., Any], strict: bool) -> None:
    for example in VALUES[:2]:
        module = program_of(function, example, strict=strict)
        for value in VALUES:
            torch.testing.assert_close(module(value), function(value), rtol=0, atol=0)


@named(RAISING)
def test_what_nobody_catches_is_asserted(function: Callable[..., Any]) -> None:
    module = program_of(function, VALUES[2])
    raised = 0
    for value in VALUES:
        try:
            expected = function(value)
        except Exception:
            raised += 1
            with pytest.raises(RuntimeError, match="the program raises on this data"):
                module(value)
        else:
            torch.testing.assert_close(module(value), expected, rtol=0, atol=0)
    assert raised


@by_name
@named(REFUSED)
def test_what_others_catch_is_refused(function: Callable[..., Any], strict: bool) -> None:
    for example in VALUES[:2]:
        with pytest.raises(tintype.TintypeError) as caught:
            program_of(function, example, strict=strict)
        assert "raising_programs.py" in str(caught.value)


@by_name
@named(ALL)
def test_nobody_catches_that_the_data_decide(function: Callable[..., Any], strict: bool) -> None:
    try:
        module = program_of(function, VALUES[0], strict=strict)
    except tintype.TintypeError as error:
        assert function.__name__ == "all_by_generator", error
        return
    for value in VALUES:
        torch.testing.assert_close(module(value), function(value), rtol=0, atol=0)


@by_name
@named(ALL)
def test_nor_that_it_is_refused(function: Callable[..., Any], strict: bool) -> None:
    with pytest.raises(tintype.errors.DataDependentError, match="branches on the value of a tensor"):
        program_of(function, VALUES[0], strict=strict, control_flow="refuse")


@by_name
@named(REFUSALS_CAUGHT)
def test_refusals_are_not_caught(function: Callable[..., Any], strict: bool) -> None:
    with pytest.raises(tintype.TintypeError, match=r"raising_programs\.py"):
        program_of(function, VALUES[0], strict=strict)


def test_a_loop_over_a_size_that_is_not_recorded_first() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        total = x[0] * 0
        try:
            for row in x:
                if row.sum() > 4:
                    raise ValueError
                total = total + row
        except ValueError:
            total = total - 1
        return total

    module = program_of(function, torch.ones(3, 2), dynamic_shapes={"x": {0: tintype.Dim("n", min=1)}})
    for value in (torch.ones(3, 2), -torch.ones(5, 2), torch.tensor([[1.0, 1.0], [3.0, 3.0], [1.0, 1.0]])):
        assert torch.equal(module(value), function(value))
