"""Whether somebody holds an object who is not known to: counted, since to look for holders is to look at everything
that the process has."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from types import CellType, FunctionType
from typing import Any


def has_unknown_holder(values: Sequence[Any], holders: Sequence[Any], variables: int = 0) -> bool:
    """Whether one of some objects is held by somebody else than the holders, each other, ``values`` and so many
    variables of who asks. A yes may be about what nobody uses any more, and the collector has not found yet."""
    objects = {id(value): value for value in values}
    # the table, and the argument below
    known = dict.fromkeys(objects, variables * references_of_an_argument() + 2)
    seen: set[int] = set()
    for group in (holders, values, (values,)):
        for holder in group:
            if id(holder) not in seen:
                seen.add(id(holder))
                for held in gc.get_referents(holder):
                    if id(held) in known:
                        known[id(held)] += 1
    holder = held = None  # which are holders, too
    return any(sys.getrefcount(objects[key]) > count for key, count in known.items())


def with_closures(value: Any, stores: Sequence[Any]) -> list[Any]:
    """A value with the variables that functions share which hold it, and the functions that they are shared with, of
    those that some lists of variables have."""
    cells = {id(value): value} if type(value) is CellType else {}
    functions: dict[int, Any] = {}
    for store in stores:
        for item in store if type(store) is list else ():
            if type(item) is CellType and _content(item) is value:
                cells[id(item)] = item
            elif type(item) is FunctionType:
                functions[id(item)] = item
    group = [value, *(cell for cell in cells.values() if cell is not value)]
    for function in functions.values():
        closure = function.__closure__
        if closure is not None and any(id(cell) in cells for cell in closure):
            group += (function, closure)
    return group


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value
        return None


def references_of_an_argument() -> int:
    """How many references a call makes of an argument that is passed on: two where its caller keeps one on its stack,
    as callers do once somebody (torch.compile, a debugger) has taken over how Python runs functions."""
    return _references([])


def _references(value: list[Any]) -> int:
    return sys.getrefcount(value) - 1
