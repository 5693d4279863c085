"""Writes to views of sizes that vary: functionalization asks what is known, and does what is right in every case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.export.size_comparison import Outcome, outcomes
from tintype import Dim
from tintype.errors import MutationError

Write = Callable[[torch.Tensor], Any]


def _fill_rest(y: torch.Tensor) -> None:
    y[4:] = 0


def _add_to_rest(y: torch.Tensor) -> None:
    y[4:] += 1


def _last_two(y: torch.Tensor) -> None:
    y[-2:] = 0


def _middle(y: torch.Tensor) -> None:
    y[1:4] *= 2


def _every_second(y: torch.Tensor) -> None:
    y[::2] = 1


def _half(y: torch.Tensor) -> None:
    y[: y.shape[0] // 2] = 1


def _nested(y: torch.Tensor) -> None:
    y[1:][2:].mul_(2)


def _shifted(y: torch.Tensor) -> None:
    y[1:] = y[:-1].clone()


def _narrowed(y: torch.Tensor) -> None:
    y.narrow(0, 1, y.shape[0] - 1).mul_(3)


def _pieces(y: torch.Tensor) -> None:
    for piece in y.split(2):
        piece.mul_(2)


def _two_parts(y: torch.Tensor) -> None:
    first, second = y.split([2, y.shape[0] - 2])
    first.mul_(2)
    second.add_(first.sum())


def _chunks(y: torch.Tensor) -> None:
    first, second = y.chunk(2)
    first.mul_(2)
    second.add_(1)


def _sections(y: torch.Tensor) -> None:
    _, second, third = y.tensor_split(3)
    second.mul_(2)
    third.add_(1)


def _halves(y: torch.Tensor) -> None:
    y.split(y.shape[0] // 2)[0].mul_(2)


def _windows_apart(y: torch.Tensor) -> None:
    y.unfold(0, 2, 2).mul_(2)


def _windows_filled(y: torch.Tensor) -> None:
    y.unfold(0, 2, 1).fill_(2)


def _every_second_of_memory(y: torch.Tensor) -> None:
    y.as_strided((y.shape[0] // 2,), (2,)).mul_(2)


@pytest.mark.parametrize(
    "write",
    [
        _fill_rest,
        _add_to_rest,
        _last_two,
        _middle,
        _every_second,
        _half,
        _nested,
        _shifted,
        _narrowed,
        _pieces,
        _two_parts,
        _chunks,
        _sections,
        _halves,
        _windows_apart,
        _windows_filled,
        _every_second_of_memory,
    ],
)
@pytest.mark.parametrize("given", [False, True], ids=["copy", "input"])
def test_write_to_part_of_a_vector(write: Write, given: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x if given else x.clone()
        write(y)
        return y + 0

    found = outcomes(function, ["n"], examples=(0, 1, 2, 3, 5))
    assert Outcome.WRONG not in found
    assert Outcome.FOREIGN not in found
    assert found[Outcome.EQUAL] > 10


def _diagonal(y: torch.Tensor) -> None:
    y.diagonal().mul_(3)


def _other_diagonal(y: torch.Tensor) -> None:
    y.diagonal(-2).mul_(3)


def _columns(y: torch.Tensor) -> None:
    y.t()[1:] = 5


def _flat(y: torch.Tensor) -> None:
    y.view(-1)[2:] = 5


def _column(y: torch.Tensor) -> None:
    y.unbind(1)[1].mul_(2)


def _permuted(y: torch.Tensor) -> None:
    y.t()[:, 1:].add_(1)


@pytest.mark.parametrize("write", [_diagonal, _other_diagonal, _columns, _flat, _column, _permuted])
def test_write_to_part_of_a_matrix(write: Write) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        write(y)
        return y

    found = outcomes(function, ["n", 3], examples=(0, 1, 2, 3, 5))
    assert Outcome.WRONG not in found
    assert Outcome.FOREIGN not in found
    assert found[Outcome.EQUAL] > 10


def test_a_write_beyond_the_example_is_kept() -> None:
    """The example has nothing to write to; other sizes have."""

    def function(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[4:] = 0
        return x

    program = tintype.export(function, (torch.ones(3),), dynamic_shapes={"x": {0: Dim("n")}})
    for variant in (program, program.run_decompositions()):
        assert torch.equal(variant.module()(torch.ones(6)), torch.tensor([1.0, 1, 1, 1, 0, 0]))
    assert "<=" not in str(program.contract())


def test_filling_what_was_expanded_to_nothing() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.ones(1, 3)
        y.expand(x.shape[0], 3).fill_(2)
        row = torch.ones(3)
        row.expand(x.shape[0], 3).fill_(2)
        return torch.cat([y, row[None]])

    found = outcomes(function, ["n", 3], examples=(0, 1, 3))
    assert Outcome.WRONG not in found
    program = tintype.export(function, (torch.ones(2, 3),), dynamic_shapes={"x": {0: Dim("n")}})
    assert torch.equal(program.module()(torch.ones(0, 3)), torch.ones(2, 3))


def _windows(y: torch.Tensor) -> None:
    y.unfold(0, 2, 1).mul_(2)


def _expanded(y: torch.Tensor) -> None:
    y[:, None].expand(-1, y.shape[0]).mul_(2)


def _broadcast(y: torch.Tensor) -> None:
    torch.broadcast_to(y, (y.shape[0], y.shape[0])).add_(1)


def _strided(y: torch.Tensor) -> None:
    y.as_strided((y.shape[0] - 1, 2), (1, 1)).mul_(2)


@pytest.mark.parametrize("write", [_windows, _expanded, _broadcast, _strided])
def test_a_write_to_elements_that_share_memory_is_refused(write: Write) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        write(y)
        return y

    with pytest.raises(MutationError, match="share memory"):
        tintype.export(function, (torch.ones(4),), dynamic_shapes={"x": {0: Dim.AUTO}})
    assert Outcome.WRONG not in outcomes(function, ["n"], examples=(1, 2, 3))


def _shift(y: torch.Tensor) -> None:
    y[1:] = y[:-1]


def _shift_columns(y: torch.Tensor) -> None:
    y[:, 1:] += y[:, :-1]


def _first_row(y: torch.Tensor) -> None:
    y += y[0]


def _transposed(y: torch.Tensor) -> None:
    y[:3, :3] += y[:3, :3].t()


@pytest.mark.parametrize("write", [_shift, _shift_columns, _first_row, _transposed])
@pytest.mark.parametrize("varies", [False, True])
def test_elements_that_are_read_while_they_are_written_are_refused(write: Write, varies: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        write(y)
        return y

    shapes = {"x": {0: Dim.AUTO}} if varies else None
    with pytest.raises(MutationError, match="reads through another view"):
        tintype.export(function, (torch.ones(4, 4),), dynamic_shapes=shapes)


def _one_column(y: torch.Tensor) -> None:
    y[:, 1] += y[:, 0]


def _alternating(y: torch.Tensor) -> None:
    flat = y.view(-1)
    flat[::2] += flat[1::2]


def _itself(y: torch.Tensor) -> None:
    y += y.view(y.shape)


def _other_half(y: torch.Tensor) -> None:
    y[: y.shape[0] // 2] += y[y.shape[0] - y.shape[0] // 2 :]


@pytest.mark.parametrize("write", [_one_column, _alternating, _itself, _other_half])
@pytest.mark.parametrize("varies", [False, True])
def test_elements_beside_those_that_are_written_can_be_read(write: Write, varies: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        write(y)
        return y

    shapes = {"x": {0: Dim.AUTO}} if varies else None
    program = tintype.export(function, (torch.ones(5, 4),), dynamic_shapes=shapes)
    for size in (2, 5, 6) if varies else (5,):
        value = torch.randn(size, 4)
        torch.testing.assert_close(program.module()(value), function(value))


def test_a_copy_that_is_a_view_by_what_is_decided_later() -> None:
    """The size turns out to be 1 only at the write, and then the rows were a view all the time."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.ones(3, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = self.kept[:, : x.shape[0]].flatten()
            rows[1:] = 0
            return rows

    with pytest.raises(MutationError, match="it is a copy at no size that the program takes"):
        tintype.export(Model(), (torch.ones(1),), dynamic_shapes=({0: tintype.Dim.AUTO},))


def test_parts_of_a_parameter_have_its_flag() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                parts = [self.weight.chunk(2)[0], self.weight.split(2)[1], self.weight.unbind()[0]]
            return x + sum(part.requires_grad for part in parts)

    x = torch.zeros(1)
    assert torch.equal(tintype.export(Model(), (x,)).module()(x), Model()(x))


def test_as_strided_without_gradients_after_a_write() -> None:
    """It looks at the memory below a view that has no history, and has none itself."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        y.add_(2)
        with torch.no_grad():
            return y.as_strided((1,), (1,))

    x = torch.randn(3, requires_grad=True)
    assert not f(x).grad_fn
    for program in (tintype.export(f, (x,)), tintype.export(f, (x,)).run_decompositions()):
        assert torch.equal(program.module()(x), f(x)) and not program.module()(x).grad_fn


@pytest.mark.parametrize("shapes", [None, ({0: Dim("n")},)], ids=["static", "varying"])
def test_memory_looked_at_through_a_view_of_bits_after_a_write(shapes: Any) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        x[:-1] -= 1
        bits = x.view(x.dtype)
        return bits.as_strided(bits.shape, bits.stride())

    module = tintype.export(model, (torch.ones(5),), dynamic_shapes=shapes).module()
    for size in (5,) if shapes is None else (5, 3):
        mine, theirs = torch.arange(float(size)), torch.arange(float(size))
        torch.testing.assert_close(module(mine), model(theirs))
        torch.testing.assert_close(mine, theirs)
