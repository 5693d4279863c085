"""Calls that are not interpreted: what is noted of them, while a function is captured."""

from __future__ import annotations

import abc
import collections
import functools
import math
import operator
import threading
import types
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from types import FunctionType, ModuleType
from typing import Any

import torch

from tintype.compiler import known
from tintype.compiler.accesses import Accesses
from tintype.compiler.calls import base_method, without_modes
from tintype.compiler.identities import KEYED, note_comparing_method
from tintype.compiler.known import CONTAINERS
from tintype.compiler.markers import is_allowed, is_disabled, is_graph_break, original_of
from tintype.compiler.numbers import (
    CALLING,
    COMPUTES,
    KEEPS,
    KEEPS_NUMBERS,
    Number,
    calls_native_code,
    converted,
    holds_number,
    is_mixed,
    plain,
    settled,
)
from tintype.compiler.operators import METHODS, is_array
from tintype.compiler.plain_again import PlainAgain
from tintype.compiler.reading_again import are_same
from tintype.compiler.sources import Source
from tintype.compiler.trace import SETS_MODE, WARNS
from tintype.interpret import Frame
from tintype.interpret.frame import NULL
from tintype.interpret.logged_lines import Line, is_of_logging, lines_of, log_from
from tintype.interpret.lookup import find_in_class
from tintype.interpret.warned_lines import warn_at
from tintype.ir.call_values import PLAIN

# builtins that iterate over what they are given, and those that call it
_ITERATING = frozenset(
    [
        "enumerate",
        "zip",
        "list",
        "tuple",
        "iter",
        "map",
        "filter",
        "sum",
        "max",
        "min",
        "any",
        "all",
        "sorted",
        "set",
        "frozenset",
    ]
)
# of the code around a message that is logged
_MOST_LINES = 64
_CALLING = frozenset(["map", "filter", "sorted", "min", "max", "reduce"])
# those that run methods of the items
_ASKING_ITEMS = frozenset(["any", "all", "sum", "sorted", "max", "min", "set", "frozenset"])


class NativeCalls(Accesses):
    """Does calls of functions that are written in C, or that are left alone, and notes them."""

    def on_native_call(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        capture = self.capture
        if capture.reason is not None:
            if is_of_logging(callable):
                arguments, callable = [self._lines_logged(keywords), callable, *arguments], log_from
            if capture.has_numbers:
                arguments, keywords = (
                    [*map(plain, arguments)],
                    {name: plain(value) for name, value in keywords.items()},
                )
            return callable(*arguments, **keywords)
        capture.in_flight += (arguments, keywords)
        try:
            result = self._native_call(frame, callable, arguments, keywords)
        finally:
            del capture.in_flight[-2:]
        if capture.reason is not None and capture.has_numbers:
            return PlainAgain(capture.sources).value(result)
        return result

    def _native_call(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        capture = self.capture
        if (callable is int or callable is float) and len(arguments) == 1:
            if isinstance(arguments[0], torch.Tensor) or is_array(arguments[0]):
                return self.step(callable, arguments, keywords, f"{callable.__name__}() looks at data")
        if capture.has_numbers:
            done = self._prepare_numbers(callable, arguments, keywords)
            if done is not NotImplemented:
                return done
        if id(callable) in known.PURE:
            return self._call_pure(frame, callable, arguments, keywords)
        if id(callable) in _KNOWN_BY_THEMSELVES:
            return self._call_known(frame, callable, arguments, keywords)
        if known.is_of_torch(callable):
            return self._call_torch(callable, arguments, keywords)
        return self._call_of_python(frame, callable, arguments, keywords)

    def _call_known(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """One of the functions of torch's that are known by being themselves."""
        if id(callable) in known.ASKS_WHETHER_COMPILING:
            return not known.is_of_layers(frame.code)
        if id(callable) in known.STATE_READS:
            return self.capture.state_read(callable, (*arguments, *keywords.values()))
        if id(callable) in known.STATE_WRITES:
            return self.step(callable, arguments, keywords, SETS_MODE)
        if callable in _MAKING_TENSORS:
            return self.step(callable, arguments, keywords, f"{callable.__name__} takes memory of others")
        return without_modes(callable, arguments, keywords)

    def _call_of_python(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Methods of Python's own objects, and what nobody knows."""
        if type(callable) is FunctionType and hasattr(callable, "engine") and hasattr(callable, "original"):
            return frame.machine.call(self.original_of(callable), *arguments, **keywords)
        owner = getattr(callable, "__self__", None)
        if isinstance(callable, _UNBOUND) and arguments and isinstance(arguments[0], callable.__objclass__):
            bound: Any = callable
            return self.on_native_call(frame, bound.__get__(arguments[0]), arguments[1:], keywords)
        if isinstance(callable, _BOUND) and issubclass(type(owner), (*CONTAINERS, *known.PLAIN_OWNERS)):
            if callable.__name__ not in _OF_OBJECTS:
                return self._call_method(callable, owner, arguments, keywords)
        if type(callable) is weakref.ref:
            return self._call_reference(callable)
        if type(owner) is ContextVar:
            return self._call_of_context(callable, owner, arguments, keywords)
        if isinstance(callable, _CACHED):
            return self._call_cached(callable, arguments, keywords)
        if type(callable) is types.MethodWrapperType and callable.__name__ == "__getattribute__":
            return self._plain_lookup(frame, owner, *arguments)
        if callable is _GETATTR_OF_MODULES:
            return self._module_attribute(frame, *arguments)
        if callable is _SETATTR_OF_MODULES and id(arguments[0]) in self.capture.sources:
            return self._set_in_module(*arguments)
        if callable is _APPLY and isinstance(arguments[0], type):
            return self._apply(*arguments, **keywords)
        if self._is_of_new_module(callable, arguments):
            return callable(*arguments, **keywords)
        if self._is_of_object(callable, owner, arguments):
            return callable(*arguments, **keywords)
        if isinstance(callable, type) and self._is_plain_class(callable):
            return callable(*arguments, **keywords)
        return self._call_unknown(callable, owner, arguments, keywords)

    def original_of(self, compiled: Any) -> Any:
        """What a compiled function or module was made of, as something that is read."""
        original, source = original_of(compiled), self.capture.source_of(compiled)
        if source is not None:
            self.capture.read(Source("attribute", "original", source), original)
        return original

    def _prepare_numbers(self, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Numbers that vary are given to native code: it may keep them, or they are settled in place.

        Gives the result where there is one already."""
        if isinstance(callable, _BOUND) and isinstance(callable.__self__, tuple):
            if callable.__name__ == "numel" and holds_number(callable.__self__):
                return math.prod(callable.__self__)
            if callable.__name__ not in KEEPS:
                settled(callable.__self__)
        if not holds_number(arguments) and not holds_number(keywords):
            return NotImplemented
        if callable is enumerate:  # C counts from what the number is now
            arguments[1:], keywords = settled(arguments[1:]), settled(keywords)
        if id(callable) in CALLING and calls_native_code(arguments, keywords):
            arguments[:] = settled(arguments)
        done = converted(self.capture, callable, arguments) if not keywords else NotImplemented
        if done is not NotImplemented or id(callable) in KEEPS_NUMBERS or known.is_of_torch(callable):
            return done
        if id(callable) in COMPUTES and not is_mixed(arguments):
            return NotImplemented
        owner = getattr(callable, "__self__", None)
        if isinstance(owner, CONTAINERS) and callable.__name__ in KEEPS and id(owner) not in self.capture.sources:
            return NotImplemented
        is_step = known.is_trusted(callable) or is_allowed(callable) or is_disabled(callable)
        is_step = is_step and id(callable) not in known.PURE
        for position, value in enumerate(arguments):
            if not (is_step and isinstance(value, Number)):
                arguments[position] = settled(value)
        for name, value in keywords.items():
            if not (is_step and isinstance(value, Number)):
                keywords[name] = settled(value)
        return NotImplemented

    def _call_reference(self, reference: Any) -> Any:
        value = reference()
        source = self.capture.sources.get(id(reference))
        return value if source is None else self.capture.read(Source("called", (), source), value)

    def _call_of_context(self, callable: Any, variable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """``get``, ``set`` and ``reset`` of a context variable."""
        capture, name = self.capture, callable.__name__
        if name == "get" and all(type(argument) in PLAIN for argument in arguments):
            if capture.is_set_in_context(variable):
                return callable(*arguments)
            place = Source("attribute", "get", Source("constant", variable))
            try:
                value = callable(*arguments)
            except LookupError:
                capture.give_up("a context variable has no value")
                raise
            return capture.read(Source("called", tuple(arguments), place), value)
        if name == "set":
            return capture.set_in_context(variable, *arguments)
        if name == "reset":
            capture.reset_context(variable, *arguments)
            return None
        return self._call_unknown(callable, variable, arguments, keywords)

    def _call_cached(self, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """A function that remembers its results: called again each time to see what it has for the same arguments."""
        capture = self.capture
        for value in arguments:
            if type(value) in PLAIN or isinstance(value, (type, ModuleType, FunctionType)):
                continue
            source = capture.sources.get(id(value))
            if source is None or isinstance(value, (torch.Tensor, *CONTAINERS)):
                return self._call_unknown(callable, None, arguments, keywords)
            capture.guard("is", source, value)
        if not all(type(value) in PLAIN for value in keywords.values()):
            return self._call_unknown(callable, None, arguments, keywords)
        try:
            result = without_modes(callable, arguments, keywords)
        except Exception as error:  # which is not remembered
            capture.give_up(f"{callable.__qualname__}, which remembers its results, raises {type(error).__name__}")
            raise
        function = Source("constant", functools.partial(callable, *arguments, **keywords) if keywords else callable)
        return capture.read(Source("called", tuple(arguments) if not keywords else (), function), result)

    def _module_attribute(self, frame: Frame, module: Any, name: str) -> Any:
        """``super().__getattr__(name)`` in a module's class."""
        try:
            value = _GETATTR_OF_MODULES(module, name)
        except AttributeError:
            self.on_read_attribute(frame, module, name, NULL)
            raise
        return self.on_read_attribute(frame, module, name, value)

    def _set_in_module(self, module: Any, name: str, value: Any) -> None:
        """``super().__setattr__(name, value)`` in a module's class, and the method called by its name."""
        if isinstance(find_in_class(type(module), name), property):
            self.capture.give_up(f"{type(module).__name__}.{name} is written by code that runs natively")
        kind = "attribute" if type(module).__setattr__ is _SETATTR_OF_MODULES else "module_attribute"
        self.capture.effect(kind, module, name, (value,))
        self.note_written(module, name)
        _SETATTR_OF_MODULES(module, name, value)

    def _apply(self, kind: Any, *arguments: Any, **keywords: Any) -> Any:
        """A ``torch.autograd.Function``: called as it is, as part of graphs."""

        def really(*args: Any, **kwargs: Any) -> Any:
            return without_modes(kind.apply, args, kwargs)

        return self.capture.call(function_of(kind), arguments, keywords, None, really)

    def _plain_lookup(self, frame: Frame, owner: Any, name: str) -> Any:
        """``super().__getattribute__(name)`` in a class that has its own."""
        owner = getattr(owner, "__self__", owner) if type(owner) is super else owner
        found = find_in_class(type(owner), name)
        if type(found) is property and frame.machine.interprets(found.fget):
            self.read_of_class(type(owner), name)
            return frame.machine.call(found.fget, owner)
        try:
            value = object.__getattribute__(owner, name)
        except AttributeError:
            self.on_read_attribute(frame, owner, name, NULL)
            raise
        return self.on_read_attribute(frame, owner, name, value)

    def _call_pure(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        if callable is isinstance or callable is issubclass:  # most often, and nothing else is asked
            if _is_of_users_abc(arguments[1:]):
                self.capture.state_read(abc.get_cache_token, ())
            return callable(*arguments, **keywords)
        machine, name = frame.machine, callable.__name__
        done = self._call_that_changes(callable, arguments)
        if done is not NotImplemented:
            return done
        if name in _ITERATING:
            for position, value in enumerate(arguments):
                if not isinstance(value, CONTAINERS) and machine.iter[type(value)]:
                    method = machine.iter.of(value)
                    if method is not None:
                        value = arguments[position] = machine.call(method, value)
                if callable is not iter and machine.next[type(value)]:
                    arguments[position] = self._items_of(machine, value)
        self.look_at_items(name, [*arguments, *keywords.values()])
        if name in _ASKING_ITEMS:
            arguments[:] = [self._watched(name, value) for value in arguments]
        for value in (*arguments, *keywords.values()):
            self.look(name, value)
            if name in _CALLING and type(value) is FunctionType and not machine.interprets(value):
                self.capture.give_up(f"{value.__qualname__} is called by {name}")
            elif name in _CALLING and isinstance(value, _BOUND) and id(value.__self__) in self.capture.sources:
                self._called_natively(name, value)
        result = callable(*arguments, **keywords)
        if isinstance(result, KEYED) and id(result) not in self.capture.sources:
            self.capture.identities.used_as_keys(result)
        return result

    def _called_natively(self, name: str, method: Any) -> None:
        """Native code calls a method of what was there before: ``sorted(names, key=ranks.get)``."""
        if method.__name__ in known.MUTATING or not isinstance(method.__self__, CONTAINERS):
            self.capture.give_up(f"{method.__qualname__} is called by {name}")
        else:
            self.capture.look_into(method.__self__)

    def _watched(self, operation: str, iterator: Any) -> Any:
        """An iterator whose items are looked at before native code gets them."""
        if not isinstance(iterator, Iterator) or id(iterator) in self.capture.sources:
            return iterator

        def items() -> Iterator[Any]:
            for item in iterator:
                self.look_at_items(operation, [[item]])
                yield item

        return items()

    def _items_of(self, machine: Any, iterator: Any) -> Iterator[Any]:
        """The items of an iterator of the user's, whose method native code would run unseen."""
        while True:
            try:
                method = None if self.capture.is_over else machine.next.of(iterator)
                item = next(iterator) if method is None else machine.call(method, iterator)
            except StopIteration:
                return
            yield item

    def on_create(self, frame: Frame, value: Any) -> None:
        if isinstance(value, KEYED) and self.capture.reason is None and not all(type(key) in PLAIN for key in value):
            self.capture.identities.used_as_keys(value)
            self.look_at_items("build_set", [[*value]])

    def _call_torch(self, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        capture = self.capture
        outer, capture.heard = capture.heard, None
        try:
            result = callable(*arguments, **keywords)
            name = getattr(callable, "__name__", str(callable))
            # functions that choose between two, such as max_pool2d, are heard by the name that users know
            if capture.heard not in (name, name.removeprefix("_")):  # nothing, or only what it calls in turn
                capture.give_up(f"{name} is not heard by modes")
            return result
        finally:
            capture.heard = outer

    def _call_method(self, callable: Any, owner: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        capture, name = self.capture, callable.__name__
        is_external = id(owner) in capture.sources
        self.look_at_items(name, [owner, *arguments, *keywords.values()])
        for value in (*arguments, *keywords.values()):
            self.look(name, value)
        note_comparing_method(capture.identities, name, owner, arguments)
        if not is_external:
            return callable(*arguments, **keywords)
        if isinstance(owner, known.PLAIN_OWNERS):
            self.look(name, owner)
            return callable(*arguments, **keywords)
        if name not in known.MUTATING:
            if name in ("get", "__getitem__") and isinstance(owner, dict) and type(arguments[0]) in PLAIN:
                value = dict.get(owner, arguments[0], NULL)
                found = self.on_read_item(None, owner, arguments[0], value)
                if value is not NULL:
                    return found
            elif name != "__contains__" or not self._look_for(arguments[0], owner):
                capture.look_into(owner)
            return callable(*arguments, **keywords)
        if name not in known.BLIND:
            capture.look_into(owner)
        if name in _TAKING_MANY and not all(isinstance(value, CONTAINERS) for value in arguments):
            capture.give_up(f"{name} with an iterator")
        if keywords:
            capture.give_up(f"{name} with keywords")
        capture.keep_original(owner)
        kind = "method" if base_method(type(owner), name) is None else "base_method"
        capture.effect(kind, owner, name, tuple(arguments))
        try:
            return callable(*arguments, **keywords)
        except (LookupError, ValueError):
            if name in _WHOLE_OR_NOT_AT_ALL:
                capture.nothing_is_written()
            raise

    def _call_that_changes(self, callable: Any, arguments: list[Any]) -> Any:
        """A function that changes the first of its arguments, which was there before; NotImplemented: it doesn't."""
        if not arguments or id(arguments[0]) not in self.capture.sources:
            return NotImplemented
        if callable is next and not isinstance(arguments[0], CONTAINERS):
            return self.step(next, arguments, {}, f"next() of a {type(arguments[0]).__name__} is done for real")
        if callable in METHODS_OF_OPERATOR and isinstance(arguments[0], CONTAINERS):
            owner, *rest = arguments
            return self._call_method(getattr(owner, METHODS_OF_OPERATOR[callable]), owner, rest, {})
        if len(arguments) == 2 and self.changes_container(callable, arguments[0]):
            return self.call_inplace(callable, *arguments)
        return NotImplemented

    def changes_container(self, operation: Any, left: Any) -> bool:
        """Whether an operator such as ``+=`` changes a container that was there before."""
        is_inplace = operation in METHODS and METHODS[operation][2] is not None
        return is_inplace and isinstance(left, _CHANGED_INPLACE) and id(left) in self.capture.sources

    def call_inplace(self, operation: Any, left: Any, right: Any) -> Any:
        """An operator such as ``+=``, as the method that does it."""
        method = getattr(left, str(METHODS[operation][2]), None)
        if method is None:
            return operation(left, right)
        result = self._call_method(method, left, [settled(right)], {})
        return operation(left, right) if result is NotImplemented else result

    def _is_of_new_module(self, callable: Any, arguments: list[Any]) -> bool:
        """Whether it is a method of torch's modules, of a module that the program made."""
        if type(callable) is not FunctionType or not known.is_native_of_modules(callable):
            return False
        return isinstance(arguments[0], torch.nn.Module) and id(arguments[0]) not in self.capture.sources

    def _is_of_object(self, callable: Any, owner: Any, arguments: list[Any]) -> bool:
        """Whether it is one of the methods that all objects have from Python's own classes."""
        name = getattr(callable, "__name__", "")
        if name == "__new__":
            return isinstance(owner, type) and owner in _MAKERS
        if name in ("__init__", "__init_subclass__", "__class_getitem__", "__post_init__"):
            return isinstance(
                callable, (types.MethodWrapperType, types.WrapperDescriptorType, types.BuiltinFunctionType)
            )
        if name == "__setattr__" and isinstance(callable, (types.MethodWrapperType, types.WrapperDescriptorType)):
            target, attribute, value = arguments if len(arguments) == 3 else (owner, *arguments)
            if self.capture.source_of(target) is not None:
                is_plain = find_in_class(type(target), "__setattr__") is object.__dict__["__setattr__"]
                kind = "attribute" if is_plain else "own_attribute"
                self.capture.effect(kind, target, attribute, (value,))
                self.note_written(target, attribute)
            return True
        return False

    @staticmethod
    def _is_plain_class(kind: type) -> bool:
        if issubclass(kind, BaseException):
            return True
        new, initialize = find_in_class(kind, "__new__"), find_in_class(kind, "__init__")
        new = getattr(new, "__func__", new)
        if initialize is vars(torch.nn.Module)["__init__"]:
            return new is object.__new__
        return (
            not isinstance(new, FunctionType)
            and not isinstance(initialize, FunctionType)
            and (known.is_users_class(kind) or kind in (super, object, *CONTAINERS))
        )

    def _call_unknown(self, callable: Any, owner: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        name = getattr(callable, "__qualname__", None) or getattr(callable, "__name__", str(callable))
        if is_graph_break(callable):
            return self.step(_nothing, [], {}, "graph_break()")
        why = _why_as_it_is(callable, owner, str(name))
        if why is not None:
            again = self.capture.again
            before = again.contents()
            result = self.step(callable, arguments, keywords, why)
            if not are_same(before, again.contents()):
                self.capture.give_up(f"{name} writes to what the program has written to")
            self.capture.may_have_written()
            return result
        if callable is warn_at:
            return self.step(callable, arguments, keywords, WARNS)
        if is_of_logging(callable):
            return self._log(callable, owner, arguments, keywords)
        if known.is_trusted(callable) and not known.rebuilds_modules(callable):
            return self.step(callable, arguments, keywords, f"{name} is called for real")
        self.capture.give_up(f"{name} is not interpreted, and may change anything")
        return self.capture.perform(callable, arguments, keywords)

    def _log(self, callable: Any, owner: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """A function of logging's, called from the user's line."""
        name = str(getattr(callable, "__name__", ""))
        arguments = [self._lines_logged(keywords), callable, *arguments]
        if name == "exception" or keywords.get("exc_info") is True:
            self.capture.give_up(f"{name} tells of the exception that is handled")
            return self.capture.perform(log_from, arguments, keywords)
        return self.step(log_from, arguments, keywords, f"{name} is called for real")

    def _lines_logged(self, keywords: dict[str, Any]) -> tuple[Line, ...]:
        """The lines of the program that a message may name."""
        machine: Any = self.capture.machine
        level = keywords.get("stacklevel", 1)
        count = _MOST_LINES if keywords.get("stack_info") or type(level) is not int else max(1, level)
        return lines_of(machine.frame, count)

    def step(self, callable: Any, arguments: list[Any], keywords: dict[str, Any], reason: str) -> Any:
        """A call that is done for real each time, outside of graphs."""

        def really(*args: Any, **kwargs: Any) -> Any:
            return without_modes(callable, args, kwargs)

        return self.capture.call(callable, arguments, keywords, reason, really)


@functools.cache
def function_of(kind: Any) -> Any:
    """A class of autograd functions as one function."""

    def apply(*arguments: Any, **keywords: Any) -> Any:
        return kind.apply(*arguments, **keywords)

    apply.__name__ = apply.__qualname__ = kind.__name__
    return apply


def _why_as_it_is(callable: Any, owner: Any, name: str) -> str | None:
    """Why a function is called as it is, which may write to anything; None: it is none of those."""
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return f"{name}, a torch.autograd.Function"
    if type(owner) in _LOCKS:
        return f"{name} lets other threads go on, or waits for them"
    plain = callable.__func__ if isinstance(callable, types.MethodType) else callable
    if isinstance(callable, FunctionType) and is_allowed(callable):
        return f"{name} is called as it is"
    if isinstance(callable, FunctionType) and is_disabled(callable):
        return f"{name} is disabled"
    if isinstance(plain, FunctionType) and known.is_pythons_of_torch(plain) and not known.rebuilds_modules(plain):
        return f"{name} is called for real"
    return None


def _nothing() -> None:
    """What a graph break does."""


_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_UNBOUND = (types.MethodDescriptorType, types.WrapperDescriptorType)
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)
_OF_OBJECTS = (
    "__init__",
    "__setattr__",
    "__delattr__",
    "__getattribute__",
    "__new__",
    "__class__",
    "__init_subclass__",
)
_SETATTR_OF_MODULES: Any = vars(torch.nn.Module)["__setattr__"]
_GETATTR_OF_MODULES: Any = vars(torch.nn.Module)["__getattr__"]
_APPLY: Any = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]
# functions that modes don't hear
_MAKING_TENSORS = (torch.from_numpy, torch.frombuffer)
# methods that take one container into another
_TAKING_MANY = frozenset(
    [
        *("extend", "extendleft", "update", "__iadd__", "__ior__", "__iand__", "__isub__", "__ixor__"),
        *("difference_update", "intersection_update", "symmetric_difference_update"),
    ]
)
# methods that look for what they take, and change nothing where they raise an exception
_WHOLE_OR_NOT_AT_ALL = frozenset(["pop", "popitem", "popleft", "remove", "move_to_end", "__delitem__", "__setitem__"])
_CHANGED_INPLACE = (list, dict, set, collections.deque)
_CACHED = (type(functools.lru_cache(len)),)
_MAKERS = (object, list, dict, tuple, set, str, int, float, BaseException, Exception)
_ASKS_FOR_MODES = (
    torch.overrides.has_torch_function,
    torch.overrides.is_tensor_like,
    torch._C._is_torch_function_mode_enabled,
    torch._C._has_torch_function,
)
_KNOWN_BY_THEMSELVES = frozenset().union(
    known.ASKS_WHETHER_COMPILING, known.STATE_READS, known.STATE_WRITES, map(id, (*_MAKING_TENSORS, *_ASKS_FOR_MODES))
)


def _is_of_users_abc(kinds: Any) -> bool:
    """Whether a class is asked for that others may be registered with."""
    flat = [kind for item in kinds for kind in (item if isinstance(item, tuple) else (item,))]
    return any(isinstance(kind, abc.ABCMeta) and known.is_users_class(kind) for kind in flat)


METHODS_OF_OPERATOR: dict[Any, str] = {
    operator.setitem: "__setitem__",
    operator.delitem: "__delitem__",
    operator.iconcat: "__iadd__",
}
