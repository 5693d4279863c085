"""Calls: which code a callable is, and how its arguments become locals."""

from __future__ import annotations

import functools
import inspect
import sys
from collections import OrderedDict, deque
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, cast

from tintype.interpret.decode import Bound, Decoded
from tintype.interpret.frame import DISCARDED, NULL, Frame
from tintype.interpret.lookup import find_in_class
from tintype.interpret.native import assembled
from tintype.interpret.policy import Caller, Outcome

if TYPE_CHECKING:
    from tintype.interpret.machine import Machine

HAS_REST = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class Plan:
    """What is needed to begin a frame of a code object."""

    __slots__ = ("code", "count", "decoded", "instructions", "is_simple", "last_argument", "positions", "rest")

    def __init__(self, code: CodeType, decoded: Decoded, instructions: Bound) -> None:
        self.code = code
        self.decoded = decoded
        self.instructions = instructions
        self.count = code.co_argcount
        self.is_simple = not (code.co_flags & HAS_REST or code.co_kwonlyargcount)
        has_star = bool(code.co_flags & inspect.CO_VARARGS)
        self.last_argument = code.co_argcount + code.co_kwonlyargcount + has_star  # of **keywords
        self.rest = [NULL] * (len(decoded.names) - self.count)
        named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self.positions = {name: i for i, name in enumerate(named) if i >= code.co_posonlyargcount}


def bind(function: FunctionType, plan: Plan, arguments: list[Any], keywords: dict[str, Any] | None) -> list[Any]:
    """The locals of a call. What doesn't fit is said by the interpreter in C."""
    code, count = plan.code, plan.count
    total = count + code.co_kwonlyargcount
    given = len(arguments)
    slots = arguments[:count] + [NULL] * (len(plan.decoded.names) - min(given, count))
    extra: dict[str, Any] | None = None
    after = total
    if code.co_flags & inspect.CO_VARARGS:
        slots[after] = tuple(arguments[count:])
        after += 1
    elif given > count:
        refuse(function, arguments, keywords)
    if code.co_flags & inspect.CO_VARKEYWORDS:
        extra = slots[after] = {}
    if keywords:
        for name, value in keywords.items():
            position = plan.positions.get(name)
            if position is None:
                if extra is None or not isinstance(name, str):
                    refuse(function, arguments, keywords)
                else:
                    extra[name] = value
            elif slots[position] is not NULL:
                refuse(function, arguments, keywords)
            else:
                slots[position] = value
    if given < count:
        defaults = function.__defaults__ or ()
        first = count - len(defaults)
        for position in range(given, count):
            if slots[position] is NULL:
                if position < first:
                    refuse(function, arguments, keywords)
                slots[position] = defaults[position - first]
    for position in range(count, total):
        if slots[position] is NULL:
            name = code.co_varnames[position]
            if function.__kwdefaults__ is None or name not in function.__kwdefaults__:
                refuse(function, arguments, keywords)
            else:
                slots[position] = function.__kwdefaults__[name]
    return slots


def refuse(function: FunctionType, arguments: list[Any], keywords: dict[str, Any] | None) -> None:
    """Raises what the interpreter in C raises of arguments that don't fit, by calling an empty function with them."""
    code = assembled(
        function.__code__,
        ("RESUME", 0),
        ("LOAD_CONST", 0),
        ("RETURN_VALUE", 0),
        co_consts=(None,),
        co_stacksize=1,
        co_flags=function.__code__.co_flags & ~inspect.CO_GENERATOR,
    )
    empty = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    empty.__kwdefaults__ = function.__kwdefaults__
    empty.__qualname__ = function.__qualname__
    empty(*arguments, **(keywords or {}))
    raise AssertionError("the arguments fit")


def call_function(
    frame: Frame, function: FunctionType, arguments: list[Any], keywords: dict[str, Any] | None
) -> Outcome:
    machine = frame.machine
    found = machine.plans.get(id(function.__code__))
    plan = machine.plan(function) if found is None else found[1]
    if plan is None:
        stand_in = machine.stand_ins.get(id(function), machine.call_native)
        return stand_in(frame, function, arguments, keywords)
    return new_frame(machine, plan, function, arguments, keywords, frame)


def new_frame(
    machine: Machine,
    plan: Plan,
    function: FunctionType,
    arguments: list[Any],
    keywords: dict[str, Any] | None,
    back: Frame | None,
) -> Frame:
    """A frame that is about to begin; `arguments` becomes part of it."""
    if not keywords and plan.is_simple and len(arguments) == plan.count:
        arguments += plan.rest
    else:
        arguments = bind(function, plan, arguments, keywords)
        if machine.tells_of_objects and back is not None and plan.code.co_flags & inspect.CO_VARKEYWORDS:
            machine.policy.on_create(back, arguments[plan.last_argument])
    if back is not None and back.depth >= sys.getrecursionlimit():
        raise RecursionError("maximum recursion depth exceeded")
    return Frame(
        machine,
        plan.code,
        plan.decoded,
        plan.instructions,
        arguments,
        function,
        function.__globals__,
        cast(Any, function).__builtins__,
        back,
    )


def call_native(frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    frame.stack.append(callable(*arguments, **keywords) if keywords else callable(*arguments))


def call_native_hooked(frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    frame.stack.append(frame.machine.policy.on_native_call(frame, callable, arguments, keywords or {}))


def call_builtin(frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    machine = frame.machine
    stand_in = machine.stand_ins.get(id(callable))
    if stand_in is not None:
        return stand_in(frame, callable, arguments, keywords)
    return machine.call_native(frame, callable, arguments, keywords)


def call_method(frame: Frame, method: MethodType, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    function = method.__func__
    arguments.insert(0, method.__self__)
    return frame.machine.callers[type(function)](frame, function, arguments, keywords)


def call_partial(
    frame: Frame, partial: functools.partial[Any], arguments: list[Any], keywords: dict[str, Any] | None
) -> Outcome:
    arguments[:0] = partial.args
    return frame.machine.begin(frame, partial.func, arguments, {**partial.keywords, **(keywords or {})})


def call_static(
    frame: Frame, static: staticmethod[Any, Any], arguments: list[Any], keywords: dict[str, Any] | None
) -> Outcome:
    return frame.machine.begin(frame, static.__func__, arguments, keywords)


def call_object(frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    """An object whose class had an interpreted ``__call__`` when it was first seen."""
    method = find_in_class(type(callable), "__call__")
    if type(method) is FunctionType:
        return call_function(frame, method, [callable, *arguments], keywords)
    return frame.machine.call_native(frame, callable, arguments, keywords)


def call_class(frame: Frame, kind: type, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    """Makes an instance, with ``__new__`` and ``__init__`` interpreted where they are Python."""
    machine = frame.machine
    stand_in = machine.stand_ins.get(id(kind))
    if stand_in is not None:
        return stand_in(frame, kind, arguments, keywords)
    whole = find_in_class(type(kind), "__call__")
    if whole is not TYPE_CALL:
        if machine.interprets(whole):
            return call_function(frame, whole, [kind, *arguments], keywords)
        return machine.call_native(frame, kind, arguments, keywords)
    new = find_in_class(kind, "__new__")
    new = new.__func__ if type(new) is staticmethod else new
    makes = machine.interprets(new)
    if not makes and not machine.interprets(find_in_class(kind, "__init__")):
        return machine.call_native(frame, kind, arguments, keywords)
    named = keywords or {}
    instance = machine.call(new, kind, *arguments, **named) if makes else kind.__new__(kind, *arguments, **named)
    if not issubclass(type(instance), kind):
        frame.stack.append(instance)
        return None
    if machine.tells_of_objects and new in MAKES_ANEW:
        machine.policy.on_create(frame, instance)
    initialize = find_in_class(type(instance), "__init__")
    if not machine.interprets(initialize):
        type(instance).__init__(instance, *arguments, **named)
        frame.stack.append(instance)
        return None
    outcome = call_function(frame, initialize, [instance, *arguments], keywords)
    outcome.finish = Initialized(instance)
    return outcome


class Initialized:
    """What becomes of the result of an ``__init__``: the object that it was called for."""

    __slots__ = ("instance",)

    def __init__(self, instance: Any) -> None:
        self.instance = instance

    def __call__(self, finished: Frame, value: Any) -> Any:
        if value is not None:
            raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
        return self.instance


TYPE_CALL = type.__dict__["__call__"]
# whoever else makes an object may give one that is there already
MAKES_ANEW = frozenset(kind.__new__ for kind in (object, list, dict, set, deque, OrderedDict, BaseException))


def discard(frame: Frame, value: Any) -> Any:
    return DISCARDED


class Callers(dict[type, Caller]):
    """Who does the calls of objects of a class; a class is looked at when it is first called."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self[FunctionType] = call_function
        self[MethodType] = call_method
        self[BuiltinFunctionType] = call_builtin
        self[functools.partial] = call_partial
        self[staticmethod] = call_static

    def __missing__(self, kind: type) -> Caller:
        caller = self.machine.policy.caller_for(kind)
        if caller is None:
            if issubclass(kind, type):
                caller = call_class
            elif self.machine.interprets(find_in_class(kind, "__call__")):
                caller = call_object
            else:
                caller = self.machine.call_native
        self[kind] = caller
        return caller
