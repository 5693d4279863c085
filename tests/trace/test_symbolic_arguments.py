"""Flags and numbers of torch's functions that depend on sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype
from tests.trace.symbolic_arguments import calls, failure, key_of


def attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[1] > 1)


def made_elsewhere(x: torch.Tensor) -> torch.Tensor:
    return _attend(x, causal=x.shape[1] > 1)


def _attend(x: torch.Tensor, causal: Any) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x, is_causal=causal)


@pytest.mark.parametrize("program", [attention, made_elsewhere])
@pytest.mark.parametrize("length", [1, 4])
def test_a_flag_is_a_decision_with_its_line(program: Any, length: int) -> None:
    exported = tintype.export(program, (torch.randn(2, length, 8),), dynamic_shapes={"x": {0: "auto", 1: "auto"}})
    module = exported.module()
    batch, *decided = str(exported.contract()).splitlines()
    assert batch == "x.shape[0] >= 0"
    assert ">= 2" in decided[0] if length > 1 else "<= 1" in decided[0]
    assert "x.shape[1] > 1" in decided[0]  # the line
    for size in (1, 4, 7):
        x = torch.randn(3, size, 8)
        if (size > 1) == (length > 1):
            torch.testing.assert_close(module(x), program(x))
        else:
            with pytest.raises(tintype.errors.InputMismatchError):
                module(x)


def test_a_flag_that_is_known_decides_nothing() -> None:
    exported = tintype.export(attention, (torch.randn(2, 4, 8),), dynamic_shapes={"x": {1: tintype.Dim("n", min=2)}})
    assert exported.module()(torch.randn(2, 3, 8)).shape == (2, 3, 8)


def test_comparisons_elsewhere_stay_symbolic() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return attention(x), torch.sym_ite(y.shape[0] > 3, y.shape[0], 3)

    exported = tintype.export(program, (torch.randn(2, 4, 8), torch.ones(5)), dynamic_shapes="auto")
    assert exported.module()(torch.randn(2, 4, 8), torch.ones(2))[1] == 3


def test_a_flag_where_a_list_may_stand() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.var(x.shape[0] > 2)  # type: ignore[call-overload]

    x = torch.randn(3, 4)
    torch.testing.assert_close(tintype.export(program, (x,), dynamic_shapes="auto").module()(x), program(x))


def test_a_flag_that_only_a_run_can_tell_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sum(0, keepdim=bool_of(x))

    def bool_of(x: torch.Tensor) -> Any:
        return x[0].item() > 0

    with pytest.raises(tintype.CaptureError):
        tintype.export(program, (torch.ones(3),), dynamic_shapes="auto")


def test_a_division_by_a_size_as_a_number_of_an_operator() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, scale=1 / x.shape[0])

    x = torch.randn(3, 4, 8)
    module = tintype.export(program, (x,), dynamic_shapes="auto").module()
    torch.testing.assert_close(module(x), program(x))


OFTEN = 24  # one of so many functions; `python -m tests.trace.symbolic_arguments` goes through all


def test_numbers_and_flags_of_torchs_functions() -> None:
    seen: set[Any] = set()
    for name, function, leaves, spec, numbers in calls(1, OFTEN):
        for position in numbers:
            key = key_of(name, leaves, spec, position)
            if key in seen:
                continue
            seen.add(key)
            assert failure(function, leaves, spec, position) is None, key
    assert seen, "no number was replaced"
