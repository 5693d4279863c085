"""``torch.vmap`` over operators that take functions: as one call per row."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

import tintype

WEIGHT = torch.tensor([0.5, -1.0, 2.0, 0.25])


def running(carry: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return carry + value, carry * value


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "cond": lambda r: tintype.cond(r.sum() > 0, torch.sin, torch.cos, (r,)),
    "cond with two results": lambda r: tintype.cond(
        r.sum() > 0, lambda r: (r.sin(), r.sum()), lambda r: (r.cos(), r.max()), (r,)
    ),
    "cond of what is the same for all": lambda r: tintype.cond(
        WEIGHT.sum() > 0, lambda r: r.sin() + WEIGHT, torch.cos, (r,)
    ),
    "cond inside of a cond": lambda r: tintype.cond(
        r[0] > 0, lambda r: tintype.cond(r[1] > 0, torch.sin, torch.tan, (r,)), torch.cos, (r,)
    ),
    "map": lambda r: tintype.map(torch.sin, r),
    "map with an argument": lambda r: tintype.map(lambda value, other: value * other.sum(), WEIGHT, r),
    "scan": lambda r: tintype.scan(running, torch.zeros(()), r),
    "scan over what is the same for all": lambda r: tintype.scan(running, r, torch.ones(2, 4)),
    "while_loop": lambda r: tintype.while_loop(lambda v, n: v.sum() < 10, lambda v, n: (v + 1, n + 1), (r, r[0])),
    "associative_scan": lambda r: tintype.associative_scan(lambda a, b: a + b, r, 0),
}


def of_torch() -> dict[str, Callable[[torch.Tensor], Any]]:
    from torch._higher_order_ops.map import map as torch_map
    from torch._higher_order_ops.scan import scan
    from torch._higher_order_ops.while_loop import while_loop

    return {
        "cond": lambda r: torch.cond(r.sum() > 0, torch.sin, torch.cos, (r,)),
        "cond with two results": lambda r: torch.cond(
            r.sum() > 0, lambda r: (r.sin(), r.sum()), lambda r: (r.cos(), r.max()), (r,)
        ),
        "map": lambda r: torch_map(torch.sin, r),
        "scan": lambda r: scan(running, torch.zeros(()), r),
        "while_loop": lambda r: while_loop(lambda v, n: v.sum() < 10, lambda v, n: (v + 1, n + 1), (r, r[0])),
    }


def row_by_row(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    return tree_map(lambda *rows: torch.stack(rows), *[function(row) for row in x])


def compare(function: Callable[[torch.Tensor], Any], meaning: Callable[[torch.Tensor], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of vmap, about operators that it does row by row
        program = tintype.export(lambda x: torch.vmap(function)(x), (torch.randn(3, 4),))
        for form in (program, program.run_decompositions()):
            form.validate()
            for scale in (1.0, -1.0):
                x = torch.randn(3, 4) * scale
                torch.testing.assert_close(form.module()(x), row_by_row(meaning, x))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_at_once(name: str) -> None:
    compare(FUNCTIONS[name], FUNCTIONS[name])


@pytest.mark.parametrize("name", of_torch())
def test_torchs_own_functions(name: str) -> None:
    """Of which torch takes a result that is one tensor for a tuple of its rows."""
    compare(of_torch()[name], FUNCTIONS[name])


def test_batches_of_another_dimension_and_nested_ones() -> None:
    def choose(value: torch.Tensor) -> torch.Tensor:
        return tintype.cond(value.sum() > 0, torch.sin, torch.cos, (value,))

    x = torch.randn(2, 3, 4)
    program = tintype.export(lambda x: torch.vmap(torch.vmap(choose, in_dims=1), in_dims=0)(x), (x,)).module()
    expected = torch.stack([torch.stack([choose(column) for column in row.t()]) for row in x])
    torch.testing.assert_close(program(x), expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda r: tintype.map(lambda value: value * 2 + r.sum(), r),
        lambda r: tintype.scan(running, r.sum(), r)[1],
        lambda r: tintype.associative_scan(lambda a, b: a * b, r, dim=0),
    ],
    ids=["map", "scan", "associative_scan"],
)
def test_results_lie_in_memory_as_in_eager_mode(function: Callable[[torch.Tensor], Any]) -> None:
    def batched(x: torch.Tensor) -> Any:
        return torch.vmap(function)(x)

    x = torch.randn(4, 3)
    result = tintype.export(batched, (x,)).module()(x)
    assert result.stride() == batched(x).stride()
    viewed = tintype.export(lambda x: batched(x).view(-1), (x,)).module()
    torch.testing.assert_close(viewed(x), batched(x).view(-1))


def test_torchs_rules_are_as_they_were() -> None:
    operators = [torch.ops.higher_order.cond, torch.ops.higher_order.while_loop, torch.ops.higher_order.map_impl]
    before = [dict(operator.functorch_table) for operator in operators]
    tintype.export(lambda x: torch.vmap(FUNCTIONS["cond"])(x), (torch.randn(3, 4),))
    assert [operator.functorch_table for operator in operators] == before


def test_functions_that_return_different_structures_are_refused() -> None:
    def wrong(r: torch.Tensor) -> Any:
        return tintype.cond(r.sum() > 0, lambda r: (r, r), lambda r: r, (r,))

    with pytest.raises(tintype.TintypeError, match="different structures"):
        tintype.export(lambda x: torch.vmap(wrong)(x), (torch.randn(3, 4),))


def test_functions_that_write_are_refused() -> None:
    """Both functions are called for all rows."""

    def writing(r: torch.Tensor) -> torch.Tensor:
        return tintype.cond(r.sum() > 0, lambda r: r.add_(1), lambda r: r * 1, (r,))

    with pytest.raises(tintype.TintypeError, match="writes to a tensor"):
        tintype.export(lambda x: torch.vmap(writing)(x * 1), (torch.randn(3, 4),))


@pytest.mark.parametrize("cond", [tintype.cond, torch.cond], ids=["ours", "torch's"])
@pytest.mark.parametrize("transform", [torch.func.grad, lambda f: lambda x: torch.func.jvp(f, (x,), (x,))])
def test_other_transforms_are_refused_by_name(transform: Any, cond: Any) -> None:
    def chosen(x: torch.Tensor) -> torch.Tensor:
        return cond(x.sum() > 0, torch.sin, torch.cos, (x,)).sum()

    with pytest.raises(tintype.TintypeError, match="can't be captured inside of torch"):
        tintype.export(lambda x: transform(chosen)(x), (torch.randn(3, 4),))
