"""Branches on data that do nothing but raise: the captured program asserts what the model needs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.export.modes import capture
from tests.export.raising_programs import (
    asserts,
    catches,
    goes_on,
    is_caught_outside,
    raises_elsewhere,
    raises_in_torch,
    raises_on_a_number,
    raises_on_a_tensor,
    raises_sometimes,
    raises_unless,
)

PROGRAMS = [
    raises_on_a_tensor,
    raises_unless,
    asserts,
    raises_on_a_number,
    raises_elsewhere,
    raises_in_torch,
]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_the_program_asserts_what_the_model_needs(mode: str, function: Callable[..., Any]) -> None:
    module = capture(mode, function, (torch.ones(3),)).module()
    for value in (torch.ones(3), torch.arange(3.0)):
        torch.testing.assert_close(module(value), function(value))
    with pytest.raises((ValueError, AssertionError)):
        function(torch.full((3,), -2.0))
    with pytest.raises(RuntimeError, match="raises on this data"):
        module(torch.full((3,), -2.0))


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_compiled_functions_too(function: Callable[..., Any]) -> None:
    compiled = tintype.aot.function(function)
    torch.testing.assert_close(compiled(torch.ones(3)), function(torch.ones(3)))
    with pytest.raises(RuntimeError, match="raises on this data"):
        compiled(torch.full((3,), -2.0))


def test_the_message_names_the_line() -> None:
    module = tintype.export(asserts, (torch.ones(3),)).module()
    with pytest.raises(RuntimeError, match=r"raising_programs.py:\d+ in asserts: assert \(value >= 0\)"):
        module(-torch.ones(3))


@pytest.mark.parametrize("function", [catches, is_caught_outside, goes_on, raises_sometimes])
def test_a_branch_that_the_program_survives_is_still_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(tintype.errors.DataDependentError):
        tintype.export(function, (torch.ones(3),), control_flow="refuse")


def test_sizes_are_guarded_as_before() -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        if value.shape[0] > 8:
            raise ValueError("too long")
        return value * 2

    module = tintype.export(function, (torch.ones(3),), dynamic_shapes="auto").module()
    assert torch.equal(module(torch.ones(8)), torch.full((8,), 2.0))
    with contextlib.suppress(ValueError), pytest.raises(RuntimeError):
        module(torch.ones(9))
