"""Operators that fail where the program expects it: ``try: y = x.view(4, -1)``, ``except RuntimeError: ...``.

An operator that fails ends the program, as a rule. One that the program catches decides which way it goes, as a
branch does; so what made it fail is a condition that the program rests on. Requirements on sizes note themselves when
they fail (:meth:`Environment.note_failure`); with a size of 1 they might not have been asked for at all, as where
sizes are broadcast, so that counts too. Of other errors it is not known what in the sizes caused them, so all of them
count. A problem of the capture is no failure of the program: it must not be caught, and is reported at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import TintypeError
from tintype.fake.tensor import FakeTensor
from tintype.symbolic import Expr, RequirementError, eq, ne
from tintype.symbolic.bridge import from_torch

if TYPE_CHECKING:
    from tintype.trace.recorder import Recorder


_NOTED = "_noted_by_tintype"


def may_be_stretched(recorder: Recorder, error: Exception, args: Any, *, inside: bool = False) -> bool:
    """Whether an operator failed that may work the example's way alone: one of its sizes is 0 there, or 1.

    Kernels of torch's take a size that varies for a general one. Then they are asked again, and told what the example
    has, which specialises the size. ``inside``: also if it was another operator inside of this one that failed.
    """
    environment = recorder.context.environment
    if not environment.symbols or environment.follows_hints or not isinstance(error, RuntimeError):
        return False
    if isinstance(error, TintypeError) or (getattr(error, _NOTED, False) and not inside):
        return False
    return any(environment.hint(size) in (0, 1) for size in _numbers(args))


def decide_small_sizes(recorder: Recorder, args: Any) -> None:
    """Let sizes that are 0 or 1 in the example be that."""
    environment = recorder.context.environment
    for size in _numbers(args):
        if (hint := environment.hint(size)) in (0, 1):
            condition = eq(size, hint)
            if isinstance(condition, Expr):
                environment.guard(condition)


def note_failure(recorder: Recorder, error: Exception, args: Any, kwargs: dict[str, Any]) -> None:
    """Take notice of what an operator raised, before the program gets to see it."""
    environment = recorder.context.environment
    if getattr(error, _NOTED, False):  # by the operator inside of this one that raised it
        return
    setattr(error, _NOTED, True)
    if isinstance(error, TintypeError):
        environment.refused.append(error)
        return
    if not environment.symbols:
        return
    for size in _numbers([*args, *kwargs.values()]):
        hint = environment.hint(size)
        if hint is None:
            continue
        if isinstance(error, RequirementError) and hint != 1:
            environment.note_failure(ne(size, 1))
        else:
            environment.note_failure(eq(size, hint))


def _numbers(values: Any) -> list[Expr]:
    """The symbolic numbers among an operator's arguments and the sizes of its tensors."""
    found: list[Any] = []
    for value in values:
        if type(value) is FakeTensor:
            found += value.info.sizes
        elif isinstance(value, (list, tuple)):
            found += _numbers(value)
        elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            found.append(from_torch(value))
    return [number for number in found if isinstance(number, Expr)]
