"""Sizes that Python code and code in C ask for: other sizes give what eager mode gives."""

from __future__ import annotations

import collections
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


def add(*values: Any) -> Any:
    return functools.reduce(lambda first, second: first + second, values, torch.zeros(()))


def loop(x: torch.Tensor) -> list[Any]:
    found = []
    for position, row in enumerate(x):
        found.append(row * position)
    return found


def unpacked(x: torch.Tensor) -> tuple[Any, ...]:
    try:
        first, *others = x
    except ValueError:
        return ("nothing",)
    return first * 2, len(others)


def keyed(x: torch.Tensor) -> Any:
    names = {3: "three", 4: "four"}
    return x * len(names.get(len(x), "more"))


def extended(x: torch.Tensor) -> list[Any]:
    found = [x.sum()]
    found.extend(x)
    found += list(x)
    return found


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "len": len,
    "mean by len": lambda x: x.sum(0) / len(x),
    "len of a result": lambda x: x[x > 1] / (len(x[x > 1]) + 1),
    "half": lambda x: x[: len(x) // 2] + 1,
    "if len": lambda x: x + 1 if len(x) else x - 1,
    "len is three": lambda x: x + 1 if len(x) == 3 else x - 1,
    "its method": lambda x: x * x.__len__(),
    "rows": lambda x: [row.sum() for row in x],
    "loop": loop,
    "unbind": lambda x: [row + 1 for row in x.unbind()],
    "split": lambda x: [piece.sum() for piece in x.split(2)] if len(x) else x,
    "number of pieces": lambda x: (len(x.split(2)), len(x.chunk(2)), len(x.tensor_split(3))),
    "indices": lambda x: [part.sum() for part in torch.nonzero(x, as_tuple=True)],
    "tolist": lambda x: x.tolist(),
    "nested tolist": lambda x: x[None].tolist(),
    "sum of list": lambda x: sum(x.tolist()),
    "sum": lambda x: sum(x),
    "zip": lambda x: [a * b for a, b in zip(x, x + 1, strict=True)],
    "map": lambda x: list(map(torch.sin, x)),
    "reversed": lambda x: [row * 2 for row in reversed(x)],
    "reduce": lambda x: functools.reduce(torch.add, x, torch.zeros(())),
    "star": lambda x: add(*x),
    "star in a list": lambda x: [x.sum(), *x],
    "unpacked": unpacked,
    "extended": extended,
    "chain": lambda x: list(itertools.chain(x, [x.sum()])),
    "deque": lambda x: list(collections.deque(x, maxlen=2)),
    "dict": lambda x: dict(enumerate(x)),
    "keyed": keyed,
    "stack": lambda x: torch.stack([row * 2 for row in x]) if len(x) else x,
    "text": lambda x: f"{x.shape} {len(x)} {x.numel():>4}",
    "str": lambda x: str(x.shape) + repr(x.size()) + "{}".format(tuple(x.shape)) + "%s" % len(x),  # noqa: UP031, UP032
    "shape": lambda x: (x.shape, x.size(), math.prod(x.shape), sum(x.shape), max(x.shape), hash(x.shape)),
    "shape as key": lambda x: x + {(3,): 1, (4,): 2}.get(tuple(x.shape), 3),
    "shape is in": lambda x: x + (x.shape in [torch.Size([3]), torch.Size([5])]),
    "range": lambda x: [x[position] for position in range(len(x))],
    "offset": lambda x: (x + 1, x[1:].storage_offset()),
}  # fmt: skip
SIZES = (3, 4, 5, 6, 1, 0, 3, 5)


def same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        return first.shape == second.shape and torch.allclose(first, second, rtol=0, atol=0, equal_nan=True)
    if isinstance(first, (list, tuple)):
        return type(first) is type(second) and len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and same(list(first.values()), list(second.values()))
    return bool(type(first) is type(second) and first == second)


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::tintype.RecompileWarning")
def test_sizes_that_python_sees(name: str, backend: str, dynamic: bool | None) -> None:
    program = PROGRAMS[name]
    compiled = tintype.compile(program, backend=backend, dynamic=dynamic)
    for size in SIZES:
        x = torch.arange(float(size))
        assert same(compiled(x), program(x)), size


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_as_many_rows_as_a_number_says(backend: str) -> None:
    compiled = tintype.compile(lambda x, count: [row * 2 for row in x[:count]], backend=backend)
    for count in (1, 2, 3, 5, 0, 4):
        x = torch.arange(6.0)
        assert same(compiled(x, count), [row * 2 for row in x[:count]])


def test_gradients_of_rows() -> None:
    compiled = tintype.compile(lambda x: torch.stack([row.square() for row in x]).sum() / len(x))
    for size in (3, 4, 5, 2):
        x = torch.arange(float(size), requires_grad=True)
        compiled(x).backward()
        assert x.grad is not None and torch.equal(x.grad, 2 * x.detach() / size)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sizes_that_follow_from_a_number(backend: str) -> None:
    def program(x: torch.Tensor, count: int) -> Any:
        y, z = x[:count] * 2, x.new_zeros(count, 2) + 1
        return y.reshape(y.shape[0] * 2), y.numel(), z.sum() / (z.shape[0] + 1), z.shape

    compiled = tintype.compile(program, backend=backend)
    for count in (3, 4, 5, 6, 2, 1, 0):
        x = torch.arange(16.0).reshape(8, 2)
        assert same(compiled(x, count), program(x, count)), count
