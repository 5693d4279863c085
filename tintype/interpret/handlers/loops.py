"""Iterators and generators."""

from __future__ import annotations

import inspect
from types import GeneratorType
from typing import Any

from tintype.interpret.frame import YIELDED, Frame
from tintype.interpret.generators import generator_of
from tintype.interpret.handlers.exceptions import again
from tintype.interpret.handlers.registry import handler, hooked
from tintype.interpret.policy import Outcome


@handler
def get_iterator(frame: Frame, _: None) -> Outcome:
    stack = frame.stack
    values = stack.pop()
    methods = frame.machine.iter
    if methods[type(values)] and (method := methods.of(values)) is not None:
        outcome = frame.machine.begin(frame, method, [values])
        if isinstance(outcome, Frame):
            outcome.finish = is_iterator
        return outcome
    stack.append(iter(values))
    return None


def is_iterator(frame: Frame, value: Any) -> Any:
    if not hasattr(type(value), "__next__"):
        raise TypeError(f"iter() returned non-iterator of type '{type(value).__name__}'")
    return value


@hooked("on_iterate", "get_iterator")
def get_iterator_hooked(frame: Frame, _: None) -> Outcome:
    iterator = frame.machine.policy.on_iterate(frame, frame.stack[-1])
    if iterator is NotImplemented:
        return get_iterator(frame, None)
    frame.stack[-1] = iterator
    return None


@handler
def for_iterator(frame: Frame, after: int) -> Outcome:
    stack = frame.stack
    iterator = stack[-1]
    methods = frame.machine.next
    try:
        if methods[type(iterator)] and (method := methods.of(iterator)) is not None:
            stack.append(frame.machine.call(method, iterator))
        else:
            stack.append(next(iterator))
    except StopIteration:
        stack.pop()
        return after
    return None


@hooked("on_loop", "for_iterator")
def for_iterator_hooked(frame: Frame, after: int) -> Outcome:
    outcome = frame.machine.policy.on_loop(frame, frame.stack[-1], frame.pc + 1, after)
    return for_iterator(frame, after) if outcome is NotImplemented else outcome


# Generators.


@handler
def return_generator(frame: Frame, _: None) -> Outcome:
    return frame.machine.leave_to_caller(frame, generator_of(frame))


@handler
def yield_value(frame: Frame, _: None) -> Any:
    frame.result = frame.stack.pop()
    return YIELDED


@handler
def get_yield_from_iterator(frame: Frame, _: None) -> None:
    values = frame.stack[-1]
    if inspect.iscoroutine(values):
        raise TypeError("cannot 'yield from' a coroutine object in a non-coroutine generator")
    if not isinstance(values, GeneratorType):
        frame.stack[-1] = iter(values)


def send_to(receiver: Any, value: Any) -> Any:
    return next(receiver) if value is None else receiver.send(value)


@handler
def send(frame: Frame, after: int) -> int | None:
    """The next value of an iterator that is delegated to; its result when it ends, which stays below."""
    value = frame.stack.pop()
    try:
        frame.stack.append(send_to(frame.stack[-1], value))
    except StopIteration as stop:
        frame.stack.append(stop.value)
        return after
    return None


@handler
def send_or_pop(frame: Frame, after: int) -> int | None:
    """The same where nothing stays."""
    outcome = send(frame, after)
    if outcome is not None:
        del frame.stack[-2]
    return outcome


@handler
def cleanup_throw(frame: Frame, _: None) -> None:
    error = frame.stack[-1]
    if not isinstance(error, StopIteration):
        again(frame, error)
    del frame.stack[-3:]
    frame.stack += (None, error.value)


@handler
def stop_iteration_error(frame: Frame, _: None) -> None:
    """A StopIteration that would leave a generator by itself is an error of the generator's."""
    error = frame.stack[-1]
    if isinstance(error, StopIteration):
        wrong = RuntimeError("generator raised StopIteration")
        wrong.__cause__ = wrong.__context__ = error
        frame.stack[-1] = wrong
