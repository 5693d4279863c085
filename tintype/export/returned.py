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
    """Brings an object of the caller's up to date; ``place`` is where it is found, a number of an argument first."""

    def __init__(self, place: Path, argument_names: Sequence[str]) -> None:
        self.number, *self.below = place
        self.argument_names = argument_names

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any], made: Any) -> Any:
        """The caller's object, which holds what the program has made for it."""
        name = self.argument_names[self.number]
        if name in kwargs:
            given = kwargs[name]
        else:
            given = args[sum(other not in kwargs for other in self.argument_names[: self.number])]
        for number in self.below:
            given = _children(given)[number]
        return tree.update(given, made)


def returned_objects(
    pairs: Sequence[tuple[Path, Path]], argument_names: Sequence[str]
) -> dict[tuple[int, ...], Returned]:
    """By the places where they stand among the results."""
    return {place: Returned(given, argument_names) for given, place in pairs}


def put_into(objects: dict[tuple[int, ...], Returned], args: Any, kwargs: Any, results: Any, path: Path = ()) -> Any:
    """Results with the caller's objects in their places."""
    if path in objects:
        return objects[path](args, kwargs, results)
    if not any(place[: len(path)] == path for place in objects):
        return results
    node = pytree.SUPPORTED_NODES[pytree._get_node_type(results)]
    children, context = node.flatten_fn(results)
    parts = [put_into(objects, args, kwargs, child, (*path, number)) for number, child in enumerate(children)]
    return node.unflatten_fn(parts, context)


def _children(value: Any) -> list[Any]:
    return list(pytree.SUPPORTED_NODES[pytree._get_node_type(value)].flatten_fn(value)[0])
