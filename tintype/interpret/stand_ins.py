"""Builtin functions that look at the frame that calls them, or call what they are given, for interpreted frames."""

from __future__ import annotations
import __future__

import builtins
import functools
import sys
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from tintype.interpret.frame import NULL, Frame
from tintype.interpret.handlers.attributes import load_with_care
from tintype.interpret.handlers.names import content_of
from tintype.interpret.native import call_among
from tintype.interpret.policy import Caller, Outcome
from tintype.interpret.warned_lines import place_of_warning, warn_at

STAND_INS: dict[Any, Caller] = {}

MADE_IN_MODULES = ("TypeVar", "ParamSpec", "TypeVarTuple", "TypeAliasType")

FUTURE_FLAGS = 0
for _feature in __future__.all_feature_names:
    FUTURE_FLAGS |= getattr(__future__, _feature).compiler_flag


def stands_in_for(*builtin: Any) -> Callable[[Caller], Caller]:
    def register(caller: Caller) -> Caller:
        STAND_INS.update(dict.fromkeys(builtin, caller))
        return caller

    return register


@stands_in_for(super)
def call_super(frame: Frame, kind: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    if not arguments and not keywords:
        arguments = list(arguments_of_super(frame))
    return frame.machine.call_native(frame, kind, arguments, keywords)


def arguments_of_super(frame: Frame) -> tuple[Any, Any]:
    """The class that a method is defined in, and the method's first argument."""
    code = frame.code
    if not code.co_argcount:
        raise RuntimeError("super(): no arguments")
    first = frame.locals[0]
    if code.co_varnames[0] in code.co_cellvars and isinstance(first, CellType):
        first = content_of(first)
    if first is NULL:
        raise RuntimeError("super(): arg[0] deleted")
    if "__class__" not in code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    kind = content_of(frame.locals[frame.decoded.names.index("__class__")])
    if kind is NULL:
        raise RuntimeError("super(): empty __class__ cell")
    return kind, first


@stands_in_for(locals)
def call_locals(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    if arguments or keywords:
        return frame.machine.call_native(frame, called, arguments, keywords)
    frame.stack.append(frame.variables())
    return None


@stands_in_for(vars)
def call_vars(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    return call_locals(frame, called, arguments, keywords)


@stands_in_for(dir)
def call_dir(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    if arguments or keywords:
        return frame.machine.call_native(frame, called, arguments, keywords)
    frame.stack.append(sorted(frame.variables()))
    return None


@stands_in_for(globals)
def call_globals(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    if arguments or keywords:
        return frame.machine.call_native(frame, called, arguments, keywords)
    frame.stack.append(frame.globals)
    return None


# Code that is made while the program runs.


@stands_in_for(compile)
def call_compile(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    """`compile` takes over the future statements of its caller, which is not this file."""
    named = dict(zip(("source", "filename", "mode", "flags", "dont_inherit", "optimize"), arguments))
    named.update(keywords or {})
    if len(arguments) <= 6 and not named.get("dont_inherit", False):
        flags = named.get("flags", 0)
        if isinstance(flags, int):
            named["flags"] = flags | frame.code.co_flags & FUTURE_FLAGS
            named["dont_inherit"] = True
            arguments, keywords = [], named
    return frame.machine.call_native(frame, called, arguments, keywords)


@stands_in_for(exec, eval)
def call_exec(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    machine = frame.machine
    plain = 1 <= len(arguments) <= 3 and not keywords
    if not plain or not isinstance(arguments[0], str | bytes | CodeType):
        return machine.call_native(frame, called, arguments, keywords)
    code, namespace, names = (*arguments, None, None)[:3]
    if namespace is None:
        namespace = frame.globals
        names = frame.variables() if names is None else names
    elif names is None:
        names = namespace
    if not isinstance(namespace, dict) or not hasattr(type(names), "__getitem__"):
        return machine.call_native(frame, called, arguments, keywords)
    namespace.setdefault("__builtins__", frame.builtins)
    if not isinstance(code, CodeType):
        mode = "eval" if called is eval else "exec"
        if mode == "eval":
            code = code.lstrip(" \t" if isinstance(code, str) else b" \t")
        code = compile(code, "<string>", mode, frame.code.co_flags & FUTURE_FLAGS, True)
    if code.co_freevars:
        return machine.call_native(frame, called, [code, namespace, names], None)
    outcome = frame_of_code(frame, code, namespace, names)
    if called is exec:
        outcome.finish = nothing
    return outcome


def nothing(frame: Frame, value: Any) -> None:
    return None


def frame_of_code(frame: Frame, code: CodeType, namespace: dict[str, Any], names: Any) -> Frame:
    """A frame of code that is no function's."""
    machine = frame.machine
    plan = machine.plan_of_code(code)
    within = namespace["__builtins__"]
    found = within if isinstance(within, dict) else vars(within)
    slots = [NULL] * len(plan.decoded.names)
    made = Frame(machine, code, plan.decoded, plan.instructions, slots, None, namespace, found, frame)
    if not code.co_flags & 2:  # CO_NEWLOCALS
        made.names = names
    return made


# Classes.


@stands_in_for(builtins.__build_class__)
def build_class(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    machine = frame.machine
    body = arguments[0] if arguments else None
    if len(arguments) < 2 or not machine.interprets(body):
        return machine.call_native(frame, called, arguments, keywords)
    name, *given = arguments[1:]
    bases = types.resolve_bases(given)
    bases = tuple(bases)
    metaclass, namespace, named = types.prepare_class(name, bases, keywords or {})
    if not hasattr(type(namespace), "__getitem__"):
        owner = metaclass.__name__ if isinstance(metaclass, type) else "<metaclass>"
        kind = type(namespace).__name__
        raise TypeError(f"{owner}.__prepare__() must return a mapping, not {kind}")
    outcome = machine.begin(frame, body, [])
    outcome.names = namespace

    def built(finished: Frame, cell: Any) -> Any:
        if bases != tuple(given):
            namespace["__orig_bases__"] = tuple(given)
        made = machine.call(metaclass, name, bases, namespace, **named)
        if isinstance(made, type) and isinstance(cell, CellType):
            check_class_cell(name, made, cell)
        return made

    outcome.finish = built
    return outcome


def check_class_cell(name: str, made: type, cell: CellType) -> None:
    within = content_of(cell)
    if within is NULL:
        fact = f"__class__ not set defining {name!r} as {made!r}. Was __classcell__ propagated to type.__new__?"
        raise RuntimeError(fact)
    if within is not made:
        raise TypeError(f"__class__ set to {within!r} defining {name!r} as {made!r}")


# Functions that call what they are given, and never show it to anybody.


def called_by_machine(frame: Frame, function: Any) -> Any:
    """A function as native code shall call it."""
    inner = function.__func__ if type(function) is MethodType else function
    return CalledByMachine(frame.machine.call, function) if frame.machine.interprets(inner) else function


class CalledByMachine(functools.partial[Any]):
    """A function that native code calls through the machine; copied or stored it is the function."""

    def __reduce__(self) -> Any:
        return itself, self.args


def itself(function: Any) -> Any:
    return function


@stands_in_for(map, filter, functools.reduce)
def call_with_function(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    if arguments:
        arguments[0] = called_by_machine(frame, arguments[0])
    return frame.machine.call_native(frame, called, arguments, keywords)


@stands_in_for(sorted, min, max)
def call_with_key(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    if keywords and "key" in keywords:
        keywords["key"] = called_by_machine(frame, keywords["key"])
    return frame.machine.call_native(frame, called, arguments, keywords)


@stands_in_for(next)
def call_next(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    methods = frame.machine.next
    if len(arguments) == 1 and not keywords and methods[type(arguments[0])]:
        method = methods.of(arguments[0])
        if method is not None:
            return frame.machine.begin(frame, method, arguments)
    return frame.machine.call_native(frame, called, arguments, keywords)


@stands_in_for(getattr)
def call_getattr(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    if len(arguments) == 2 and not keywords and type(arguments[1]) is str:
        return load_with_care(frame, arguments[0], arguments[1])
    return frame.machine.call_native(frame, called, arguments, keywords)


# Frames themselves.


@stands_in_for(FunctionType, *(getattr(typing, name) for name in MADE_IN_MODULES if hasattr(typing, name)))
def call_among_globals(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    """Classes whose objects take something from the globals of who makes them."""
    frame.stack.append(call_among(frame.globals, called, arguments, keywords or {}))


class FrameView:
    """An interpreted frame as :func:`sys._getframe` shows it."""

    f_trace = None

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.f_code = frame.code
        self.f_globals = frame.globals
        self.f_builtins = frame.builtins
        self.f_lasti = frame.decoded.offsets[frame.pc] if frame.pc >= 0 else -1
        self.back = frame.back

    @property
    def f_lineno(self) -> int:
        return self.frame.line

    @property
    def f_locals(self) -> Mapping[str, Any]:
        return self.frame.variables()

    @property
    def f_back(self) -> FrameView | None:
        return None if self.back is None else FrameView(self.back)


def frame_at(frame: Frame, depth: int) -> Frame:
    """The frame so many calls outside of this one."""
    found: Frame | None = frame
    for _ in range(depth):
        found = None if found is None else found.back
    if found is None:
        raise ValueError("call stack is not deep enough")
    return found


@stands_in_for(sys._getframe)
def call_getframe(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    if keywords or len(arguments) > 1 or (arguments and type(arguments[0]) is not int):
        return frame.machine.call_native(frame, called, arguments, keywords)
    frame.stack.append(FrameView(frame_at(frame, max(0, *arguments, 0))))
    return None


def call_getframemodulename(
    frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None
) -> Outcome:
    depth = arguments[0] if arguments else (keywords or {}).get("depth", 0)
    try:
        found = frame_at(frame, depth)
    except ValueError:
        frame.stack.append(None)
    else:
        frame.stack.append(found.globals.get("__name__"))


if hasattr(sys, "_getframemodulename"):
    STAND_INS[sys._getframemodulename] = call_getframemodulename


@stands_in_for(warnings.warn)
def call_warn(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    """A warning is about a line of the frames that are interpreted."""
    named = dict(zip(("message", "category", "stacklevel", "source"), arguments), **(keywords or {}))
    if not {"message"} <= set(named) <= {"message", "category", "stacklevel", "source"}:
        return frame.machine.call_native(frame, called, arguments, keywords)
    message, category = named["message"], named.get("category")
    level = named.get("stacklevel", 1)
    if type(level) is not int:
        return frame.machine.call_native(frame, called, arguments, keywords)
    category = type(message) if isinstance(message, Warning) else UserWarning if category is None else category
    if not (isinstance(category, type) and issubclass(category, Warning)):
        return frame.machine.call_native(frame, called, arguments, keywords)
    place = place_of_warning(frame, max(0, level - 1))
    # a call like others, so that whoever notes calls hears of it
    return frame.machine.call_native(frame, warn_at, [message, category, place, named.get("source")], None)
