"""Where an arm of a branch, or a step of a loop, comes to its end."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple

import torch

from tintype.errors import CaptureError, Location, TintypeError
from tintype.interpret import Frame
from tintype.interpret.flow import END
from tintype.interpret.frame import Mark
from tintype.symbolic.interruptions import Interruption

# How a run ended: at one of several places, as the data say.
SPLIT = Mark("split")
# The function was left, and what follows in its caller was captured, too.
CROSSED = Mark("crossed")


class Signal(BaseException):
    """Between parts of this room; neither the program nor an operator that calls it may catch it."""


# A branch of a frame: its code, the operation, and how deep the frame is.
BranchKey = tuple[CodeType, int, int]


class Wanted(NamedTuple):
    """A branch whose arms would have to go on by themselves: ``within`` the function, ``across`` its end, or with the
    ``objects`` that they have."""

    branch: BranchKey
    how: str


class Refused(Interruption):
    """Something can't become control flow; ``wanted`` is what would have to go on by itself where two values can't be
    merged, one of it after the other."""

    def __init__(self, error: TintypeError, wanted: Sequence[Wanted] = ()) -> None:
        super().__init__(error)
        self.error = error
        self.wanted = tuple(wanted)


def refuse(fact: str, location: Location | None, remedy: str | None = None) -> Refused:
    return Refused(CaptureError(fact, location=location, remedy=remedy))


class Test(NamedTuple):
    """A selector that is a condition still."""

    condition: Any
    if_true: int
    if_false: int


class End(NamedTuple):
    """The operations at which the frame may stand (END: the function is left), and a number that says at which; None
    where there is only one."""

    labels: frozenset[int]
    selector: Any = None
    modes: Any = None  # by the label, where there are several; None: those that the thread has

    @property
    def label(self) -> int | None:
        return next(iter(self.labels)) if len(self.labels) == 1 else None

    @property
    def returns(self) -> bool:
        return END in self.labels


def location_of(frame: Frame, index: int | None = None) -> Location:
    """A line of the program, by the operation."""
    at = frame.copy()
    if index is not None:
        at.pc = index
    return Location(frame.code.co_filename, at.line, frame.code.co_name)


def as_flag(condition: Any) -> Any:
    """A condition as a tensor without dimensions."""
    if isinstance(condition, torch.Tensor):
        return condition.reshape(()) if condition.dim() else condition
    return torch.scalar_tensor(condition, dtype=torch.bool)


def label_tensor(label: int) -> torch.Tensor:
    return torch.scalar_tensor(label, dtype=torch.int64)


def number_of(end: End) -> Any:
    """The label of an end as a tensor."""
    if end.label is not None:
        return label_tensor(end.label)
    if isinstance(end.selector, Test):
        test = end.selector
        return torch.where(as_flag(test.condition), label_tensor(test.if_true), label_tensor(test.if_false))
    return end.selector


def goes_on_at(end: End, header: int) -> Any:
    """Whether a step ended where the next one begins."""
    if end.label is not None:
        return as_flag(end.label == header)
    if isinstance(end.selector, Test):
        test = end.selector
        if test.if_true == header and test.if_false != header:
            return as_flag(test.condition)
        if test.if_false == header and test.if_true != header:
            return as_flag(test.condition).logical_not()
    return number_of(end) == header
