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


E_ = slice(None)
INDICES: list[tuple[Any, ...]] = [
    (E_, None), (None, E_, E_, None), (..., None), (None, ...), (..., slice(0, 2)), (E_, slice(1, None)),
    (E_, slice(-2, None), slice(None, -1)), (..., slice(0, (1 << 63) - 1), None), (E_, E_, E_), (...,), (),
    (slice(0, 1), ..., slice(0, 100)), (slice(None, None, 1), slice(0, None, 2)), (E_, slice(3, 1)),
    (0, ..., None), (slice(0, 10**30),), (slice(-(10**30), 2), E_), (E_, slice(5, 1 << 62)),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indices_are_the_same_operators_whether_sizes_vary_or_not(index: tuple[Any, ...]) -> None:
    function = lambda x: x[index] * 1  # noqa: E731
    fixed = tintype.export(function, (torch.ones(3, 4, 5),))
    varying = tintype.export(function, (torch.ones(3, 4, 5),), dynamic_shapes="auto")
    # a slice up to a number takes everything of some sizes only
    is_certain = all(type(entry) is not slice or entry.stop is None or entry.stop >= (1 << 63) - 1 for entry in index)
    if is_certain:
        operators = [[node.target for node in program.graph.nodes] for program in (fixed, varying)]
        assert operators[0][1:] == operators[1][1:]
    for sizes in ((3, 4, 5), (3, 5, 4), (7, 6, 101)):
        x = torch.arange(float(torch.Size(sizes).numel())).reshape(sizes)
        assert torch.equal(varying.module()(x), function(x))


@pytest.mark.parametrize("index", [(E_, E_, E_, E_), (E_, slice(0, 2, -1))], ids=str)
def test_indices_that_torch_refuses_are_refused(index: tuple[Any, ...]) -> None:
    def error_of(call: Any) -> tuple[type, str]:
        with pytest.raises((IndexError, ValueError, RuntimeError)) as caught:
            call()
        return caught.type, str(caught.value)

    function = lambda x: x[index]  # noqa: E731
    x = torch.ones(3, 4, 5)
    assert error_of(lambda: tintype.export(function, (x,), dynamic_shapes="auto")) == error_of(lambda: function(x))
