"""Messages that interpreted code logs: they name its own lines, which logging finds by looking at who calls it."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType, FunctionType, MethodType
from typing import Any

from tintype.interpret.frame import Frame

# where a message comes from: file, line, name of the function, its qualified name, name of the module
Line = tuple[str, int, str, str, str]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def lines_of(frame: Frame, count: int) -> tuple[Line, ...]:
    """The lines of so many frames, as far as they are interpreted: the innermost one first."""
    found: list[Line] = []
    step: Frame | None = frame
    while step is not None and len(found) < count:
        code = step.code
        module = str(step.globals.get("__name__"))
        found.append((code.co_filename, step.line, code.co_name, code.co_qualname, module))
        step = step.back
    return tuple(found)


def is_of_logging(function: Any) -> bool:
    """Whether it is a function of Python's logging, or a method of its classes."""
    if type(function) is MethodType:
        function = function.__func__
    module = function.__module__ if type(function) is FunctionType else None
    return isinstance(module, str) and module.partition(".")[0] == "logging"


def log_from(lines: tuple[Line, ...], function: Any, /, *arguments: Any, **keywords: Any) -> Any:
    """Call a function of logging's, which finds these lines."""
    if not is_of_logging(function):  # a file might say so
        raise TypeError(f"{function!r} is no function of logging's")
    level = keywords.get("stacklevel")
    if type(level) is int and level > len(lines):
        keywords["stacklevel"] = level + _count_of_ours()
    standing = [_standing_at(line) for line in lines]
    return standing[-1](*standing[-2::-1], function, *arguments, **keywords)


def _count_of_ours() -> int:
    """How many frames lie between interpreted code and who called it."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<tintype ")):
        frame, count = frame.f_back, count + 1
    return count


def _call(function: Any, /, *arguments: Any, **keywords: Any) -> Any:
    return function(*arguments, **keywords)


@functools.lru_cache(maxsize=256)
def _standing_at(line: Line) -> Callable[..., Any]:
    """A function that calls another one from a line."""
    filename, number, name, qualified, module = line
    first = number - 1  # it calls in its second line
    code = _call.__code__.replace(co_filename=filename, co_firstlineno=first, co_name=name, co_qualname=qualified)
    return FunctionType(code, {"__name__": module, "__builtins__": __builtins__})
