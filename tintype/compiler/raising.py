"""Exceptions that operations raise natively while a function is captured, and that its code may catch.

Most of them follow from what was looked at before. Others do not, and would be another answer, or none, in a later
call that nobody asks about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tintype.interpret import Frame, Machine

if TYPE_CHECKING:
    from tintype.compiler.capture import Capture

_OF_CELLS = ("load_cell", "delete_cell", "load_from_dict_or_cell")


class CapturingMachine(Machine):
    """A machine that tells a capture of exceptions."""

    def unwind(self, frame: Frame, error: BaseException) -> Frame | None:
        """The frame that handles an exception."""
        note_raised(self.policy.capture, frame, error)  # type: ignore[attr-defined]
        return super().unwind(frame, error)


def note_raised(capture: Capture, frame: Frame, error: BaseException) -> None:
    """An operation of a frame has raised an exception."""
    if capture.reason is not None or frame.pc < 0:
        return
    if capture.last_write == (frame, frame.pc):
        capture.give_up(f"what is written raises {type(error).__name__}")
    elif isinstance(error, NameError) and frame.decoded.operations[frame.pc][0] in _OF_CELLS:
        capture.give_up("a variable that functions share has no value")
