"""The user's functions that a model may call, found before it is captured, and what they may change outside of it.

Names tell: methods that a function names, functions among its globals and in its closure. What is called in another
way is not found.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import dis
import functools
from collections.abc import Collection, Iterable, Iterator
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import torch

from tintype.errors import Location
from tintype.symbolic.location import is_internal

# A place outside of a model that its functions may change: the namespace of a module, a class or a cell of a closure,
# the name in it, and what is there; or a container without a name.
Place = tuple[Any, str, Any]

CONTAINERS = frozenset({list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict})
_Cache = functools._lru_cache_wrapper
_NAMED = CONTAINERS | {FunctionType, _Cache}


@dataclasses.dataclass
class UsersCode:
    """The functions, and the places that they may change."""

    functions: list[FunctionType]
    places: list[Place]
    caches: list[Place]

    def assignment_to(self, name: str) -> Location | None:
        """The line on which one of the functions assigns to an attribute or a global of that name."""
        for function in self.functions:
            for instruction in dis.get_instructions(function.__code__):
                if instruction.argval == name and instruction.opname in ("STORE_ATTR", "STORE_GLOBAL"):
                    place = instruction.positions
                    line = place.lineno if place is not None else None
                    code = function.__code__
                    return Location(code.co_filename, line or code.co_firstlineno, code.co_name)
        return None


@contextlib.contextmanager
def caches_set_aside(caches: Iterable[Place]) -> Iterator[None]:
    """Within it, functions that remember their results (``functools.lru_cache``) compute them: results of a capture
    are no use to anybody afterwards, and what was remembered before is no part of the program."""
    replaced: list[Place] = []
    try:
        for owner, name, cache in caches:
            _put(owner, name, cache.__wrapped__)
            replaced.append((owner, name, cache))
        yield
    finally:
        for owner, name, cache in replaced:
            _put(owner, name, cache)


def _put(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


def users_code(modules: Iterable[torch.nn.Module], functions: Iterable[Any] = ()) -> UsersCode:
    """The user's functions that the modules of a model may call, and those that are given."""
    pending: list[tuple[Any, type | None]] = [(function, None) for function in functions]
    seen_classes: set[type] = set()
    tables_of_classes: dict[type, list[tuple[type, Any]]] = {}
    for module in modules:
        own = vars(module).get("forward")
        if own is not None:
            pending.append((own, None))
        if type(module) not in seen_classes:
            seen_classes.add(type(module))
            pending.append((getattr(type(module), "forward", None), type(module)))
    found: dict[FunctionType, None] = {}
    places: list[Place] = []
    caches: dict[tuple[int, str], Place] = {}
    while pending:
        function, owner = pending.pop()
        if isinstance(function, (MethodType, staticmethod, classmethod)):
            function = function.__func__
        if type(function) is not FunctionType or function in found or is_internal(function.__code__.co_filename):
            continue
        found[function] = None
        if function.__closure__:
            for cell in function.__closure__:
                value = contents_of(cell)
                if type(value) is _Cache:
                    caches[id(cell), ""] = (cell, "cell_contents", value)
                    pending.append((value.__wrapped__, owner))
                else:
                    pending.append((value, owner))
                    places.append((cell, "cell_contents", value))
        names, surroundings = names_in(function.__code__), function.__globals__
        for name, value in [(n, v) for n in names if type(v := surroundings.get(n)) in _NAMED]:
            if type(value) is FunctionType:
                pending.append((value, None))
            elif type(value) is _Cache:
                caches[id(surroundings), name] = (surroundings, name, value)
                pending.append((value.__wrapped__, None))
            else:
                places.append((surroundings, name, value))
        assigned = [name for name in _assigned_globals(function.__code__) if name in surroundings]
        places += [(surroundings, name, surroundings[name]) for name in assigned]
        if owner is not None:
            tables = tables_of_classes.get(owner)
            if tables is None:
                tables = tables_of_classes[owner] = [(kind, vars(kind)) for kind in owner.__mro__ if _is_users(kind)]
            for kind, table in tables:
                for name in [name for name in names if name in table]:
                    value = table[name]
                    if isinstance(value, _KINDS_OF_METHODS):
                        pending.append((value, owner))
                    elif type(value) is _Cache:
                        caches[id(kind), name] = (kind, name, value)
                        pending.append((value.__wrapped__, owner))
                    else:
                        places.append((kind, name, value))
    return UsersCode(list(found), places, list(caches.values()))


_KINDS_OF_METHODS = (FunctionType, staticmethod, classmethod)


def _is_users(kind: type) -> bool:
    return kind is not object and not kind.__module__.startswith("torch.")


def contents_of(cell: CellType) -> Any:
    """What a cell of a closure holds; None for an empty one."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


@functools.lru_cache(maxsize=4096)
def names_in(code: CodeType) -> tuple[str, ...]:
    """The names of globals, attributes and methods that code uses, the functions in it too."""
    inner = [names_in(value) for value in code.co_consts if isinstance(value, CodeType)]
    return tuple(dict.fromkeys((*code.co_names, *(name for names in inner for name in names))))


@functools.lru_cache(maxsize=4096)
def _assigned_globals(code: CodeType) -> frozenset[str]:
    """The globals that code assigns to, the functions in it too."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")}
    inner = [_assigned_globals(value) for value in code.co_consts if isinstance(value, CodeType)]
    return frozenset(found).union(*inner)


def named_in(functions: Iterable[FunctionType], names: Collection[str]) -> set[str]:
    """Those of some names that functions use, for attributes or else."""
    return {name for function in functions for name in names_in(function.__code__) if name in names}
