"""The policy of strict capture: the user's code is interpreted, and what it does besides computing is noted."""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager
from sys import getrefcount
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from tintype.interpret import Frame
from tintype.interpret.handlers.attributes import find_setter
from tintype.interpret.policy import Caller, Policy
from tintype.interpret.stand_ins import STAND_INS
from tintype.trace.effects import Effects
from tintype.trace.interpreted import TorchPolicy
from tintype.trace.outside_world import ENVIRONMENT, WRITERS, is_of_outside_world
from tintype.trace.places import CONTAINERS, CellPlace, GlobalPlace, is_memory, may_change_itself
from tintype.trace.reachable import LAZY, PLAIN, UsersClasses

# whose functions that are not interesting once are never
_LASTING = (type, ModuleType, type(None))


# operations that look into the items of containers
_INTO_ITEMS = frozenset({"compare", "contains", "convert_value", "format_simply", "format_value", "binary_operator"})
# methods of a list and the like, given to a function that calls them
_BOUND = (BuiltinFunctionType, MethodWrapperType)
_INTO_ENVIRONMENT = frozenset({"store_subscript", "delete_subscript"})
# native functions that run no code of the user's, whatever they are given
_RUN_NOTHING = frozenset(map(id, (super, isinstance, issubclass, type, id, callable, inspect.signature)))


class Watching(Policy):
    """Tells :class:`Effects` what the program does; a policy that comes after it does what it would do without."""

    effects: Effects

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.effects = Effects()
        self._users = UsersClasses()
        self._quiet: dict[int, Any] = {}  # functions that are known to read and write nothing else, by their ids
        self._outside: dict[type, bool] = {}

    def holders(self) -> list[Any]:
        """Who holds values only to know them."""
        return [*super().holders(), *self.effects.holders()]  # type: ignore[misc]

    def note_made(self, value: Any) -> None:
        super().note_made(value)  # type: ignore[misc]
        self.effects.note_made(value)

    def interprets(self, function: FunctionType) -> bool:
        answer = super().interprets(function)
        if answer:
            self.effects.functions.append(function)
        return answer

    def stand_ins(self) -> Mapping[Any, Caller]:
        """What the machine does by itself is told, too: warnings, and code that is made while the program runs."""

        def told(callable: Any, caller: Caller) -> Caller:
            def call(frame: Frame, called: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Any:
                self.effects.note_call(frame, callable, None, arguments, keywords or {})
                return caller(frame, called, arguments, keywords)

            return call

        ours = {callable: told(callable, STAND_INS[callable]) for callable in (warnings.warn, exec, eval)}
        return {**ours, **super().stand_ins()}

    def on_write_global(self, frame: Frame, name: str, value: Any) -> None:
        self.effects.note(GlobalPlace, frame.globals, name, frame)
        super().on_write_global(frame, name, value)

    def on_write_attribute(self, frame: Frame, owner: Any, name: str, value: Any) -> None:
        if not self.effects.is_made(owner) and find_setter(frame, owner, name, "__setattr__", "fset") is None:
            self.effects.note_attribute(frame, owner, name)
        super().on_write_attribute(frame, owner, name, value)

    def on_write_item(self, frame: Frame, owner: Any, key: Any, value: Any) -> None:
        if issubclass(type(owner), ENVIRONMENT):
            self.effects.note_environment(frame)
        self.effects.note_content(frame, owner)
        super().on_write_item(frame, owner, key, value)

    def on_update(self, frame: Frame, owner: Any) -> None:
        self.effects.note_content(frame, owner)
        super().on_update(frame, owner)

    def on_write_cell(self, frame: Frame, cell: CellType, name: str, value: Any) -> None:
        self.effects.note(CellPlace, cell, name, frame)
        super().on_write_cell(frame, cell, name, value)

    def on_create(self, frame: Frame, value: Any) -> None:
        self._note_new(frame, value)
        super().on_create(frame, value)

    def _note_new(self, frame: Frame, value: Any) -> None:
        """The call has made something, whose ``__del__`` native code will call."""
        self.effects.note_made(value)
        at_its_end = getattr(type(value), "__del__", None)
        if type(at_its_end) is FunctionType:
            self.effects.note_native_code(frame, at_its_end.__code__)

    def on_operands(self, frame: Frame, operation: str, values: list[Any]) -> AbstractContextManager[Any] | None:
        super().on_operands(frame, operation, values)
        if PLAIN.issuperset(map(type, values)):
            return None
        for value in values:
            if issubclass(type(value), defaultdict):  # what it has not got it makes
                self.effects.note_content(frame, value)
            if type(value) not in PLAIN and operation != "is_operator":
                if self._may_run(value, 4 if operation in _INTO_ITEMS else 0):
                    return self.effects.listening(frame)
                if issubclass(type(value), ENVIRONMENT) and operation not in _INTO_ENVIRONMENT:
                    self.effects.note_read(frame, "reads the environment (os.environ)")
        return None

    def _may_run(self, value: Any, deepest: int) -> bool:
        """Whether an operation on a value may run code of the user's natively; so deep it looks into containers."""
        kind = type(value)
        if kind in LAZY:
            return self._users.has_code(value)
        if deepest and kind in (list, tuple, dict):
            items = value.values() if kind is dict else value
            return any(type(item) not in PLAIN and self._may_run(item, deepest - 1) for item in items)
        return self._users.is_users(kind)

    def on_native_call(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        if id(callable) not in self._quiet:
            self._look_at_call(frame, callable, arguments, keywords)
        for value in (*arguments, *keywords.values()):  # a ufunc writes to what it is given, as much other code does
            if type(value) not in PLAIN:
                self.effects.note_content(frame, value.__self__ if type(value) in _BOUND else value)
        if id(callable) not in _RUN_NOTHING and self._users.are_called(callable, (*arguments, *keywords.values())):
            with self.effects.listening(frame):
                value = super().on_native_call(frame, callable, arguments, keywords)
        else:
            value = super().on_native_call(frame, callable, arguments, keywords)
        # nobody else holds what has one reference: it was made for us
        if type(value) not in PLAIN and getrefcount(value) == 2 and _can_be_written(value):
            self._note_new(frame, value)
        return value

    def _look_at_call(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> None:
        """Find out whether a native call reads or writes what is not the program's; most do not, which must be quick
        to see."""
        kind = type(callable)
        if kind is BuiltinFunctionType:
            owner = callable.__self__
            if issubclass(type(owner), CONTAINERS):
                if callable.__name__ in WRITERS:
                    self.effects.note_content(frame, owner)
            elif is_memory(type(owner)):
                self.effects.note_content(frame, owner)
            elif type(owner) in _LASTING or self._is_of_outside_world(type(owner)):
                if not self.effects.note_call(frame, callable, owner, arguments, keywords):
                    self._quiet[id(callable)] = callable
        elif kind is FunctionType:  # a method too, with what it is a method of as its first argument
            owner = self._outside_world_in(arguments)
            told = self.effects.note_call(frame, callable, owner, arguments, keywords)
            if not told and "." not in callable.__qualname__:
                self._quiet[id(callable)] = callable
            elif not told and owner is None and may_change_itself(callable, arguments):
                self.effects.note_object(frame, arguments[0])
        elif kind is MethodWrapperType or kind is WrapperDescriptorType:
            if kind is MethodWrapperType:
                self.effects.note_content(frame, callable.__self__)
            self.effects.note_call(frame, callable, None, arguments, keywords)
        else:  # a method that is called by its class, or one of Cython's, which NumPy's generators have
            owner = self._outside_world_in(arguments)
            if owner is not None and isinstance(getattr(callable, "__name__", None), str):
                self.effects.note_call(frame, callable, owner, arguments, keywords)

    def _outside_world_in(self, arguments: list[Any]) -> Any:
        """What a method belongs to, if its methods may read or write something outside of the program."""
        return arguments[0] if arguments and self._is_of_outside_world(type(arguments[0])) else None

    def _is_of_outside_world(self, kind: type) -> bool:
        found = self._outside.get(kind)
        if found is None:
            found = self._outside[kind] = is_of_outside_world(kind)
        return found


def _can_be_written(value: Any) -> bool:
    kind = type(value)  # no question for its __getattr__
    return issubclass(kind, CONTAINERS) or kind.__dictoffset__ != 0 or is_memory(kind)


class Telling(TorchPolicy):
    """What is told is of no interest to anybody else: things are done as always."""

    def on_write_global(self, frame: Frame, name: str, value: Any) -> None: ...

    def on_write_attribute(self, frame: Frame, owner: Any, name: str, value: Any) -> None: ...

    def on_write_item(self, frame: Frame, owner: Any, key: Any, value: Any) -> None: ...

    def on_update(self, frame: Frame, owner: Any) -> None: ...

    def on_write_cell(self, frame: Frame, cell: CellType, name: str, value: Any) -> None: ...

    def on_create(self, frame: Frame, value: Any) -> None: ...

    def on_operands(self, frame: Frame, operation: str, values: list[Any]) -> AbstractContextManager[Any] | None:
        return None

    def on_native_call(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        return callable(*arguments, **keywords)


class StrictPolicy(Watching, Telling):
    """Strict capture of a program without control flow."""
