"""Arguments are taken apart by the structure that a program expects; of any other, nothing is assumed."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import tintype
from tintype import tree

Point = collections.namedtuple("Point", "x y")


class Lazy:
    """Its parts come one by one."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


pytree.register_pytree_node(Lazy, lambda value: (iter(value.parts), None), lambda parts, _: Lazy(*parts))

one, two = torch.ones(1), torch.zeros(2)
VALUES: list[Any] = [
    one, 3, None, [one, two], (one, [two, "text"]), {"a": one, "b": (two, 2.5)}, [], {}, [[]],
    collections.OrderedDict(a=one), collections.deque([one, two]), torch.nn.Parameter(one), torch.Size([1]),
]  # fmt: skip
UNSURE: list[Any] = [Point(one, two), [Lazy(one, two)], object()]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_leaves_are_those_of_flattening(value: Any) -> None:
    leaves, spec = tree.flatten(value)
    found = tree.TakingApart(spec).leaves(value)
    assert found is not None and len(found) == len(leaves)
    assert all(map(lambda left, right: left is right, found, leaves))
    for other in (*VALUES, *UNSURE):
        if tree.flatten(other)[1] != spec:
            assert tree.TakingApart(spec).leaves(other) is None


@pytest.mark.parametrize("value", UNSURE, ids=lambda value: type(value).__name__)
def test_what_only_the_registry_knows_is_not_taken_apart(value: Any) -> None:
    assert tree.TakingApart(tree.flatten(value)[1]).leaves(value) is None


def test_keys_in_another_order_reach_their_places() -> None:
    program = tintype.export(lambda pair: pair["a"] - pair["b"], ({"a": torch.ones(2), "b": torch.zeros(2)},))
    assert program.module()({"b": torch.ones(2), "a": torch.zeros(2)}).tolist() == [-1, -1]
    with pytest.raises(tintype.TintypeError, match="tree spec"):
        program.module()({"a": [torch.ones(2)], "b": torch.zeros(2)})
