"""Branches on data in loops over whatever Python can loop over: a loop that is unrolled goes on where it was."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import pytest
import torch

import tintype

SOURCES: dict[str, Any] = {
    "list": lambda model: [1, 2, 3],
    "module list": lambda model: model.blocks,
    "sequential": lambda model: torch.nn.Sequential(*model.blocks),
    "enumerate": lambda model: enumerate(model.blocks),
    "zip of ranges": lambda model: enumerate(zip(model.blocks, range(3), strict=True), 1),
    "dictionary": lambda model: model.table,
    "items": lambda model: model.table.items(),
    "values": lambda model: model.table.values(),
    "set": lambda model: {1, 2, 3},
    "deque": lambda model: deque([1, 2]),
    "reversed": lambda model: reversed([1, 2, 3]),
    "map": lambda model: map(id, model.blocks),
    "generator": lambda model: (block for block in model.blocks),
    "children": lambda model: model.named_children(),
    "islice": lambda model: itertools.islice(model.blocks, 2),
    "chain": lambda model: itertools.chain([1], [2, 3]),
    "count": lambda model: itertools.count(),
    "text": lambda model: "abc",
}


class Loops(torch.nn.Module):
    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = SOURCES[source]
        self.table = {"a": 1, "b": 2, "c": 3}
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))


class Skips(Loops):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = 0
        for _ in self.source(self):
            steps += 1
            if steps > 3:
                break
            if x.sum() > 3:
                x = x - 5
                continue
            x = x * 2 + steps
        return x + steps


class SkipsOrEnds(Loops):
    """Both arms have what is left of the loop: one of them may end it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = 0
        for _ in self.source(self):
            steps += 1
            if x.sum() > 3:
                x = x - 5
                continue
            x = x * 2 + steps
            if steps >= 3:
                break
        return x + steps


class Leaves(Loops):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = 0
        for _ in self.source(self):
            steps += 1  # noqa: SIM113
            if x.sum() > 3:
                return x * steps
            x = x * 2 + steps
            if steps == 3:
                break
        return x - 1


class GoesOn(Loops):
    """The loop's iterator is a variable that a second loop goes on with."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        iterator, steps = iter(self.source(self)), 0
        for _ in iterator:
            steps += 1
            if x.sum() > 3:
                x = x - 1
            if steps == 1:
                break
        for _ in iterator:
            steps += 1
            x = x * 2 + steps
            if steps == 3:
                break
        return x


@pytest.mark.parametrize("kind", [Skips, Leaves, GoesOn])
@pytest.mark.parametrize("source", SOURCES)
def test_a_branch_in_a_loop(source: str, kind: Any) -> None:
    model = kind(source)
    module = tintype.export(model, (torch.ones(3),)).module()
    check(module, model)


@pytest.mark.parametrize("source", [source for source in SOURCES if source != "count"])
def test_arms_that_both_go_on(source: str) -> None:
    model = SkipsOrEnds(source)
    if source in ("generator", "children"):  # of which there is only one
        with pytest.raises(tintype.CaptureError, match="only the data decide which one comes next"):
            tintype.export(model, (torch.ones(3),))
    else:
        check(tintype.export(model, (torch.ones(3),)).module(), model)


def check(module: Any, model: Any) -> None:
    for scale in (1.0, -1.0, 0.4, 3.0, 100.0):
        x = torch.full((3,), scale)
        torch.testing.assert_close(module(x), model(x))


def takes_in_one_arm(x):
    numbers = iter([1, 2, 3])
    if x.sum() > 0:
        for number in numbers:
            x = x + number
            break
    for number in numbers:
        x = x * number
    return x


def takes_natively(x):
    numbers = (number for number in (1, 2, 3))
    if x.sum() > 0:
        x = x + sum(numbers)
    return x * len(list(numbers))


def unpacks(x):
    numbers = iter((1, 2))
    if x.sum() > 0:
        one, other = numbers
        x = x + one - other
    return x * len([*numbers])


def takes_in_steps(x):
    numbers = iter([1, 2, 3])
    while x.sum() < 10:
        for number in numbers:
            x = x + number
            break
        x = x + 1
    return x


def takes_from_a_variable_of_a_helper(x):
    numbers = iter([1, 2, 3])

    def helper(x):
        if x.sum() > 0:
            return x
        for number in numbers:
            x = x + number
            break
        return x

    return helper(x) * sum(numbers)


@pytest.mark.parametrize(
    "function", [takes_in_one_arm, takes_natively, unpacks, takes_in_steps, takes_from_a_variable_of_a_helper]
)
def test_what_comes_next_is_not_left_to_the_data(function: Any) -> None:
    with pytest.raises(tintype.CaptureError, match="only the data decide which one comes next"):
        tintype.export(function, (torch.ones(3),))


def branches_between_yields(x):
    def steps():
        y = x
        for _ in range(3):
            if y.sum() > 3:
                y = y - 1
            else:
                y = y + 2
            yield y

    return list(steps()) + [y * 2 for y in steps()]


def test_a_generator_may_branch_between_its_yields_in_a_loop() -> None:
    """The stack of a generator begins with what is sent to it, or the loop's iterator is taken to have gone."""
    module = tintype.export(branches_between_yields, (torch.ones(3),)).module()
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3) * 5):
        torch.testing.assert_close(module(x), branches_between_yields(x))
