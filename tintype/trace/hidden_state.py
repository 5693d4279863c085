"""State of objects that no dictionary shows: slots, generators of random numbers, buffers of text and bytes, context
variables, the environment.

A model may hold such objects, and draw from them or write to them while it is captured. A snapshot
(:mod:`tintype.trace.snapshot`) treats them as it treats attributes and arrays: they are put back, and a warning says
if later calls would be other programs.
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
import io
import mmap
import os
import pickle
import random
import sys
from collections.abc import Callable, Iterator, MutableMapping
from types import FunctionType, MethodType
from typing import Any

from tintype.symbolic.location import is_internal
from tintype.trace.places import Place
from tintype.trace.users_code import CONTAINERS, MISSING, contents_of, home_of

ENVIRONMENT = type(os.environ)
_NOT_THE_USERS = sys.stdlib_module_names | {"torch", "numpy", "builtins"}


_slots: dict[type, tuple[str, ...]] = {}


_bases: dict[type, tuple[type, ...]] = {}


def users_bases(kind: type) -> tuple[type, ...]:
    """The class and those that it derives from, as far as they are the user's."""
    if kind not in _bases:
        _bases[kind] = tuple(
            base for base in kind.__mro__ if home_of(base).partition(".")[0] not in (*_NOT_THE_USERS, "tintype")
        )
    return _bases[kind]


def _slots_of(kind: type) -> tuple[str, ...]:
    """The names of the slots of a class of the user's, whose objects have no dictionary."""
    if kind not in _slots:
        _slots[kind] = _found_slots(kind)
    return _slots[kind]


def _found_slots(kind: type) -> tuple[str, ...]:
    if kind.__dictoffset__ or home_of(kind).partition(".")[0] in _NOT_THE_USERS:
        return ()
    names: dict[str, None] = {}
    for part in kind.__mro__:
        slots = vars(part).get("__slots__", ())
        names.update(dict.fromkeys((slots,) if isinstance(slots, str) else slots))
    return tuple(name for name in names if hasattr(getattr(kind, name, None), "__set__"))


class Slots(MutableMapping[str, Any]):
    """The slots of an object that have values, as a table."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._names = _slots_of(type(owner))

    def __getitem__(self, name: str) -> Any:
        value = getattr(self._owner, name, MISSING) if name in self._names else MISSING
        if value is MISSING:
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        object.__setattr__(self._owner, name, value)

    def __delitem__(self, name: str) -> None:
        object.__delattr__(self._owner, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if hasattr(self._owner, name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def copy(self) -> dict[str, Any]:
        """The same as a dictionary."""
        return dict(self)


def slots_of(value: Any) -> Slots | None:
    """The slots of an object that has its attributes there; None for any other."""
    return Slots(value) if _slots_of(type(value)) else None


def parts_of(value: Any) -> tuple[Any, ...] | None:
    """What a function of the user's, a method or a ``functools.partial`` holds; None for anything else."""
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, MethodType):
        return value.__self__, value.__func__
    if isinstance(value, FunctionType) and not is_internal(value.__code__.co_filename):
        cells = map(contents_of, value.__closure__ or ())
        held = (*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        return tuple(item for item in held if type(item) not in CONTAINERS)  # those are places of their own
    return None


class StateContent(bytes):
    """The state of an object, to be compared as bytes."""

    state: Any

    def __repr__(self) -> str:
        return f"<state {hash(bytes(self)) & 0xFFFFFFFF:08x}>"


class StatePlace(Place):
    """The state of an object that keeps it to itself."""

    def __str__(self) -> str:
        return f"the state of a {type(self.owner).__name__}"

    def read(self) -> StateContent:
        access = _access(type(self.owner))
        assert access is not None
        state = access[0](self.owner)
        content = StateContent(state if isinstance(state, bytes) else pickle.dumps(state))
        content.state = state
        return content

    def write(self, value: Any) -> None:
        access = _access(type(self.owner))
        assert access is not None
        access[1](self.owner, value.state)


class ContextContent(StateContent):
    """What a context variable is, which is the same as long as it is one object."""

    def __repr__(self) -> str:
        return repr(self.state)


class ContextPlace(StatePlace):
    """The value of a context variable in the context of this thread."""

    def read(self) -> ContextContent:
        value = self.owner.get(MISSING)
        content = ContextContent(str(id(value)).encode())
        content.state = value
        return content

    def write(self, value: Any) -> None:
        state = value.state
        if state is MISSING:  # nobody can take a value away but who has put it there
            try:
                state = contextvars.Context().run(self.owner.get)
            except LookupError:  # it has no default either
                return
        if self.owner.get(MISSING) is not state:
            self.owner.set(state)


def place_of_state(value: Any) -> StatePlace | None:
    """What reads and writes the state of an object that keeps it to itself; None for others."""
    if isinstance(value, contextvars.ContextVar):
        return ContextPlace(value, None, None)
    return StatePlace(value, None, None) if keeps_state(value) else None


def is_state(value: Any) -> bool:
    """Whether there is a place that reads the state of a value."""
    return isinstance(value, contextvars.ContextVar) or keeps_state(value)


def keeps_state(value: Any) -> bool:
    """Whether a value is an object whose state a :class:`StatePlace` reads."""
    return _access(type(value)) is not None and not (isinstance(value, memoryview) and value.readonly)


_Access = tuple[Callable[[Any], Any], Callable[[Any, Any], None]]
_known: dict[type, _Access | None] = {}


def _access(kind: type) -> _Access | None:
    """How the state of the objects of a class is read and written; None where nobody knows."""
    if kind not in _known:
        _known[kind] = _found_access(kind)
    return _known[kind]


def _found_access(kind: type) -> _Access | None:
    if issubclass(kind, random.Random) and not issubclass(kind, random.SystemRandom):
        return kind.getstate, kind.setstate
    if issubclass(kind, (io.StringIO, io.BytesIO)):
        return _text, _write_text
    if issubclass(kind, memoryview):
        return memoryview.tobytes, _write_view
    if issubclass(kind, mmap.mmap):
        return lambda value: value[:], lambda value, state: value.__setitem__(slice(None), state)
    if issubclass(kind, (ctypes.Array, ctypes.Structure, ctypes.Union)):
        return bytes, _write_c
    if kind is ENVIRONMENT:
        return dict, _write_environment
    return _access_to_numpys(kind) if home_of(kind).startswith("numpy.random") else None


def _access_to_numpys(kind: type) -> _Access | None:
    import numpy

    if issubclass(kind, numpy.random.Generator):
        return lambda value: value.bit_generator.state, _write_generator
    if issubclass(kind, numpy.random.RandomState):
        return lambda value: value.get_state(legacy=False), lambda value, state: value.set_state(state)
    return None


def _write_environment(value: Any, state: dict[str, str]) -> None:
    for name in [name for name in value if name not in state]:
        del value[name]
    value.update((name, text) for name, text in state.items() if value.get(name) != text)


def _write_generator(value: Any, state: Any) -> None:
    value.bit_generator.state = state


def _write_c(value: Any, state: bytes) -> None:
    ctypes.memmove(ctypes.addressof(value), state, len(state))


def _text(value: Any) -> Any:
    return (value.getvalue(), value.tell()) if not value.closed else None


def _write_text(value: Any, state: Any) -> None:
    if state is not None and not value.closed:
        text, position = state
        value.seek(0)
        value.truncate()
        value.write(text)
        value.seek(position)


def _write_view(value: memoryview, state: bytes) -> None:
    if value.c_contiguous and state:
        value.cast("B")[:] = state
