"""The table of statements: functions ``(interpreter, statement, args) -> result`` by kind, or by operator where the
overloads of one kind are different things (``aten::sort`` of a tensor and of a list)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tintype.interop.torchscript.interpreter import Interpreter
    from tintype.interop.torchscript.reading import Statement

Handler = Callable[["Interpreter", "Statement", list[Any]], Any]

HANDLERS: dict[str, Handler] = {}


def handles(*kinds: str) -> Callable[[Any], Any]:
    """Register a function for statements."""

    def register(function: Any) -> Any:
        for kind in kinds:
            assert kind not in HANDLERS, kind
            HANDLERS[kind] = function
        return function

    return register


def computes(*kinds: str) -> Callable[[Any], Any]:
    """Register a function of the arguments alone."""

    def register(function: Any) -> Any:
        handles(*kinds)(lambda interpreter, statement, args: function(*args))
        return function

    return register
