"""Lists, dictionaries and objects that a program is given: which of them it changes, and where it returns them.

A captured program computes tensors. A container that it changes and returns, as models do with their caches, is the
caller's own again, brought up to date, when the program has run. One that it changes and keeps to itself can't be;
nor can one of a class that nobody has told how to change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._pytree import SUPPORTED_NODES, _get_node_type

from tintype import tree
from tintype.errors import Location, StateChangedError, TintypeError
from tintype.ir.observations import ATTRIBUTES, SAME_OBJECTS, Observation
from tintype.tree import Path

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, type)


class GivenContainers:
    """The containers among a program's arguments, as they are before it runs."""

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], spec: tree.TreeSpec, example: Any = None
    ) -> None:
        self.spec = spec
        self.known = tree.Containers(spec, of_call=True)
        self.objects = self.known.of((args, kwargs))
        if self.objects and example is not None:
            tree.order_attributes(self.objects, self.known.of(example))
        self.labels = tree.labels(self.objects)
        self._before = [_Contents(container) for container in self.objects]
        self._numbers: dict[int, int] = {}
        for number, container in enumerate(self.objects):
            self._numbers.setdefault(id(container), number)

    def holds(self, value: Any) -> bool:
        """Whether a value is one of the containers."""
        return id(value) in self._numbers

    def changed(self) -> list[int]:
        """The numbers of those that hold something else now."""
        first = self._numbers.values()
        return [number for number in first if self._before[number].is_changed()]

    def among(self, outputs: Any) -> list[tuple[int, Path]]:
        """The numbers of those that stand among results, and where."""
        found: list[tuple[int, Path]] = []
        if self.objects:
            self._look_in(outputs, (), found)
        return found

    def _look_in(self, value: Any, path: Path, found: list[tuple[int, Path]]) -> None:
        node = SUPPORTED_NODES.get(_get_node_type(value))
        if node is None:
            return
        if id(value) in self._numbers:
            found.append((self._numbers[id(value)], path))
        for number, child in enumerate(node.flatten_fn(value)[0]):
            self._look_in(child, (*path, number), found)

    def check(
        self,
        outputs: Any,
        line_of: Callable[[Any, Iterable[str]], Location | None],
        problems: list[TintypeError],
    ) -> list[int]:
        """The numbers of those that were changed; ``problems`` gets an error for each where the caller's own can't be
        changed in the same way. ``line_of`` finds the line that changed a container or an attribute of that name."""
        changed = self.changed() if self.objects else []
        returned = {number for number, _ in self.among(outputs)} if changed else set()
        for number in changed:
            kind = type(self.objects[number])
            can_be_updated = tree.can_be_updated(kind)
            if number not in returned or not can_be_updated:
                where = place_text(self.spec, self.known.paths[number])
                names = self._before[number].changed_attributes()
                attribute = f".{names[0]}" if len(names) == 1 else ""
                remedy = "return it, or work on a copy (list(...), dict(...), copy.copy(...)) and return what the "
                remedy += "caller is to have"
                if not can_be_updated:
                    remedy = f"make a new {kind.__name__} and return that"
                problems.append(
                    StateChangedError(
                        f"the program changes the list, dictionary or object that it is given as {where}{attribute}, "
                        "which a captured program can't",
                        location=line_of(self.objects[number], names),
                        remedy=remedy,
                    )
                )
        return changed

    def paths_among(self, outputs: Any) -> list[tuple[Path, Path]]:
        """Places among the arguments, a number of an argument first, and where the same objects are returned."""
        count = self.spec.children()[0].num_children
        pairs = []
        for number, place in self.among(outputs):
            side, position, *below = self.known.paths[number]
            pairs.append(((position + side * count, *below), place))
        return pairs

    def observation(self, changed: list[int], *, compared: bool) -> Observation | None:
        """That these are as many objects as they were, where that makes a difference: a change of one is one of the
        others if they are the same, and so is the result of a comparison."""
        kinds = self.known.kinds
        chosen = range(len(kinds)) if compared else changed
        mattering = tuple(number for number in chosen if kinds.count(kinds[number]) > 1)
        return Observation(None, SAME_OBJECTS, mattering, self.labels) if mattering else None

    def attribute_orders(self) -> list[Observation]:
        """The order of the attributes of the user's objects, for a program that goes through them."""
        return [
            Observation(None, ATTRIBUTES, (number,), tuple(vars(container)))
            for number, container in enumerate(self.objects)
            if tree.holds_attributes(kind := type(container))
            and not tree.is_of_library(kind)
            and len(vars(container)) > 1
        ]


class _Contents:
    """What a container holds."""

    def __init__(self, container: Any) -> None:
        self.container = container
        # what a function makes of an object need not be what it holds
        self.is_told_by_function = not tree.can_be_updated(type(container))
        self.children, self.context = self._now()
        self.attributes = self._attributes()

    def _now(self) -> tuple[list[Any], Any]:
        children, context = SUPPORTED_NODES[_get_node_type(self.container)].flatten_fn(self.container)
        return list(children), _copied(context)

    def _attributes(self) -> dict[str, Any]:
        attributes = getattr(self.container, "__dict__", None)
        return dict(attributes) if isinstance(attributes, dict) else {}

    def is_changed(self) -> bool:
        children, context = self._now()
        return (
            not tree.same_value(context, self.context)
            or len(children) != len(self.children)
            or not all(map(self._is_same, children, self.children))
            or (self.is_told_by_function and bool(self.changed_attributes()))
        )

    def changed_attributes(self) -> list[str]:
        """The names of attributes that are others, but for those that objects remember by themselves."""
        before, now = self.attributes, self._attributes()
        names = [
            name for name in {**before, **now} if not _is_same(before.get(name, _NOTHING), now.get(name, _NOTHING))
        ]
        cls = type(self.container)
        return [name for name in names if not isinstance(getattr(cls, name, None), functools.cached_property)]

    def _is_same(self, now: Any, before: Any) -> bool:
        if _is_same(now, before):
            return True
        if not self.is_told_by_function:
            return False
        (leaves, spec), (others, other_spec) = tree.flatten(now), tree.flatten(before)
        return tree.same_structure(spec, other_spec) and all(map(_is_same, leaves, others))


_NOTHING = object()


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) in _PLAIN and tree.same_value(one, other))


def _copied(context: Any) -> Any:
    """A structure that does not change with what it was taken from."""
    if isinstance(context, dict):
        return {key: _copied(value) for key, value in context.items()}
    return type(context)(map(_copied, context)) if type(context) in (list, tuple) else context


def place_text(spec: tree.TreeSpec, path: Path) -> str:
    """Where a container stands in a call, as the user writes it: ``*args[0]['a']``."""
    side = path[0]
    return ("*args", "**kwargs")[side] + "".join(tree.child_names(spec.children()[side], path[1:]))
