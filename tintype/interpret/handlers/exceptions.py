"""Raising, catching, ``with``.

The exception that is being handled is the thread's own (``sys.exception()``): the machine sets it, so that contexts
of new exceptions, ``sys.exc_info()`` and whatever asks in native code find what they would find natively.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from tintype.interpret.frame import NULL, Frame
from tintype.interpret.handlers.registry import handler
from tintype.interpret.lookup import bases_of, find_in_class
from tintype.interpret.policy import Outcome
from tintype.interpret.raising import raise_unchanged

set_handled = ctypes.pythonapi.PyErr_SetHandledException
set_handled.argtypes = [ctypes.py_object]
set_handled.restype = None


@handler
def push_exception(frame: Frame, _: None) -> None:
    machine = frame.machine
    error = frame.stack.pop()
    frame.stack += (machine.handled, error)
    machine.handled = error
    set_handled(error)


@handler
def pop_except(frame: Frame, _: None) -> None:
    before = frame.stack.pop()
    frame.machine.handled = before
    set_handled(before)


@handler
def raise_exception(frame: Frame, count: int) -> None:
    if count == 2:
        cause = frame.stack.pop()
        error = frame.stack.pop()
        raise error from cause
    if count == 1:
        raise frame.stack.pop()
    error = sys.exception()  # a generator handles what its consumer does
    if error is None:
        raise RuntimeError("No active exception to reraise")
    again(frame, error)


@handler
def reraise(frame: Frame, _: int) -> None:
    again(frame, frame.stack.pop())


def again(frame: Frame, error: BaseException) -> None:
    """Raises an exception once more: neither its context changes nor does its traceback name the line again."""
    frame.machine.reraised = error
    raise_unchanged(error)


def check_classes(classes: Any, base: type, fact: str) -> None:
    for kind in classes if isinstance(classes, tuple) else (classes,):
        if not (isinstance(kind, type) and issubclass(kind, base)):
            raise TypeError(fact)


@handler
def check_exception_match(frame: Frame, _: None) -> None:
    classes = frame.stack.pop()
    fact = "catching classes that do not inherit from BaseException is not allowed"
    check_classes(classes, BaseException, fact)
    frame.stack.append(matches(frame.stack[-1], classes))


def matches(error: BaseException, classes: Any) -> bool:
    """As `except` does it: by the class's bases, not asking ``__instancecheck__``."""
    bases = bases_of(type(error))
    return any(kind in bases for kind in (classes if isinstance(classes, tuple) else (classes,)))


@handler
def check_group_match(frame: Frame, _: None) -> None:
    classes = frame.stack.pop()
    fact = "catching classes that do not inherit from BaseException is not allowed"
    check_classes(classes, BaseException, fact)
    for kind in classes if isinstance(classes, tuple) else (classes,):
        if issubclass(kind, BaseExceptionGroup):
            raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")
    error = frame.stack.pop()
    matched, rest = split(error, classes)
    frame.stack += (rest, matched)
    if matched is not None:
        frame.machine.handled = matched
        set_handled(matched)


def split(error: BaseException, classes: Any) -> tuple[BaseException | None, BaseException | None]:
    """The part of an exception that ``except* classes`` catches, and what is left."""
    if matches(error, classes):
        if isinstance(error, BaseExceptionGroup):
            return error, None
        group = BaseExceptionGroup("", [error])
        group.__traceback__ = error.__traceback__
        return group, None
    if isinstance(error, BaseExceptionGroup):
        pair = error.split(classes)
        if not isinstance(pair, tuple):
            owner, kind = type(error).__name__, type(pair).__name__
            raise TypeError(f"{owner}.split must return a tuple, not {kind}")
        if len(pair) < 2:
            owner, size = type(error).__name__, len(pair)
            raise TypeError(f"{owner}.split must return a 2-tuple, got tuple of size {size}")
        return pair[0], pair[1]
    return None, error


@handler
def load_assertion_error(frame: Frame, _: None) -> None:
    frame.stack.append(AssertionError)


# with


@handler
def before_with(frame: Frame, _: None) -> Outcome:
    manager = frame.stack.pop()
    kind = type(manager)
    enter = find_in_class(kind, "__enter__")
    if enter is NULL:
        raise TypeError(f"'{kind.__name__}' object does not support the context manager protocol")
    leave = find_in_class(kind, "__exit__")
    if leave is NULL:
        missed = " (missed __exit__ method)"
        raise TypeError(f"'{kind.__name__}' object does not support the context manager protocol{missed}")
    entering = bind_to(enter, manager, kind)
    frame.stack.append(bind_to(leave, manager, kind))
    return frame.machine.begin(frame, entering, [])


def bind_to(found: Any, owner: Any, kind: type) -> Any:
    """What ``owner.name`` is for something that was found in its class."""
    bind = find_in_class(type(found), "__get__")
    return found if bind is NULL else bind(found, owner, kind)


@handler
def with_except_start(frame: Frame, _: None) -> Outcome:
    error = frame.stack[-1]
    leave = frame.stack[-4]
    return frame.machine.begin(frame, leave, [type(error), error, error.__traceback__])
