"""Objects of the user's that are what their attributes are, as dataclasses: taken apart, and made again."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from enum import Enum
from types import MemberDescriptorType
from typing import Any

import torch

from tintype.trace.reachable import is_of_others, namespace_of

_HEAP_TYPE = 1 << 9  # made by a class statement
# what a class may have that makes an object more than its attributes
_SPECIAL = ("__del__", "__getattribute__", "__reduce_ex__", "__reduce__", "__copy__", "__deepcopy__", "__next__")


def is_plain_object(value: Any) -> bool:
    """Whether an object is nothing but its attributes."""
    kind = type(value)
    if not kind.__flags__ & _HEAP_TYPE or isinstance(
        value, (torch.nn.Module, torch.Tensor, type, Enum, BaseException)
    ):
        return False
    make: Any = kind.__new__
    if make is not object.__new__ or type(kind) is not type or is_of_others(kind):
        return False
    bases = kind.__mro__[:-1]
    if any(not base.__flags__ & _HEAP_TYPE or any(name in vars(base) for name in _SPECIAL) for base in bases):
        return False
    return weakref.getweakrefcount(value) == 0 if kind.__weakrefoffset__ else True


def attributes_of(value: Any) -> dict[str, Any]:
    """All attributes of a plain object: those in its dictionary, and those in slots."""
    found = dict(namespace_of(value))
    for name, slot in _slots_of(type(value)).items():
        try:
            found[name] = slot.__get__(value)
        except AttributeError:  # it has none there
            continue
    return found


def _slots_of(kind: type) -> dict[str, Any]:
    members = (item for base in kind.__mro__ for item in vars(base).items())
    return {name: member for name, member in members if type(member) is MemberDescriptorType}


def object_with(kind: type, attributes: Mapping[str, Any]) -> Any:
    """A plain object with these attributes, whatever its class does when one is made or assigned to."""
    made: Any = object.__new__(kind)
    fill_object(made, attributes)
    return made


def fill_object(made: Any, attributes: Mapping[str, Any]) -> None:
    slots = _slots_of(type(made))
    for name, value in attributes.items():
        if name in slots:
            slots[name].__set__(made, value)
        else:
            namespace_of(made)[name] = value
