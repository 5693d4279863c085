"""Objects that a program is given, changes and returns: a cache is the caller's own again, brought up to date.

A model adds to the cache that it is given, and returns it among its results. A graph makes new leaves for it; so when
a program has run, what it returns for such an object goes into the caller's, which then stands in the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.utils._pytree as pytree

from tintype import tree
from tintype.trace.given_objects import Path


class Returned:
    """Puts the caller's objects in the place of those that a program makes for them.

    ``pairs`` are places among the arguments, the first number being that of the argument, and among the results."""

    def __init__(self, pairs: Sequence[tuple[Path, Path]], argument_names: Sequence[str]) -> None:
        self.pairs = pairs
        self.argument_names = argument_names

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any], results: Any) -> Any:
        for (argument, *below), place in self.pairs:
            given = self._argument(argument, args, kwargs)
            for number in below:
                given = _children(given)[number]
            results = _with_given(results, place, given)
        return results

    def _argument(self, number: int, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        name = self.argument_names[number]
        if name in kwargs:
            return kwargs[name]
        return args[sum(other not in kwargs for other in self.argument_names[:number])]


def _children(value: Any) -> list[Any]:
    return list(pytree.SUPPORTED_NODES[pytree._get_node_type(value)].flatten_fn(value)[0])


def _with_given(value: Any, place: Sequence[int], given: Any) -> Any:
    """The results with a given object at a place, which holds then what was there."""
    if not place:
        return tree.update(given, value)
    node = pytree.SUPPORTED_NODES[pytree._get_node_type(value)]
    children, context = node.flatten_fn(value)
    parts = list(children)
    parts[place[0]] = _with_given(parts[place[0]], place[1:], given)
    return node.unflatten_fn(parts, context)
