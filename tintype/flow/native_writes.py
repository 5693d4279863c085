"""What native code may write to of what it is given, where only the data decide whether it does."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from types import BuiltinFunctionType, FunctionType, MethodWrapperType
from typing import Any

import torch

from tintype.errors import Location
from tintype.trace.hidden_state import place_of_state
from tintype.trace.places import (
    CONTAINERS,
    ContentPlace,
    MemoryPlace,
    Place,
    RowsPlace,
    has_noted_attributes,
    is_written_memory,
    whole_memory,
)
from tintype.trace.reachable import LAZY
from tintype.trace.tensor_rows import TensorRows
from tintype.trace.users_code import home_of

# methods of containers that are written in C
METHODS = (BuiltinFunctionType, MethodWrapperType)


def place_of_content(owner: Any, location: Location) -> Place | None:
    """Where a container, memory or an object that keeps its state to itself is written to; None for others."""
    if isinstance(owner, CONTAINERS):
        is_rows = type(owner) is TensorRows and owner.tensor is not None
        return (RowsPlace if is_rows else ContentPlace)(owner, None, location)
    if isinstance(owner, torch.Tensor):
        return None
    whole = whole_memory(owner)
    if is_written_memory(whole):
        return MemoryPlace(whole, None, location)
    state = place_of_state(owner)
    if state is not None:
        state.location = location
    return state


def written_through(value: Any) -> Iterator[Any]:
    """What is written to where native code has a value, or calls it: itself, the object whose method it is, those of
    the functions that an iterator or a partial function calls."""
    kind = type(value)
    if kind in METHODS:
        yield value.__self__
    elif kind is functools.partial:
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from written_through(part)
    elif kind in LAZY:
        made_of: Any = value.__reduce__()
        for part in made_of[1]:
            yield from written_through(part)
    else:
        yield value


def keeps_items_in_attributes(kind: type) -> bool:
    """Whether it is a class of the standard library's, written in Python, whose items are in its attributes."""
    return has_noted_attributes(kind) and home_of(kind).partition(".")[0] in ("collections", "weakref")


def may_change_modules(function: Any, arguments: Sequence[Any]) -> bool:
    """Whether a function that is not interpreted is given a module, which it may change (``Module.train``)."""
    return type(function) is FunctionType and any(isinstance(value, torch.nn.Module) for value in arguments)
