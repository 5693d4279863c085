"""Inputs that a program writes to, as they come when it runs: leaves, with another offset, of any dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.export.modes import assert_same
from tests.export.test_observations import runnable
from tintype.errors import MutationError

HOW = ("module", "decomposed", "saved", "unflattened", "training", "retraced")


def without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x.clamp_(-1, 1)
    return x * 2


def a_part(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x.reshape(-1)[:1] = 4
    return x * x


def detached(x: torch.Tensor) -> torch.Tensor:
    x.detach().add_(1)
    return x * 2


def data(x: torch.Tensor) -> torch.Tensor:
    x.data.mul_(3)
    return x.sin()


def memory_without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x.as_strided((2,), (1,)).mul_(3)
    return x * x


def one_of_many(x: torch.Tensor) -> torch.Tensor:
    x.expand(3, 3)[2:].detach().add_(1)
    return x * x


def bits(x: torch.Tensor) -> torch.Tensor:
    x.view(torch.int32).bitwise_xor_(-(2**31))
    return x * x.detach().signbit()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "model", [without_gradients, a_part, detached, data, memory_without_gradients, bits, one_of_many]
)
def test_a_leaf_that_the_example_was_not(model: Callable[..., Any], how: str) -> None:
    module = runnable(how, model, (torch.ones(3),))
    outcomes = []
    for function in (model, module):
        x = torch.tensor([-2.0, 0.0, 3.0]).requires_grad_()
        result = function(x)
        outcomes.append([result.detach(), x.detach(), *torch.autograd.grad(result.sum(), x)])
    torch.testing.assert_close(outcomes[1], outcomes[0])


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64])
@pytest.mark.parametrize("parts_first", [False, True])
def test_memory_of_an_input_that_begins_elsewhere(dtype: torch.dtype, how: str, parts_first: bool) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        if parts_first:
            x[::2] *= 2
            x[1] += 1
        x.as_strided((2,), (2,)).add_(1)
        return x.as_strided((2,), (1,)) * 2

    module = runnable(how, model, (torch.ones(3, dtype=dtype),))
    for make in (lambda: torch.arange(3).to(dtype), lambda: torch.arange(5).to(dtype)[2:]):
        given, wanted = make(), make()
        assert_same(module(given), model(wanted))
        assert_same(given, wanted)


def test_integers_that_get_values_with_a_history() -> None:
    weight = torch.nn.Parameter(torch.tensor(2.5))

    def model(x: torch.Tensor) -> torch.Tensor:
        x.copy_(weight)
        with torch.no_grad():
            x.squeeze().add_(1)
        return x * 2

    module = tintype.export(model, (torch.zeros(3, 1, dtype=torch.int64),)).module()
    given, wanted = (torch.zeros(3, 1, dtype=torch.int64) for _ in range(2))
    assert_same(module(given), model(wanted))
    assert_same(given, wanted)


def test_the_memory_of_what_a_loop_returns_is_looked_at() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        rows = tintype.map(lambda row: row * 2, x)
        rows.as_strided((1,), (1,)).add_(1)
        return rows

    with pytest.raises(MutationError, match="depends on the layout of its argument"):
        tintype.export(model, (torch.ones(3),))


def test_strided_views_of_a_written_input_that_begins_elsewhere() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.sin_()
        return x.as_strided((2,), (2,))

    module = tintype.export(function, (torch.randn(3),)).module()
    memories = [torch.arange(8.0) for _ in range(2)]
    results = [run(memory[4:7]) for run, memory in zip((function, module), memories, strict=True)]
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(memories[1], memories[0])
    results[1].zero_()
    assert not memories[1][4], "the result is a view of the input"


def test_what_contiguous_returned_is_only_read_by_the_caller() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.contiguous()
        x.mul_(2)
        return y

    x = torch.randn(3)
    module = tintype.export(function, (x.clone(),)).module()
    torch.testing.assert_close(module(x.clone()), x * 2)
    with pytest.raises(tintype.TintypeError, match="strides"):
        module(torch.randn(6)[::2])


def test_a_view_that_later_decisions_make_certain_is_written_to() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        part = x.chunk(2, 2)[-1]
        part.flatten(0, 1).add_(1)
        return part.clamp(min=y)

    module = tintype.export(function, (torch.randn(3, 3, 3), torch.randn(4)), dynamic_shapes="auto").module()
    for sizes in ((3, 3, 3), (2, 5, 3), (3, 3, 2), (1, 1, 3), (0, 3, 3)):
        x, y = torch.randn(sizes), torch.randn(4)
        written = x.clone()
        assert torch.equal(module(x, y), function(written, y)) and torch.equal(x, written)
    with pytest.raises(tintype.TintypeError, match="strides"):
        module(torch.randn(3, 3, 3).permute(2, 1, 0), torch.randn(4))


@pytest.mark.parametrize("how", HOW)
def test_a_buffer_that_got_a_history_is_written_to_without(how: str) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            self.total.detach().mul_(2)
            return self.total * x

    outcomes = []
    for function in (Model(), runnable(how, Model(), (torch.ones(3),))):
        x = torch.tensor([-2.0, 0.5, 3.0]).requires_grad_()
        result = function(x)
        outcomes.append([result.detach(), *torch.autograd.grad(result.sum(), x)])
    torch.testing.assert_close(outcomes[1], outcomes[0])


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("reduce", [torch.sum, torch.prod, torch.cumsum, torch.cumprod])
def test_sums_into_integers_are_sums_of_integers(reduce: Callable[..., Any], how: str) -> None:
    def model(x: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        reduce(x, 0, out=result)
        return result * 2

    x = torch.tensor([[1.6, -0.7], [2.6, -0.7]])
    wanted = torch.zeros_like(reduce(x, 0), dtype=torch.int64)
    module = runnable(how, model, (x, wanted.clone()))
    given = wanted.clone()
    assert_same(module(x, given), model(x, wanted))
    assert_same(given, wanted)


def test_memory_of_what_a_branch_wrote_to() -> None:
    def writes(x: torch.Tensor) -> torch.Tensor:
        x[-1] = 0
        return x * 2

    def model(x: torch.Tensor) -> torch.Tensor:
        chosen = tintype.cond(x.mean() < 9, writes, lambda x: x * 3, (x,))
        x.as_strided((1,), (1,)).add_(1)
        return chosen

    module = tintype.export(model, (torch.ones(3),)).module()
    given, wanted = torch.arange(5.0), torch.arange(5.0)
    assert_same(module(given[2:]), model(wanted[2:]))
    assert_same(given, wanted)


def test_bits_that_are_no_number() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        x.view(torch.int32).mul_(2)
        return x * 1

    module = tintype.export(model, (torch.ones(2),)).module()
    bits = torch.tensor([0x3FD00001, 0x3F800000], dtype=torch.int32)  # doubled, the first one is a signalling NaN
    given, wanted = bits.clone().view(torch.float32), bits.clone().view(torch.float32)
    module(given)
    model(wanted)
    assert torch.equal(given.view(torch.int32), wanted.view(torch.int32))


@pytest.mark.parametrize("looks_inside", [False, True])
def test_bits_that_are_no_number_and_a_branch_writes_to(looks_inside: bool) -> None:
    """The branch has its new value computed behind autograd's back, and somebody else looks at the bits."""

    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def writes(x: torch.Tensor) -> torch.Tensor:
            x.diagonal().add_(1)
            return x.clone()

        def looks(x: torch.Tensor) -> torch.Tensor:
            return tintype.cond(x.view(torch.int32).sum() > 0, writes, writes, (x,))

        with torch.no_grad():
            chosen = tintype.cond(y > 0, looks if looks_inside else writes, lambda x: x.clone(), (x,))
        x.view(torch.int32).mul_(2)
        return chosen

    module = tintype.export(model, (torch.ones(2, 2), torch.ones(()))).module()
    bits = torch.tensor([[0x3F800000, 0x7FA00001], [0x7F900001, 0x3F800000]], dtype=torch.int32)  # signalling ones
    given, wanted = bits.clone().view(torch.float32), bits.clone().view(torch.float32)
    module(given, torch.ones(()))
    model(wanted, torch.ones(()))
    assert torch.equal(given.view(torch.int32), wanted.view(torch.int32))


def test_the_gradient_of_bits_that_are_no_number() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        x.view(torch.int32).data.mul_(2)
        return x.nan_to_num() + x

    module = tintype.export(model, (torch.ones(2),)).module()
    bits = torch.tensor([0x3FE00001, 0x3F800000], dtype=torch.int32)  # doubled, the first one is a quiet NaN
    found = []
    for function in (model, module):
        leaf = bits.clone().view(torch.float32).requires_grad_()
        found.append(torch.autograd.grad(function(leaf * 1).sum(), leaf)[0])
    assert_same(*found)
    assert found[0][0] == 1


def test_a_program_that_is_captured_again_with_a_leaf() -> None:
    """Whose write eager mode refuses; in other calls the write has its gradient."""

    def model(x: torch.Tensor) -> torch.Tensor:
        x.mul_(3)
        return x

    program = tintype.export(model, (torch.ones(2),))
    again = tintype.export(program.module(), (torch.ones(2, requires_grad=True),))
    leaf = torch.ones(2, requires_grad=True)
    (gradient,) = torch.autograd.grad(again.module()(leaf * 1).sum(), leaf)
    assert_same(gradient, torch.full((2,), 3.0))


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (3, 3, 3)])
@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
def test_a_diagonal_of_what_begins_inside_of_a_memory(shape: tuple[int, ...], export: Any) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        x.fill_diagonal_(-1, wrap=True)
        return x * 1

    module = export(model, (torch.ones(shape),)).module()
    given, wanted = torch.arange(30.0), torch.arange(30.0)
    end = 2 + math.prod(shape)
    assert_same(module(given[2:end].view(shape)), model(wanted[2:end].view(shape)))
    assert_same(given, wanted)
