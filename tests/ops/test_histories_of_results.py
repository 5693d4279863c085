"""Results of branches and loops require a gradient where those of eager mode do, where gradients are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype


def _mixed(carry: Any, row: torch.Tensor) -> Any:
    first, second, third = carry
    return (first * 2, second + 1, third + first), (row * 3, row * third, second * row)


FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "scan": lambda p, x: tintype.scan(lambda carry, row: (carry * 2, row * 3), p * 1, x),
    "scan that hands on": lambda p, x: tintype.scan(_mixed, (p * 1, x[0], x[1]), x),
    "map": lambda p, x: tintype.map(lambda row: (row * p, row * 2), x),
    "while_loop": lambda p, x: tintype.while_loop(
        lambda a, b, i: i < 2, lambda a, b, i: (a * 2, b * 3, i + 1), (p * 1, x, torch.tensor(0))
    ),
    "cond": lambda p, x: tintype.cond(
        x.sum() > -99, lambda x: (x * p, x * 2, x + p), lambda x: (x * p, x * 3, x + 1), (x,)
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_require_gradients_as_in_eager_mode(name: str) -> None:
    torch.manual_seed(0)
    p, x = torch.randn(4, requires_grad=True), torch.randn(3, 4)
    compiled = tintype.aot.function(FUNCTIONS[name])
    found, expected = ([*torch.utils._pytree.tree_leaves(each(p, x))] for each in (compiled, FUNCTIONS[name]))
    assert [value.requires_grad for value in found] == [value.requires_grad for value in expected]
    mine, theirs = (sum(v.sin().sum() for v in values if v.requires_grad) for values in (found, expected))
    torch.testing.assert_close(torch.autograd.grad(mine, p), torch.autograd.grad(theirs, p))


def test_what_depends_on_no_gradient_is_written_to_through_one_of_several_views() -> None:
    def write(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        rows = tintype.scan(lambda carry, row: (carry * 2, row * 3), p * 1, x)[1]
        rows.split([1, 2])[1].add_(1)
        return rows * p

    p, x = torch.randn(4, requires_grad=True), torch.randn(3, 4)
    found, expected = tintype.aot.function(write)(p, x), write(p, x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), p), torch.autograd.grad(expected.sum(), p))
