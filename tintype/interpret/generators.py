"""Generators: a native generator whose body is an interpreted frame.

Whoever consumes it, C code included, sees a true generator: `send`, `throw`, `close`, being closed when it is
collected, and the exception that is handled inside of it are the native generator's affair.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tintype.interpret.frame import RETURNED, YIELDED, Frame

if TYPE_CHECKING:
    from tintype.interpret.machine import Machine


def generator_of(frame: Frame) -> Generator[Any, Any, Any]:
    """A generator that runs the frame, which waits for its first value or at a `yield`."""
    generator: Any = _body(frame)
    function = frame.function
    generator.__name__ = frame.code.co_name if function is None else function.__name__
    generator.__qualname__ = frame.code.co_qualname if function is None else function.__qualname__
    if frame.decoded.operations[frame.pc][0] == "yield_value":
        frame.result = None
        next(generator)  # a copy of a generator that has begun takes values at once
    return generator


def frame_of(generator: Generator[Any, Any, Any]) -> Frame | None:
    """The frame that a generator of ours runs; None if the generator is native, or done."""
    if generator.gi_code is not _body.__code__ or generator.gi_frame is None:  # type: ignore[attr-defined]
        return None
    return generator.gi_frame.f_locals["frame"]  # type: ignore[attr-defined]


def _body(frame: Frame) -> Generator[Any, Any, Any]:
    machine = frame.machine
    sent, thrown = None, None
    begun = frame.decoded.operations[frame.pc][0] == "yield_value"
    while True:
        if begun:
            begun = False
        else:
            try:
                outcome = machine.resume(frame, sent, thrown)
            finally:  # an exception that knows this frame would be kept by it, and all that the frame holds
                sent = thrown = None
            if outcome is RETURNED:
                return taken(frame)
        try:
            sent = yield taken(frame)
        except BaseException as error:
            thrown = error


def taken(frame: Frame) -> Any:
    """The result of a frame, which does not keep it."""
    value, frame.result = frame.result, None
    return value


def throw_into(machine: Machine, frame: Frame, error: BaseException) -> Any:
    """Continues a waiting frame with an exception, which goes first to what the frame delegates to."""
    try:
        if frame.pc not in frame.decoded.delegating:
            return machine.run(frame, error)
        return _throw_into_delegated(machine, frame, error)
    finally:
        del error


def _throw_into_delegated(machine: Machine, frame: Frame, error: BaseException) -> Any:
    receiver = frame.stack[-1]
    try:
        if isinstance(error, GeneratorExit):
            throw = None
            close_quietly(receiver)
        else:
            throw = getattr(receiver, "throw", None)
        if throw is not None:
            frame.result = throw(error)
            return YIELDED
    except StopIteration as stop:
        if throw is None:
            error = stop
        else:
            end_delegation(frame, stop.value)
            return machine.run(frame)
    except BaseException as raised:
        error = raised
    try:
        return machine.run(frame, error)
    finally:
        del error


def close_quietly(receiver: Any) -> None:
    """Closes what was delegated to, if it can be; that it can't even be asked is told and passed over."""
    try:
        close = getattr(receiver, "close", None)
    except BaseException as error:
        told = SimpleNamespace(
            exc_type=type(error), exc_value=error, exc_traceback=error.__traceback__, err_msg=None, object=receiver
        )
        sys.unraisablehook(told)
        return
    if close is not None:
        close()


def end_delegation(frame: Frame, value: Any) -> None:
    """Goes behind a `yield from` with the result of what was delegated to."""
    operations = frame.decoded.operations
    # behind the yield stands a jump to the operation that sends
    sends = operations[frame.pc + 1][1]
    name, after = operations[sends]
    if name == "send":
        frame.stack.append(value)
    else:
        frame.stack[-1] = value
    frame.pc = after - 1
