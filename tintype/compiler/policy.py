"""What the machine is told while a function is captured, and what becomes of it."""

from __future__ import annotations

import functools
import math
import types
import weakref
from collections.abc import Mapping
from contextvars import ContextVar
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tintype.compiler import known
from tintype.compiler.calls import without_modes
from tintype.compiler.capture import Capture
from tintype.compiler.known import CONTAINERS
from tintype.compiler.markers import is_allowed, is_disabled, is_graph_break, original_of
from tintype.compiler.numbers import (
    COMPUTES,
    KEEPS,
    KEEPS_NUMBERS,
    Number,
    converted,
    holds_number,
    is_mixed,
    settled,
    stripped,
)
from tintype.compiler.operators import ClassesWithOperators, is_array
from tintype.compiler.sources import Source, item_of
from tintype.compiler.trace import SETS_MODE
from tintype.interpret import Frame
from tintype.interpret.calling import call_class, call_object
from tintype.interpret.frame import NULL
from tintype.interpret.handlers.attributes import find_getter, find_setter, instance_dictionary, load_attribute_hooked
from tintype.interpret.lookup import find_in_class
from tintype.interpret.policy import ASYNC_FLAGS, Caller, Outcome, Policy
from tintype.ir.call_values import PLAIN, is_library
from tintype.symbolic.location import is_internal
from tintype.trace.interpreted import _PASSES_ON, has_hooks

_OWN_MODULE_TABLES = ("_parameters", "_buffers", "_modules")
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
_ASKING_FOR_CLASSES = frozenset(["isinstance", "issubclass", "type", "callable", "is_tensor", "cast", "super"])
_CALLING = frozenset(["map", "filter", "sorted", "min", "max", "reduce"])


class CapturePolicy(Policy):
    """Interprets the user's code and torch's modules, and notes what they read, call and write."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.classes_with_operators = ClassesWithOperators(known.is_users_class)

    def interprets(self, function: FunctionType) -> bool:
        code = function.__code__
        if (
            code.co_flags & ASYNC_FLAGS
            or is_disabled(function)
            or is_allowed(function)
            or code in known.NATIVE_OF_MODULES
        ):
            return False
        name = code.co_filename
        if name.startswith(known.INTERPRETED) or name in _PASSES_ON:
            return True
        if name.startswith("<frozen"):
            return name == "<frozen _collections_abc>"
        return not is_internal(name) or self._is_of_python(name)

    @staticmethod
    def _is_of_python(name: str) -> bool:
        return name.endswith(
            ("contextlib.py", "functools.py", "dataclasses.py", "collections/__init__.py", "copy.py")
        )

    def caller_for(self, type_of_callable: type) -> Caller | None:
        if hasattr(type_of_callable, "is_compiled_by_tintype"):
            return call_original
        if issubclass(type_of_callable, torch.nn.Module):
            if type_of_callable.__call__ is torch.nn.Module.__call__:
                return self.call_module
        if issubclass(type_of_callable, type):
            return self.call_class
        if known.is_users_class(type_of_callable):
            return self.call_object
        return None

    def call_class(self, frame: Frame, kind: type, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
        """A class is called: which methods make the object is noted."""
        if known.is_users_class(kind):
            for name in ("__new__", "__init__"):
                self.read_of_class(kind, name)
        return call_class(frame, kind, arguments, keywords)

    def call_object(
        self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any] | None
    ) -> Outcome:
        self.read_of_class(type(callable), "__call__")
        return call_object(frame, callable, arguments, keywords)

    def stand_ins(self) -> Mapping[Any, Caller]:
        return {
            len: self.call_len,
            bool: self.call_bool,
            hasattr: self.call_hasattr,
            getattr: self.call_getattr,
            setattr: self.call_setattr,
            delattr: self.call_setattr,
        }

    # --- calls -----------------------------------------------------------------------------------------------------

    def call_module(
        self, frame: Frame, module: Any, arguments: list[Any], keywords: dict[str, Any] | None
    ) -> Outcome:
        """A call of a module: of its ``forward`` at once where nothing listens to it."""
        capture, machine = self.capture, frame.machine
        if has_hooks(module) or "forward" in module.__dict__:
            source = capture.sources.get(id(module))
            if source is not None:
                own = Source("attribute", "__dict__", source)
                names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
                for name in names:
                    capture.read(Source("item", name, own), module.__dict__[name])
                    capture.look_into(module.__dict__[name])
            return machine.begin(frame, type(module).__call__, [module, *arguments], keywords)
        source = capture.sources.get(id(module))
        if source is not None:
            capture.guard("hooks", source, None)
        self.read_of_class(type(module), "forward")
        return machine.begin(frame, module.forward, arguments, keywords)

    def call_len(self, frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
        return self._call_special(frame, called, "__len__", arguments, keywords)

    def call_bool(self, frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
        return self._call_special(frame, called, "__bool__", arguments, keywords)

    def _call_special(
        self, frame: Frame, called: Any, name: str, arguments: list[Any], keywords: dict[str, Any] | None
    ) -> Outcome:
        if len(arguments) == 1:
            method = find_in_class(type(arguments[0]), name)
            if frame.machine.interprets(method):
                self.read_of_class(type(arguments[0]), name)
                return frame.machine.begin(frame, method, arguments, keywords)
        return frame.machine.call_native(frame, called, arguments, keywords)

    def call_hasattr(
        self, frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None
    ) -> Outcome:
        frame.stack.append(self._attribute(frame, *arguments) is not NULL)
        return None

    def call_getattr(
        self, frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None
    ) -> Outcome:
        if len(arguments) == 2:
            frame.stack.append(arguments[0])
            return load_attribute_hooked(frame, arguments[1])
        owner, name, default = arguments
        value = self._attribute(frame, owner, name)
        frame.stack.append(default if value is NULL else value)
        return None

    def _attribute(self, frame: Frame, owner: Any, name: str) -> Any:
        """An attribute as the program sees it; NULL: there is none."""
        getter = find_getter(frame, owner, type(owner), name)
        try:
            if getter is not None:
                return frame.machine.call(getter[0], *getter[1])
            value = getattr(owner, name)
        except AttributeError:
            self.on_read_attribute(frame, owner, name, NULL)
            return NULL
        return self.on_read_attribute(frame, owner, name, value)

    def call_setattr(
        self, frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None
    ) -> Outcome:
        owner, name, *values = arguments
        self.on_write_attribute(frame, owner, name, values[0] if values else NULL)
        if self.capture.source_of(owner) is not None:
            arguments = [stripped(argument) for argument in arguments]
        called(*arguments)
        frame.stack.append(None)
        return None

    def on_native_call(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        capture = self.capture
        if capture.reason is not None:
            return callable(*arguments, **keywords)
        if (callable is int or callable is float) and len(arguments) == 1:
            if isinstance(arguments[0], torch.Tensor) or is_array(arguments[0]):
                return self.step(callable, arguments, keywords, f"{callable.__name__}() looks at data")
        if capture.has_numbers:
            done = self._prepare_numbers(callable, arguments, keywords)
            if done is not NotImplemented:
                return done
        if id(callable) in known.PURE:
            return self._call_pure(frame, callable, arguments, keywords)
        if id(callable) in known.ASKS_WHETHER_COMPILING:
            return True
        if id(callable) in known.STATE_READS:
            return capture.state_read(callable, (*arguments, *keywords.values()))
        if id(callable) in known.STATE_WRITES:
            return self.step(callable, arguments, keywords, SETS_MODE)
        if callable is torch._C._has_torch_function or callable in _ASKS_FOR_MODES:
            return without_modes(callable, arguments, keywords)
        if callable in _MAKING_TENSORS:
            return self.step(callable, arguments, keywords, f"{callable.__name__} takes memory of others")
        if known.is_of_torch(callable):
            return self._call_torch(callable, arguments, keywords)
        return self._call_of_python(frame, callable, arguments, keywords)

    def _call_of_python(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Methods of Python's own objects, and what nobody knows."""
        if type(callable) is FunctionType and hasattr(callable, "engine") and hasattr(callable, "original"):
            return frame.machine.call(original_of(callable), *arguments, **keywords)
        owner = getattr(callable, "__self__", None)
        if isinstance(callable, _UNBOUND) and arguments and isinstance(arguments[0], callable.__objclass__):
            bound: Any = callable
            return self.on_native_call(frame, bound.__get__(arguments[0]), arguments[1:], keywords)
        if isinstance(callable, _BOUND) and isinstance(owner, (*CONTAINERS, *known.PLAIN_OWNERS)):
            if callable.__name__ not in _OF_OBJECTS:
                return self._call_method(callable, owner, arguments, keywords)
        if type(callable) is weakref.ref:
            return self._call_reference(callable)
        if isinstance(owner, ContextVar):
            return self._call_of_context(callable, owner, arguments, keywords)
        if isinstance(callable, _CACHED):
            return self._call_cached(callable, arguments, keywords)
        if type(callable) is types.MethodWrapperType and callable.__name__ == "__getattribute__":
            return self._plain_lookup(frame, owner, *arguments)
        if callable is _GETATTR_OF_MODULES:
            return self._module_attribute(frame, *arguments)
        if callable is _APPLY and isinstance(arguments[0], type):
            return self._apply(*arguments, **keywords)
        if self._is_of_new_module(callable, arguments):
            return callable(*arguments, **keywords)
        if self._is_of_object(callable, owner, arguments):
            return callable(*arguments, **keywords)
        if isinstance(callable, type) and self._is_plain_class(callable):
            return callable(*arguments, **keywords)
        return self._call_unknown(callable, owner, arguments, keywords)

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
            return capture.read(Source("called", tuple(arguments), place), callable(*arguments))
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
        result = without_modes(callable, arguments, keywords)
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
        machine, name = frame.machine, callable.__name__
        if name in _ITERATING:
            for position, value in enumerate(arguments):
                if not isinstance(value, CONTAINERS) and machine.iter[type(value)]:
                    method = machine.iter.of(value)
                    if method is not None:
                        arguments[position] = machine.call(method, value)
        for value in (*arguments, *keywords.values()):
            self.look(name, value)
            if name in _CALLING and type(value) is FunctionType and not machine.interprets(value):
                self.capture.give_up(f"{value.__qualname__} is called by {name}")
        return callable(*arguments, **keywords)

    def _call_torch(self, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        capture = self.capture
        heard = capture.heard
        result = callable(*arguments, **keywords)
        if capture.heard == heard and capture.reason is None and type(result) not in PLAIN:
            capture.give_up(f"{getattr(callable, '__name__', callable)} is not heard by modes")
        elif capture.heard == heard and type(result) in PLAIN:
            name = getattr(callable, "__name__", str(callable))
            capture.give_up(f"{name} is not heard by modes")
        return result

    def _call_method(self, callable: Any, owner: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        capture, name = self.capture, callable.__name__
        is_external = id(owner) in capture.sources
        for value in (*arguments, *keywords.values()):
            self.look(name, value)
        if not is_external or isinstance(owner, known.PLAIN_OWNERS):
            return callable(*arguments, **keywords)
        if name not in known.MUTATING:
            if name in ("get", "__getitem__") and isinstance(owner, dict) and type(arguments[0]) in PLAIN:
                self.on_read_item(None, owner, arguments[0], dict.get(owner, arguments[0], NULL))
            elif name != "__contains__" or not self._look_for(arguments[0], owner):
                capture.look_into(owner)
            return callable(*arguments, **keywords)
        if name not in known.BLIND:
            capture.look_into(owner)
        if name in ("extend", "update", "extendleft") and not isinstance(arguments[:1], list):
            capture.give_up(f"{name} with an iterator")
        if any(not isinstance(value, (list, tuple, dict, set)) for value in arguments) and name in (
            "extend",
            "update",
        ):
            capture.give_up(f"{name} with an iterator")
        if keywords:
            capture.give_up(f"{name} with keywords")
        capture.keep_original(owner)
        capture.effect("method", owner, name, tuple(arguments))
        return callable(*arguments, **keywords)

    def _is_of_new_module(self, callable: Any, arguments: list[Any]) -> bool:
        """Whether it is a method of torch's modules, of a module that the program made."""
        if type(callable) is not FunctionType or callable.__code__ not in known.NATIVE_OF_MODULES:
            return False
        return isinstance(arguments[0], torch.nn.Module) and id(arguments[0]) not in self.capture.sources

    def _is_of_object(self, callable: Any, owner: Any, arguments: list[Any]) -> bool:
        """Whether it is one of the methods that all objects have from Python's own classes."""
        name = getattr(callable, "__name__", "")
        if name == "__new__":
            return isinstance(owner, type) and owner in _MAKERS
        if name in ("__init__", "__init_subclass__", "__class_getitem__", "__post_init__", "__enter__", "__exit__"):
            return isinstance(
                callable, (types.MethodWrapperType, types.WrapperDescriptorType, types.BuiltinFunctionType)
            )
        if name == "__setattr__" and isinstance(callable, (types.MethodWrapperType, types.WrapperDescriptorType)):
            target, attribute, value = arguments if len(arguments) == 3 else (owner, *arguments)
            source = self.capture.source_of(target)
            if source is not None:
                self.capture.effect("attribute", target, attribute, (value,))
                self.capture.written.add((id(target), attribute))
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
        if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
            return self.step(callable, arguments, keywords, f"{name}, a torch.autograd.Function")
        if isinstance(callable, FunctionType) and is_allowed(callable):
            return self.step(callable, arguments, keywords, f"{name} is called as it is")
        if isinstance(callable, FunctionType) and is_disabled(callable):
            return self.step(callable, arguments, keywords, f"{name} is disabled")
        if known.is_trusted(callable):
            return self.step(callable, arguments, keywords, f"{name} is called for real")
        self.capture.give_up(f"{name} is not interpreted, and may change anything")
        return callable(*arguments, **keywords)

    def step(self, callable: Any, arguments: list[Any], keywords: dict[str, Any], reason: str) -> Any:
        """A call that is done for real each time, outside of graphs."""

        def really(*args: Any, **kwargs: Any) -> Any:
            return without_modes(callable, args, kwargs)

        return self.capture.call(callable, arguments, keywords, reason, really)

    # --- looking ---------------------------------------------------------------------------------------------------

    def on_operands(self, frame: Frame, operation: str, values: list[Any]) -> None:
        if self.capture.reason is not None:
            return
        if self.capture.has_numbers and holds_number(values):
            values = self._settle_operands(frame, operation, values)
        if operation == "is_operator":
            self._compare_identities(*values)
            return
        if operation == "contains" and self._look_for(*values):
            return
        methods = frame.machine.__dict__.get(_SUBSCRIPTS.get(operation, ""))
        if methods is not None and self._is_known_item(operation, values):
            return
        for value in values:
            if methods is None or not methods[type(value)]:  # else its method is interpreted
                self.look(operation, value)

    def _is_known_item(self, operation: str, values: list[Any]) -> bool:
        """Whether an item is all that is read or written of a container that was there before."""
        owner, key = values[-2:]
        if type(key) not in PLAIN or id(owner) not in self.capture.sources:
            return False
        if type(owner) is dict and (operation == "store_subscript" or (id(owner), key) in self.capture.written):
            return True
        if id(owner) in self.capture.originals:
            return False
        if type(owner) is list and operation == "store_subscript":
            self.capture.guard("length", self.capture.sources[id(owner)], len(owner))
            return True
        return type(owner) in (dict, list, tuple) and operation != "delete_subscript"

    def _settle_operands(self, frame: Frame, operation: str, values: list[Any]) -> list[Any]:
        """Numbers that vary, where an operation would not ask them."""
        if operation in _SUBSCRIPTS:
            if not isinstance(values[-2], torch.Tensor):  # the key is on top
                frame.stack[-1] = settled(frame.stack[-1])
        elif operation in ("compare", "contains", "binary_operator"):
            if is_mixed(values) or isinstance(values[0], (str, bytes)):
                frame.stack[-len(values) :] = [settled(value) for value in values]
        elif operation.startswith("match_") or operation == "is_operator":
            frame.stack[-len(values) :] = [settled(value) for value in values]
        return frame.stack[-len(values) :]

    def _look_for(self, value: Any, container: Any) -> bool:
        """``value in container`` where nothing else of the container matters; False: that can't be said."""
        source = self.capture.sources.get(id(container))
        if source is None or type(container) not in (dict, set, frozenset) or id(container) in self.capture.originals:
            return False
        if type(value) not in PLAIN and not isinstance(value, (type, FunctionType, types.BuiltinFunctionType)):
            return False
        if isinstance(value, type) and type(value) is not type:
            return False
        self.capture.guard("answer", source, ("__contains__", (value,), value in container))
        return True

    def _compare_identities(self, left: Any, right: Any) -> None:
        capture = self.capture
        if type(left) in PLAIN or type(right) in PLAIN or left is right:
            return
        first, second = capture.sources.get(id(left)), capture.sources.get(id(right))
        if first is not None and second is not None and first.root.kind != "constant":
            capture.guard("apart", first, second)

    def look(self, operation: str, value: Any) -> None:
        """Something looks into a value natively."""
        kind = type(value)
        if kind in PLAIN or isinstance(value, torch.Tensor) or operation in _ASKING_FOR_CLASSES:
            return
        capture = self.capture
        if isinstance(value, CONTAINERS):
            capture.look_into(value)
            if len(value) <= 64:
                for item in value.values() if isinstance(value, dict) else value:
                    if isinstance(item, CONTAINERS):
                        self.look(operation, item)
        elif known.is_users_class(kind):
            self._look_at_object(operation, value, kind)
        elif id(value) in capture.sources and capture.sources[id(value)].root.kind == "value":
            if not callable_or_class(value):
                capture.give_up(f"a {kind.__name__} that a step gave is looked into")

    def _look_at_object(self, operation: str, value: Any, kind: type) -> None:
        names = _METHODS_RUN.get(operation)
        if issubclass(kind, type) or (isinstance(value, (Exception, torch.nn.Module)) and names is not None):
            return
        if names is None or any(isinstance(find_in_class(kind, name), FunctionType) for name in names):
            if operation in ("isinstance", "list", "tuple", "dict") and isinstance(value, CONTAINERS):
                return
            self.capture.give_up(f"a {kind.__name__} is given to {operation}, which runs its methods natively")

    # --- reads -----------------------------------------------------------------------------------------------------

    def on_read_global(self, frame: Frame, name: str, value: Any) -> Any:
        capture, namespace = self.capture, frame.globals
        if capture.reason is not None or (id(namespace), name) in capture.written:
            return self._shadow(namespace, name, value)
        if is_library(namespace.get("__name__")) and (callable(value) or isinstance(value, ModuleType)):
            return value
        source = Source("constant", namespace)
        if name in namespace:
            if isinstance(value, ModuleType) and is_library(value.__name__):
                return value
            return capture.read_number(Source("item", name, source), value)
        capture.guard("absent", source, name)
        return value

    def on_read_cell(self, frame: Frame, cell: CellType, name: str, value: Any) -> Any:
        capture = self.capture
        source = capture.sources.get(id(cell))
        if source is None and frame.function is not None and name in frame.code.co_freevars and frame.locals:
            first = type(frame.locals[0])
            if find_in_class(first, frame.code.co_name) is frame.function:  # a special method, which nobody read
                capture.register_parts(Source("constant", frame.function), frame.function)
                source = capture.sources.get(id(cell))
        if source is not None and (id(cell), None) not in capture.written:
            return capture.read_number(Source("cell", None, source), value)
        return self._shadow(cell, None, value)

    def _shadow(self, owner: Any, name: Any, value: Any) -> Any:
        """What the program stored there, where it is a number that varies."""
        found = self.capture.shadows.get((id(owner), name)) if self.capture.shadows else None
        return (
            found if isinstance(found, Number) and type(value) in (int, float) and found.plain() == value else value
        )

    def _store(self, owner: Any, name: Any, value: Any) -> Any:
        """A number that is stored in what was there before is a plain one there."""
        if isinstance(value, Number):
            self.capture.shadows[(id(owner), name)] = value
            return value.plain()
        self.capture.shadows.pop((id(owner), name), None)
        return value

    def on_read_item(self, frame: Frame | None, owner: Any, key: Any, value: Any) -> Any:
        capture = self.capture
        source = capture.sources.get(id(owner))
        if capture.reason is not None or source is None or isinstance(owner, torch.Tensor):
            return value
        if (id(owner), _key(key)) in capture.written:
            return self._shadow(owner, _key(key), value)
        if not isinstance(owner, CONTAINERS):
            if callable_or_class(owner):
                return value
            capture.give_up(f"an item of a {type(owner).__name__} is read")
        elif id(owner) in capture.originals or type(key) not in PLAIN:
            capture.look_into(owner)
        elif value is NULL:
            if isinstance(owner, dict):
                capture.guard("absent", source, key)
            else:
                capture.look_into(owner)
        else:
            return capture.read_number(item_of(owner, key, source), value)
        return value

    def on_read_attribute(self, frame: Frame, owner: Any, name: str, value: Any) -> Any:
        capture = self.capture
        if capture.reason is not None:
            return value
        kind = type(owner)
        if isinstance(owner, torch.Tensor):
            self._read_of_tensor(owner, name, value)
        elif isinstance(owner, ModuleType):
            self._read_of_python_module(owner, name, value)
        elif isinstance(owner, type):
            self.read_of_class(owner, name)
        elif kind is super:
            self._read_of_super(owner, name)
        elif kind in PLAIN or kind is MethodType or isinstance(owner, types.BuiltinFunctionType):
            pass
        elif (id(owner), name) not in capture.written:
            return self._read_of_instance(frame, owner, kind, name, value)
        else:
            return self._shadow(owner, name, value)
        return value

    def _read_of_tensor(self, owner: Any, name: str, value: Any) -> None:
        """Attributes that somebody attached, or might have attached, to a tensor that was there before."""
        source = self.capture.sources.get(id(owner))
        if source is None:
            return
        table = Source("attribute", "__dict__", source)
        if value is NULL:
            self.capture.guard("absent", table, name)
        elif name in owner.__dict__:
            self.capture.read(Source("item", name, table), value)

    def _read_of_python_module(self, owner: ModuleType, name: str, value: Any) -> None:
        capture = self.capture
        if is_library(owner.__name__) and (callable(value) or isinstance(value, ModuleType) or type(value) in PLAIN):
            if type(value) is MethodType and id(value.__self__) not in capture.sources:
                method = Source("item", name, Source("constant", owner.__dict__))
                capture.register(Source("attribute", "__self__", method), value.__self__)
            if isinstance(value, types.BuiltinFunctionType) and id(value) not in capture.sources:
                capture.register(Source("item", name, Source("constant", owner.__dict__)), value)
            return
        source = Source("constant", owner.__dict__)
        if (id(owner), name) in capture.written or (id(owner.__dict__), name) in capture.written:
            return
        if value is NULL:
            capture.guard("absent", source, name)
        elif name in owner.__dict__:
            capture.read(Source("item", name, source), value)

    def read_of_class(self, owner: type, name: str) -> None:
        """An attribute that a class has, or one of its bases."""
        capture = self.capture
        for base in owner.__mro__:
            found = base.__dict__.get(name, NULL)
            if found is NULL:
                continue
            if not is_library(base.__module__) and (id(base), name) not in capture.written:
                table = Source("attribute", "__dict__", Source("constant", base))
                if isinstance(found, FunctionType):
                    capture.guard("is", Source("item", name, table), found)
                    capture.register_parts(Source("item", name, table), found)
                else:
                    capture.read(Source("item", name, table), found)
            return

    def _read_of_super(self, owner: Any, name: str) -> None:
        proxy: Any = owner
        mro = proxy.__self_class__.__mro__
        for base in mro[mro.index(proxy.__thisclass__) + 1 :]:
            if name in base.__dict__:
                self.read_of_class(base, name)
                return

    def _read_of_instance(self, frame: Frame, owner: Any, kind: type, name: str, value: Any) -> Any:
        capture = self.capture
        source = capture.sources.get(id(owner))
        own = instance_dictionary(owner)
        in_class = find_in_class(kind, name)
        if (id(own), name) in capture.written:
            return self._shadow(own, name, value)
        table = None if source is None else Source("attribute", "__dict__", source)
        if name in own and not hasattr(type(in_class), "__set__"):
            return value if table is None else capture.read_number(Source("item", name, table), value)
        if isinstance(owner, torch.nn.Module) and in_class is NULL and value is not NULL:
            for part in _OWN_MODULE_TABLES:
                if name in own.get(part, ()):
                    if table is not None:
                        capture.read(Source("item", name, Source("item", part, table)), value)
                    return value
        if in_class is NULL:
            if value is NULL:
                if table is not None and own:
                    capture.guard("absent", table, name)
            elif source is not None:
                capture.read(Source("attribute", name, source), value)
            return value
        if hasattr(type(in_class), "__set__") or isinstance(in_class, property):
            if (source is not None and name != "__dict__") or isinstance(in_class, property):
                self._read_of_descriptor(frame, source, kind, name, value)
            elif source is not None:
                capture.read(Source("attribute", name, source), value)
            return value
        self.read_of_class(kind, name)
        if table is not None and known.is_users_class(kind) and not isinstance(owner, torch.nn.Module):
            if hasattr(owner, "__dict__"):
                capture.guard("absent", table, name)
        return value

    def _read_of_descriptor(self, frame: Frame, source: Source | None, kind: type, name: str, value: Any) -> None:
        capture = self.capture
        found = find_in_class(kind, name)
        if isinstance(found, property) and isinstance(found.fget, FunctionType):
            if type(found) is property and frame.machine.interprets(found.fget):
                self.read_of_class(kind, name)
                return  # what it read was noted
            if known.is_users_class(kind):
                capture.give_up(f"the property {kind.__name__}.{name} runs natively")
                return
        if source is not None and value is not NULL:
            capture.read(Source("attribute", name, source), value)

    # --- writes ----------------------------------------------------------------------------------------------------

    def on_write_global(self, frame: Frame, name: str, value: Any) -> None:
        if isinstance(value, Number):
            frame.stack[-1] = self._store(frame.globals, name, value)
        self._write_item(frame.globals, name, value, Source("constant", frame.globals))

    def on_write_cell(self, frame: Frame, cell: CellType, name: str, value: Any) -> None:
        capture = self.capture
        if id(cell) in capture.sources:
            if isinstance(value, Number):
                frame.stack[-1] = self._store(cell, None, value)
            capture.effect("cell", cell, None, () if value is NULL else (value,), value is NULL)
            capture.written.add((id(cell), None))

    def on_write_item(self, frame: Frame, owner: Any, key: Any, value: Any) -> None:
        capture = self.capture
        if isinstance(owner, torch.Tensor) or id(owner) not in capture.sources:
            return
        if not isinstance(owner, CONTAINERS):
            methods = frame.machine.setitem if value is not NULL else frame.machine.delitem
            if not methods[type(owner)]:
                capture.give_up(f"an item of a {type(owner).__name__} is written")
            return
        capture.keep_original(owner)
        if isinstance(value, Number):
            frame.stack[-3] = self._store(owner, _key(key), value)
        self._write_item(owner, key, value, None)

    def _write_item(self, owner: Any, key: Any, value: Any, source: Source | None) -> None:
        capture = self.capture
        if source is not None and id(owner) not in capture.sources:
            capture.register(source, owner)
        capture.effect("item", owner, key, () if value is NULL else (value,), value is NULL)
        capture.written.add((id(owner), _key(key)))

    def on_write_attribute(self, frame: Frame, owner: Any, name: str, value: Any) -> None:
        capture = self.capture
        if capture.reason is not None:
            return
        if isinstance(owner, torch.Tensor):
            if not hasattr(find_in_class(type(owner), name), "__set__"):
                capture.give_up(f"an attribute {name!r} is attached to a tensor")
            return
        source = capture.source_of(owner)
        if source is None:
            return
        if find_setter(frame, owner, name, "__setattr__", "fset") is not None:
            return
        found = find_in_class(type(owner), name)
        if isinstance(found, property) or isinstance(find_in_class(type(owner), "__setattr__"), FunctionType):
            if find_in_class(type(owner), "__setattr__") is not vars(torch.nn.Module)["__setattr__"]:
                capture.give_up(f"{type(owner).__name__}.{name} is written by code that runs natively")
        capture.effect("attribute", owner, name, () if value is NULL else (value,), value is NULL)
        if isinstance(value, Number):
            self._store(instance_dictionary(owner), name, value)
            self._put_plain(frame, self._store(owner, name, value))
        capture.written.add((id(owner), name))
        capture.written.add((id(instance_dictionary(owner)), name))

    @staticmethod
    def _put_plain(frame: Frame, value: Any) -> None:
        """``store_attribute`` has the value below the owner."""
        if len(frame.stack) > 1 and isinstance(frame.stack[-2], Number):
            frame.stack[-2] = value


class Hearing(TorchFunctionMode):
    """Hears the functions of torch's that a program calls."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self.capture = capture

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.capture.torch_call(func, args, kwargs or {})


def call_original(frame: Frame, compiled: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    """A compiled function that a compiled function calls is part of it."""
    return frame.machine.begin(frame, original_of(compiled), arguments, keywords)


@functools.cache
def function_of(kind: Any) -> Any:
    """A class of autograd functions as one function."""

    def apply(*arguments: Any, **keywords: Any) -> Any:
        return kind.apply(*arguments, **keywords)

    apply.__name__ = apply.__qualname__ = kind.__name__
    return apply


def callable_or_class(value: Any) -> bool:
    return isinstance(value, (type, FunctionType, MethodType, functools.partial, types.BuiltinFunctionType))


def _nothing() -> None:
    """What a graph break does."""


def _key(key: Any) -> Any:
    return key if type(key) in PLAIN else id(key)


_TRUTH = ("__bool__", "__len__")
_EQUALITY = ("__eq__", "__hash__")
# methods of an object that an operation runs natively
_METHODS_RUN: dict[str, tuple[str, ...]] = {
    "pop_jump_if_false": _TRUTH,
    "pop_jump_if_true": _TRUTH,
    "unary_not": _TRUTH,
    "to_bool": _TRUTH,
    "compare": ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
    "contains": ("__eq__", "__contains__"),
    "binary_subscript": ("__getitem__", "__index__"),
    "store_subscript": ("__setitem__", "__index__"),
    "delete_subscript": ("__delitem__", "__index__"),
    "get_iterator": (),
    **dict.fromkeys(("append", "appendleft", "insert", "extend", "__setitem__", "setdefault", "id", "set_add"), ()),
    **dict.fromkeys(("add", "remove", "discard", "index", "count", "get", "pop", "__contains__"), _EQUALITY),
}
_SUBSCRIPTS = {"binary_subscript": "getitem", "store_subscript": "setitem", "delete_subscript": "delitem"}
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
_GETATTR_OF_MODULES: Any = vars(torch.nn.Module)["__getattr__"]
_APPLY: Any = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]
# functions that modes don't hear
_MAKING_TENSORS = (torch.from_numpy, torch.frombuffer)
_CACHED = (type(functools.lru_cache(len)),)
_MAKERS = (object, list, dict, tuple, set, str, int, float, BaseException, Exception)
_ASKS_FOR_MODES = (torch.overrides.has_torch_function, torch.overrides.is_tensor_like)
