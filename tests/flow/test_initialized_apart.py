"""Objects whose ``__init__`` leaves behind what can't be merged: what follows is captured with each arm."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import tintype

GIVEN = (
    torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
    -torch.ones(2, 3),
    torch.zeros(2, 3),
    torch.full((2, 3), 0.2),
)


class Once:
    def __init__(self, x: Any) -> None:
        if x.sum() > 0:
            self.t = x * 2
        else:
            self.t = None


class Twice:
    def __init__(self, x: Any) -> None:
        if x.sum() > 0:
            if x[0, 0] > 0.5:
                self.t = None
            else:
                self.t = x
        else:
            self.t = x * 2


class Derived(Once):
    def __init__(self, x: Any) -> None:
        super().__init__(x)
        self.other = x if self.t is None else self.t * 4


@dataclasses.dataclass
class Data:
    x: Any
    t: Any = None

    def __post_init__(self) -> None:
        if self.x.sum() > 0:
            self.t = self.x * 2


class Calling:
    def __init__(self, x: Any) -> None:
        self.number = 3
        if x.sum() > 0:
            self.function = lambda value: value * 2
        else:
            self.function = None


def asks_for_none(x):
    made = Once(x)
    if made.t is not None:
        return made.t + 1
    return x


def asks_in_a_loop(x):
    made = Once(x)
    for _ in range(2):
        if made.t is not None:
            x = x + made.t
    return x


def makes_two(x):
    first, second = Once(x), Once(x + 1)
    if first.t is not None:
        x = x + first.t
    if second.t is not None:
        x = x * second.t
    return x


def has_two_names(x):
    made = Twice(x)
    same = made
    same.other = x
    if made.t is None:
        made.other = made.other + 1
    return same.other


def derives(x):
    made = Derived(x)
    return made.other * 2


def is_a_dataclass(x):
    made = Data(x)
    return made.x if made.t is None else made.t


def calls_what_is_there(x):
    made = Calling(x)
    return made.function(x) if made.function else x * made.number


FUNCTIONS = [asks_for_none, asks_in_a_loop, makes_two, has_two_names, derives, is_a_dataclass, calls_what_is_there]


@pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_like_eager(function: Any, strict: bool) -> None:
    module = tintype.export(function, (GIVEN[0],), strict=strict).module()
    for given in GIVEN:
        x, y = given.clone().requires_grad_(), given.clone().requires_grad_()
        expected, found = function(x), module(y)
        torch.testing.assert_close(found, expected)
        grads = [torch.autograd.grad(r.sum(), i)[0] for r, i in ((expected, x), (found, y))]
        torch.testing.assert_close(grads[1], grads[0])


def test_an_object_that_somebody_else_has_is_refused() -> None:
    class Kept:
        def __init__(self, x: Any, others: list[Any]) -> None:
            others.append(self)
            if x.sum() > 0:
                self.t = x
            else:
                self.t = None

    def keeps(x):
        others: list[Any] = []
        Kept(x, others)
        return x if others[0].t is None else others[0].t * 2

    with pytest.raises(tintype.CaptureError, match="something else in each arm"):
        tintype.export(keeps, (GIVEN[0],))
