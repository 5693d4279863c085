"""The Python state of a model, to be put back after a capture.

A program may assign to attributes while it runs: counters, caches, buffers. In eager mode that is its own
business; a capture runs the program on fakes and must leave the model as it was, also when it fails.
"""

from __future__ import annotations

import collections
import types
from operator import is_
from typing import Any, NamedTuple

import torch


class Change(NamedTuple):
    """A value that the program replaced: where it lived, and what was and is there."""

    owner: Any
    name: Any
    before: Any
    after: Any


MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<nothing>"})()

_LEAF_TYPES = frozenset(
    {
        int, float, bool, str, bytes, complex, type(None), torch.Tensor, torch.nn.Parameter, torch.dtype,
        torch.device, torch.Size, type, types.FunctionType, types.MethodType, types.BuiltinFunctionType,
        types.ModuleType,
    }
)  # fmt: skip


class Snapshot:
    """Every container and object reachable from a model, with its contents as they are now."""

    def __init__(self, root: torch.nn.Module) -> None:
        self._saved: list[tuple[Any, Any, Any]] = []  # owner, container, copy
        self._empty: list[Any] = []
        self._seen: set[int] = set()
        pending: list[Any] = [root]
        while pending:
            value = pending.pop()
            if id(value) in self._seen:
                continue
            self._seen.add(id(value))
            self._save(value, pending)

    def _save(self, value: Any, pending: list[Any]) -> None:
        if isinstance(value, (dict, list, set)) and not value:  # modules have a dozen empty tables each
            self._empty.append(value)
            return
        if isinstance(value, dict):
            items: Any = list(value.values())
            self._saved.append((value, value, dict(value)))
        elif isinstance(value, (list, collections.deque)):
            items = list(value)
            self._saved.append((value, value, items))
        elif isinstance(value, tuple):
            items = value
        elif type(value) is set:
            items = ()
            self._saved.append((value, value, set(value)))
        else:
            attributes = vars(value) if isinstance(value, torch.nn.Module) else _attributes(value)
            if attributes is None:
                return
            items = list(attributes.values())
            self._saved.append((value, attributes, dict(attributes)))
        pending += [item for item in items if type(item) not in _LEAF_TYPES]

    def restore(self) -> list[Change]:
        """Put everything back; returns what had changed."""
        changes: list[Change] = []
        for container in self._empty:
            if container:
                values = dict(container) if isinstance(container, dict) else dict(enumerate(container))
                changes += [Change(container, key, MISSING, value) for key, value in values.items()]
                container.clear()
        for owner, container, copy in self._saved:
            if isinstance(container, dict):
                if (
                    len(container) == len(copy)
                    and all(map(is_, container.values(), copy.values()))
                    and container.keys() == copy.keys()
                ):
                    continue
                for key in [*copy, *(k for k in container if k not in copy)]:
                    before, after = copy.get(key, MISSING), container.get(key, MISSING)
                    if before is not after:
                        changes.append(Change(owner, key, before, after))
                container.clear()
                container.update(copy)
            elif isinstance(container, set):
                if container != copy:
                    changes.append(Change(owner, None, copy, set(container)))
                    container.clear()
                    container.update(copy)
            elif len(container) != len(copy) or any(a is not b for a, b in zip(container, copy, strict=True)):
                changes.append(Change(owner, None, copy, list(container)))
                container.clear()
                container.extend(copy)
        return changes


def _attributes(value: Any) -> dict[str, Any] | None:
    """The attributes of a user's object, or None for things that are not one."""
    if isinstance(value, (torch.Tensor, type, types.FunctionType, types.ModuleType)):
        return None
    if not isinstance(value, torch.nn.Module) and type(value).__module__.partition(".")[0] in ("torch", "numpy"):
        return None
    attributes = getattr(value, "__dict__", None)
    return attributes if type(attributes) is dict else None
