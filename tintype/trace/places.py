"""Places that a program can write to: what is there, and how to put something else there."""

from __future__ import annotations

import array
import logging
import sys
from collections import OrderedDict, deque
from collections.abc import Sequence
from types import (
    CellType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from tintype.errors import Location
from tintype.trace.users_code import MISSING

CONTAINERS = (list, dict, set, deque)
_MOST_BYTES = 1 << 26  # of memory that is copied to see what is written to it
# loggers remember what they have been asked
_NOT_NOTED = (type, ModuleType, FunctionType, logging.Logger, torch.nn.Module, torch.Tensor)


class Place:
    """Somewhere a program can write."""

    def __init__(self, owner: Any, name: Any, location: Location | None) -> None:
        self.owner = owner
        self.name = name
        self.location = location

    @property
    def key(self) -> Any:
        return type(self), id(self.owner), self.name

    def read(self) -> Any:
        """The value that is there; MISSING for none."""
        raise NotImplementedError

    def write(self, value: Any) -> None:
        raise NotImplementedError

    def save(self) -> Any:
        """What :meth:`restore` takes."""
        return self.read()

    def restore(self, saved: Any) -> None:
        self.write(saved)


class AttributePlace(Place):
    def __str__(self) -> str:
        return f"{self.name!r} of a {type(self.owner).__name__}"

    def read(self) -> Any:
        return getattr(self.owner, self.name, MISSING)

    def write(self, value: Any) -> None:
        kind: Any = _native_setter(type(self.owner))
        if value is not MISSING:
            kind.__setattr__(self.owner, self.name, value)
        elif hasattr(self.owner, self.name):
            kind.__delattr__(self.owner, self.name)

    def save(self) -> Any:
        namespaces = self.namespaces()
        if namespaces is None:
            return None, self.read()
        return namespaces, [names.get(self.name, MISSING) for names in namespaces]

    def restore(self, saved: Any) -> None:
        namespaces, values = saved
        if namespaces is None:
            self.write(values)
            return
        for names, value in zip(namespaces, values, strict=True):
            if value is not MISSING:
                names[self.name] = value
            else:
                names.pop(self.name, None)

    def namespaces(self) -> list[dict[str, Any]] | None:
        """The dictionaries that the attribute may be in; None where a descriptor or a slot has it."""
        attributes = getattr(self.owner, "__dict__", None)
        if type(attributes) is not dict or _is_of_descriptor(type(self.owner), self.name):
            return None
        if isinstance(self.owner, torch.nn.Module):
            return [attributes, *(attributes[kind] for kind in ("_parameters", "_buffers", "_modules"))]
        return [attributes]


def _native_setter(kind: type) -> Any:
    """The class whose methods an attribute is set and deleted with: what the class of the user's does when it is
    assigned to has been interpreted, down to this."""
    if issubclass(kind, torch.nn.Module):
        return torch.nn.Module
    setters = (base for base in kind.__mro__ if type(vars(base).get("__setattr__")) is WrapperDescriptorType)
    return next(setters, object)


def _is_of_descriptor(kind: type, name: Any) -> bool:
    """Whether objects of a class keep an attribute in another place than their dictionary, as ``__class__``. What
    the class itself answers for that name may be its own."""
    found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return hasattr(type(found), "__set__")


class ContentPlace(Place):
    """All that a container holds."""

    def __str__(self) -> str:
        return f"the content of a {type(self.owner).__name__}"

    def read(self) -> Any:
        if isinstance(self.owner, list):
            return list.copy(self.owner)  # as it is, whatever its class says
        return type(self.owner)(self.owner) if type(self.owner) in CONTAINERS else _copied(self.owner)

    def write(self, value: Any) -> None:
        owner, kind = self.owner, _kind_of(self.owner)
        if kind is list:
            list.__setitem__(owner, slice(None), value)
        elif issubclass(kind, dict):
            kind.clear(owner)
            for key, item in value.items():
                kind.__setitem__(owner, key, item)
        else:
            kind.clear(owner)
            (deque.extend if kind is deque else set.update)(owner, value)


class ArrayContent(bytes):
    """What is in an array of NumPy's: to be compared as it lies in memory, and shown as the array that it was."""

    array: Any

    def __repr__(self) -> str:
        return repr(self.array)


class MemoryPlace(Place):
    """All that is in plain memory."""

    def __str__(self) -> str:
        return f"the content of a {type(self.owner).__name__}"

    def read(self) -> Any:
        if isinstance(self.owner, (bytearray, array.array)):
            return bytes(self.owner)
        content = ArrayContent(self.owner.tobytes())
        content.array = self.owner.copy()
        return content

    def write(self, value: Any) -> None:
        if isinstance(value, ArrayContent):
            self.owner[...] = value.array
        elif len(current := self.read()) == len(value):
            if current != value:
                memoryview(self.owner).cast("B")[:] = value
        else:
            del self.owner[:]
            (self.owner.extend if isinstance(self.owner, bytearray) else self.owner.frombytes)(value)


def is_memory(kind: type) -> bool:
    """Whether objects of a class are plain memory that Python writes to: a bytearray, an array of NumPy's."""
    if issubclass(kind, (bytearray, array.array)):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


def is_written_memory(value: Any) -> bool:
    """Whether a value is plain memory that may be written to, and not too much to be copied."""
    if not is_memory(type(value)):
        return False
    return isinstance(value, (bytearray, array.array)) or (value.flags.writeable and value.nbytes <= _MOST_BYTES)


def may_change_itself(function: Any, arguments: Sequence[Any]) -> bool:
    """Whether a function of the standard library's is called as a method of an object that it may change."""
    if type(function) is not FunctionType or not arguments or "." not in function.__qualname__:
        return False
    if function.__globals__.get("__name__", "").partition(".")[0] not in sys.stdlib_module_names:
        return False
    return has_noted_attributes(type(arguments[0]))


def has_noted_attributes(kind: type) -> bool:
    """Whether objects of a class have attributes that its methods may change, which a program would see."""
    return kind.__dictoffset__ != 0 and not issubclass(kind, _NOT_NOTED)


def whole_memory(value: Any) -> Any:
    """The memory that a view is a part of: who writes to either writes to both."""
    while True:
        base = value.obj if isinstance(value, memoryview) else getattr(value, "base", None)
        if base is None or not (isinstance(base, memoryview) or is_written_memory(base)):
            return value
        value = base


class RowsPlace(Place):
    """A list of rows that nobody has looked into yet, whatever their number; or that somebody has meanwhile."""

    def __str__(self) -> str:
        return "a list of rows"

    def read(self) -> Any:
        return tuple(self.owner) if self.owner.tensor is None else self.owner.tensor

    def write(self, value: Any) -> None:
        self.owner.tensor = value if isinstance(value, torch.Tensor) else None
        if self.owner.tensor is None:
            list.__setitem__(self.owner, slice(None), value)

    def save(self) -> Any:
        return self.owner.tensor, list.copy(self.owner)

    def restore(self, saved: Any) -> None:
        self.owner.tensor = saved[0]
        list.__setitem__(self.owner, slice(None), saved[1])


def _kind_of(container: Any) -> Any:
    """The class of Python's whose methods a container is read and written with, whatever its own do."""
    return next(kind for kind in (list, OrderedDict, dict, set, deque) if isinstance(container, kind))


def _copied(container: Any) -> Any:
    kind = _kind_of(container)
    if issubclass(kind, dict):
        return {key: dict.__getitem__(container, key) for key in list(kind.__iter__(container))}
    return deque(deque.__iter__(container)) if kind is deque else set(set.__iter__(container))


class CellPlace(Place):
    def __str__(self) -> str:
        return f"the variable {self.name!r}"

    @property
    def key(self) -> Any:
        return CellPlace, id(self.owner)

    def read(self) -> Any:
        cell: CellType = self.owner
        try:
            return cell.cell_contents
        except ValueError:
            return MISSING

    def write(self, value: Any) -> None:
        if value is not MISSING:
            self.owner.cell_contents = value
        elif self.read() is not MISSING:
            del self.owner.cell_contents


class GlobalPlace(Place):
    def __str__(self) -> str:
        return f"the global {self.name!r}"

    def read(self) -> Any:
        return self.owner.get(self.name, MISSING)

    def write(self, value: Any) -> None:
        if value is MISSING:
            self.owner.pop(self.name, None)
        else:
            self.owner[self.name] = value


_SETTERS = ("__setattr__", "__delattr__")
_UNBOUND = (WrapperDescriptorType, FunctionType, MethodDescriptorType)


def attribute_set_by(callable: Any, arguments: Sequence[Any]) -> tuple[Any, Any] | None:
    """Owner and name of the attribute that a native call sets or deletes; None for other calls."""
    kind = type(callable)
    if callable is setattr or callable is delattr or (kind in _UNBOUND and callable.__name__ in _SETTERS):
        return arguments[0], arguments[1]
    if kind in (MethodType, MethodWrapperType) and callable.__name__ in _SETTERS:
        return callable.__self__, arguments[0]
    if kind is MethodWrapperType and callable.__name__ in ("__set__", "__delete__"):  # of a slot
        return arguments[0], getattr(callable.__self__, "__name__", None)
    return None
