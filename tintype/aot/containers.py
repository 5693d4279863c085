"""Containers that a function was given and changed: a list that it appended to, a cache that it brought up to date.

Graphs know of tensors alone. So a function that changes such containers returns what became of its arguments, too,
and the caller's own are changed to that when the graphs have run.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Sequence
from typing import Any

import torch

from tintype import tree
from tintype.errors import MutationError

_KINDS = (dict, list, collections.deque, collections.OrderedDict, collections.defaultdict)


def are_changed(given: Sequence[Any], spec: tree.TreeSpec, arguments: Any) -> bool:
    """Whether containers hold something else than the leaves that they were made from; refuses those that can't be
    changed in the same way afterwards."""
    leaves, structure = tree.flatten(arguments)
    if structure == spec and all(map(operator.is_, leaves, given)):
        return False
    kinds = _kinds_in(spec)
    others = [
        kind
        for kind in kinds
        if kind not in _KINDS and not issubclass(kind, tuple) and not tree.holds_attributes(kind)
    ]
    if others:
        raise MutationError(
            f"the function changes what it was given, in which there is a {others[0].__name__}: a compiled function "
            "changes lists, dictionaries, caches of transformers and containers of attributes alone",
            remedy="return what is new instead",
        )
    return True


def _kinds_in(spec: tree.TreeSpec) -> list[Any]:
    kinds = [] if spec.type is None or spec.type is torch.Size else [spec.type]
    return kinds + [kind for child in spec.children() for kind in _kinds_in(child)]
