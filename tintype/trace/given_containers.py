"""Lists and dictionaries that a program is given, and changes."""

from __future__ import annotations

import collections
from typing import Any

from torch.utils._pytree import SUPPORTED_NODES

from tintype.errors import StateChangedError

_DICTIONARIES = (dict, collections.OrderedDict, collections.defaultdict)


Arguments = tuple[Any, dict[str, Any]]


def refuse_changed(before: Arguments, after: Arguments, outputs: Any) -> None:
    """Raise if a list or dictionary among a program's arguments is not what it was: a captured program writes to the
    tensors that it is given, but leaves what holds them alone. One that the program returns is what the caller
    looks at."""
    returned: set[int] = set()
    _add_containers(outputs, returned)
    where = _changed(before[0], after[0], "*args", returned)
    where = where or _changed(before[1], after[1], "**kwargs", returned)
    if where is not None:
        raise StateChangedError(
            f"the program changes the list or dictionary that it is given as {where}, which a captured program can't",
            remedy="work on a copy (list(...), dict(...)), and return what the caller is to have",
        )


def _add_containers(value: Any, found: set[int]) -> None:
    if _is_container(value) and id(value) not in found:
        found.add(id(value))
        for item in value.values() if isinstance(value, dict) else value:
            _add_containers(item, found)


def _changed(before: Any, after: Any, where: str, returned: set[int]) -> str | None:
    kind = type(before)
    if _is_container(after) and id(after) in returned:
        return None
    if kind in _DICTIONARIES:
        same, keys = type(after) is kind and list(before) == list(after), list(before)
    elif isinstance(before, (list, tuple)):
        same, keys = type(after) is kind and len(before) == len(after), list(range(len(before)))
    elif kind in SUPPORTED_NODES:  # caches and the like, which programs return
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


def _is_container(value: Any) -> bool:
    return type(value) in _DICTIONARIES or isinstance(value, (list, tuple))
