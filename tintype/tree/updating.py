"""Bringing containers up to date: letting them hold what others do."""

from __future__ import annotations

import collections
import operator
from typing import Any

import torch

from tintype.tree.registration import holds_attributes

# What holds nothing: most of what containers hold.
_LEAVES = frozenset((torch.Tensor, int, float, bool, str, type(None), torch.dtype, torch.device, type))


def update(old: Any, new: Any) -> Any:
    """Let containers hold what others do; returns what is to stand where ``old`` did."""
    if type(old) in _LEAVES or type(old) is not type(new) or old is new:
        return new
    if isinstance(old, dict):
        contents = {key: update(old[key], value) if key in old else value for key, value in new.items()}
        old.clear()
        old.update(contents)
    elif isinstance(old, (list, collections.deque)):
        items = [*map(update, old, new), *list(new)[len(old) :]]
        old.clear()
        old.extend(items)
    elif isinstance(old, tuple) and type(old) is not torch.Size:
        items = [*map(update, old, new)]
        if len(items) == len(old) and all(map(operator.is_, items, old)):
            return old
        return tuple(items) if type(old) is tuple else new
    elif holds_attributes(type(old)):
        attributes = {name: update(vars(old).get(name), value) for name, value in vars(new).items()}
        vars(old).clear()
        vars(old).update(attributes)
    else:
        return new
    return old
