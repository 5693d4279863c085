"""Arms that raise: the program asserts that they are not taken, unless somebody would catch it.

What the function of the branch catches by itself is no matter: the arm goes on in the handler.
"""

from __future__ import annotations

import dis
from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import Location, TintypeError
from tintype.flow.ends import Refused, Signal, as_flag, refuse
from tintype.symbolic.catching import is_caught_by_callers
from tintype.symbolic.location import location_in, program_caller, program_code
from tintype.symbolic.raising import Needed

if TYPE_CHECKING:
    from tintype.flow.arms import Arm


class ArmRaisedError(Signal):
    """The program raises in an arm, and the function of the branch does not catch it."""

    def __init__(self, arm: Arm, error: Exception) -> None:
        super().__init__()
        self.arm = arm
        self.error = error


def is_raised_by_program(error: BaseException) -> bool:
    """Whether a `raise` or an `assert` of the program made an exception, and not an operation that failed, or that
    can't be captured."""
    if isinstance(error, TintypeError):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = program_code(trace.tb_frame.f_code).co_code
    return 0 <= trace.tb_lasti < len(code) and dis.opname[code[trace.tb_lasti]] == "RAISE_VARARGS"


def refuse_caught(error: Exception, location: Location) -> None:
    """Refuse an exception of an arm that a caller may catch: it would have to go on there, for such data alone."""
    frame = program_caller(1)
    if frame is not None and is_caught_by_callers(frame, error):
        raise caught_elsewhere(error, location)


def caught_elsewhere(error: Exception, location: Location) -> Refused:
    return refuse(
        f"the data decide whether the program raises {type(error).__name__}, which a function that called this one "
        "may catch; a captured program can't go on there",
        location_in(error) or location,
        "catch it in the function that raises it, or return a value that tells what happened",
    )


def assert_not_taken(predicate: Any, answer: bool, error: Exception) -> None:
    """Let the program assert that a branch is not decided for an arm that raises; ``answer`` is the arm's."""
    flag = as_flag(predicate)
    message = Needed(not answer, location_in(error)).message
    torch.ops.aten._assert_async.msg(flag.logical_not() if answer else flag, message)
