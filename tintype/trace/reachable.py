"""What the user's code can reach, and which values have code of the user's."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from tintype.fake.tensor import FakeTensor
from tintype.symbolic.location import is_internal
from tintype.trace.places import CONTAINERS
from tintype.trace.users_code import home_of

PLAIN = frozenset(
    {
        int, float, bool, str, bytes, complex, type(None), slice, range, torch.Tensor, torch.nn.Parameter, FakeTensor,
        torch.dtype, torch.device, torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool, ModuleType,
    }
)  # fmt: skip
_TABLES = ("_parameters", "_buffers", "_modules")
# Iterators that may call functions when they are asked for more.
LAZY = (map, filter, zip, enumerate)
_DEEPEST = 4  # of functions in closures of functions, and of containers


class UsersClasses:
    """Tells which values have code of the user's, that native code may call.

    It asks ``type(value)``: ``isinstance`` may ask a value for its ``__class__``, which runs such code.
    """

    def __init__(self) -> None:
        self._known: dict[type, bool] = {}
        self._without: set[type] = set()  # that have no code and hold nothing that could
        self._bases: dict[type, bool] = {}  # of a class alone, without those that it derives from

    def any_in(self, values: Sequence[Any], deepest: int = _DEEPEST) -> bool:
        for value in values:
            kind = type(value)
            if kind not in PLAIN and kind not in self._without and self.has_code(value, deepest):
                return True
        return False

    def has_code(self, value: Any, deepest: int = _DEEPEST) -> bool:
        """Whether an operation on a value may run code of the user's."""
        kind = type(value)
        if kind is FunctionType:
            return not is_internal(value.__code__.co_filename) or (
                deepest > 0 and self.any_in(held_by_function(value), deepest - 1)
            )
        if kind is BuiltinFunctionType:
            owner = value.__self__
            return type(owner) not in PLAIN and self.has_code(owner, deepest)
        if kind is MethodType:
            return self.any_in([value.__self__, value.__func__], deepest)
        if kind is functools.partial:
            return self.any_in([value.func, *value.args, *value.keywords.values()], deepest)
        if kind in LAZY:
            reduced: Any = value.__reduce__()
            return self.any_in(reduced[1], deepest)
        if issubclass(kind, type):
            return self.is_users(value)
        if issubclass(kind, (list, tuple, dict)):
            held = list(value.values()) if issubclass(kind, dict) else value
            if issubclass(kind, list):
                held = list.copy(value)  # as it is, whatever its class says
            if deepest > 0 and self.any_in(held, deepest - 1):
                return True
            return self.is_users(kind)
        if self.is_users(kind):
            return True
        self._without.add(kind)
        return False

    def are_called(self, callable: Any, arguments: Sequence[Any]) -> bool:
        """Whether a native call may run code of the user's."""
        is_builtin = type(callable) is BuiltinFunctionType
        if is_builtin and type(callable.__self__) in PLAIN and PLAIN.issuperset(map(type, arguments)):
            return False  # nearly all calls: a method of a tensor, with numbers
        if self.any_in([callable, *arguments]):
            return True
        if is_builtin or issubclass(type(callable), type):
            return False
        modules = [
            value
            for value in (callable, *arguments)
            if issubclass(type(value), torch.nn.Module) and vars(value).get("_modules")
        ]
        return any(self.is_users(type(inner)) for module in modules for inner in module.modules())

    def is_users(self, kind: type) -> bool:
        """Whether a class has code of the user's."""
        if kind not in self._known:
            self._known[kind] = any(map(self._has_users_members, kind.__mro__))
        return self._known[kind]

    def _has_users_members(self, base: type) -> bool:
        if base not in self._bases:
            # libraries add methods to torch's classes, which torch does not call
            is_torchs = home_of(base).startswith("torch.")
            members = [
                member
                for name, member in vars(base).items()
                if not is_torchs or name.startswith("_") or name == "forward"
            ]
            codes = [getattr(_function_of(member), "__code__", None) for member in members]
            self._bases[base] = any(code is not None and not is_internal(code.co_filename) for code in codes)
        return self._bases[base]


def _function_of(member: Any) -> Any:
    """The function of a method, a property, a class method."""
    return getattr(member, "fget", None) or getattr(member, "__func__", None) or member


def held_by_function(function: FunctionType) -> list[Any]:
    held: list[Any] = [*(function.__closure__ or ()), *(function.__defaults__ or ())]
    held += (function.__kwdefaults__ or {}).values()
    if is_internal(function.__code__.co_filename):
        return [*map(_in_cell, function.__closure__ or ()), *held]
    names = [name for code in _codes_of(function.__code__) for name in code.co_names]
    variables = function.__globals__
    return [*held, variables, *(variables[name] for name in names if name in variables)]


def _codes_of(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_of(constant)


def is_globals(value: Any) -> bool:
    return type(value) is dict and "__builtins__" in value


def held_by_callable(value: Any) -> list[Any]:
    if type(value) in (MethodType, BuiltinFunctionType):
        return [value.__self__, getattr(value, "__func__", None)]
    if type(value) is functools.partial:
        return [value.func, value.args, value.keywords]
    return []


def _in_cell(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value
        return None


def contents_of(value: Any) -> list[tuple[Any, Any]] | None:
    """What a value holds, with names; None for values that hold nothing that could be written to."""
    if isinstance(value, torch.nn.Module):
        attributes = vars(value)
        tables = [table for table in map(attributes.get, _TABLES) if table]
        own = [(name, item) for name, item in attributes.items() if name not in _TABLES]
        return [*own, *(pair for table in tables for pair in table.items())]
    if isinstance(value, CellType):
        return [("", _in_cell(value))]
    if isinstance(value, FunctionType):
        return None if is_internal(value.__code__.co_filename) else list(vars(value).items())
    if isinstance(value, type) and home_of(value).partition(".")[0] in sys.stdlib_module_names:
        return None
    kind: Any = next((kind for kind in (*CONTAINERS, tuple) if isinstance(value, kind)), None)
    if kind is None and is_of_others(value if isinstance(value, type) else type(value)):
        return None
    pairs: list[tuple[Any, Any]] = []
    if kind is dict:
        pairs += dict.items(value)
    elif kind is not None:  # as it is, whatever its class says
        items = kind.__iter__(value)
        pairs += [(None, item) for item in (sorted(items, key=id) if kind is set else items)]
    return [*pairs, *_attributes(value)]


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of a user's object or class, also those in slots."""
    yield from list(namespace_of(value).items())
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            descriptor = vars(base).get(name)
            if descriptor is not None:
                try:
                    yield name, descriptor.__get__(value)
                except AttributeError:  # a slot without a value
                    continue


def namespace_of(value: Any) -> Any:
    if issubclass(type(value), type):
        return vars(value)
    owner: Any = threading.local if issubclass(type(value), threading.local) else object  # of this thread
    try:
        return owner.__getattribute__(value, "__dict__")  # no question for a __getattr__ of the user's
    except AttributeError:
        return {}


def is_of_others(kind: type) -> bool:
    """Whether objects of a class, and the class, are none that the user's code keeps something in."""
    return home_of(kind).partition(".")[0] in ("builtins", "torch", "numpy", "tintype")


_MOST_LOOKED_AT = 200_000


def found_from(roots: Iterable[Any], targets: set[int]) -> set[int] | None:
    """Those of some objects, by their ids, that can be reached from others; None if there is too much to look at."""
    found: set[int] = set()
    seen: set[int] = set()
    pending = list(roots)
    while pending and len(found) < len(targets):
        value = pending.pop()
        if type(value) in PLAIN or id(value) in seen:
            continue
        seen.add(id(value))
        found.update(targets.intersection((id(value), id(namespace_of(value)))))
        if len(seen) > _MOST_LOOKED_AT:
            return None
        if not is_globals(value):  # of which functions reach what they name
            pending += [item for _, item in contents_of(value) or ()]
        pending += held_by_function(value) if type(value) is FunctionType else held_by_callable(value)
        pending.append(type(value))
    return found
