"""Sizes of carried values that a step changes, with an example in which they are 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.ops.programs import STAGES, at_stage
from tintype import Dim
from tintype.errors import TintypeError

BOTH = ({0: Dim.AUTO, 1: Dim.AUTO},)


def stretched_in_scan(x: torch.Tensor) -> Any:
    def step(carried: torch.Tensor, row: torch.Tensor) -> Any:
        stretched = carried / (row.abs() + 1)
        return carried.narrow(1, 0, 1) * 1, row + stretched.sum()

    return tintype.scan(step, x, x.t())


def stretched_in_while_loop(x: torch.Tensor) -> Any:
    def body(count: torch.Tensor, carried: torch.Tensor) -> Any:
        stretched = carried + torch.ones(3)
        return count + 1, carried[:1] * stretched.sum()

    return tintype.while_loop(lambda count, carried: count < 2, body, (torch.tensor(0), x[0]))


def stretched_in_condition(x: torch.Tensor) -> Any:
    def body(count: torch.Tensor, carried: torch.Tensor) -> Any:
        return count + 1, carried[:1] * 2

    def condition(count: torch.Tensor, carried: torch.Tensor) -> Any:
        return (count < 2) & ((carried + torch.ones(3)).sum() > -100)

    return tintype.while_loop(condition, body, (torch.tensor(0), x[0]))


def in_a_branch(x: torch.Tensor) -> Any:
    return tintype.cond(x.sum() > 0, lambda x: stretched_in_scan(x)[1] * 1, lambda x: x.t() * 2, (x,))


def shrinking(x: torch.Tensor) -> Any:
    return tintype.scan(lambda carried, row: (carried[:1] * 2, row.clone()), x[0], x)


FUNCTIONS = [stretched_in_scan, stretched_in_while_loop, stretched_in_condition, in_a_branch, shrinking]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_size_of_one_that_a_step_leaves_as_it_is(function: Callable[..., Any], stage: str) -> None:
    """A step that is to take any size would assert of it what the example does not keep."""
    example = torch.tensor([[1.0], [2.0], [-0.5]])
    again = at_stage(stage, function, (example,), dynamic_shapes=BOTH).module()
    for given in (example, -example, torch.randn(5, 1), torch.randn(2, 2), torch.randn(4, 3), torch.randn(1, 1)):
        try:
            results = again(given)
        except (TintypeError, RuntimeError) as error:
            assert given.shape[1] != 1, error
            continue
        torch.testing.assert_close(results, function(given))


def test_a_loop_whose_size_is_one_can_be_captured_again() -> None:
    example = torch.tensor([[1.0], [2.0], [-0.5]])
    program = tintype.export(in_a_branch, (example,), dynamic_shapes=BOTH)
    for _ in range(2):
        program = tintype.export(program.module(), (example,), dynamic_shapes=BOTH)
        for given in (example, -example, torch.ones(7, 1)):
            torch.testing.assert_close(program.module()(given), in_a_branch(given))


def test_a_size_that_only_shrinks_stays_general() -> None:
    program = tintype.export(shrinking, (torch.randn(3, 1),), dynamic_shapes=({1: Dim("m", min=1)},))
    for count in (1, 2, 5):
        given = torch.randn(3, count)
        torch.testing.assert_close(program.module()(given), shrinking(given))


def _chosen_by_size_around(x: torch.Tensor, y: torch.Tensor) -> Any:
    return tintype.cond(y.sum() > -99, lambda r: r * 2 if x.shape[0] == 2 else r * 3, lambda r: r.clone(), (y,))


def _range_of_size_around(x: torch.Tensor, y: torch.Tensor) -> Any:
    def added(r: torch.Tensor) -> torch.Tensor:
        for i in range(x.shape[0]):
            r = r + i
        return r * 1

    return tintype.cond(y.sum() > -99, added, lambda r: r.clone(), (y,))


def _row_by_row(x: torch.Tensor, y: torch.Tensor) -> Any:
    return tintype.map(lambda r: r * (1 if x.shape[0] == 2 else 2), y)


def _step_by_step(x: torch.Tensor, y: torch.Tensor) -> Any:
    zero = torch.zeros((), dtype=torch.int64)
    return tintype.while_loop(lambda i, r: i < 2, lambda i, r: (i + 1, r * (1 if x.shape[0] == 2 else 2)), (zero, y))


def _branch_in_branch(x: torch.Tensor, y: torch.Tensor) -> Any:
    def inner(r: torch.Tensor) -> torch.Tensor:
        return tintype.cond(r.sum() > -98, lambda s: s * (1 if x.shape[0] == 2 else 2), lambda s: s * 1, (r,))

    return tintype.cond(y.sum() > -99, inner, lambda r: r.clone(), (y,))


def _rows_of_equal_sizes(x: torch.Tensor, y: torch.Tensor) -> Any:
    both = x + y  # from here on, one size stands for the other
    rows = tintype.cond(
        y.sum() > -99,
        lambda r: torch.stack([row * (i + 1) for i, row in enumerate(r)]).sum(0),
        lambda r: r.sum(0),
        (y,),
    )
    return both, rows


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        _chosen_by_size_around, _range_of_size_around, _row_by_row, _step_by_step, _branch_in_branch,
        _rows_of_equal_sizes,
    ],
)  # fmt: skip
def test_a_function_that_rests_on_a_size_of_what_it_is_not_given_asserts_it(model: Any, decomposed: bool) -> None:
    auto = {0: tintype.Dim.AUTO}
    program = tintype.export(model, (torch.ones(2, 3), torch.ones(2, 3)), dynamic_shapes=(auto, auto))
    module = (program.run_decompositions() if decomposed else program).module()
    arguments = torch.rand(2, 3), torch.rand(2, 3)
    torch.testing.assert_close(module(*arguments), model(*arguments))
    with pytest.raises(tintype.TintypeError, match="2"):
        module(torch.rand(3, 3), torch.rand(3, 3))


@pytest.mark.parametrize("decomposed", [False, True])
def test_a_function_that_rests_on_a_size_of_which_it_is_given_a_part(decomposed: bool) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        part = x[x.shape[0] // 2 :]
        return tintype.cond(x.sum() > -99, lambda p: p[1:][1:].sum(0) + p.clone(), lambda p: p.clone(), (part,))

    program = tintype.export(model, (torch.ones(3),), dynamic_shapes=({0: tintype.Dim.AUTO},))
    module = (program.run_decompositions() if decomposed else program).module()
    for size in (3, 4, 2, 7, 8):
        x = torch.rand(size)
        try:
            found = module(x)
        except tintype.TintypeError:
            assert size != 3, "the example is refused"
            continue
        torch.testing.assert_close(found, model(x))
