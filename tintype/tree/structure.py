"""When two structures are the same: not when they are merely equal.

``2 == 2.0 == True`` and ``0.0 == -0.0`` to Python, but a program does other things with them; and nan is nan here.
"""

from __future__ import annotations

import collections
from typing import Any

import torch
from torch.utils._pytree import TreeSpec

_DICTIONARIES = (dict, collections.OrderedDict, collections.defaultdict)
_TOLD_BY_EQUALITY = (str, bytes, type(None), type, torch.dtype, torch.device)


def same_value(one: Any, other: Any) -> bool:
    """Whether two settings are of the same types and the same to the last bit.

    >>> same_value((1, "a"), (1, "a")), same_value([2], [2.0]), same_value(0.0, -0.0), same_value({1: 2}, {True: 2})
    (True, False, False, False)
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (float, complex)):
        return repr(one) == repr(other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(map(same_value, one.items(), other.items()))
    if isinstance(one, torch.Tensor):
        return False  # not the same one
    return bool(one == other)


def told_by_equality(value: Any) -> bool:
    """Whether only the same value equals this one: so it is for names, not for numbers."""
    if type(value) in (list, tuple):
        return all(map(told_by_equality, value))
    return isinstance(value, _TOLD_BY_EQUALITY)


def same_structure(one: TreeSpec, other: TreeSpec, *, any_order: bool = False) -> bool:
    """Whether two structures are the same, perhaps but for the order of keys in dictionaries.

    >>> from torch.utils import _pytree as pytree
    >>> _, spec = pytree.tree_flatten({"a": 1, "b": [2]})
    >>> _, reordered = pytree.tree_flatten({"b": [2], "a": 1})
    >>> same_structure(spec, reordered), same_structure(spec, reordered, any_order=True)
    (False, True)
    """
    if one is other:
        return True
    if one.type is not other.type or one.num_children != other.num_children:
        return False
    children, others = one.children(), other.children()
    if any_order and one.type in _DICTIONARIES:
        keys, other_keys = _keys_of(one), _keys_of(other)
        place = {key: number for number, key in enumerate(other_keys)}
        order = [place.get(key) for key in keys]
        if None in order or not all(same_value(key, other_keys[n]) for key, n in zip(keys, order)):  # type: ignore[index]
            return False
        if one.type is collections.defaultdict and not same_value(one.context[0], other.context[0]):
            return False
        others = [others[number] for number in order]  # type: ignore[index]
    elif not same_value(one.context, other.context):
        return False
    return all(same_structure(a, b, any_order=any_order) for a, b in zip(children, others))


def _keys_of(spec: TreeSpec) -> list[Any]:
    return list(spec.context[1] if spec.type is collections.defaultdict else spec.context)


def structure_key(spec: TreeSpec) -> Any:
    """Equal for the same structures only, and something that can be a key if the structures can; most structures are
    that themselves."""
    return spec if _is_told_by_equality(spec) else (spec, repr(spec))


def _is_told_by_equality(spec: TreeSpec) -> bool:
    if spec.is_leaf():
        return True
    context = spec.context
    if isinstance(context, (list, tuple)) and context and not told_by_equality(context):
        return False
    return all(map(_is_told_by_equality, spec.children()))


__all__ = ["same_structure", "same_value", "structure_key", "told_by_equality"]
