"""Methods of Python's objects that a program has as functions: ``log = entries.append``, callbacks, partials."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")

LIST: list[Any] = []
SET: set[Any] = set()
DICT: dict[Any, Any] = {}
DEQUE: collections.deque[Any] = collections.deque()
TENSOR = torch.zeros(2)
append, add, put, get, appendleft, write = (
    LIST.append, SET.add, DICT.__setitem__, DICT.get, DEQUE.appendleft, TENSOR.add_,
)  # fmt: skip
TABLE = {"append": LIST.append}
log_five = functools.partial(LIST.append, 5)


class Owner:
    def __init__(self) -> None:
        self.log = LIST.append


OWNER = Owner()

CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "append": lambda x: append(x.shape[0]) or x * len(LIST),
    "add": lambda x: add(x.shape[0]) or x * len(SET),
    "put": lambda x: put(x.shape[0], 2) or x * len(DICT) + get(x.shape[0], 7),
    "get": lambda x: x + get(x.shape[0] - 1, 7),
    "left": lambda x: appendleft(x.shape[0]) or x * len(DEQUE),
    "tensor": lambda x: write(x.shape[0]) + x[:1],
    "of an object": lambda x: OWNER.log(x.shape[0]) or x * len(LIST),
    "of a table": lambda x: TABLE["append"](x.shape[0]) or x * len(LIST),
    "partial": lambda x: log_five() or x * len(LIST),
    "a key": lambda x: put(x.shape[0], -3) or x * sorted([1, 2, 3], key=lambda n: get(n, 0))[0],
    "a native key": lambda x: put(x.shape[0], -3) or x * sorted(DICT, key=get)[0],
    "filtered": lambda x: add(x.shape[0]) or x * len(list(filter(SET.__contains__, [1, 2, 3]))),
    "mapped to items": lambda x: put(x.shape[0], 3) or x * len([n for n in map(get, [1, 2, 3]) if n]),
    "mapped": lambda x: list(map(append, [1, x.shape[0]])) and x * len(LIST),
}


def outcome(function: Callable[[torch.Tensor], Any]) -> list[Any]:
    for owner in (LIST, SET, DICT, DEQUE):
        owner.clear()  # type: ignore[attr-defined]
    TENSOR.zero_()
    found = []
    for rows in (1, 2, 2, 3, 1, 2):
        result = function(torch.ones(rows))
        values = [type(value) for value in LIST]
        found.append((result.tolist(), [*LIST], values, {*SET}, {**DICT}, [*DEQUE], TENSOR.tolist()))
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", list(CASES))
def test_methods_that_are_functions(name: str, backend: str) -> None:
    function = CASES[name]
    assert outcome(tintype.compile(function, backend=backend)) == outcome(function)


def test_callbacks() -> None:
    """A method that is given anew each time is the same run; the one of another list writes to that."""

    def function(x: torch.Tensor, tell: Callable[[Any], Any]) -> torch.Tensor:
        tell(x.sum())
        return x * 2

    compiled = tintype.compile(function)
    one, other = list[Any](), list[Any]()
    for entries in (one, one, other, one, other):
        compiled(torch.ones(2), entries.append)
    assert [len(one), len(other)] == [3, 2] and compiled.engine.captures == 1
    numbers = set[Any]()
    compiled(torch.ones(2), numbers.add)
    compiled(torch.ones(2), numbers.add)
    assert len(numbers) == 2 and len(one) == 3
