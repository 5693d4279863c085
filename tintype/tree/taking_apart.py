"""Taking values apart whose structure is known: sooner than flattening them and comparing structures."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch.utils._pytree import TreeSpec

from tintype.tree.structure import same_value, told_by_equality

# What is a leaf wherever it stands. Of anything else the registry is to be asked.
_LEAVES = frozenset((torch.Tensor, torch.nn.Parameter, int, float, bool, str, complex, type(None)))


class _Container(NamedTuple):
    cls: Any
    flatten: Any
    context: Any
    is_told_by_equality: bool
    parts: tuple[_Container | None, ...]


class TakingApart:
    """The leaves of values of one structure."""

    def __init__(self, spec: TreeSpec) -> None:
        self._plan = _plan(spec)

    def leaves(self, value: Any) -> list[Any] | None:
        """The leaves of a value; None if its structure is another one, or may be."""
        found: list[Any] = []
        return found if _take(value, self._plan, found) else None


def _plan(spec: TreeSpec) -> _Container | None:
    if spec.is_leaf():
        return None
    node = pytree.SUPPORTED_NODES.get(spec.type)
    parts = tuple(map(_plan, spec.children()))
    cls = spec.type if node else object()
    return _Container(cls, node and node.flatten_fn, spec.context, told_by_equality(spec.context), parts)


def _take(value: Any, plan: _Container | None, leaves: list[Any]) -> bool:
    if plan is None:
        leaves.append(value)
        return type(value) in _LEAVES
    cls, flatten, context, is_told_by_equality, parts = plan
    if type(value) is not cls:
        return False
    children, found = flatten(value)
    if not (found == context if is_told_by_equality else same_value(found, context)):
        return False
    if not isinstance(children, (list, tuple)) or len(children) != len(parts):
        return False
    return all(map(_take, children, parts, itertools.repeat(leaves)))
