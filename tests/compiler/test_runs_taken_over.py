"""Runs that miss in the middle are taken over by a capture, which sees tensors as the calls so far have left them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tintype.errors import RecompileWarning

STORED: list[Any] = [0]


def resized(a: torch.Tensor, n: torch.Tensor) -> Any:
    STORED[0] = a.shape[0]
    a.resize_(a.shape[0] + 1, 3)
    return a.fill_(1).sum() * n.shape[0]


def looked_at_after(a: torch.Tensor, n: torch.Tensor) -> Any:
    STORED[0] = a.shape[0]
    torch.add(n, 1, out=n)
    STORED.append((a.shape[1], n.shape, a.shape))
    return a * n.shape[0]


def looked_at_twice(a: torch.Tensor, n: torch.Tensor) -> Any:
    STORED[0] = (a.shape, tuple(a.size()))
    a.resize_(a.shape[0] + 1, 2)
    STORED[0] += (a.shape,)
    n.add_(1)
    STORED[0] += (tuple(a.shape), a.numel())
    return a.fill_(1).sum() * n.shape[0]


def item_between(a: torch.Tensor, n: torch.Tensor) -> Any:
    STORED[0] = a.shape[0]
    torch.add(n, 1, out=n)
    count = n.sum().item()
    STORED[0] = (a.shape[0], count)
    return a * count * a.shape[0]


def other_data(a: torch.Tensor, n: torch.Tensor) -> Any:
    STORED[0] = a.shape[0]
    a.data = torch.ones(a.shape[0] * 2, 3)
    STORED[0] = (STORED[0], a.shape[0], a.shape[1])
    return a.mul_(2) * a.shape[0], n.shape[0]


def by_method(a: torch.Tensor, n: torch.Tensor) -> Any:
    STORED[0] = (a.size(0), len(a))
    torch.add(n, 1, out=n)
    return a + a.size(0) + len(n)


def results_resized(a: torch.Tensor, n: torch.Tensor) -> Any:
    b = a * 2
    STORED[0] = b.shape[0]
    torch.add(n, 1, out=n)
    b.resize_(b.shape[0] + 1, 2)
    c = b.fill_(1) * b.shape[0]
    STORED[0] = (STORED[0], b.shape[0], c.shape)
    return c.sum() + n.sum()


def new_out(a: torch.Tensor, n: torch.Tensor) -> Any:
    STORED[0] = a.shape[0]
    out = torch.empty(0)
    torch.mul(a, 2, out=out)
    STORED[0] = (STORED[0], out.shape[0], a.shape[0], out.shape, n.shape)
    return out + a.shape[0]


def transposed(a: torch.Tensor, n: torch.Tensor) -> Any:
    STORED[0] = a.shape[0]
    a.t_()
    STORED[0] = (STORED[0], a.shape[0], n.shape[0])
    return a * a.shape[0]


def printed(a: torch.Tensor, n: torch.Tensor) -> Any:
    print(a.shape, round(float(a.sum()), 3))
    torch.add(n, 1, out=n)
    if bool(a.mean() < 2):
        print(a.shape, n.shape)
    return a * n.shape[0]


PROGRAMS = [
    *(resized, looked_at_after, looked_at_twice, item_between, other_data, by_method, results_resized, new_out),
    *(transposed, printed),
]
SIZES = [
    (2, 2),
    (3, 2),
    (2, 2),
    (3, 2),
    (4, 2),
    (2, 3),
    (4, 3),
    (5, 4),
    (7, 4),
    (7, 1),
    (1, 1),
    (0, 5),
    (9, 9),
    (2, 2),
]


def outcome(function: Callable[..., Any], rows: int, count: int, capsys: pytest.CaptureFixture[str]) -> str:
    STORED[:] = [0]
    a, n = torch.ones(rows, 2), torch.zeros(1 if "looked_at_after" in function.__name__ else count)
    try:
        result = function(a, n)
    except RuntimeError as error:
        result = str(error)
    return str((STORED, result, a, n, capsys.readouterr().out))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_sizes_are_those_of_when_the_program_asked(
    function: Callable[..., Any], dynamic: bool | None, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = tintype.compile(function, backend=backend, dynamic=dynamic)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecompileWarning)
        for rows, count in SIZES:
            assert outcome(compiled, rows, count, capsys) == outcome(function, rows, count, capsys), (rows, count)
