"""Lists, dictionaries and objects that a program is given, and changes."""

from __future__ import annotations

import collections
from typing import Any

import torch
from torch.utils._pytree import SUPPORTED_NODES, _get_node_type

from tintype import tree
from tintype.errors import StateChangedError

_DICTIONARIES = (dict, collections.OrderedDict, collections.defaultdict)


Arguments = tuple[Any, dict[str, Any]]


def refuse_changed(before: Arguments, after: Arguments, outputs: Any) -> None:
    """Raise if a list, a dictionary or an object that is the container of its attributes is not what it was among a
    program's arguments: a captured program writes to the tensors that it is given, but leaves what holds them alone.
    One that the program returns, as models do with their caches, is what the caller looks at."""
    returned: set[int] = set()
    _add_containers(outputs, returned)
    where = _changed(before[0], after[0], "*args", returned)
    where = where or _changed(before[1], after[1], "**kwargs", returned)
    if where is not None:
        raise StateChangedError(
            f"the program changes the list, dictionary or object that it is given as {where}, which a captured "
            "program can't",
            remedy="return it, or work on a copy (list(...), dict(...)) and return what the caller is to have",
        )


def _add_containers(value: Any, found: set[int]) -> None:
    node = SUPPORTED_NODES.get(_get_node_type(value))
    if node is not None and id(value) not in found:
        found.add(id(value))
        for item in node.flatten_fn(value)[0]:
            _add_containers(item, found)


def _changed(before: Any, after: Any, where: str, returned: set[int]) -> str | None:
    kind = type(before)
    if id(after) in returned and (_is_container(after) or tree.holds_attributes(type(after))):
        return None
    if tree.holds_attributes(kind) and type(after) is kind:
        return _changed_attribute(vars(before), vars(after), where, returned)
    if kind in _DICTIONARIES:
        same, keys = type(after) is kind and list(before) == list(after), list(before)
    elif isinstance(before, (list, tuple)):
        same, keys = type(after) is kind and len(before) == len(after), list(range(len(before)))
    elif kind in SUPPORTED_NODES:  # nobody can tell what is a change of it
        return None
    else:
        return None if before is after else where
    if not same:
        return where
    for key in keys:
        found = _changed(before[key], after[key], f"{where}[{key!r}]", returned)
        if found is not None:
            return where if found == f"{where}[{key!r}]" and not _is_container(before[key]) else found
    return None


def _changed_attribute(before: Any, after: Any, where: str, returned: set[int]) -> str | None:
    if before.keys() != after.keys():
        return where
    for name, item in before.items():
        new = after[name]
        is_same = type(item) in _SETTINGS and type(new) is type(item) and item == new
        if not is_same and _changed(item, new, f"{where}.{name}", returned) is not None:
            return f"{where}.{name}"
    return None


_SETTINGS = (bool, int, float, str, torch.dtype, torch.device)


def _is_container(value: Any) -> bool:
    return type(value) in _DICTIONARIES or isinstance(value, (list, tuple))
