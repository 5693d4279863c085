"""What the machine is told while a function is captured, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

import torch
from torch.nn.modules import module as module_calls
from torch.overrides import TorchFunctionMode

from tintype.compiler import known
from tintype.compiler.capture import Capture
from tintype.compiler.markers import is_allowed, is_disabled
from tintype.compiler.native_calls import NativeCalls
from tintype.compiler.reads import TENSORS
from tintype.compiler.sources import Source
from tintype.interpret import Frame
from tintype.interpret.calling import call_class, call_object
from tintype.interpret.frame import NULL
from tintype.interpret.handlers.attributes import find_getter, find_setter, load_attribute_hooked
from tintype.interpret.lookup import find_in_class
from tintype.interpret.policy import ASYNC_FLAGS, Caller, Outcome
from tintype.interpret.stand_ins import call_globals, call_next
from tintype.symbolic.location import is_internal
from tintype.trace.interpreted import PASSES_ON, has_hooks
from tintype.trace.replaced_functions import meant_function

# os.environ[name] and os.environ.get(name)
_READS_ENVIRONMENT = ("_Environ.__getitem__", "_createenviron.<locals>")


class CapturePolicy(NativeCalls):
    """Interprets the user's code and torch's modules, and notes what they read, call and write."""

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
        if name.startswith(known.INTERPRETED) or name in PASSES_ON or known.is_helper_of_torch(code):
            return True
        if name.startswith("<frozen"):
            reads_environment = name == "<frozen os>" and code.co_qualname.startswith(_READS_ENVIRONMENT)
            return name == "<frozen _collections_abc>" or reads_environment
        return not is_internal(name) or self._is_of_python(name)

    @staticmethod
    def _is_of_python(name: str) -> bool:
        return name.endswith(
            ("contextlib.py", "functools.py", "dataclasses.py", "collections/__init__.py", "copy.py")
        )

    def caller_for(self, type_of_callable: type) -> Caller | None:
        if hasattr(type_of_callable, "is_compiled_by_tintype"):
            return self.call_original
        if issubclass(type_of_callable, torch.nn.Module):
            if type_of_callable.__call__ is torch.nn.Module.__call__:
                return self.call_module
        if issubclass(type_of_callable, type):
            return self.call_class
        if known.is_users_class(type_of_callable):
            return self.call_object
        return None

    def call_original(
        self, frame: Frame, compiled: Any, arguments: list[Any], keywords: dict[str, Any] | None
    ) -> Outcome:
        """A compiled function that a compiled function calls is part of it."""
        return frame.machine.begin(frame, self.original_of(compiled), arguments, keywords)

    def call_class(self, frame: Frame, kind: type, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
        """A class is called: which methods make the object is noted."""
        if known.is_users_class(kind):
            self.capture.note_class(kind)
            if hasattr(kind, "__del__"):
                self.capture.in_flight += (arguments, keywords)
                self.capture.give_up(f"a new {kind.__name__} has a __del__, which Python calls when it goes")
                del self.capture.in_flight[-2:]
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
            globals: self.call_globals,
            setattr: self.call_setattr,
            delattr: self.call_setattr,
            next: self.call_next,
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
                own = source.table
                names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
                for name in names:
                    capture.read(Source("item", name, own), module.__dict__[name])
                    capture.look_into(module.__dict__[name])
            return machine.begin(frame, type(module).__call__, [module, *arguments], keywords)
        source = capture.sources.get(id(module))
        if source is not None:
            capture.guard("hooks", source.table, None)
        if not capture.is_called_unheard:
            capture.is_called_unheard = True
            for hooks in _HOOKS_OF_ALL:
                capture.guard("length", Source("item", hooks, Source("constant", vars(module_calls))), 0)
        self.read_of_class(type(module), "forward")
        return machine.begin(frame, module.forward, arguments, keywords)

    def call_len(self, frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
        tensor: Any = arguments[0] if len(arguments) == 1 else None
        if self.capture.is_noting and type(tensor) in TENSORS:
            frame.stack.append(self.capture.length_of(tensor))
            return None
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
        if getter is None:
            try:
                value = getattr(owner, name)
            except AttributeError:
                self.on_read_attribute(frame, owner, name, NULL)
                return NULL
            return self.on_read_attribute(frame, owner, name, value)
        self.computes_attribute(frame, owner, name)
        fallback = find_in_class(type(owner), "__getattr__")
        try:
            return frame.machine.call(getter[0], *getter[1])
        except AttributeError:
            if fallback is NULL or getter[0] is fallback:
                return NULL
        try:  # an AttributeError of a property is a question for it
            return frame.machine.call(fallback, owner, name)
        except AttributeError:
            return NULL

    def call_globals(
        self, frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None
    ) -> Outcome:
        if id(frame.globals) not in self.capture.sources:
            self.capture.register(Source("constant", frame.globals), frame.globals)
        return call_globals(frame, called, arguments, keywords)

    def call_setattr(
        self, frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None
    ) -> Outcome:
        owner, name, *values = arguments
        setter = self._setter(frame, *arguments)
        if setter is not None:
            self.read_setter(owner, name, "__setattr__" if values else "__delattr__")
            outcome = frame.machine.begin(frame, setter[0], [*setter[1], *values])
            if isinstance(outcome, Frame):
                outcome.finish = _nothing
            return outcome
        stored = self.put_attribute(frame, owner, name, values[0] if values else NULL)
        called(owner, name, *([stored] if values else []))
        frame.stack.append(None)
        return None

    def _setter(self, frame: Frame, owner: Any, name: str, *values: Any) -> tuple[Any, list[Any]] | None:
        """The interpreted function that ``setattr`` or ``delattr`` calls, and its arguments but for the value."""
        if not values:
            return find_setter(frame, owner, name, "__delattr__", "fdel")
        found = find_setter(frame, owner, name, "__setattr__", "fset")
        return found or self.setter_of_module(frame, owner, name, values[0])

    def call_next(self, frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
        """``next`` of an iterator of the user's, with or without a default."""
        machine = frame.machine
        if len(arguments) != 2 or keywords or not machine.next[type(arguments[0])]:
            return call_next(frame, called, arguments, keywords)
        method = machine.next.of(arguments[0])
        if method is None:
            return call_next(frame, called, arguments, keywords)
        try:
            value = machine.call(method, arguments[0])
        except StopIteration:
            value = arguments[1]
        frame.stack.append(value)
        return None


def _nothing(frame: Frame, value: Any) -> None:
    """What ``setattr`` gives."""


class Hearing(TorchFunctionMode):
    """Hears the functions of torch's that a program calls."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self.capture = capture

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if type(func) is FunctionType:
            func = meant_function(func)
        return self.capture.torch_call(func, args, kwargs or {})


# hooks that are called by all modules
_HOOKS_OF_ALL = (
    *("_global_forward_hooks", "_global_forward_pre_hooks"),
    *("_global_backward_hooks", "_global_backward_pre_hooks"),
)
