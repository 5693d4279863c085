"""Whether somebody holds an object who is not known to: counted, since to look for holders is to look at everything
that the process has."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
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


def references_of_an_argument() -> int:
    """How many references a call makes of an argument that is passed on: two where its caller keeps one on its stack,
    as callers do once somebody (torch.compile, a debugger) has taken over how Python runs functions."""
    return _references([])


def _references(value: list[Any]) -> int:
    return sys.getrefcount(value) - 1
