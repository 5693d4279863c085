"""Writes that nobody tells of: the user's code that native code calls is not interpreted.

Such code (``__add__`` of a class, a function given to ``sorted`` or ``torch.vmap``) runs in both arms of a branch.
What it writes to can't be undone after either arm, so everything that it can reach is compared, before and after.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Container, Iterator, Sequence
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from tintype.errors import Location
from tintype.fake.tensor import FakeTensor
from tintype.flow.ends import Refused, refuse
from tintype.flow.journal import CONTAINERS, AttributePlace, CellPlace, ContentPlace, GlobalPlace
from tintype.interpret import Frame
from tintype.symbolic.location import is_internal
from tintype.trace.users_code import home_of

_PLAIN = frozenset(
    {
        int, float, bool, str, bytes, complex, type(None), slice, range, torch.Tensor, torch.nn.Parameter, FakeTensor,
        torch.dtype, torch.device, torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool, ModuleType,
    }
)  # fmt: skip
_TABLES = ("_parameters", "_buffers", "_modules")
# Iterators that may call functions when they are asked for more.
_LAZY = (map, filter, zip, enumerate)
_DEEPEST = 4  # of functions in closures of functions, and of containers
_MOST = 200_000  # containers and objects; models have some thousands


class UsersClasses:
    """Tells which values have code of the user's, that native code may call."""

    def __init__(self) -> None:
        self._known: dict[type, bool] = {}

    def any_in(self, values: Sequence[Any], deepest: int = _DEEPEST) -> bool:
        return any(type(value) not in _PLAIN and self.has_code(value, deepest) for value in values)

    def has_code(self, value: Any, deepest: int = _DEEPEST) -> bool:
        """Whether an operation on a value may run code of the user's."""
        kind = type(value)
        if kind is FunctionType:
            return not is_internal(value.__code__.co_filename) or (
                deepest > 0 and self.any_in(_held_by_function(value), deepest - 1)
            )
        if kind in (MethodType, BuiltinFunctionType):
            return self.any_in([value.__self__, getattr(value, "__func__", None)], deepest)
        if kind is functools.partial:
            return self.any_in([value.func, *value.args, *value.keywords.values()], deepest)
        if kind in _LAZY:
            reduced: Any = value.__reduce__()
            return self.any_in(reduced[1], deepest)
        if isinstance(value, type):
            return self._is_users(value)
        if isinstance(value, (list, tuple, dict)) and deepest > 0:
            held = list(value.values()) if isinstance(value, dict) else value
            if isinstance(value, list):
                held = list.copy(value)  # as it is, whatever its class says
            if self.any_in(held, deepest - 1):
                return True
        return self._is_users(kind)

    def are_called(self, callable: Any, arguments: Sequence[Any]) -> bool:
        """Whether a native call may run code of the user's."""
        if self.any_in([callable, *arguments]):
            return True
        if type(callable) is BuiltinFunctionType or isinstance(callable, type):
            return False
        modules = [value for value in (callable, *arguments) if isinstance(value, torch.nn.Module)]
        return any(self._is_users(type(inner)) for module in modules for inner in module.modules())

    def _is_users(self, kind: type) -> bool:
        if kind not in self._known:
            members = [member for base in kind.__mro__ for member in vars(base).values()]
            codes = [getattr(_function_of(member), "__code__", None) for member in members]
            self._known[kind] = any(code is not None and not is_internal(code.co_filename) for code in codes)
        return self._known[kind]


def _function_of(member: Any) -> Any:
    """The function of a method, a property, a class method."""
    return getattr(member, "fget", None) or getattr(member, "__func__", None) or member


class Watched:
    """What can be reached at one moment, with its contents."""

    def __init__(self, frame: Frame, others: Sequence[Any], location: Location) -> None:
        self.location = location
        self._seen: set[int] = set()
        self._saved: list[tuple[Any, list[tuple[Any, Any]]]] = []
        pending: list[Any] = list(others)
        outer: Frame | None = frame
        while outer is not None:
            pending += [*outer.locals, *outer.stack, outer.globals]
            outer = outer.back
        self._save(pending)

    def add_code_of(self, values: Sequence[Any]) -> None:
        """Also what the code of values can reach; not the values, which the arm may have made."""
        functions = [getattr(value, "__func__", value) for value in values]
        self._save([*map(type, values), *(value for value in functions if isinstance(value, (FunctionType, type)))])

    def _save(self, pending: list[Any]) -> None:
        seen = self._seen
        while pending:
            value = pending.pop()
            if type(value) in _PLAIN or id(value) in seen:
                continue
            seen.add(id(value))
            if len(seen) > _MOST:
                raise refuse(
                    "code that is not interpreted runs where only the data decide whether it does, and what it can "
                    "reach is too much to be compared",
                    self.location,
                    "compute it before the branch",
                )
            contents = _contents(value)
            if contents is not None:
                pending.append(type(value))
                self._saved.append((value, contents))
                if not _is_globals(value):  # of which functions reach what they name
                    pending += [item for _, item in contents]
            pending += _held_by_function(value) if type(value) is FunctionType else _held_by_callable(value)

    def check(self, known: Container[Any]) -> None:
        """Refuse changes that are not at known places."""
        for holder, before in self._saved:
            for name in _changed_names(before, _contents(holder) or []):
                if not any(key in known for key in _keys(holder, name)):
                    raise self._refused(holder, name)

    def _refused(self, holder: Any, name: Any) -> Refused:
        what = f"a {type(holder).__name__}"
        if isinstance(holder, CellType):
            what = "a variable of a closure"
        elif _is_globals(holder):
            what = f"the global {name!r}"
        elif name is not None:
            what = f"{name!r} of {what}"
        return refuse(
            f"{what} is changed where only the data decide whether it is, by code that Python or torch calls (an "
            "operator of a class, a function given to another one), which is not interpreted",
            self.location,
            "let such code change nothing but its own variables, or call it before the branch",
        )


def _held_by_function(function: FunctionType) -> list[Any]:
    held: list[Any] = [*(function.__closure__ or ()), *(function.__defaults__ or ())]
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


def _is_globals(value: Any) -> bool:
    return type(value) is dict and "__builtins__" in value


def _held_by_callable(value: Any) -> list[Any]:
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


def _contents(value: Any) -> list[tuple[Any, Any]] | None:
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
    yield from list(_namespace(value).items())
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            descriptor = vars(base).get(name)
            if descriptor is not None:
                try:
                    yield name, descriptor.__get__(value)
                except AttributeError:  # a slot without a value
                    continue


def _namespace(value: Any) -> Any:
    if isinstance(value, type):
        return vars(value)
    try:
        return object.__getattribute__(value, "__dict__")  # no question for a __getattr__ of the user's
    except AttributeError:
        return {}


def is_of_others(kind: type) -> bool:
    """Whether objects of a class, and the class, are none that the user's code keeps something in."""
    return home_of(kind).partition(".")[0] in ("builtins", "torch", "numpy", "tintype")


def _changed_names(before: list[tuple[Any, Any]], after: list[tuple[Any, Any]]) -> list[Any]:
    """The names under which something else is found."""
    if len(before) == len(after) and all(
        one[0] is other[0] and one[1] is other[1] for one, other in zip(before, after, strict=True)
    ):
        return []
    known = {(id(name), id(item)): name for name, item in before}
    found = {(id(name), id(item)): name for name, item in after}
    different = [name for key, name in {**known, **found}.items() if (key in known) != (key in found)]
    return different or [None]


def _keys(holder: Any, name: Any) -> Iterator[Any]:
    """How the journal knows a place."""
    yield AttributePlace, id(holder), name
    yield GlobalPlace, id(holder), name
    yield ContentPlace, id(holder), None
    yield CellPlace, id(holder)
    yield ContentPlace, id(_namespace(holder)), None
