"""Numbers that vary and that much is computed of: counters in loops, sums, and what methods of numbers are given."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


def counts(x: Any, n: int) -> Any:
    for step in range(300):
        n = n + 1 if step % 2 else n - 2
    return x * n


def counts_down_a_recursion(x: Any, n: int) -> Any:
    return x if n == 0 else counts_down_a_recursion(x + 1, n - 1)


def sums(x: Any, n: int) -> Any:
    total = 0
    for step in range(150):
        total = total + n * step
    return x * total


def compounds(x: Any, n: int) -> Any:
    value = float(n)
    for _ in range(300):
        value = value * 1.01 + 0.1
    return x * value


def of_itself(x: Any, n: int) -> Any:
    before, last = n, n + 1
    for _ in range(90):  # each number is written out twice in the next one but one
        before, last = last, before + last
    return x * (last % 1000)


def of_data(x: Any, n: int) -> Any:
    value = (x.sum() * n).item()
    for step in range(150):
        value = value / 1.5 + step
    return x * value


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [counts, counts_down_a_recursion, sums, compounds, of_itself, of_data])
def test_much_is_computed_of_a_number(function: Callable[..., Any], backend: str) -> None:
    compiled = tintype.compile(function, backend=backend)
    started = time.thread_time()
    for n in (1, 60, 75, 210, 3, 75):
        torch.testing.assert_close(compiled(torch.ones(2), n), function(torch.ones(2), n))
    assert time.thread_time() - started < 20


def test_a_counter_is_one_run_however_often_it_is_counted_on() -> None:
    layer = nn.Module()
    layer.count = 0  # type: ignore[assignment]

    def forward(x: torch.Tensor) -> torch.Tensor:
        for _ in range(100):
            layer.count += 1  # type: ignore[assignment, operator]
        layer.count -= 30
        return x * (5 + layer.count)

    compiled = tintype.compile(forward)
    for call in range(1, 7):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 70.0 * call + 5)) and layer.count == 70 * call
    assert compiled.engine.captures == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda n, a: n.__add__(2),
        lambda n, a: (n.__radd__(2), a.__mul__(n), n.__repr__(), a.__floor__()),
        lambda n, a: getattr(n, "__sub__")(1),  # noqa: B009
        lambda n, a: list(map(math.sqrt, [abs(a), 2.0])),
        lambda n, a: list(map(int.__neg__, [n, 1])),
        lambda n, a: sorted([a, 2.0, 1.0], key=math.sin),
        lambda n, a: max([n, 2], key=math.sin),
        lambda n, a: list(filter(math.floor, [a, 0.5])),
        lambda n, a: n is n,
    ],
)
def test_native_code_gets_the_number_as_it_is(function: Callable[..., Any]) -> None:
    compiled = tintype.compile(lambda n, a: function(n + 1000, a / 2))
    for n, a in ((1, 1.5), (2, 9.5), (3, 3.5), (40, -0.5), (0, 2.0), (2, 9.5)):
        assert compiled(n, a) == function(n + 1000, a / 2)
