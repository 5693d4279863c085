"""Where in the user's program something happened, and who is calling: nobody else looks at Python's frames.

Frames are asked of a :class:`CallStack`. That of a recording knows how its program runs: natively its frames are
Python's own; where it is interpreted, frames of the machine stand for those of the program
(:mod:`tintype.trace.interpreted`). ``levels`` are counted as by ``sys._getframe``: 0 is the function that asks.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType, GeneratorType
from typing import Any

import torch

from tintype.errors import Location

_PACKAGES = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (torch.__file__, os.path.dirname(os.path.abspath(__file__)))
)
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
# Files of torch's whose functions answer questions: they ask on behalf of their caller.
_ANSWERING = tuple(
    os.path.join(_PACKAGES[0], *parts)
    for parts in (("_ops.py",), ("_prims_common", ""), ("_tensor.py",), ("backends", ""), ("nn", "parameter.py"))
)
_STAND_IN = "<stand-in>"


def user_location() -> Location | None:
    """The innermost frame outside torch, tintype and Python's library; None when there is none.

    While a program is captured again, the line that the running operator came from the first time.
    """
    for line_of in reversed(_replayed):
        line = line_of()
        if line is not None:
            return line if isinstance(line, Location) else Location(*line)
    return line_outside_of_libraries(sys._getframe(1))


def line_outside_of_libraries(frame: FrameType | None) -> Location | None:
    """The line of a frame, or of the innermost around it that is the user's."""
    while frame is not None:
        code = frame.f_code
        filename = code.co_filename
        if not is_internal(filename):
            return Location(filename, frame.f_lineno, code.co_name)
        # without a call for each of the many that there are below an operator's rule
        frame = frame.f_back if _stack is NATIVE else caller_of(frame)
    return None


# --- frames ----------------------------------------------------------------------------------------------


class CallStack:
    """The frames of a program that runs natively: Python's own."""

    def frame(self, frame: FrameType) -> FrameType | None:
        """The frame of the program that a frame is or stands for, with what Python's have: ``f_code``, ``f_lasti``,
        ``f_lineno``, ``f_locals``, ``f_globals`` and ``f_back``."""
        return frame

    def code(self, code: CodeType) -> CodeType:
        """The code of the program that a code object in a traceback is or stands for."""
        return code

    def generator(self, generator: GeneratorType[Any, Any, Any]) -> tuple[CodeType, Mapping[str, Any]] | None:
        """The code of the program's that a generator which waits runs, and its globals; None if it is done."""
        frame: FrameType | None = generator.gi_frame
        return None if frame is None else (frame.f_code, frame.f_globals)


NATIVE = CallStack()
# That of the program that is being captured; captures take turns, and frames of other threads stand for themselves.
_stack = NATIVE


@contextmanager
def program_runs_on(stack: CallStack) -> Iterator[None]:
    """Within it, frames are those of a program that runs in a way of its own."""
    global _stack
    before, _stack = _stack, stack
    try:
        yield
    finally:
        _stack = before


def frames_running(code: CodeType, frame: FrameType | None) -> Iterator[tuple[FrameType, FrameType | None]]:
    """Those of a frame and its callers that run some code, each with the frame that it called."""
    inner: FrameType | None = None
    while frame is not None:
        if frame.f_code is code:
            yield frame, inner
        inner, frame = frame, frame.f_back if _stack is NATIVE else caller_of(frame)


def caller_of(frame: FrameType) -> FrameType | None:
    """The frame of the program that called a frame."""
    back = frame.f_back
    return back if _stack is NATIVE or back is None else _stack.frame(back)


def program_code(code: CodeType) -> CodeType:
    """The code of the program's that a code object in a traceback is, or stands for."""
    return _stack.code(code)


def program_generator(generator: GeneratorType[Any, Any, Any]) -> tuple[CodeType, Mapping[str, Any]] | None:
    """The code of the program's that a generator runs, and its globals."""
    return _stack.generator(generator)


def program_frame(frame: FrameType | None) -> FrameType | None:
    """The frame of the program that a frame is, or stands for."""
    return frame if _stack is NATIVE or frame is None else _stack.frame(frame)


def native_caller(levels: int) -> FrameType:
    """Python's own frame, for what C++ and torch's functions call; not the program's where it is interpreted."""
    return sys._getframe(levels + 1)


def program_caller(levels: int) -> FrameType | None:
    """The frame of the program that called."""
    return program_frame(sys._getframe(levels + 1))


def users_caller(levels: int) -> FrameType | None:
    """The user's frame that a question comes from; see :func:`users_frame`."""
    return users_frame(sys._getframe(levels + 1))


def levels_to_the_user() -> int:
    """How many frames above the caller the user's code begins, as ``warnings`` counts them."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and is_internal(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    return level


def code_that_called(code: CodeType, farthest: int) -> tuple[CodeType, dict[str, Any]] | None:
    """The code, with its globals, that called this one natively, among so many frames above the caller."""
    frame = sys._getframe(2)
    for _ in range(farthest):
        back = frame.f_back
        if back is None:
            return None
        if frame.f_code is code:
            return back.f_code, back.f_globals
        frame = back
    return None


def is_run_by_another_thread(codes: Collection[CodeType]) -> bool:
    """Whether some other thread is in a function with one of these codes."""
    here = threading.get_ident()
    for thread, innermost in sys._current_frames().items():
        frame: FrameType | None = innermost if thread != here else None
        while frame is not None:
            if frame.f_code in codes:
                return True
            frame = frame.f_back
    return False


# --- lines -----------------------------------------------------------------------------------------------

_replayed: list[Callable[[], Location | tuple[str, int, str] | None]] = []


def location_in(error: BaseException) -> Location | None:
    """The innermost line of the user's that an error was raised from; None when there is none."""
    found = None
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if not is_internal(code.co_filename):
            found = Location(code.co_filename, step.tb_lineno, code.co_name)
        step = step.tb_next
    return found


@contextmanager
def replaying(line_of: Callable[[], Location | tuple[str, int, str] | None]) -> Iterator[None]:
    """Within it, ``line_of`` says which line of the user's program is running, or None for the one on the stack."""
    _replayed.append(line_of)
    try:
        yield
    finally:
        _replayed.pop()


@functools.cache  # asked for every frame of every guard
def is_internal(filename: str) -> bool:
    """Whether a source file belongs to torch, tintype or Python rather than to the user."""
    return _is_of_packages(filename) or _is_of_python(filename)


@functools.cache
def _is_of_packages(filename: str) -> bool:
    # Code without a file is the user's ("<stdin>", "<ipython-input-1>"), except these.
    return filename.startswith(("<tintype ", _STAND_IN, *_PACKAGES))


@functools.cache
def _is_of_python(filename: str) -> bool:
    if filename.startswith(("<frozen ", "<__array_function__")):
        return True
    return filename.startswith(_STANDARD_LIBRARY) and "site-packages" not in filename


@functools.cache
def _asks_for_its_caller(filename: str) -> bool:
    return filename == _STAND_IN or _is_of_python(filename) or filename.startswith(_ANSWERING)


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The user's frame that a question comes from, given the frame that asks; None where torch or tintype asks.

    Python's library, what stands in for a function of torch's, and torch's functions that do nothing but answer ask
    on behalf of their caller.
    """
    frame = program_frame(frame)
    while frame is not None and _asks_for_its_caller(frame.f_code.co_filename):
        frame = caller_of(frame)
    return None if frame is None or _is_of_packages(frame.f_code.co_filename) else frame


def standing_in(function: Callable[..., Any]) -> Any:
    """A function of ours that stands in for one of torch's or Python's: what it asks, its caller asks."""
    code = function.__code__
    function.__code__ = code.replace(co_filename=_STAND_IN)
    return function
