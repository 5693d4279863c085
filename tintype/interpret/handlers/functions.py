"""Making functions and classes, calling, returning, and the parts of types that have opcodes."""

from __future__ import annotations

import sys
from types import CellType, CodeType, FunctionType
from typing import Any

from tintype.interpret.frame import NULL, Frame
from tintype.interpret.handlers.containers import name_of_callable, popped
from tintype.interpret.handlers.names import found_in
from tintype.interpret.handlers.registry import handler, hooked
from tintype.interpret.native import native_opcode
from tintype.interpret.policy import Outcome


@handler
def call(frame: Frame, count: int) -> Outcome:
    stack = frame.stack
    if count:
        arguments = stack[-count:]
        del stack[-count:]
    else:
        arguments = []
    callable = stack.pop()
    below = stack.pop()
    if below is not NULL:
        arguments.insert(0, callable)
        callable = below
    return frame.machine.callers[type(callable)](frame, callable, arguments, None)


@handler
def call_with_keywords(frame: Frame, argument: tuple[int, tuple[str, ...]]) -> Outcome:
    count, names = argument
    stack = frame.stack
    arguments = popped(stack, count)
    keywords = dict(zip(names, popped(arguments, len(names))))
    callable = stack.pop()
    below = stack.pop()
    if below is not NULL:
        arguments.insert(0, callable)
        callable = below
    return frame.machine.callers[type(callable)](frame, callable, arguments, keywords)


@handler
def call_above(frame: Frame, count: int) -> Outcome:
    """A call where `self` stands above what is called."""
    stack = frame.stack
    arguments = popped(stack, count)
    first = stack.pop()
    callable = stack.pop()
    if first is not NULL:
        arguments.insert(0, first)
    return frame.machine.callers[type(callable)](frame, callable, arguments, None)


@handler
def call_above_with_keywords(frame: Frame, count: int) -> Outcome:
    stack = frame.stack
    names = stack.pop()
    arguments = popped(stack, count)
    keywords = dict(zip(names, popped(arguments, len(names))))
    first = stack.pop()
    callable = stack.pop()
    if first is not NULL:
        arguments.insert(0, first)
    return frame.machine.callers[type(callable)](frame, callable, arguments, keywords)


def spread(frame: Frame, flags: int) -> tuple[Any, Any]:
    keywords = frame.stack.pop() if flags & 1 else None
    return frame.stack.pop(), keywords


def call_with(frame: Frame, callable: Any, arguments: Any, keywords: Any) -> Outcome:
    if type(arguments) is not tuple:
        if not hasattr(type(arguments), "__iter__") and not hasattr(type(arguments), "__getitem__"):
            kind = type(arguments).__name__
            fact = f"{name_of_callable(callable)} argument after * must be an iterable, not {kind}"
            raise TypeError(fact)
        arguments = tuple(arguments)
    if keywords is not None and type(keywords) is not dict:
        keywords = dict(keywords)
    return frame.machine.callers[type(callable)](frame, callable, list(arguments), keywords)


@handler
def call_spread(frame: Frame, flags: int) -> Outcome:
    arguments, keywords = spread(frame, flags)
    callable = frame.stack.pop()
    frame.stack.pop()
    return call_with(frame, callable, arguments, keywords)


@handler
def call_spread_above(frame: Frame, flags: int) -> Outcome:
    arguments, keywords = spread(frame, flags)
    frame.stack.pop()
    return call_with(frame, frame.stack.pop(), arguments, keywords)


@handler
def return_value(frame: Frame, _: None) -> Outcome:
    return frame.machine.leave(frame, frame.stack.pop())


# Functions.

DEFAULTS, KEYWORD_DEFAULTS, ANNOTATIONS, CLOSURE = 1, 2, 4, 8


def annotations_of(pairs: Any) -> dict[str, Any]:
    return dict(zip(pairs[::2], pairs[1::2])) if isinstance(pairs, tuple) else pairs


@handler
def make_function(frame: Frame, flags: int) -> None:
    stack = frame.stack
    code = stack.pop()
    closure = stack.pop() if flags & CLOSURE else None
    annotations = stack.pop() if flags & ANNOTATIONS else None
    keyword_defaults = stack.pop() if flags & KEYWORD_DEFAULTS else None
    defaults = stack.pop() if flags & DEFAULTS else None
    function = FunctionType(code, frame.globals, None, defaults, closure)
    if keyword_defaults is not None:
        function.__kwdefaults__ = keyword_defaults
    if annotations is not None:
        function.__annotations__ = annotations_of(annotations)
    stack.append(function)


@hooked("on_create", "make_function")
def make_told_function(frame: Frame, flags: int) -> None:
    make_function(frame, flags)
    frame.machine.policy.on_create(frame, frame.stack[-1])


@handler
def make_plain_function(frame: Frame, _: None) -> None:
    code: CodeType = frame.stack.pop()
    closure = tuple(CellType() for _ in code.co_freevars) or None  # the true one comes by set_function_attribute
    frame.stack.append(FunctionType(code, frame.globals, None, None, closure))


@hooked("on_create", "make_plain_function")
def make_told_plain_function(frame: Frame, _: None) -> None:
    make_plain_function(frame, None)
    frame.machine.policy.on_create(frame, frame.stack[-1])


@handler
def set_function_attribute(frame: Frame, what: int) -> None:
    function = frame.stack.pop()
    value = frame.stack.pop()
    if what == DEFAULTS:
        function.__defaults__ = value
    elif what == KEYWORD_DEFAULTS:
        function.__kwdefaults__ = value
    elif what == ANNOTATIONS:
        function.__annotations__ = annotations_of(value)
    else:
        made = FunctionType(function.__code__, frame.globals, None, function.__defaults__, value)
        made.__kwdefaults__ = function.__kwdefaults__
        made.__annotations__ = function.__annotations__
        function = made
    frame.stack.append(function)


@handler
def load_build_class(frame: Frame, _: None) -> None:
    frame.stack.append(found_in(frame.builtins, "__build_class__"))
    if frame.stack[-1] is NULL:
        raise NameError("__build_class__ not found")


@handler
def print_expression(frame: Frame, _: None) -> None:
    show = getattr(sys, "displayhook", None)
    if show is None:
        raise RuntimeError("lost sys.displayhook")
    show(frame.stack[-1])
    frame.stack[-1] = None


# Opcodes that the interpreter in C does for us.


@handler
def native(frame: Frame, how: tuple[str, int, int]) -> None:
    opcode, argument, operands = how
    values = popped(frame.stack, operands)
    frame.stack.append(native_opcode(opcode, argument, operands)(*values))
