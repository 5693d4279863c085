"""Frames of the arms of a branch and the steps of a loop."""

from __future__ import annotations

from collections.abc import Iterable
from types import CellType

from tintype.flow.iterators import NotCopiedError, copied_iterator
from tintype.interpret import Frame
from tintype.interpret.flow import flow_of


def copied_frame(frame: Frame) -> Frame:
    """A frame for an arm or a step; iterators of loops around are its own."""
    arm = frame.copy()
    arm.finish = None
    arm.missing = None if frame.missing is None else dict(frame.missing)
    for position, value in enumerate(arm.stack):
        if hasattr(type(value), "__next__"):
            try:
                arm.stack[position] = copied_iterator(value)
            except NotCopiedError:
                continue
    return arm


def let_go(frame: Frame) -> None:
    """Let a frame that has run hold nothing: somebody may keep it, as who remembers which module was called does."""
    frame.locals, frame.stack, frame.result = [], [], None
    if type(frame.note) is CellType:
        frame.note = None


def drop_above(frame: Frame, labels: Iterable[int]) -> None:
    """Let a frame that stands at one of several operations have the stack that is needed there: one that has left a
    loop may come from where others are in it still."""
    height = flow_of(frame.code).height_at(labels)
    if height is not None:
        del frame.stack[height:]
