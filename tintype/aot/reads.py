"""What a function reads besides its arguments: globals, closures, and attributes of what it finds there.

Graphs are recorded once and run often, so a number that the function took from its surroundings is part of them.
What the function's code can read is found by following names: the globals and cells of the function, the attributes
that its code names of the objects there, the functions among them, and so on. Library code (torch, the standard
library) is not followed. What was found is compared, by identity first, before graphs are used again.
"""

from __future__ import annotations

import functools
import operator
import sys
import warnings
from collections.abc import Mapping, Sequence
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from tintype.aot.calls import PLAIN, same_value

_MISSING = object()
# far more than any model has; whoever gets there has the whole process among the surroundings
_MOST = 200_000


class Reads:
    """The values that a function could read when it was captured."""

    def __init__(self, function: Any, root: torch.nn.Module | None, objects: Sequence[Any] = ()) -> None:
        # the state of the root's modules is looked up at every call, so that only its names count here
        walk = _Walk({id(module) for module in root.modules()} if root is not None else set())
        for value in (function, root, *objects):
            walk.visit(value)
        walk.follow()
        self.names = frozenset(walk.names)
        self._tables = [(table.get, tuple(read), tuple(read.values())) for table, read in walk.read.values() if read]
        self._cells = walk.cells
        # most containers of a model are tables of hooks, and empty
        self._empty = [container for container, _, values in walk.containers if not values]
        self._containers = [entry for entry in walk.containers if entry[2]]
        self._slots = walk.slots

    def unchanged(self) -> bool:
        """Whether everything is what it was."""
        is_same = operator.is_
        for get, names, values in self._tables:
            now = [get(name, _MISSING) for name in names]
            if not all(map(is_same, now, values)) and not all(map(same_value, now, values)):
                return False
        for cell, value in self._cells:
            if not same_value(_content(cell), value):
                return False
        if any(self._empty):
            return False
        for container, keys, values in self._containers:
            if len(container) != len(values) or not _same_contents(container, keys, values):
                return False
        return all(same_value(getattr(owner, name, _MISSING), value) for owner, name, value in self._slots)


def _same_contents(container: Any, keys: tuple[Any, ...] | None, values: tuple[Any, ...]) -> bool:
    if isinstance(container, (set, frozenset)):
        return all(map(container.__contains__, values))
    now = container
    if keys is not None:
        if not all(map(operator.is_, container, keys)):
            return False
        now = container.values()
    return all(map(operator.is_, now, values)) or all(map(same_value, now, values))


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return _MISSING


_LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "torchvision", "numpy", "tintype"})


def _is_library(name: Any) -> bool:
    return isinstance(name, str) and name.partition(".")[0] in _LIBRARIES


def _is_called_unnamed(name: str, member: Any) -> bool:
    """Whether an attribute of a class is a method that code calls without its name: ``model(x)``, ``config[0]``."""
    return isinstance(member, FunctionType) and (name == "forward" or name[:2] == name[-2:] == "__")


class _Walk:
    """Follows names from a function to what it can read."""

    def __init__(self, own: set[int]) -> None:
        self.own = own
        self.names: set[str] = set()
        self.cells: list[tuple[CellType, Any]] = []
        # a container, its keys if it has any, and what is in it
        self.containers: list[tuple[Any, tuple[Any, ...] | None, tuple[Any, ...]]] = []
        self.slots: list[tuple[Any, str, Any]] = []
        # tables by identity, each with what was read from it
        self.read: dict[int, tuple[Mapping[str, Any], dict[str, Any]]] = {}
        self._seen: dict[int, Any] = {}
        # tables of which only what the code names is read, with the tables that a name is looked up in after them
        self._named: list[tuple[Mapping[str, Any], tuple[Mapping[str, Any], ...]]] = []
        self._pending: list[Any] = []

    def visit(self, value: Any) -> None:
        """Note that a value is among the surroundings."""
        if type(value) in PLAIN or id(value) in self._seen:
            return
        if len(self._seen) == _MOST:
            warnings.warn(
                "a compiled function has too much around it to watch all of it; changes of globals, closures and "
                "attributes may go unnoticed",
                stacklevel=2,
            )
        self._seen[id(value)] = value
        if len(self._seen) <= _MOST:
            self._pending.append(value)

    def follow(self) -> None:
        """Find everything: a new name may be an attribute of something that was met before."""
        known = -1
        while self._pending or known != len(self.names):
            known = len(self.names)
            while self._pending:
                self._open(self._pending.pop())
            for table, fallbacks in self._named:
                self._read_named(table, fallbacks)

    def _read_named(self, table: Mapping[str, Any], fallbacks: tuple[Mapping[str, Any], ...]) -> None:
        _, read = self.read.setdefault(id(table), (table, {}))
        candidates = self.names if len(self.names) < len(table) else [name for name in table if name in self.names]
        for name in candidates:
            if name not in read and name in table:
                read[name] = table[name]
                self.visit(table[name])
        if fallbacks:  # what an object does not have itself, its class may have; but it may get it later
            for name in self.names:
                if name not in read and any(name in other for other in fallbacks):
                    read[name] = _MISSING

    def _read_all(self, table: Mapping[str, Any], *, private: bool = True) -> None:
        _, read = self.read.setdefault(id(table), (table, {}))
        for name, value in table.items():
            if private or not name.startswith("_"):
                read[name] = value
                self.visit(value)

    def _open(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            return  # its place is watched; its values are no part of the graphs
        if isinstance(value, FunctionType):
            self._open_function(value)
        elif isinstance(value, MethodType):
            self.visit(value.__func__)
            self.visit(value.__self__)
        elif isinstance(value, functools.partial):
            self.visit(value.func)
            self.visit(value.args)
            self.visit(value.keywords)
        elif isinstance(value, (staticmethod, classmethod)):
            self.visit(value.__func__)
        elif isinstance(value, property):
            for accessor in (value.fget, value.fset):
                self.visit(accessor)
        elif isinstance(value, (ModuleType, type)):
            self._open_namespace(value)
        elif isinstance(value, (dict, list, tuple, set, frozenset)):
            self._open_container(value)
        elif isinstance(value, torch.nn.Module):
            self._open_module(value)
        else:
            self._open_object(value)

    def _open_function(self, function: FunctionType) -> None:
        module = sys.modules.get(function.__module__ or "")
        if module is not None and vars(module) is function.__globals__ and _is_library(function.__module__):
            return
        self._add_names(function.__code__)
        self._named.append((function.__globals__, ()))
        for cell in function.__closure__ or ():
            content = _content(cell)
            self.cells.append((cell, content))
            self.visit(content)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.visit(default)

    def _add_names(self, code: CodeType) -> None:
        self.names.update(code.co_names)
        # getattr(config, "scale") has the name among its constants
        self.names.update(
            constant for constant in code.co_consts if type(constant) is str and constant.isidentifier()
        )
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._add_names(constant)

    def _open_namespace(self, value: Any) -> None:
        """A module or a class."""
        if isinstance(value, ModuleType):
            if not _is_library(value.__name__):
                self._named.append((vars(value), ()))
            return
        for kind in value.__mro__:
            if not _is_library(kind.__module__):
                self._named.append((vars(kind), ()))
                self.names.update(name for name, member in vars(kind).items() if _is_called_unnamed(name, member))

    def _open_container(self, value: Any) -> None:
        if isinstance(value, dict):
            contents = tuple(value.values())
            self.containers.append((value, tuple(value), contents))
        else:
            contents = tuple(value)
            if not isinstance(value, tuple):  # who holds a tuple is watched
                self.containers.append((value, None, contents))
        for item in contents:
            self.visit(item)

    def _open_module(self, module: torch.nn.Module) -> None:
        """All of a module counts: its class may be torch's own, whose code is not followed."""
        self._read_all(vars(module), private=False)
        for name in ("_parameters", "_buffers", "_modules"):
            table = vars(module)[name]
            if name == "_modules" or id(module) not in self.own:
                self._open_container(table)
            else:
                self.containers.append((table, None, tuple(table)))  # its names alone
        for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            self._open_container(vars(module)[hooks])
        self._named.append((vars(module), tuple(vars(kind) for kind in type(module).__mro__)))
        self.visit(type(module))

    def _open_object(self, value: Any) -> None:
        kind = type(value)
        if hasattr(value, "__dict__") and isinstance(vars(value).get("__wrapped__"), FunctionType):
            self.visit(vars(value)["__wrapped__"])  # functools.lru_cache and the like
        classes = tuple(vars(base) for base in kind.__mro__ if not _is_library(base.__module__))
        if hasattr(value, "__dict__"):
            self._named.append((vars(value), classes))
        for table in classes:
            slots = table.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                content = getattr(value, name, _MISSING)
                self.slots.append((value, name, content))
                self.visit(content)
        self.visit(kind)
