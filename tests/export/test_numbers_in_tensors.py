"""Numbers that tensors without dimensions hold, used as Python uses numbers: in indices, in lists, with int()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tintype
from tests.export.modes import capture


def _assigned(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    table = table.clone()
    table[i] = 5
    table[:, i] += 1
    return table


def _written_through(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    table = table.clone()
    row = table[i]
    row += 1
    return table


def _followed(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    position, found = i, []
    for row in table.argsort(dim=1):
        position = row[position]
        found.append(position)
    return torch.stack(found)


INDEXED: list[Callable[..., Any]] = [
    lambda table, i: table[i],
    lambda table, i: table[i, i],
    lambda table, i: table[..., i],
    lambda table, i: table[:, i],
    lambda table, i: table[-i - 1],
    lambda table, i: table[table[:, 0].argmax()],
    lambda table, i: table[i:],
    lambda table, i: table[: i + 1, 1:],
    lambda table, i: table[i][i],
    lambda table, i: table * int(i),
    lambda table, i: torch.zeros(int(i) + 1),
    _assigned,
    _written_through,
    _followed,
]


@pytest.mark.parametrize("function", INDEXED, ids=range(len(INDEXED)))
def test_a_number_in_a_tensor_is_an_index(mode: str, function: Callable[..., Any]) -> None:
    module = capture(mode, function, (torch.randn(3, 3), torch.tensor(1))).module()
    for position in (0, 1, 2):
        args = (torch.randn(3, 3), torch.tensor(position))
        assert torch.equal(module(*args), function(*args))


@pytest.mark.parametrize("function", INDEXED[:6])
def test_its_gradient(function: Callable[..., Any]) -> None:
    args = (torch.randn(3, 3), torch.tensor(1))
    table = torch.randn(3, 3, requires_grad=True)
    expected = torch.autograd.grad(function(table, args[1]).sum(), table)[0]
    for run in (tintype.export(function, args).module(), tintype.aot.function(function)):
        assert torch.equal(torch.autograd.grad(run(table, args[1]).sum(), table)[0], expected)


def test_an_index_out_of_range_is_refused_when_the_program_runs() -> None:
    module = tintype.export(INDEXED[0], (torch.randn(3, 3), torch.tensor(1))).module()
    with pytest.raises(RuntimeError):
        module(torch.randn(3, 3), torch.tensor(3))


LISTS: list[Callable[..., Any]] = [
    lambda x: torch.tensor([x[0], x[1]]) * 2,
    lambda x: torch.tensor([x.sum(), 1.0]),
    lambda x: torch.tensor([[x[0], 2], [x.shape[0], True]]),
    lambda x: torch.tensor([x.shape[0], 2.5]),
    lambda x: torch.tensor([x.shape[0], x.shape[0] + 1]),
    lambda x: torch.tensor([x[0]], dtype=torch.float64),
    lambda x: torch.as_tensor([x[0], x[1]]),
]


@pytest.mark.parametrize("function", LISTS, ids=range(len(LISTS)))
def test_tensors_in_lists(function: Callable[..., Any]) -> None:
    x = torch.randn(3)
    for run in (tintype.export(function, (x,)).module(), tintype.aot.function(function)):
        torch.testing.assert_close(run(x), function(x))
    module = tintype.export(function, (x,), dynamic_shapes="auto").module()
    for size in (2, 3, 5):
        x = torch.randn(size)
        torch.testing.assert_close(module(x), function(x))


LENGTHS: list[Callable[..., Any]] = [
    lambda x: x * len(x),
    lambda x: x[: len(x) // 2],
    lambda x: x.view(len(x), -1),
    lambda x: torch.arange(len(x)),
    lambda x: x.new_zeros(len(x), len(x[0])),
]


@pytest.mark.parametrize("function", LENGTHS, ids=range(len(LENGTHS)))
def test_len_leaves_a_size_free(function: Callable[..., Any]) -> None:
    shapes = {"x": {0: tintype.Dim("n", min=1)}}
    program = tintype.export(function, (torch.randn(3, 2),), dynamic_shapes=shapes)
    for size in (1, 2, 5):
        x = torch.randn(size, 2)
        for each in (program, program.run_decompositions()):
            torch.testing.assert_close(each.module()(x), function(x))


ARRAYS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: torch.from_numpy(np.arange(x.shape[0])),
    lambda x: torch.tensor(np.arange(x.shape[0])),
    lambda x: torch.as_tensor(np.arange(x.shape[0]) * 2.5),
    lambda x: torch.from_numpy(np.outer(np.arange(x.shape[0]), np.ones(2))),
    lambda x: torch.from_numpy(np.arange(x.shape[0]) > 1),
]


@pytest.mark.parametrize("function", ARRAYS)
def test_arrays_of_numpys_fix_the_size_that_they_are_made_of(function: Callable[..., Any]) -> None:
    x = torch.ones(3)
    program = tintype.export(function, (x,), dynamic_shapes={"x": {0: tintype.Dim.AUTO}})
    made, wanted = program.module()(x), function(x)
    assert made.dtype == wanted.dtype and torch.equal(made, wanted)
    assert "x.shape[0] = 3" in str(program.contract())
    with pytest.raises(tintype.InputMismatchError):
        program.module()(torch.ones(4))
    with pytest.raises(tintype.ConstraintViolationError, match="test_numbers_in_tensors") as raised:
        tintype.export(function, (x,), dynamic_shapes={"x": {0: tintype.Dim("n")}})
    assert "n = 3" in str(raised.value)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.tensor(np.array([x.shape[0]]) * 2),
        lambda x: torch.tensor(np.array([x.shape[0], 1]) * 1.5),
        lambda x: torch.from_numpy(np.array([x.shape[0], 0.5])),
    ],
)
def test_arrays_of_numbers_that_vary(function: Callable[..., Any]) -> None:
    module = tintype.export(function, (torch.ones(3),), dynamic_shapes={"x": {0: tintype.Dim("n")}}).module()
    for size in (3, 0, 1, 5):
        made, wanted = module(torch.ones(size)), function(torch.ones(size))
        assert made.dtype == wanted.dtype and torch.equal(made, wanted)
