"""Containers of files whose classes are not here: the same parts under the same names, in an object of no class."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.utils._pytree as pytree

from tintype.tree.registration import _has_named_parts

_NAME = "tintype.PlainContainer"


class PlainContainer(SimpleNamespace):
    """Stands for an object whose class is not known here; its parts are attributes, and entries by name.

    >>> made = PlainContainer(logits=1, loss=None)
    >>> made.logits, made["logits"], made.loss
    (1, 1, None)
    """

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


def plain_context(context: Any, count: int) -> tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]:
    """The names of the parts of a container, and of its settings with their values, from what its class wrote of its
    structure: as containers and dataclasses that are registered with tintype do, or a list of names. Parts without
    names are numbered."""
    names: Any = None
    settings: Any = ()
    if isinstance(context, (tuple, list)) and len(context) == 2 and all(map(_is_list, context)):
        names, settings = context
        if all(isinstance(entry, str) for entry in settings):
            settings = [(name, None) for name in settings]  # fields of a dataclass that are None
    elif _is_list(context):
        names = context
    if not _is_list(names) or len(names) != count or not all(map(_is_name, names)):
        names = [f"part_{number}" for number in range(count)]
    known = [entry for entry in settings if _is_list(entry) and len(entry) == 2 and _is_name(entry[0])]
    return tuple(names), tuple((name, value) for name, value in known)


def _is_list(value: Any) -> bool:
    return isinstance(value, (tuple, list))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier() and not value.startswith("__")


def _flatten(value: PlainContainer) -> tuple[list[Any], Any]:
    parts = {name: part for name, part in vars(value).items() if not _is_setting(part)}
    settings = tuple((name, part) for name, part in vars(value).items() if _is_setting(part))
    return list(parts.values()), (tuple(parts), settings)


def _is_setting(part: Any) -> bool:
    return isinstance(part, (bool, str, type(None), torch.dtype, torch.device))


def _flatten_with_keys(value: PlainContainer) -> tuple[list[tuple[Any, Any]], Any]:
    parts, context = _flatten(value)
    return [(pytree.GetAttrKey(name), part) for name, part in zip(context[0], parts, strict=True)], context


def _unflatten(parts: Any, context: Any) -> PlainContainer:
    names, settings = context
    return PlainContainer(**dict(zip(names, parts, strict=True)), **dict(settings))


_has_named_parts.add(PlainContainer)
pytree.register_pytree_node(
    PlainContainer,
    _flatten,
    _unflatten,
    serialized_type_name=_NAME,
    flatten_with_keys_fn=_flatten_with_keys,
)
