"""``list(range(size))`` and what programs do with it, for sizes that vary."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import tintype
from tintype import Dim
from tintype.trace.python_sequences import SymbolicSequence, rewritten_code

LENGTH = Dim("length", min=2)


def bounds_of(positions: list[int]) -> tuple[int, int, int]:
    return positions[0], positions[-1], len(positions)


class Positions(torch.nn.Module):
    """Positions as Python numbers, pooled by two after the first, as some models have them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = list(range(x.shape[0]))
        pooled = [-1] + positions[1:-1][::2]  # noqa: RUF005
        first, last, count = bounds_of(pooled)
        return x.sum() + torch.arange(first, last + 1, 2) * count + len(positions)


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@decorated
def stepped(x: torch.Tensor) -> torch.Tensor:
    steps = range(1, x.shape[0], 3)
    backwards = range(x.shape[0], 0, -2)
    return x.new_zeros(len(steps)) + steps[-1] + backwards[-1] * len(backwards)


def kinds(x: torch.Tensor) -> torch.Tensor:
    positions = list(range(x.shape[0]))
    if isinstance(positions, list) and not isinstance(range(x.shape[0]), list) and positions:
        return x * len(positions)
    return x


def without_elements(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(len(list(range(x.shape[0] - 3)))) + 1


def looped(x: torch.Tensor) -> torch.Tensor:
    for step in range(x.shape[0]):
        x = x + step
    return x


def appended(x: torch.Tensor) -> torch.Tensor:
    positions = list(range(x.shape[0]))
    positions.append(7)
    positions[0] = 3
    return x.new_tensor(positions) * sum(positions) * len(positions)


@pytest.mark.parametrize("model", [Positions(), stepped, kinds], ids=["lists", "ranges", "kinds"])
@pytest.mark.parametrize("shapes", [{"x": {0: LENGTH}}, "auto"], ids=["named", "auto"])
def test_the_size_stays_free(model: Any, shapes: Any) -> None:
    program = tintype.export(model, (torch.randn(8),), dynamic_shapes=shapes)
    assert not any(line.kind == "specialization" for line in program.contract())
    for length in (2, 3, 4, 9, 16):
        x = torch.randn(length)
        torch.testing.assert_close(program.module()(x), model(x))


def test_a_length_that_may_be_none() -> None:
    program = tintype.export(without_elements, (torch.randn(8),), dynamic_shapes={"x": {0: LENGTH}})
    for length in (2, 3, 4, 9):
        x = torch.randn(length)
        assert torch.equal(program.module()(x), without_elements(x))


@pytest.mark.parametrize("function", [looped, appended])
def test_what_needs_every_element_fixes_the_size(function: Any) -> None:
    program = tintype.export(function, (torch.randn(4),), dynamic_shapes="auto")
    (line,) = program.contract()
    assert (line.kind, line.text) == ("specialization", "x.shape[0] = 4")
    assert line.location.function == function.__name__
    x = torch.randn(4)
    torch.testing.assert_close(program.module()(x), function(x))
    with pytest.raises(tintype.ConstraintViolationError, match="must be specialized to 4"):
        tintype.export(function, (x,), dynamic_shapes={"x": {0: LENGTH}}, control_flow="refuse")


def test_functions_get_their_code_back() -> None:
    before = Positions.forward.__code__, bounds_of.__code__
    tintype.export(Positions(), (torch.randn(8),), dynamic_shapes="auto")
    with pytest.raises(ZeroDivisionError):
        tintype.export(failing, (torch.randn(8),), dynamic_shapes="auto")
    assert (Positions.forward.__code__, bounds_of.__code__) == before
    assert b"tintype" not in failing.__code__.co_code and failing.__code__.co_consts == (None, 0)


def failing(x: torch.Tensor) -> torch.Tensor:
    return x[len(list(range(x.shape[0]))) // 0]


def test_lines_are_those_of_the_source() -> None:
    program = tintype.export(kinds, (torch.randn(8),), dynamic_shapes="auto")
    product = next(node for node in program.graph.nodes if node.target is torch.ops.aten.mul.Tensor)
    assert f"line {kinds.__code__.co_firstlineno + 3}, in kinds" in product.meta["stack_trace"]


def test_functions_that_are_not_rewritten() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * len(list(range(x.shape[0])))

    program = tintype.export(inner, (torch.randn(4),), dynamic_shapes="auto")
    assert [line.text for line in program.contract()] == ["x.shape[0] = 4"]  # it has no name to find it by
    assert rewritten_code(eval("lambda x: len(x)")) is None


def test_a_plain_sequence_is_as_python_has_it() -> None:
    sequence = SymbolicSequence(list, 2, 3, 4)
    assert sequence == [2, 5, 8, 11] and list(sequence) == [2, 5, 8, 11] and 8 in sequence
    assert sequence[1:-1] == [5, 8] and sequence[:2] == [2, 5] and sequence[::-1] == [11, 8, 5, 2]
    assert [-1] + SymbolicSequence(list, 2, 3, 4) == [-1, 2, 5, 8, 11]  # noqa: RUF005
    assert [0] + SymbolicSequence(list, 2, 3, 4) == [0, 2, 5, 8, 11]  # noqa: RUF005
    assert SymbolicSequence(list, 2, 3, -2) == [] and not SymbolicSequence(list, 2, 3, -2)
    with pytest.raises(IndexError, match="list index out of range"):
        SymbolicSequence(list, 2, 3, 4)[4]
