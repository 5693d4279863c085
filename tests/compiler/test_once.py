"""What a recording leaves out: results are those of the whole run, whatever is written to in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tintype.compiler.once import Noting, Plan, Shortened

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


def plan_of(run: Callable[..., Any], *inputs: torch.Tensor) -> Plan:
    given = [tensor.clone() for tensor in inputs]
    with Noting() as noting:
        run(*given)
    return noting.plan()


def assert_same(run: Callable[..., Any], *shapes: tuple[int, ...]) -> Plan:
    """The shortened run gives and writes what the run does, for other data than those it was looked at with."""
    plan = plan_of(run, *(torch.randn(shape) for shape in shapes))
    shortened = plan.applied(run)
    for _ in range(3):
        given = [torch.randn(shape) for shape in shapes]
        expected = [tensor.clone() for tensor in given]
        found, wanted = shortened(*given), run(*expected)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        torch.testing.assert_close(given, expected, rtol=0, atol=0)
    return plan


def masked(x: torch.Tensor) -> torch.Tensor:
    mask = (torch.arange(4) <= 2)[None]
    for _ in range(3):
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
    return x


def test_masks_and_constants_are_computed_once() -> None:
    assert assert_same(masked, (1, 4, 2)).left_out >= 3 * 3


def test_what_depends_on_inputs_is_computed_once_in_each_run() -> None:
    plan = assert_same(lambda x: (x.sin() + 1) * (x.sin() + 1) - (x[0].sin() + 1), (3, 2))
    assert len(plan.again) == 2 and not plan.constants


WRITING: dict[str, Callable[..., Any]] = {
    "to the first": lambda x: (x.sin().add_(1), x.sin()),
    "to the second": lambda x: (x.sin(), x.sin().add_(1)),
    "to the input between": lambda x: (x.sin(), x.mul_(2), x.sin()),
    "to a view of it": lambda x: (x.sin(), x[0].zero_(), x.sin(), x[0].sin()),
    "to a constant": lambda x: (torch.zeros(3).add_(1) + x.sum(), torch.zeros(3)),
    "by an operator with out": lambda x: (x.sin(), torch.cos(x, out=x), x.sin()),
    "by foreach": lambda x: (x.sin(), torch._foreach_add_([x], 1), x.sin()),
    "to a constant's copy": lambda x: (torch.ones(3), torch.ones(3).clone().mul_(2), torch.ones(3).clone()),
    "to statistics": lambda x: [torch.nn.functional.batch_norm(x, x[0].clone(), x[1] ** 2, training=True)] * 2,
    "to statistics of inputs": lambda x, m, v: [
        torch.nn.functional.batch_norm(x, m, v, training=True),
        m.sin(),
        torch.nn.functional.batch_norm(x, m, v, training=True),
        m.sin(),
    ],
}


@pytest.mark.parametrize("name", list(WRITING))
def test_writes(name: str) -> None:
    shapes = [(3, 3), (3,), (3,)]
    assert_same(WRITING[name], *shapes[: WRITING[name].__code__.co_argcount])


def test_values_of_other_kinds_are_others() -> None:
    assert_same(lambda x: (x * 1, x * 1.0, x * True, x + 0.0, x + -0.0, x.double(), x.half()), (2,))
    assert_same(lambda x: (torch.full((2,), 0.0) / x, torch.full((2,), -0.0) / x), (2,))


def test_memory_of_what_is_gone_is_not_taken_for_it() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        # each list's tensor may lie where the one before lay
        return [torch.tensor([float(step)]).sin() + x for step in range(20)]

    assert_same(run, (1,))


def test_random_numbers_are_drawn_each_time() -> None:
    run = lambda x: (torch.rand(3), torch.rand(3), torch.rand_like(x), torch.rand_like(x))  # noqa: E731
    plan = plan_of(run, torch.ones(2))
    assert not plan.left_out
    first, second = run(torch.ones(2))[:2]
    assert not torch.equal(first, second)


def test_other_operators_are_refused() -> None:
    plan = plan_of(lambda x: x.sin() + x.sin(), torch.ones(2))
    with pytest.raises(RuntimeError, match="are others than"), Shortened(plan):
        torch.ones(2).cos()


OPERATORS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a.sin(),
    lambda a, b: a + b,
    lambda a, b: a * 2,
    lambda a, b: torch.ones(4),
    lambda a, b: torch.arange(4.0),
    lambda a, b: a.view(2, 2).t().reshape(4),
    lambda a, b: a.flip(0),
    lambda a, b: a.add_(b),
    lambda a, b: a[:2].mul_(2).repeat(2),
    lambda a, b: torch.where(a > b, a, b),
    lambda a, b: a.view(4),
    lambda a, b: a.unbind()[0].expand(4),
]


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    chosen = random.Random(seed)
    steps = [(chosen.choice(OPERATORS), chosen.randrange(6), chosen.randrange(6)) for _ in range(40)]

    def run(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        values = [x, y]
        for operator, first, second in steps:
            a, b = values[-1 - first % len(values)], values[-1 - second % len(values)]
            values.append(operator(a if a._base is None else a.clone(), b))
        return values

    assert_same(run, (4,), (4,))
