"""Tracebacks that show the lines of interpreted code, and not the machine's.

A traceback names true frames of the interpreter in C. For a line of interpreted code one is made: the frame of a
generator that never begins, whose code has the names and positions of the user's code.
"""

from __future__ import annotations

import inspect
import os
import weakref
from opcode import opmap
from types import CodeType, FrameType, FunctionType, TracebackType

from tintype.interpret.frame import Frame

ROOM = os.path.dirname(os.path.abspath(__file__)) + os.sep

STARTS_NO_FRAME = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | inspect.CO_GENERATOR


# by the identity of a code object that stands in a traceback: itself, and the program's
_originals: dict[int, tuple[weakref.ref[CodeType], weakref.ref[CodeType]]] = {}


def remember(template: CodeType, code: CodeType) -> None:
    key = id(template)
    _originals[key] = (weakref.ref(template, lambda gone: _originals.pop(key, None) and None), weakref.ref(code))


def original_code(code: CodeType) -> CodeType:
    """The code of the program that a code object in a traceback stands for; any other is itself."""
    found = _originals.get(id(code))
    original = found[1]() if found is not None and found[0]() is code else None
    return code if original is None else original


def without_machine(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without entries of this room."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(ROOM):
        trace = trace.tb_next
    entry = trace
    while entry is not None:
        following = entry.tb_next
        while following is not None and following.tb_frame.f_code.co_filename.startswith(ROOM):
            following = following.tb_next
        if following is not entry.tb_next:
            entry.tb_next = following
        entry = following
    return trace


def with_line_of(frame: Frame, trace: TracebackType | None) -> TracebackType:
    """The traceback with the line that a frame stands at before it."""
    return TracebackType(trace, native_frame(frame), frame.decoded.offsets[frame.pc], frame.line)


def native_frame(frame: Frame) -> FrameType:
    """A native frame with the names and positions of an interpreted one, and without its values."""
    template = frame.decoded.template
    if template is None:
        code = frame.code
        size = len(code.co_code) // 2
        waiting = [opmap["RETURN_GENERATOR"], 0, opmap["RESUME"], 0] + [opmap["NOP"], 0] * (size - 2)
        template = frame.decoded.template = code.replace(
            co_code=bytes(waiting),
            co_flags=STARTS_NO_FRAME,
            co_argcount=0,
            co_posonlyargcount=0,
            co_kwonlyargcount=0,
            co_cellvars=(),
            co_freevars=(),
            co_exceptiontable=b"",
        )
        remember(template, code)
    return FunctionType(template, frame.globals)().gi_frame
