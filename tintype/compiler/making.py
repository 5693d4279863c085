"""Making objects again that a recorded run made: containers, objects of the user's classes, partials, methods."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from types import BuiltinFunctionType, MethodType, WrapperDescriptorType
from typing import Any

import torch

from tintype.compiler.expressions import Expression


class NotMadeError(Exception):
    """An object can't be made again."""


def expression_of_new(value: Any, expression: Callable[[Any], Expression], _depth: int = 0) -> Expression:
    """An expression for an object that the program made; parts by ``expression``."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return ("make", kind.__name__, tuple(map(expression, value)))
    if kind is dict:
        return ("make", "dict", tuple(part for pair in value.items() for part in map(expression, pair)))
    if kind is slice:
        return ("make", "slice", tuple(map(expression, (value.start, value.stop, value.step))))
    if kind is collections.deque:
        return ("make", make_deque, (expression(value.maxlen), *map(expression, value)))
    if kind is functools.partial:
        parts = (value.func, value.args, value.keywords)
        return ("make", make_partial, tuple(map(expression, parts)))
    if kind is MethodType:
        return ("make", MethodType, (expression(value.__func__), expression(value.__self__)))
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return ("make", make_namedtuple, (("constant", kind), *map(expression, value)))
    if isinstance(value, Warning) and _is_plain_warning(value, kind):
        return ("make", make_warning, (("constant", kind), *map(expression, value.args)))
    return expression_of_object(value, kind, expression)


def expression_of_object(value: Any, kind: type, expression: Callable[[Any], Expression]) -> Expression:
    base = next((base for base in (collections.OrderedDict, dict, list) if isinstance(value, base)), object)
    if kind is collections.defaultdict or isinstance(value, (torch.nn.Module, torch.Tensor, type)):
        raise NotMadeError(f"a new {kind.__name__}")
    if kind.__new__ not in (object.__new__, dict.__new__, list.__new__, collections.OrderedDict.__new__):
        raise NotMadeError(f"a new {kind.__name__}")
    plain = kind.__basicsize__ in (base.__basicsize__, base.__basicsize__ + 8, base.__basicsize__ + 16)
    slots = any("__slots__" in vars(ancestor) and vars(ancestor)["__slots__"] for ancestor in kind.__mro__)
    if not plain or slots or (base is object and not hasattr(value, "__dict__")):
        raise NotMadeError(f"a new {kind.__name__}")
    content: tuple[Any, ...] = ()
    if base is list:
        content = tuple(value)
    elif base is not object:
        content = tuple(part for pair in dict.items(value) for part in pair)
    attributes = getattr(value, "__dict__", {})
    parts = [("constant", kind), ("constant", base), ("constant", len(content)), *map(expression, content)]
    parts += [part for name, item in attributes.items() for part in (("constant", name), expression(item))]
    return ("make", make_object, tuple(parts))


def _is_plain_warning(value: Warning, kind: type) -> bool:
    """Whether a warning is its class and its arguments, and was not raised."""
    initialize: Any = kind.__init__  # type: ignore[misc]
    if not isinstance(initialize, WrapperDescriptorType) or not isinstance(kind.__new__, BuiltinFunctionType):
        return False
    is_known = kind.__basicsize__ == BaseException.__basicsize__ and not value.__dict__
    return is_known and value.__traceback__ is None and value.__cause__ is None and value.__context__ is None


def make_warning(kind: Any, *arguments: Any) -> Any:
    if not issubclass(kind, Warning):  # a file might say so
        raise TypeError(f"{kind!r} is no class of warnings")
    return kind(*arguments)


def make_deque(limit: int | None, *items: Any) -> Any:
    return collections.deque(items, limit)


def make_partial(function: Any, arguments: Any, keywords: Any) -> Any:
    return functools.partial(function, *arguments, **keywords)


def make_namedtuple(kind: Any, *items: Any) -> Any:
    return tuple.__new__(kind, items)


def make_object(kind: Any, base: Any, count: int, *parts: Any) -> Any:
    """An object of a class, without calling the class's own code."""
    made = base.__new__(kind)
    content, attributes = parts[:count], parts[count:]
    if base is list:
        list.extend(made, content)
    else:
        for key, item in zip(content[::2], content[1::2], strict=True):
            base.__setitem__(made, key, item)
    if attributes:
        made.__dict__.update(zip(attributes[::2], attributes[1::2], strict=True))
    return made
