"""Attributes that a model counts or remembers with, which a program does not have.

A program's state is its buffers. What a model keeps in plain attributes (``self.calls += 1``) is a constant of its
program, as it was at the first call. Many models write down what makes no difference later; so where one changed such
attributes, it is captured once more as it is after that call, and a warning says if that gives another program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from tintype.errors import LostStateWarning
from tintype.export.same_program import difference
from tintype.trace.capture import CapturedGraph, is_captured_program, one_at_a_time
from tintype.trace.lost_gradients import levels_to_the_user
from tintype.trace.snapshot import Snapshot


def warn_of_lost_state(
    module: torch.nn.Module, captured: CapturedGraph, capture: Callable[[bool], CapturedGraph]
) -> None:
    """Warn if the model's second call would be another program.

    ``capture`` captures it, and lets its changes of plain attributes stay if it is told to."""
    if not captured.plain_changes or is_captured_program(module):
        return
    with one_at_a_time:
        differs = _differs_afterwards(module, captured, capture)
    if differs:
        changes = "".join(f"\n  - {captured.describe_change(change)}" for change in captured.plain_changes)
        warnings.warn(
            f"[{LostStateWarning.id}] the model does something else in its second call than in the first one, and "
            f"the captured program does what the first one does. It does not have these changes:{changes}\n"
            "  What to do: nothing if every call is to be like the first one; call the model before it is exported "
            "if later ones are alike; else keep a number in a buffer, self.register_buffer(name, torch.tensor(...)), "
            "and write to that",
            LostStateWarning,
            stacklevel=levels_to_the_user(),
        )


def _differs_afterwards(
    module: torch.nn.Module, captured: CapturedGraph, capture: Callable[[bool], CapturedGraph]
) -> bool:
    snapshot = Snapshot(module)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same were given before
            capture(True)
            return difference(captured, capture(False))[1]
    except Exception:  # the user's program may raise anything in its second call
        return True
    finally:
        snapshot.restore()
