"""Functions as a capture sees them: their names, who catches their exceptions, calls that modes don't hear."""

from __future__ import annotations

import collections
import types
from types import MethodType
from typing import Any, NamedTuple

import torch

from tintype.compiler import known
from tintype.compiler.expressions import Expression
from tintype.compiler.sources import Source
from tintype.interpret import Frame
from tintype.interpret.decode import Decoded
from tintype.interpret.lookup import find_in_class


def without_modes(callable: Any, arguments: Any, keywords: dict[str, Any]) -> Any:
    """Call something that is not heard, and that finds torch as it is in eager mode."""
    if not torch._C._len_torch_function_stack():
        return callable(*arguments, **keywords)
    mode = torch._C._pop_torch_function_stack()
    try:
        return callable(*arguments, **keywords)
    finally:
        torch._C._push_on_torch_function_stack(mode)


def shallow_copy(container: Any) -> Any:
    if isinstance(container, dict):
        return dict(container)
    for kind in (list, set, collections.deque):
        if isinstance(container, kind):
            return kind(container)
    return container


def name_of(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or function)


class Handler(NamedTuple):
    """Where an exception goes. ``depth``: on the stack, behind what ends a ``with``; None: it is no end of one."""

    depth: int | None
    cleans_up: bool


def handlers_at(decoded: Decoded, index: int) -> list[Handler]:
    """Where an exception of an operation goes in a function, and what is raised again there; without what the
    compiler wrote to clean up."""
    found: list[Handler] = []
    entry = decoded.handler_of(index) if index >= 0 else None
    while entry is not None:
        first, second = (decoded.operations[entry.handler + step][0] for step in (0, 1))
        if first != "copy" and "stop_iteration_error" not in (first, second):
            depth = entry.depth if second == "with_except_start" else None
            found.append(Handler(depth, cleans_up(decoded, entry.handler)))
        entry = decoded.handler_of(entry.handler)
    return found


def sets_a_mode_back(frame: Frame, handler: Handler) -> bool:
    """Whether a handler is the end of a ``with`` that sets a mode of torch's back, which exceptions pass."""
    if handler.depth is None or not 0 < handler.depth <= len(frame.stack):
        return False
    leave = frame.stack[handler.depth - 1]
    return type(leave) is MethodType and isinstance(leave.__self__, known.MODES)


_ENDS_AN_EXCEPTION = frozenset(
    ["check_exception_match", "check_group_match", "with_except_start", "pop_except", "return_value", "yield_value"]
)


def cleans_up(decoded: Decoded, start: int) -> bool:
    """Whether a handler is a ``finally`` that lets each exception go on."""
    for name, _ in decoded.operations[start:]:
        if name == "reraise":
            return True
        if name in _ENDS_AN_EXCEPTION or name.startswith("return"):
            return False
    return False


def base_method(kind: type, name: str) -> Any:
    """The method in C that stands behind one of the same name in a class of the user's, as for ``super().append(x)``;
    None: it is what the class has."""
    if type(find_in_class(kind, name)) in _METHODS_IN_C:
        return None
    found = (vars(base).get(name) for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE)
    return next((method for method in found if type(method) in _METHODS_IN_C), None)


_METHODS_IN_C = (types.MethodDescriptorType, types.WrapperDescriptorType)
_HEAP_TYPE = 1 << 9


def source_of_value(expression: Expression) -> Source:
    """The result of a call, or a part of it, as a source."""
    if expression[0] == "value":
        return Source("value", expression[1])
    return Source("item", expression[2], source_of_value(expression[1]))


def result_may_be_none(getter: Any) -> bool:
    """Whether an attribute of tensors is a tensor at one time and nothing at another."""
    return getattr(getter.__self__, "__name__", "") in ("grad", "_grad", "grad_fn", "_base", "_backward_hooks")


_getters: dict[tuple[str, str, str], Any] = {}


def canonical(function: Any) -> Any:
    """One and the same object for what torch makes anew each time: the getters and setters of attributes."""
    if type(function) is not types.MethodWrapperType:
        return function
    owner = function.__self__
    key = (function.__name__, getattr(owner, "__name__", ""), getattr(owner, "__qualname__", ""))
    return _getters.setdefault(key, function)
