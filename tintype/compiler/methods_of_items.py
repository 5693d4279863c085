"""Methods of the user's classes that native code runs on what containers hold.

``any([a, b])`` asks each item whether it is true, ``sorted(items, key=len)`` asks for lengths, a set for hashes. Such
methods run unseen while a function is captured, and not at all when the run is repeated: so nothing is noted of a
run with such a call.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

from tintype.compiler import known
from tintype.compiler.known import CONTAINERS
from tintype.interpret.lookup import find_in_class
from tintype.ir.call_values import is_library

_TRUTH = ("__bool__", "__len__")
_ORDER = ("__lt__", "__gt__", "__le__", "__ge__")
_AS_KEYS = ("__hash__", "__eq__")
_AS_TEXT = ("__str__", "__repr__", "__format__")
_AS_NUMBER = ("__int__", "__float__", "__index__", "__trunc__")
_NO_OPERATORS = frozenset(
    {"__init__", "__new__", "__del__", "__init_subclass__", "__set_name__", "__class_getitem__"}
)

# by what is done with a container
_METHODS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("sorted", "max", "min", "sort"), _ORDER),
    **dict.fromkeys(("any", "all", "filter"), _TRUTH),
    **dict.fromkeys(("set", "frozenset", "dict", "fromkeys", "update", "set_update", "dict_update"), _AS_KEYS),
    **dict.fromkeys(("build_set", "build_map", "set_add", "map_add"), _AS_KEYS),
    **dict.fromkeys(("union", "intersection", "difference", "symmetric_difference", "issubset"), _AS_KEYS),
    **dict.fromkeys(("issuperset", "isdisjoint", "setdefault", "get", "add", "discard", "hash"), _AS_KEYS),
    **dict.fromkeys(("contains", "index", "count", "remove", "__contains__", "__eq__", "__ne__"), _AS_KEYS),
    **dict.fromkeys(("intersection_update", "difference_update", "symmetric_difference_update"), _AS_KEYS),
    "compare": (*_ORDER, *_AS_KEYS, "__ne__"),
    "sum": ("__add__", "__radd__"),
    "prod": ("__mul__", "__rmul__"),
    **dict.fromkeys(("str", "repr", "ascii", "format", "join"), _AS_TEXT),
    **dict.fromkeys(("convert_value", "format_simply", "format_by_specification", "format_value"), _AS_TEXT),
    "map": (),
}
LOOKING_INTO_ITEMS = _METHODS.keys()
# what functions in C run of the object that they are given
_METHODS_OF_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "len": ("__len__",),
    "bool": _TRUTH,
    "abs": ("__abs__",),
    **dict.fromkeys(("str", "repr", "ascii", "format"), _AS_TEXT),
    **dict.fromkeys(("int", "float", "round"), (*_AS_NUMBER, "__round__")),
    **dict.fromkeys(("hash", "set", "frozenset"), _AS_KEYS),
    **dict.fromkeys(("isinstance", "type", "id", "callable", "list", "tuple"), ()),
}
_CALLING = frozenset({"map", "filter", "sorted", "min", "max", "reduce", "sort"})


def method_run_natively(operation: str, values: Iterable[Any]) -> type | None:
    """The class of an object in containers among the values, of which an operation runs a method of the user's.

    It is one of ``LOOKING_INTO_ITEMS``."""
    values = list(values)
    names = _METHODS[operation]
    wanted: set[str] | None = set(names)
    for value in values:
        if operation in _CALLING and isinstance(value, (type, types.BuiltinFunctionType)) and wanted is not None:
            found = _METHODS_OF_FUNCTIONS.get(value.__name__)
            wanted = None if found is None and not known.is_users_class(type(value)) else wanted.union(found or ())
    containers = [value for value in values if isinstance(value, CONTAINERS)]
    if names is _AS_KEYS:
        containers = [list(value) if isinstance(value, dict) else value for value in containers]
    kinds = {type(item) for container in containers for item in _items(container, set())}
    return next((kind for kind in kinds if _has_one(kind, wanted)), None)


def _items(container: Any, seen: set[int]) -> Iterator[Any]:
    if id(container) in seen:
        return
    seen.add(id(container))
    parts = [*dict.keys(container), *dict.values(container)] if isinstance(container, dict) else list(container)
    for part in parts:
        if isinstance(part, CONTAINERS) and not known.is_users_class(type(part)):
            yield from _items(part, seen)
        else:
            yield part


def _has_one(kind: type, names: set[str] | None) -> bool:
    """Whether a class of the user's has one of the methods, written by the user; None: any that an operator runs."""
    if not known.is_users_class(kind):
        return False
    if names is None:
        names = {
            name
            for base in kind.__mro__
            for name in (vars(base) if known.is_users_class(base) else ())
            if name.startswith("__") and name not in _NO_OPERATORS
        }
    methods = [find_in_class(kind, name) for name in names]
    return any(type(method) is FunctionType and not is_library(method.__module__) for method in methods)
