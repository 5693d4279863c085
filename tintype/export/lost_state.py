"""Attributes that a model counts or remembers with, which a program does not have.

A program's state is its buffers. What a model keeps in plain attributes (``self.calls += 1``) is a constant of its
program, as it was at the first call. Many models write down what makes no difference later; so where one changed such
attributes, it is captured once more as it is after that call, and a warning says if that gives another program.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from tintype.errors import LostStateWarning
from tintype.export.same_program import difference
from tintype.fake.tensor import FakeTensor, is_symbolic
from tintype.ir.graph import placeholders
from tintype.symbolic.location import levels_to_the_user
from tintype.trace.argument_names import is_captured_program
from tintype.trace.captured_graph import CapturedGraph
from tintype.trace.recording import one_at_a_time
from tintype.trace.snapshot import Change, Snapshot, make_again, put_outside

# Models of which it is known that certain changes make no difference: most are exported more than once.
_alike: weakref.WeakKeyDictionary[torch.nn.Module, set[Any]] = weakref.WeakKeyDictionary()


def warn(text: str) -> None:
    """Warn of state that a program does not have."""
    warnings.warn(f"[{LostStateWarning.id}] {text}", LostStateWarning, stacklevel=levels_to_the_user())


def tell_of_lost_state(
    module: torch.nn.Module,
    captured: CapturedGraph,
    capture: Callable[[], CapturedGraph],
    tell: Callable[[str], None] = warn,
) -> None:
    """Tell if the model's second call would be another program; ``capture`` captures it."""
    found = [*captured.plain_changes, *captured.outside_changes]
    if not found or is_captured_program(module):
        return
    key = _described(captured, found)
    if key in _alike.get(module, ()):
        _make_outside(captured.outside_changes)
        return
    with one_at_a_time:
        differs = _differs_afterwards(module, captured, capture)
        if not differs:  # a note that no later call reads stays, as what was printed does
            _make_outside(captured.outside_changes)
    if not differs:
        _alike.setdefault(module, set()).add(key)
        return
    changes = "".join(f"\n  - {captured.describe_change(change)}" for change in found)
    tell(
        f"the model does something else in its second call than in the first one, and the "
        f"captured program does what the first one does. It does not have these changes:{changes}\n"
        "  What to do: nothing if every call is to be like the first one; call the model before it is exported if "
        "later ones are alike; else keep a number in a buffer, self.register_buffer(name, torch.tensor(...)), and "
        "write to that"
    )


def _make_outside(changes: list[Change]) -> None:
    for change in changes:
        put_outside(change.owner, change.name, change.after)


def _described(captured: CapturedGraph, found: list[Change]) -> Any:
    """The changes, and the inputs with which they were made, as a key."""
    changes = tuple((id(owner), str(name), repr(before), repr(after)) for owner, name, before, after in found)
    return changes, tuple(_look(node.meta.get("val")) for node in placeholders(captured.graph))


def _look(value: Any) -> Any:
    if type(value) is not FakeTensor:
        return repr(value)
    info = value.info
    return info.dtype, info.device, str(info.sizes) if is_symbolic(info) else info.sizes


def _differs_afterwards(
    module: torch.nn.Module, captured: CapturedGraph, capture: Callable[[], CapturedGraph]
) -> bool:
    snapshot = Snapshot(module)
    try:
        for change in captured.plain_changes:
            make_again(change)
        _make_outside(captured.outside_changes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same were given before
            try:
                second = capture()
            except Exception:  # the user's program may raise anything in its second call
                return True
        return difference(captured, second)[1]
    finally:
        snapshot.restore()
        for change in captured.outside_changes:
            put_outside(change.owner, change.name, change.before)
