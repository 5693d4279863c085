"""Attributes that no table of a model's modules shows: those of its tensors, and of the classes of what it holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any

import torch

from tintype.trace.hidden_state import users_bases
from tintype.trace.users_code import CONTAINERS, MISSING

_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})


def is_plain_tensor(value: Any) -> bool:
    """Whether a value is a tensor with data, of no class of the user's."""
    return type(value) in _TENSORS


def tables_of_tensors(tables: Iterable[dict[Any, Any]]) -> list[tuple[torch.Tensor, dict[str, Any]]]:
    """The tensors in some tables, each with that of what somebody has put on it. Models have thousands of them: no
    step of Python's for each."""
    values = list(itertools.chain.from_iterable(map(dict.values, tables)))
    tensors = list(itertools.compress(values, map(_TENSORS.__contains__, map(type, values))))
    once = dict(zip(map(id, tensors), tensors, strict=True)).values()
    return list(zip(once, map(vars, once), strict=True))


class SavedClasses:
    """The attributes of the user's classes, with those that they derive from, as they are now."""

    def __init__(self, kinds: Iterable[type]) -> None:
        bases = dict.fromkeys(base for kind in kinds for base in users_bases(kind))
        self._saved = [(base, vars(base).copy()) for base in bases]  # what dict() would do name by name

    def containers(self) -> Iterator[Any]:
        """The containers among what the classes hold."""
        values = list(itertools.chain.from_iterable(table.values() for _, table in self._saved))
        return itertools.compress(values, map(CONTAINERS.__contains__, map(type, values)))

    def changes(self) -> Iterator[tuple[type, str, Any, Any]]:
        """Class, name, and what was and is there, where that is something else."""
        for kind, before in self._saved:
            after = vars(kind)
            if len(after) == len(before) and all(map(is_, after.values(), before.values())):
                continue
            for name in {**before, **after}:
                old, new = before.get(name, MISSING), after.get(name, MISSING)
                if old is not new:
                    yield kind, name, old, new
