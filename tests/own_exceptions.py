"""What escapes from tintype is one of its errors, what the model raises, or what torch says of the model's arguments.

Every test runs with this check around the entry points, so that it holds over everything the suites capture: an error
of Python's that comes from a line of ours and that nobody raised there is a mistake of ours.
"""

from __future__ import annotations

import functools
import os
import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import tintype
from tintype.aot.function import CompiledFunction
from tintype.export import decompose, exporting, joint, unflatten
from tintype.export.program import ExportedProgram

_OWN = os.path.dirname(os.path.abspath(tintype.__file__)) + os.sep
_MISTAKES = (AssertionError, AttributeError, KeyError, NameError, RecursionError, StopIteration)
# Kernels of torch's raise these as well; so do the words of Python's interpreter tell a mistake from a message.
_WORDS = re.compile(
    r"(list|tuple|pop|string) index out of range|pop from empty list|'NoneType'|"
    r"is not (subscriptable|iterable|callable)|unsupported operand type|object has no|zip\(\) argument|unpack|"
    r"missing \d+ required|unexpected keyword argument"
)


def is_mistake(error: BaseException) -> bool:
    """Whether an exception is a mistake of ours."""
    if isinstance(error, tintype.TintypeError):
        return False
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames or not frames[-1][0].f_code.co_filename.startswith(_OWN):
        return False
    if isinstance(error, (IndexError, TypeError, ValueError)):
        return _WORDS.search(str(error)) is not None
    return isinstance(error, _MISTAKES)


def raises_its_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that fails the test if a mistake of ours escapes from it."""

    @functools.wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except Exception as error:
            if is_mistake(error):
                pytest.fail(f"{type(error).__name__} escapes from {function.__qualname__}: {error}")
            raise

    # no line of the user's: locations in errors pass it over
    checked.__code__ = checked.__code__.replace(co_filename="<tintype check of the tests>")
    return checked


def watch_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the check around what captures programs, makes something of them or runs them."""
    for owner, name in (
        (exporting, "capture_program"),
        (decompose, "decompose_program"),
        (joint, "_joint_program"),
        (unflatten.Unflattening, "__init__"),
        (ExportedProgram, "module"),
        (CompiledFunction, "__call__"),
    ):
        monkeypatch.setattr(owner, name, raises_its_own(getattr(owner, name)))
