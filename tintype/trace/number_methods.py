"""What Python's numbers can do and torch's symbolic ones can't: formats, ``divmod``, functions of NumPy.

These are methods of torch's classes while a program is captured. NumPy applies its functions to an object by calling
the method of their name, so ``np.sqrt(size)`` comes to ``size.sqrt()``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from tintype.ir.process_switches import CountedSwitch
from tintype.symbolic import floating
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.expression import Expr
from tintype.symbolic.location import users_frame
from tintype.symbolic.messages import is_for_people


def _format(self: Any, specification: str) -> str:
    """``f"{size:3d}"``: the number itself where a person reads it, else it is fixed."""
    number = from_torch(self)
    frame = users_frame(sys._getframe(1))
    if isinstance(number, Expr) and number.environment.has_running_program:
        if frame is not None and not is_for_people(frame):
            number = number.environment.specialize(number)
    return str(number) if isinstance(number, Expr) else format(number, specification)


def _divmod(left: Any, right: Any) -> tuple[Any, Any]:
    return left // right, left % right


def _function(name: str) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        return to_torch(floating.function(name, floating.to_float(from_torch(self))))

    return method


_METHODS: dict[str, Callable[..., Any]] = {
    "__format__": _format,
    "__divmod__": _divmod,
    "__rdivmod__": lambda right, left: _divmod(left, right),
    **{name: _function(name) for name in floating.FUNCTIONS},
}
_CLASSES = (torch.SymInt, torch.SymFloat)


def _add_methods() -> list[tuple[type, str, Any]]:
    before: list[tuple[type, str, Any]] = [
        (kind, name, vars(kind).get(name)) for kind in _CLASSES for name in _METHODS
    ]
    for kind, name, _ in before:
        setattr(kind, name, _METHODS[name])
    return before


def _take_away(before: list[tuple[type, str, Any]]) -> None:
    for kind, name, method in before:
        if method is None:
            delattr(kind, name)
        else:
            setattr(kind, name, method)


# While there are numbers that vary in a program that is captured.
number_methods = CountedSwitch(_add_methods, _take_away)
