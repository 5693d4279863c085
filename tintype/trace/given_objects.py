"""Which of the objects that a program returns are those that it was given."""

from __future__ import annotations

from typing import Any

from torch.utils._pytree import SUPPORTED_NODES, _get_node_type

from tintype import tree

# the numbers of children on the way to a part of a tree
Path = tuple[int, ...]


class GivenObjects:
    """The containers of attributes among a program's arguments, as they are before it runs."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], spec: tree.TreeSpec) -> None:
        self._found: dict[int, tuple[Any, Path]] = {}
        if _has_objects(spec):
            for number, argument in enumerate([*args, *kwargs.values()]):
                self._add(argument, (number,))

    def _add(self, value: Any, path: Path) -> None:
        node = SUPPORTED_NODES.get(_get_node_type(value))
        if node is None:
            return
        if tree.holds_attributes(type(value)):
            self._found.setdefault(id(value), (value, path))
        for number, child in enumerate(node.flatten_fn(value)[0]):
            self._add(child, (*path, number))

    def among(self, outputs: Any) -> list[tuple[Path, Path]]:
        """Places among the arguments, and where the same objects stand among the results."""
        found: list[tuple[Path, Path]] = []
        if self._found:
            self._look_in(outputs, (), found)
        return found

    def _look_in(self, value: Any, path: Path, found: list[tuple[Path, Path]]) -> None:
        node = SUPPORTED_NODES.get(_get_node_type(value))
        if node is None:
            return
        if id(value) in self._found:
            found.append((self._found[id(value)][1], path))
            return
        for number, child in enumerate(node.flatten_fn(value)[0]):
            self._look_in(child, (*path, number), found)


def _has_objects(spec: tree.TreeSpec) -> bool:
    if spec.is_leaf():
        return False
    return tree.holds_attributes(spec.type) or any(map(_has_objects, spec.children()))
