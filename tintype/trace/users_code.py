"""The user's functions that a model may call, found before it is captured, and what they may change outside of it.

Names tell: methods that a function names, functions among its globals and in its closure. What is called in another
way is not found.
"""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import ctypes
import dataclasses
import dis
import functools
import io
import itertools
import operator
import os
import random
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

import torch

from tintype.errors import Location
from tintype.ir.sources import Source, variables_of
from tintype.symbolic.catching import may_catch
from tintype.symbolic.location import is_internal
from tintype.trace.iterators import is_iterator

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<nothing>"})()

# A place outside of a model that its functions may change: the namespace of a module, a class or a cell of a closure,
# the name in it, and what is there; an object or function and the name of its attribute; or a container without name.
Place = tuple[Any, str, Any]

CONTAINERS = frozenset(
    {list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict, collections.Counter}
)
_Cache = functools._lru_cache_wrapper
_STORED_FUNCTIONS = frozenset({FunctionType, MethodType})
_NAMED = CONTAINERS | {FunctionType, _Cache}
# what most names in code are the names of, if of a global at all
_UNNOTED = frozenset(
    {type, ModuleType, BuiltinFunctionType, str, int, float, bool, type(None), tuple, frozenset, type(MISSING)}
)

_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "tintype", "builtins"}

# code of ours between a capture and the user's, which is interpreted where that is
CALLING_THE_USERS: set[CodeType] = set()


def calls_users_code(function: Any) -> None:
    """Say of a function of ours that it calls the user's code."""
    CALLING_THE_USERS.add(function.__code__)


@dataclasses.dataclass
class UsersCode:
    """The functions, and the places that they may change."""

    functions: list[FunctionType]
    places: list[Place]
    caches: list[Place]
    # a function with a variable that holds something, by the address of that; found when somebody asks
    _holders: dict[int, FunctionType] | None = None

    @functools.cached_property
    def codes(self) -> Codes:
        """The code of the functions as it is before a capture puts other code in its place."""
        return Codes(self.functions)

    @property
    def catches_errors(self) -> bool:
        """Whether there is an ``except`` or a ``with`` in one of them."""
        return may_catch_in(self.codes)

    def named(self, names: Collection[str]) -> frozenset[str]:
        """Those of some names that the functions use, for attributes or else."""
        return all_names(self.codes).intersection(names)

    def source_of(self, value: Any) -> Source | None:
        """The variable from around one of the functions that holds a tensor or an object; None where none does."""
        if self._holders is None:
            self._holders = {}
            for function in reversed(self.functions):  # the first one has the last word
                held = map(function.__globals__.get, names_in(function.__code__))
                self._holders.update(dict.fromkeys(map(id, held), function))
                self._holders.update((id(contents_of(cell)), function) for cell in function.__closure__ or ())
        holder = self._holders.get(id(value))
        if holder is None or value is None:
            return None
        return next((source for source in variables_of(holder) if source.read({}) is value), None)

    def assignment_to(self, name: str) -> Location | None:
        """The line on which one of the functions assigns to an attribute or a global of that name."""
        return self._line_that(lambda step: step.argval == name and step.opname in ("STORE_ATTR", "STORE_GLOBAL"))

    def change_of(self, container: Any, attributes: Iterable[str]) -> Location | None:
        """The line on which one of the functions changes a container or a variable of a closure, as far as names
        tell: one that calls for such a change, best of all in a function that names the container."""
        if type(container) is CellType:
            return self._line_that(lambda step: step.opname == "STORE_DEREF")
        ways = _CHANGES.intersection(dir(container))
        names = {name for _, name, value in self.places if value is container}.union(attributes)
        named = [function for function in self.functions if not names.isdisjoint(names_in(function.__code__))]

        def changes(step: dis.Instruction) -> bool:
            return step.opname in ("STORE_SUBSCR", "STORE_SLICE") or step.argval in ways

        return self._line_that(changes, named) or self._line_that(changes)

    def _line_that(
        self, is_wanted: Callable[[dis.Instruction], bool], functions: Iterable[FunctionType] | None = None
    ) -> Location | None:
        for function in self.functions if functions is None else functions:
            for code in _with_inner(function.__code__):
                for step in dis.get_instructions(code):
                    if is_wanted(step):
                        line = step.positions.lineno if step.positions is not None else None
                        return Location(code.co_filename, line or code.co_firstlineno, code.co_name)
        return None


_CHANGES = frozenset(
    {"add", "append", "appendleft", "extend", "insert", "move_to_end", "setdefault", "update", "__setitem__"}
)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


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
    search = _Search()
    search.pending += [(function, None) for function in functions]
    modules = list(modules)
    # without a step of Python's for each module: few hold functions
    attributes = list(itertools.chain.from_iterable(map(dict.values, map(vars, modules))))
    stored = itertools.compress(attributes, map(_STORED_FUNCTIONS.__contains__, map(type, attributes)))
    search.pending += [(function, None) for function in stored]
    for kind in dict.fromkeys(map(type, modules)):
        search.add_class(kind)
    return search.run()


class _Search:
    """One search; what is yet to be looked at comes with the class that it is a method of."""

    def __init__(self) -> None:
        self.pending: list[tuple[Any, type | None]] = []
        self._functions: dict[FunctionType, None] = {}
        self._places: list[Place] = []
        self._caches: dict[tuple[int, str], Place] = {}
        self._objects: list[Any] = []  # that classes and modules hold
        self._tables: dict[
            type, list[tuple[type, Any]]
        ] = {}  # the user's part of a class and of those it derives from

    def add_class(self, kind: type) -> None:
        """The modules of a class are called."""
        if kind not in self._tables:
            self._tables_of(kind)
            self.pending.append((getattr(kind, "forward", None), kind))

    def run(self) -> UsersCode:
        """Look at everything once."""
        while self.pending:
            function, owner = self.pending.pop()
            if isinstance(function, (MethodType, staticmethod, classmethod)):
                function = function.__func__
            if type(function) is not FunctionType or function in self._functions:
                continue
            if not is_internal(function.__code__.co_filename):
                self._functions[function] = None
                self._look_at(function, owner)
        if self._objects:
            self._add_objects()
        return UsersCode(list(self._functions), self._places, list(self._caches.values()))

    def _look_at(self, function: FunctionType, owner: type | None) -> None:
        code, surroundings, cells = function.__code__, function.__globals__, function.__closure__ or ()
        for cell in cells:
            self._add(cell, "cell_contents", contents_of(cell), owner)
        names, assigned, attributes = _looked_for(code)
        # without a step of Python's for each: most are names of attributes, or of modules and functions of torch's
        kinds = list(map(type, map(surroundings.get, names, itertools.repeat(MISSING))))
        for name in itertools.compress(names, map(operator.not_, map(_UNNOTED.__contains__, kinds))):
            value = surroundings[name]
            if type(value) in _NAMED or is_iterator(value) or _is_state(value):
                self._add(surroundings, name, value, None)
        for name in itertools.compress(names, map(_NAMESPACES.__contains__, kinds)):
            if is_users_namespace(surroundings[name]):
                self._look_into(surroundings[name], names)
        if "environ" in names and not _CHANGES_OF_ENVIRONMENT.isdisjoint((*names, *_item_writes(code))):
            self._places.append((os, "environ", os.environ))
        if assigned:
            self._places += [(surroundings, name, surroundings[name]) for name in assigned if name in surroundings]
        if function.__defaults__ or function.__kwdefaults__:
            defaults: dict[Any, Any] = dict(enumerate(function.__defaults__ or ()))
            defaults.update(function.__kwdefaults__ or {})
            self._places += [(defaults, name, value) for name, value in defaults.items() if type(value) in CONTAINERS]
        if attributes:
            known = (surroundings[name] for name in names if name in surroundings)
            for value in (*map(contents_of, cells), *known):
                table = _attributes_of(value)
                if table is not None:
                    self._places += [(value, name, table.get(name, MISSING)) for name in attributes]
        if owner is not None:
            for kind, table in self._tables[owner]:
                for name in filter(table.__contains__, names):
                    self._add(kind, name, table[name], owner)

    def _look_into(self, namespace: Any, names: Iterable[str]) -> None:
        """What a function finds in a module or a class of the user's that is one of its globals."""
        if isinstance(namespace, ModuleType):
            table = vars(namespace)
            for name in filter(table.__contains__, names):
                value = table[name]
                if type(value) in _NAMED or _is_state(value):
                    self._add(table, name, value, None)
                elif type(value) not in _UNNOTED:
                    self._objects.append(value)
            return
        for kind, table in self._tables_of(namespace):
            for name in filter(table.__contains__, names):
                if isinstance(table[name], (classmethod, staticmethod)):
                    self._add(kind, name, table[name], namespace)

    def _tables_of(self, kind: type) -> list[tuple[type, Any]]:
        if kind not in self._tables:
            self._tables[kind] = [(part, vars(part)) for part in kind.__mro__ if _is_users(part)]
        return self._tables[kind]

    def _add_objects(self) -> None:
        """Places of objects that functions find in classes and modules, by the attributes that functions assign."""
        assigned = frozenset().union(*(_assigned_attributes(function.__code__) for function in self._functions))
        for value in {id(value): value for value in self._objects}.values():
            table = _attributes_of(value) if assigned else None
            if table is not None:
                self._places += [(value, name, table.get(name, MISSING)) for name in assigned]

    def _add(self, place: Any, name: str, value: Any, owner: type | None) -> None:
        """What a function finds in a place under a name."""
        if isinstance(value, _KINDS_OF_FUNCTIONS):
            self.pending.append((value, owner))
        elif type(value) is _Cache:
            self._caches[id(place), name] = (place, name, value)
            self.pending.append((value.__wrapped__, owner))
        if not isinstance(value, (*_KINDS_OF_FUNCTIONS, _Cache)) or isinstance(place, CellType):
            self._places.append((place, name, value))
            if isinstance(place, type) and type(value) not in _UNNOTED and type(value) not in _NAMED:
                self._objects.append(value)


_STATES = (
    array.array, bytearray, contextvars.ContextVar, ctypes.Array, ctypes.Structure, io.BytesIO, io.StringIO,
    memoryview, random.Random,
)  # fmt: skip


_NAMESPACES = frozenset({ModuleType, type})
_users_namespaces: dict[int, tuple[Any, bool]] = {}  # what is held keeps its address to itself


def is_users_namespace(value: Any) -> bool:
    """Whether a module or a class is the user's, and no library's that keeps to itself what it remembers."""
    found = _users_namespaces.get(id(value))
    if found is None:
        if len(_users_namespaces) >= _MOST_CODE:
            _users_namespaces.clear()
        home = value.__name__ if isinstance(value, ModuleType) else home_of(value)
        is_users = home.partition(".")[0] not in _LIBRARIES
        found = _users_namespaces[id(value)] = (value, is_users)
    return found[1]


def _is_state(value: Any) -> bool:
    """Whether a global may be memory, or an object that keeps its state to itself (tintype.trace.hidden_state)."""
    return isinstance(value, _STATES) or home_of(type(value)).partition(".")[0] == "numpy"


def _attributes_of(value: Any) -> Mapping[str, Any] | None:
    """The attributes of a user's class, function, module or object that is not part of a model; None for others."""
    if isinstance(value, torch.nn.Module):
        return None
    of = value if isinstance(value, (type, FunctionType, ModuleType)) else type(value)
    where = of.__name__ if isinstance(of, ModuleType) else home_of(of)
    if where is None or where.partition(".")[0] in ("torch", "numpy", "builtins"):
        return None
    attributes = getattr(value, "__dict__", None)
    return attributes if isinstance(attributes, Mapping) else None


_KINDS_OF_FUNCTIONS = (FunctionType, MethodType, staticmethod, classmethod)


def _is_users(kind: type) -> bool:
    return kind is not object and not home_of(kind).startswith("torch.")


def contents_of(cell: CellType) -> Any:
    """What a cell of a closure holds; None for an empty one."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


_MOST_CODE = 4096
_Found = TypeVar("_Found")


def found_once(find: Callable[[CodeType], _Found]) -> Callable[[CodeType], _Found]:
    """What is found in code, found once: code never changes. To hash it, which is not to look at its address, would
    take longer than all the rest of looking it up."""
    known: dict[int, tuple[CodeType, _Found]] = {}  # what is held keeps its address to itself

    @functools.wraps(find)
    def look_up(code: CodeType) -> _Found:
        found = known.get(id(code))
        if found is None:
            if len(known) >= _MOST_CODE:
                known.clear()
            found = known[id(code)] = (code, find(code))
        return found[1]

    return look_up


@found_once
def _looked_for(code: CodeType) -> tuple[tuple[str, ...], frozenset[str], frozenset[str]]:
    """The names that code uses, and the globals and attributes that it assigns to."""
    return names_in(code), _assigned_globals(code), _assigned_attributes(code)


class Codes:
    """The code of some functions, to be looked up as a whole."""

    def __init__(self, functions: Iterable[FunctionType]) -> None:
        self.codes = [function.__code__ for function in functions]
        self.key = tuple(map(id, self.codes))


_MOST_MODELS = 64


def found_once_for_all(find: Callable[[list[CodeType]], _Found]) -> Callable[[Codes], _Found]:
    """What is found in the code of all functions of a model, found once: most models are exported more than once, and
    have hundreds of functions."""
    known: dict[tuple[int, ...], tuple[list[CodeType], _Found]] = {}  # what is held keeps its addresses to itself

    @functools.wraps(find)
    def look_up(codes: Codes) -> _Found:
        found = known.get(codes.key)
        if found is None:
            if len(known) >= _MOST_MODELS:
                known.clear()
            found = known[codes.key] = (codes.codes, find(codes.codes))
        return found[1]

    return look_up


@found_once_for_all
def all_names(codes: list[CodeType]) -> frozenset[str]:
    """The names that code uses."""
    return frozenset().union(*map(names_in, codes))


@found_once_for_all
def may_catch_in(codes: list[CodeType]) -> bool:
    """Whether there is an ``except`` or a ``with`` in it."""
    return any(map(may_catch, codes))


@found_once
def names_in(code: CodeType) -> tuple[str, ...]:
    """The names of globals, attributes and methods that code uses, the functions in it too."""
    inner = [names_in(value) for value in code.co_consts if isinstance(value, CodeType)]
    return tuple(dict.fromkeys((*code.co_names, *(name for names in inner for name in names))))


@found_once
def _assigned_globals(code: CodeType) -> frozenset[str]:
    """The globals that code assigns to, the functions in it too."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")}
    inner = [_assigned_globals(value) for value in code.co_consts if isinstance(value, CodeType)]
    return frozenset(found).union(*inner)


@found_once
def _item_writes(code: CodeType) -> frozenset[str]:
    """The operations of code that write to items, those of the functions in it too."""
    found = {i.opname for i in dis.get_instructions(code)}.intersection(("STORE_SUBSCR", "DELETE_SUBSCR"))
    inner = [_item_writes(value) for value in code.co_consts if isinstance(value, CodeType)]
    return frozenset(found).union(*inner)


_CHANGES_OF_ENVIRONMENT = frozenset(
    {"STORE_SUBSCR", "DELETE_SUBSCR", "clear", "pop", "popitem", "setdefault", "update"}
)


@found_once
def _assigned_attributes(code: CodeType) -> frozenset[str]:
    """The attributes that code assigns to, the functions in it too."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_ATTR", "DELETE_ATTR")}
    inner = [_assigned_attributes(value) for value in code.co_consts if isinstance(value, CodeType)]
    return frozenset(found).union(*inner)


def functions_of_torch(modules: Iterable[tuple[str, torch.nn.Module]]) -> list[FunctionType]:
    """Functions of torch's that make plain numbers of data: a cumulative average divides by how many it is of,
    quantized modules keep scales in buffers, packed sequences hold how many they are."""
    modules = list(modules)
    classes = {type(module) for _, module in modules}
    kind: Any = torch.nn.modules.batchnorm._BatchNorm
    cumulative = any(issubclass(known, kind) for known in classes) and any(
        isinstance(module, kind) and module.momentum is None and module.training for _, module in modules
    )
    quantized: set[Any] = {known.forward for known in classes if home_of(known).startswith("torch.ao.")}
    found = {kind.forward, *quantized} if cumulative else quantized
    if any(issubclass(known, torch.nn.RNNBase) for known in classes):
        found.add(torch.nn.RNNBase.get_expected_hidden_size)
    return [function for function in found if isinstance(function, FunctionType)]


def home_of(kind: Any) -> str:
    """The name of the module that a class or function says it is from; classes may have something else there."""
    name = getattr(kind, "__module__", None)
    return name if isinstance(name, str) else ""
