"""Taking trees apart into leaves and a structure, putting them together again, and naming the leaves."""

from __future__ import annotations

import collections
import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._pytree import TreeSpec

from tintype.errors import TensorWithoutDataError, UnsupportedInputError
from tintype.tree.registration import can_stand_for, named_parts, register_on_sight
from tintype.tree.structure import same_structure, same_value

# positions and names of a leaf, outermost first: SequenceKey, MappingKey or GetAttrKey objects
KeyPath = tuple[Any, ...]


def flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """Leaves and structure of a tree.

    >>> flatten({"a": [1, 2]})[0]
    [1, 2]
    """
    try:
        found, spec = pytree.tree_flatten(tree)
        while register_on_sight(found):
            found, spec = pytree.tree_flatten(tree)
    except RecursionError as error:
        raise UnsupportedInputError(
            "a container holds itself, or is nested too deeply", remedy="pass the parts that the program needs"
        ) from error
    return found, spec


def leaves(tree: Any) -> list[Any]:
    """Leaves of a tree."""
    return flatten(tree)[0]


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of the same structure with what a function makes of its leaves."""
    found, spec = flatten(tree)
    return unflatten([function(leaf) for leaf in found], spec)


def unflatten(found: Sequence[Any], spec: TreeSpec) -> Any:
    """The tree of leaves and structure.

    >>> unflatten([1, 2, 3], flatten(["a", torch.Size([2, 3])])[1])
    [1, torch.Size([2, 3])]
    """
    return unflattener(spec)(found)


def unflattener(spec: TreeSpec) -> Callable[[Sequence[Any]], Any]:
    """The function that makes trees of one structure. Where torch would make a tuple of a ``torch.Size``, that stays
    one."""
    sizes: list[tuple[int, int]] = []
    simple = _without_sizes(spec, 0, sizes)
    if not sizes:
        return lambda found: pytree.tree_unflatten(found, spec)

    def build(found: Sequence[Any]) -> Any:
        values = list(found)
        for start, end in reversed(sizes):
            values[start:end] = [_size(values[start:end])]
        return pytree.tree_unflatten(values, simple)

    return build


def _without_sizes(spec: TreeSpec, start: int, sizes: list[tuple[int, int]]) -> TreeSpec:
    """The structure with a leaf for every ``torch.Size``, whose places among the leaves are noted."""
    if spec.type is torch.Size:
        sizes.append((start, start + spec.num_leaves))
        return pytree.treespec_leaf()
    before = len(sizes)
    children = []
    for child in spec.children():
        children.append(_without_sizes(child, start, sizes))
        start += child.num_leaves
    return spec if len(sizes) == before else TreeSpec(spec.type, spec.context, children)


def _size(values: Sequence[Any]) -> Any:
    try:
        return torch.Size(values)
    except TypeError:  # something else stands for the numbers
        return tuple(values)


def check_round_trip(made: Any, found: Sequence[Any], spec: TreeSpec) -> None:
    """Raise unless containers that were made of leaves consist of these: one that computes its parts when it is made
    or taken apart would do so again in every program."""
    users = list(_users_nodes(spec))
    if not users:
        return
    for node in users:
        if _holds_tensor(node.context):
            raise UnsupportedInputError(
                f"a {node.type.__name__} has a tensor in its structure, which can't be compared",
                remedy="let flatten return tensors among the parts",
            )
    again, structure = flatten(made)
    if not (len(again) == len(found) and all(map(_is_same_leaf, again, found)) and same_structure(structure, spec)):
        raise _not_the_same(" or ".join(dict.fromkeys(node.type.__name__ for node in users)))


def _is_same_leaf(one: Any, other: Any) -> bool:
    return one is other or (not isinstance(one, torch.Tensor) and same_value(one, other))


@contextlib.contextmanager
def containers_of_users() -> Iterator[None]:
    """Within it the user's containers are made and taken apart, on tensors that nothing can be computed with."""
    try:
        yield
    except TensorWithoutDataError as error:
        raise _not_the_same("a container") from error


def _not_the_same(kind: str) -> UnsupportedInputError:
    return UnsupportedInputError(
        f"an object of {kind} is not the same again when it is taken apart and put together: its "
        "functions, or its constructor, compute something",
        remedy="let flatten return the parts as they are, and unflatten put them into an object without computing",
    )


def _users_nodes(spec: TreeSpec) -> Iterator[TreeSpec]:
    """The parts of a structure that are of classes whose functions somebody else wrote."""
    kind = spec.type
    if isinstance(kind, type) and kind not in _KNOWN_TYPES and not issubclass(kind, tuple):
        yield spec
    for child in spec.children():
        yield from _users_nodes(child)


def _holds_tensor(context: Any) -> bool:
    """Whether a structure is, or has inside of it, a tensor."""
    if isinstance(context, (list, tuple, dict)):
        items = context.values() if isinstance(context, dict) else context
        return any(type(item) not in _PLAIN_TYPES and _holds_tensor(item) for item in items)
    return isinstance(context, torch.Tensor)


_PLAIN_TYPES = frozenset({str, int, float, bool, type(None), type, torch.dtype, torch.device})


_KNOWN_TYPES = frozenset((tuple, list, dict, collections.OrderedDict, collections.defaultdict, collections.deque))


def flatten_with_paths(tree: Any) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """Leaves of a tree with the path that leads to each.

    >>> leaves, _ = flatten_with_paths({"a": [1, 2]})
    >>> [(path_text(path), leaf) for path, leaf in leaves]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    found, spec = pytree.tree_flatten_with_path(tree)
    while register_on_sight([leaf for _, leaf in found]):
        found, spec = pytree.tree_flatten_with_path(tree)
    return found, spec


def path_text(path: KeyPath) -> str:
    """A key path as Python source, to be appended to the name of the root."""
    return pytree.keystr(path)


def path_name(path: KeyPath) -> str:
    """A key path as part of an identifier.

    >>> leaves, _ = flatten_with_paths({"foo": [1]})
    >>> path_name(leaves[0][0])
    'foo_0'
    """
    return "_".join(_entry_name(entry) for entry in path)


def _entry_name(entry: Any) -> str:
    if isinstance(entry, pytree.SequenceKey):
        return str(entry.idx)
    if isinstance(entry, pytree.MappingKey):
        return str(entry.key)
    if isinstance(entry, pytree.GetAttrKey):
        return str(entry.name)
    return str(entry)


def with_classes(value: Any, spec: TreeSpec) -> Any:
    """A value with the classes of a structure where its containers need not have them, since their parts have the
    same names; a ValueError says what does not fit.

    >>> from types import SimpleNamespace
    >>> class Pair: ...
    >>> from tintype.tree import register_container
    >>> register_container(Pair)
    >>> pair = Pair()
    >>> pair.first, pair.second = 1, 2
    >>> type(with_classes(SimpleNamespace(second=4, first=3), flatten(pair)[1])) is Pair
    True
    """
    if spec.is_leaf():
        return value
    stands_for = _stands_for(value, spec)
    children = _named_children(value, spec) if stands_for else _children(value, spec)
    converted = [with_classes(child, below) for child, below in zip(children, spec.children(), strict=True)]
    if not stands_for and all(map(operator.is_, converted, children)):
        return value
    if isinstance(value, dict):  # its keys stay in their order
        by_key = dict(zip(spec.context, converted, strict=True))
        return {key: by_key[key] for key in value}
    return pytree.SUPPORTED_NODES[spec.type].unflatten_fn(converted, spec.context)


def _stands_for(value: Any, spec: TreeSpec) -> bool:
    return (
        type(value) is not spec.type
        and named_parts(spec.type, spec.context) is not None
        and can_stand_for(value, spec.type)
    )


def _named_children(value: Any, spec: TreeSpec) -> list[Any]:
    names, structure = named_parts(spec.type, spec.context) or ((), None)
    missing = [name for name in names if not hasattr(value, name)]
    if missing:
        raise ValueError(f"there is no {missing[0]!r} in {value!r:.100}")
    _check_settings(value, structure)
    return [getattr(value, name) for name in names]


def _children(value: Any, spec: TreeSpec) -> list[Any]:
    # a structure of one level: everything below is a leaf
    return TreeSpec(spec.type, spec.context, [pytree.treespec_leaf()] * spec.num_children).flatten_up_to(value)


def _check_settings(value: Any, structure: Any) -> None:
    """What an object has of a container's settings must be what they are there."""
    if not isinstance(structure, tuple):
        return
    for name, setting in structure:
        given = getattr(value, name, setting)
        same = can_stand_for_class(given, setting) if isinstance(setting, type) else same_value(given, setting)
        if not same:
            raise ValueError(f"{name} is {given!r:.100} and not {setting!r:.100}")


def can_stand_for_class(given: Any, expected: type) -> bool:
    """Whether two classes are one, or one the stand-in of the other."""
    return isinstance(given, type) and (given.__module__, given.__qualname__) == (
        expected.__module__, expected.__qualname__,
    )  # fmt: skip
