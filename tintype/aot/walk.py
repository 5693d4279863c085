"""From a function to everything that its code can read: a walk along the names in it.

The globals and cells of a function, the attributes that code names of the objects there, the functions among them,
and so on. The code of libraries (torch, the standard library) is not followed; of their objects
everything counts that the objects consist of.
"""

from __future__ import annotations

import array
import collections
import functools
import os
import pickle
import random
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import BuiltinMethodType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.nn.modules import module as _modules

from tintype.aot.code_names import names_in
from tintype.errors import CaptureError
from tintype.ir.call_values import PLAIN, is_library
from tintype.trace.state import refuse_script

MISSING: Any = object()
# far more than any model has; whoever gets there has the whole process among the surroundings
_MOST = 200_000

# libraries of which code that is not followed reads the attributes of their own objects
_READ_WHOLE = frozenset({"collections", "functools", "torch", "weakref"})
_MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset, collections.deque, types.MappingProxyType)


def content_of(cell: CellType) -> Any:
    """What is in a cell."""
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return MISSING


def _is_called_unnamed(name: str, member: Any) -> bool:
    """Whether an attribute of a class is a method that code calls without its name: ``model(x)``, ``config[0]``."""
    return isinstance(member, FunctionType) and (name == "forward" or name[:2] == name[-2:] == "__")


def _is_consumed(value: Any) -> bool:
    """Whether a value is one that gives something else each time and whose state can't be seen."""
    kind = type(value)
    return hasattr(kind, "__next__") and kind.__module__ in ("builtins", "itertools")


def _refuse_consumed(value: Any, name: str | None = None) -> None:
    if _is_consumed(value):
        where = f"{name!r}, " if name is not None else ""
        raise CaptureError(
            f"the function can read from {where}a {type(value).__name__}, which gives something else each time and "
            "can't be watched",
            remedy="take what it gives outside of the function and pass that as an argument",
        )


class Walk:
    """Follows names from functions to what they can read, and notes how that is watched."""

    def __init__(self, own: Iterable[torch.nn.Module]) -> None:
        # modules whose tensors are looked up at every call: only the names of those count
        self.own = {id(module) for module in own}
        self.names: set[str] = set()
        self.functions: list[FunctionType] = []
        self.cells: list[tuple[CellType, Any]] = []
        # tables by identity, each with what was read from it
        self.read: dict[int, tuple[Mapping[str, Any], dict[str, Any]]] = {}
        # tables in which more entries mean that something may be found that was not there
        self.sized: dict[int, Any] = {}
        # containers: how to get at what is in them (keys and values apart), and what was in them
        self.contents: list[tuple[functools.partial[Any], tuple[Any, ...]]] = []
        self.empty: list[Any] = []
        # tables of which the names count, and names under which one and the same tensor is found
        self.tables_of_state: list[Mapping[str, Any]] = []
        self.shared_state: dict[int, list[tuple[Mapping[str, Any], str]]] = {}
        self.slots: list[tuple[Any, str, Any]] = []
        # functions that remember what they returned (functools.lru_cache)
        self.caches: list[Any] = []
        # anything else: what is called to see it, and what came of that
        self.probes: list[tuple[Callable[[], Any], Any]] = []
        self.compares_objects = False
        self._reads_unnamed = False
        self._seen: dict[int, Any] = {}
        # tables of which what the code names is read
        self._named: dict[int, Mapping[str, Any]] = {}
        self._objects: list[Mapping[str, Any]] = []
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
        known: tuple[int, bool] | None = None
        while self._pending or known != (len(self.names), self._reads_unnamed):
            known = (len(self.names), self._reads_unnamed)
            while self._pending:
                self._open(self._pending.pop())
            for table in list(self._named.values()):
                self._read_named(table)
            if self._reads_unnamed:
                for table in self._objects:
                    self._read_all(table)
            if not self.names.isdisjoint(("environ", "getenv")):  # of a library, which is not followed
                self.visit(os.environ)

    # --- tables --------------------------------------------------------------------------------------------

    def _note(self, table: Mapping[str, Any], name: str) -> None:
        _, read = self.read.setdefault(id(table), (table, {}))
        if name not in read:
            read[name] = value = table.get(name, MISSING)
            if value is not MISSING:
                _refuse_consumed(value, name)
                self.visit(value)

    def _read_named(self, table: Mapping[str, Any]) -> None:
        for name in self.names if len(self.names) < len(table) else list(table):
            if name in table and name in self.names:
                self._note(table, name)

    def _read_all(self, table: Mapping[str, Any], *, private: bool = True) -> None:
        for name, value in list(table.items()):
            # what gives something else each time counts only if the code names it; torch hides packed weights
            counts = private or not name.startswith("_") or isinstance(value, torch.ScriptObject)
            if counts and not _is_consumed(value):
                self._note(table, name)

    def _open_attributes(self, value: Any, *, whole: bool = False) -> None:
        """The attributes that an object has itself. It may get others later, which hide those of its class."""
        table = vars(value)
        self.sized[id(table)] = table
        self._named[id(table)] = table
        if whole:
            self._read_all(table)
        else:
            self._objects.append(table)

    # --- values --------------------------------------------------------------------------------------------

    def _open(self, value: Any) -> None:
        _refuse_consumed(value)
        if isinstance(value, torch.Tensor):
            self._open_tensor(value)
        elif value is os.getenv:
            self.visit(os.environ)
        elif isinstance(value, FunctionType):
            self._open_function(value)
        elif isinstance(value, (MethodType, BuiltinMethodType)):
            self.visit(getattr(value, "__func__", None))
            if not isinstance(value.__self__, ModuleType):
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
        elif isinstance(value, ModuleType):
            if not is_library(value.__name__):
                self._named[id(vars(value))] = vars(value)
        elif isinstance(value, type):
            self._open_class(value)
        elif isinstance(value, _CONTAINERS):
            self._open_container(value)
        elif isinstance(value, torch.nn.Module):
            self._open_module(value)
        elif not self._open_by_probe(value):
            self._open_object(value)

    def _open_tensor(self, tensor: torch.Tensor) -> None:
        """Its place is watched and its values are no part of the graphs; what somebody attached to it may be."""
        if tensor.__dict__:
            self._open_attributes(tensor)

    def _open_function(self, function: FunctionType) -> None:
        surroundings = function.__globals__
        module = sys.modules.get(function.__module__ or "")
        if module is not None and vars(module) is surroundings and is_library(function.__module__):
            return
        self.functions.append(function)
        names = names_in(function.__code__)
        self.names |= names.attributes
        self._reads_unnamed |= names.reads_unnamed
        self.compares_objects |= names.compares_objects
        for name in names.globals:  # also those that are not there: a builtin, or nothing yet
            self._note(surroundings, name)
        if "globals" in names.globals:
            self._named[id(surroundings)] = surroundings
        for name in names.imports:
            self._open_import(name, surroundings.get("__package__"))
        for cell in function.__closure__ or ():
            content = content_of(cell)
            self.cells.append((cell, content))
            self.visit(content)
        self._open_attributes(function)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)

    def _open_import(self, name: str, package: Any) -> None:
        """A module that a function imports when it runs; the name may be relative to its own package."""
        for full in (name, f"{package}.{name}" if package else name):
            if not is_library(full):
                self._note(sys.modules, full)

    def _open_class(self, value: type) -> None:
        for kind in value.__mro__:
            if not is_library(kind.__module__) and id(kind) not in self._named:
                table = vars(kind)
                self._named[id(kind)] = table
                self.sized[id(kind)] = table
                self.names.update(name for name, member in table.items() if _is_called_unnamed(name, member))

    def _open_container(self, value: Any) -> None:
        # not by methods of a subclass: those are the user's
        kind = next(kind for kind in _CONTAINERS if isinstance(value, kind))
        if kind is dict or kind is types.MappingProxyType:
            contents = self._watch(value, functools.partial(kind.values, value))
            if contents:
                self._watch(value, functools.partial(kind.__iter__, value))
        elif kind is tuple:  # who holds a tuple is watched
            contents = tuple(tuple.__iter__(value))
        else:
            contents = self._watch(value, functools.partial(kind.__iter__, value))
        for item in contents:
            self.visit(item)
        if not is_library(type(value).__module__):
            self._open_object(value)

    def _watch(self, container: Any, read: functools.partial[Any]) -> tuple[Any, ...]:
        contents = tuple(read())
        # most containers of a model are tables of hooks, and empty
        if not contents and type(container) in (dict, collections.OrderedDict, list, set):
            self.empty.append(container)
        else:
            self.contents.append((read, contents))
        return contents

    def _open_module(self, module: torch.nn.Module) -> None:
        """All of a module counts: its class may be torch's own, whose code is not followed."""
        refuse_script(module)
        table = vars(module)
        self.sized[id(table)] = table
        self._named[id(table)] = table
        self._read_all(table, private=False)
        for name in ("_parameters", "_buffers", "_modules"):
            if name == "_modules" or id(module) not in self.own:
                self._open_container(table[name])
            else:
                self._open_state(table[name])
        for hooks in _MODULE_HOOKS:
            self._open_container(table[hooks])
            self.visit(getattr(_modules, f"_global{hooks}"))
        self.visit(type(module))

    def _open_state(self, table: dict[str, Any]) -> None:
        """Parameters or buffers that are looked up at every call."""
        self.tables_of_state.append(table)
        for name, tensor in table.items():
            if tensor is None:
                self._note(table, name)
                continue
            self.shared_state.setdefault(id(tensor), []).append((table, name))
            if tensor.__dict__:  # somebody attached something, which the code may read
                self._note(table, name)

    def _open_by_probe(self, value: Any) -> bool:
        """Objects whose contents are seen by calling something; whether it is one."""
        if isinstance(value, ContextVar):
            content = value.get(MISSING)
            self.probes.append((functools.partial(value.get, MISSING), content))
            self.visit(content)
        elif isinstance(value, weakref.ref):
            target = value()
            self.probes.append((lambda: value() is None, target is None))
            self.visit(target)
        elif isinstance(value, (bytearray, memoryview)):
            self.probes.append((functools.partial(bytes, value), bytes(value)))
        elif isinstance(value, array.array):
            self.probes.append((value.tobytes, value.tobytes()))
        elif isinstance(value, random.Random):
            self.probes.append((value.getstate, value.getstate()))
        elif value is os.environ:
            self.probes.append((_look_at_environment, _look_at_environment()))
        elif isinstance(value, threading.local):
            for name, content in vars(value).items():
                self.slots.append((value, name, content))
                self.visit(content)
        else:
            return "numpy" in sys.modules and self._open_numpy(value)
        return True

    def _open_numpy(self, value: Any) -> bool:
        import numpy

        look: Callable[[], Any]
        if isinstance(value, numpy.ndarray):
            if value.dtype.hasobject:
                look = functools.partial(_objects_in, value)
                self.visit(look())
            else:
                look = functools.partial(_look_at_array, value)
        elif isinstance(value, (numpy.random.Generator, numpy.random.RandomState, numpy.random.BitGenerator)):
            look = functools.partial(pickle.dumps, value)
        else:
            return isinstance(value, numpy.generic)
        self.probes.append((look, look()))
        return True

    def _open_object(self, value: Any) -> None:
        kind = type(value)
        if hasattr(value, "__dict__"):
            self._open_attributes(value, whole=any(_is_read_whole(base) for base in kind.__mro__))
            if isinstance(value, functools._lru_cache_wrapper):
                self.caches.append(value)
            if isinstance(vars(value).get("__wrapped__"), FunctionType):
                self.visit(vars(value)["__wrapped__"])
        for base in kind.__mro__:
            if not is_library(base.__module__):
                slots = vars(base).get("__slots__", ())
                for name in (slots,) if isinstance(slots, str) else slots:
                    content = getattr(value, name, MISSING)
                    self.slots.append((value, name, content))
                    self.visit(content)
        self.visit(kind)


def _is_read_whole(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _READ_WHOLE


def _look_at_environment() -> tuple[tuple[str, str], ...]:
    return tuple(os.environ.items())


def _look_at_array(value: Any) -> tuple[Any, ...]:
    return value.dtype.str, value.shape, value.tobytes()


def _objects_in(value: Any) -> tuple[Any, ...]:
    return value.shape, tuple(value.flat)
