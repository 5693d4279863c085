"""What operations look into natively, while a function is captured: what they see of it becomes guards."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import re
import types
import uuid
from collections.abc import Iterable
from types import FunctionType, MethodType
from typing import Any

import torch

from tintype.compiler import known
from tintype.compiler.capture import Capture
from tintype.compiler.identities import COMPARING, note_comparison
from tintype.compiler.known import CONTAINERS
from tintype.compiler.methods_of_items import LOOKING_INTO_ITEMS, method_run_natively
from tintype.compiler.numbers import Number, holds_number, is_mixed, settled
from tintype.compiler.operators import ClassesWithOperators
from tintype.compiler.reads import ITSELF
from tintype.compiler.sources import printed
from tintype.interpret import Frame
from tintype.interpret.lookup import find_in_class
from tintype.interpret.policy import Policy
from tintype.ir.call_values import PLAIN

_ASKING_FOR_CLASSES = frozenset(["isinstance", "issubclass", "type", "callable", "is_tensor", "cast", "super"])


class Kinds(dict[type, str]):
    """What objects of a class are to those who watch them. A class is looked at once; its objects are not, whose
    ``__class__`` may be found by code of their own."""

    def __missing__(self, kind: type) -> str:
        found = "plain" if kind in PLAIN else "instance"
        for base, name in _KINDS.items():
            if issubclass(kind, base):
                found = name
                break
        self[kind] = found
        return found


_KINDS: dict[type, str] = {
    torch.Tensor: "tensor",
    types.ModuleType: "module",
    type: "class",
    Number: "number",
    super: "super",
    types.BuiltinFunctionType: "callable",
    MethodType: "callable",
    **dict.fromkeys(CONTAINERS, "container"),
}


class Looking(Policy):
    """Notes what operations of the machine see of their operands."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.kinds = Kinds()
        self.classes_with_operators = ClassesWithOperators(known.is_users_class)

    def on_operands(self, frame: Frame, operation: str, values: list[Any]) -> None:
        if self.capture.reason is not None:
            return
        if self.capture.has_numbers and holds_number(values):
            values = self._settle_operands(frame, operation, values)
        for value in values:
            if type(value) not in PLAIN:
                break
        else:  # most often: there is nothing in plain values to look into
            return
        if operation in COMPARING:
            if operation == "is_operator":
                if type(values[0]) not in PLAIN and type(values[1]) not in PLAIN:
                    self.capture.identities.compared(*values)
                return
            note_comparison(self.capture.identities, operation, values)
        if operation == "contains" and self._look_for(*values):
            return
        methods = frame.machine.__dict__.get(_SUBSCRIPTS.get(operation, ""))
        if methods is not None and self._is_known_item(operation, values):
            return
        self.look_at_items(operation, values)
        if operation in _USING_KEYS and type(values[-2] if operation == "map_add" else values[-1]) not in PLAIN:
            self.look_at_items("set_add", [values[-2:-1] if operation == "map_add" else values[-1:]])
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
        elif operation.startswith("match_") or operation == "is_operator" or operation in _WRITING_TEXT:
            is_one = operation == "is_operator" and values[0] is values[1]
            frame.stack[-len(values) :] = [settled(values[0])] * 2 if is_one else [settled(value) for value in values]
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

    def look(self, operation: str, value: Any) -> None:
        """Something looks into a value natively."""
        kind = type(value)
        sort = self.kinds[kind]
        if sort == "plain" or sort == "tensor" or operation in _ASKING_FOR_CLASSES:
            return
        capture = self.capture
        if sort == "container":
            capture.look_into(value)
            if len(value) <= 64:
                for item in value.values() if isinstance(value, dict) else value:
                    if isinstance(item, CONTAINERS):
                        self.look(operation, item)
        elif known.is_users_class(kind):
            self._look_at_object(operation, value, kind)
        elif id(value) in capture.sources:
            self._look_at_other(operation, value, kind)

    def look_at_items(self, operation: str, values: Iterable[Any]) -> None:
        """An operation may run methods of what containers hold."""
        if operation not in LOOKING_INTO_ITEMS:
            return
        kind = method_run_natively(operation, values)
        if kind is not None:
            self.capture.give_up(f"{operation} runs methods of a {kind.__name__} natively")

    def _look_at_other(self, operation: str, value: Any, kind: type) -> None:
        """An object of a class of Python's or torch's that was there before, and is no container."""
        capture = self.capture
        if isinstance(value, (*ITSELF, enum.Enum)):
            return
        if isinstance(value, _VALUES) or (kind is slice and _is_plain_slice(value)):
            capture.guard("printed", capture.sources[id(value)], (kind, printed(value)))
        elif isinstance(value, torch.nn.Module) or callable_or_class(value):
            if operation in _WRITING_TEXT:
                capture.give_up(f"a {kind.__name__} is written as text")
        elif operation == "get_iterator" or not self._is_told_by_identity(operation, kind):
            capture.give_up(f"a {kind.__name__} that was there before is looked into")

    @staticmethod
    def _is_told_by_identity(operation: str, kind: type) -> bool:
        """Whether an operation sees nothing of an object but that it is itself."""
        names = _METHODS_RUN.get(operation)
        return names is not None and all(getattr(kind, name, None) is getattr(object, name, None) for name in names)

    def _look_at_object(self, operation: str, value: Any, kind: type) -> None:
        names = _METHODS_RUN.get(operation)
        if isinstance(value, _VALUES) and not isinstance(value, enum.Enum) and id(value) in self.capture.sources:
            self.capture.guard("printed", self.capture.sources[id(value)], (kind, printed(value)))
        if issubclass(kind, type) or (isinstance(value, (Exception, torch.nn.Module)) and names is not None):
            return
        if names is None or any(isinstance(find_in_class(kind, name), FunctionType) for name in names):
            if operation in ("isinstance", "list", "tuple", "dict") and isinstance(value, CONTAINERS):
                return
            self.capture.give_up(f"a {kind.__name__} is given to {operation}, which runs its methods natively")


def callable_or_class(value: Any) -> bool:
    return isinstance(value, (type, FunctionType, MethodType, functools.partial, types.BuiltinFunctionType))


# values that can't change, and that are what they are written as
_VALUES = (
    *(str, bytes, int, float, complex, range, decimal.Decimal, fractions.Fraction, uuid.UUID, re.Pattern),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.timezone, pathlib.PurePath),
)
_WRITING_TEXT = frozenset(
    ["str", "repr", "ascii", "format", "convert_value", "format_simply", "format_by_specification", "format_value"]
)


def _is_plain_slice(value: slice) -> bool:
    return all(type(part) in PLAIN for part in (value.start, value.stop, value.step))


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
_USING_KEYS = frozenset(["set_add", "map_add", "binary_subscript", "store_subscript", "delete_subscript"])
_SUBSCRIPTS = {"binary_subscript": "getitem", "store_subscript": "setitem", "delete_subscript": "delitem"}
