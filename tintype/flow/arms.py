"""An arm of a branch: a copy of the frame that goes its own way, into a graph of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import Location
from tintype.fake.tensor import FakeTensor
from tintype.flow.ends import End, location_of
from tintype.flow.frames import copied_frame, drop_above, let_go
from tintype.flow.growing import SometimesItem
from tintype.flow.iterators import progress_of
from tintype.flow.journal import Notes
from tintype.flow.merging import PARTS, SYMBOLIC
from tintype.flow.modes import Modes, ModesAt
from tintype.flow.raising_arms import ArmRaisedError, is_raised_by_program
from tintype.interpret import Frame
from tintype.interpret.flow import END
from tintype.trace.inner import InnerRecorder
from tintype.trace.recorder import Recorder, active_recorder
from tintype.trace.tensor_rows import TensorRows
from tintype.tree.subclasses import as_parts, is_whole

if TYPE_CHECKING:
    from tintype.flow.policy import FlowPolicy


class Leave:
    """An arm that leaves the function at once."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Choice:
    """An arm that begins with a branch of its own, or in another frame, which the given one called."""

    def __init__(self, choose: Callable[[Frame], End], inner: Frame | None = None) -> None:
        self.choose = choose
        self.inner = inner


# an operation, or something else; an end: the arm does nothing, it is there already
Start = int | Leave | Choice | End


def recording() -> Recorder:
    recorder = active_recorder()
    assert recorder is not None
    return recorder


class Arm:
    """One arm: a copy of the frame that goes its own way."""

    def __init__(
        self, policy: FlowPolicy, frame: Frame, start: Start, stops: frozenset[int], modes_at: ModesAt
    ) -> None:
        self.policy = policy
        self.original = frame
        self.start = start
        self.stops = stops
        self.frame: Frame
        self.modes_at = modes_at
        self.modes_after: ModesAt = {}
        self.notes: Notes
        self.end: End
        self.graph: Any = None  # its own

    def run(self) -> list[Any]:
        """Run it; gives values that may become results."""
        self.frame = arm = copied_frame(self.original)
        arm.is_entry = True  # what an arm calls can't go on in who called the function: that is no part of the arm
        begun = [(value, progress_of(value)) for value in arm.stack]
        before = Modes()
        if isinstance(self.start, int) and self.start in self.modes_at:
            self.modes_at[self.start].restore(self.location)
        inner = self.start.inner if isinstance(self.start, Choice) else None
        with self.policy.journal.taking_notes(inner or self.original) as self.notes:
            try:
                self.end = self._run(arm)
            except Exception as error:
                if is_raised_by_program(error):
                    raise ArmRaisedError(self, error) from error
                raise
        if isinstance(self.start, End):
            self.modes_after = {label: self.modes_at.get(label, before) for label in self.end.labels}
        else:
            self.modes_after = self.end.modes or dict.fromkeys(self.end.labels, Modes())
        before.restore(self.location)
        self._give_back_iterators(begun)
        return self._candidates()

    def leave(self) -> None:
        """Run its frame out of the function, for whoever takes the notes."""
        if isinstance(self.start, int) and self.start in self.modes_at:
            self.modes_at[self.start].restore(self.location)
        self._run(self.frame)

    def _run(self, arm: Frame) -> End:
        if isinstance(self.start, Leave):
            arm.result = self.start.value
            return End(frozenset({END}))
        if isinstance(self.start, End):
            labels, selector, _ = self.start
            drop_above(arm, labels)
            recorder = recording()
            assert isinstance(recorder, InnerRecorder)
            return End(labels, None if selector is None else recorder.own(selector))
        if isinstance(self.start, Choice):
            end = self.start.choose(arm)
            if end.label is None or end.label == END or end.label in self.stops:
                return end
            return self.policy.run_region(arm, end.label, self.stops)
        drop_above(arm, (self.start,))
        return self.policy.run_region(arm, self.start, self.stops)

    def _give_back_iterators(self, begun: list[tuple[Any, Any]]) -> None:
        """Let copies of iterators that the arm has not advanced be the originals again, which both arms share."""
        stack = self.frame.stack
        for position, (copied, progress) in enumerate(begun[: len(stack)]):
            if stack[position] is copied and progress is not None and progress_of(copied) == progress:
                stack[position] = self.original.stack[position]

    def _candidates(self) -> list[Any]:
        """Numbers and tensors that were made here: what is known of them is known here alone."""
        graph = self.graph = recording().graph

        def is_own(leaf: Any) -> bool:
            return type(leaf) is FakeTensor and leaf.node is not None and leaf.node.graph is graph

        leaves = [leaf for value in self.values() for leaf in leaves_of(value)]
        return [leaf for leaf in leaves if isinstance(leaf, SYMBOLIC) or is_own(leaf)]

    def values(self) -> list[Any]:
        """What the arm has changed."""
        before = self.original.locals
        changed = [value for value, given in zip(self.frame.locals, before, strict=True) if value is not given]
        result = [self.frame.result] if self.end.returns else []
        return [*changed, *self.frame.stack, *result, *self.notes.after.values(), self.end.selector]

    def forget(self) -> None:
        """Hold nothing any more."""
        if hasattr(self, "frame"):
            let_go(self.frame)
        if hasattr(self, "notes"):
            del self.notes

    def holders(self) -> list[Any]:
        """What holds values of the arm's, besides its result."""
        if not hasattr(self, "notes"):
            return []
        after = self.notes.after
        frames = [frame for frame in (self.original, getattr(self, "frame", None)) if frame is not None]
        stores = [store for frame in frames for store in (frame.locals, frame.stack)]
        watched = [] if self.notes.watched is None else self.notes.watched.holders()
        return [*stores, after, *after.values(), *self.notes.holders(), *watched]

    @property
    def location(self) -> Location:
        """The line that it begins with."""
        index = self.start if isinstance(self.start, int) and self.start != END else None
        return location_of(self.original, index)


def leaves_of(value: Any) -> list[Any]:
    """Tensors and numbers in the containers that can be merged."""
    if type(value) is FakeTensor:
        return [value]
    return _leaves_of(value, {})


def _leaves_of(value: Any, around: dict[int, Any]) -> list[Any]:
    """Those in a value that lies in some containers, which it may be one of itself."""
    if type(value) is SometimesItem:
        return [value.flag, value.value]
    if type(value) is TensorRows and value.tensor is not None:
        return [value.tensor]
    held: Any = None
    if isinstance(value, list):
        held = list.copy(value)  # as it is, whatever its class says
    elif isinstance(value, tuple):
        held = value
    elif isinstance(value, dict):
        held = value.values()
    elif is_whole(value):
        held = as_parts(value).parts
    elif isinstance(value, PARTS):
        held = value.parts
    if held is None:
        return [value] if isinstance(value, (torch.Tensor, *SYMBOLIC)) else []
    if id(value) in around:
        return []
    around[id(value)] = value
    leaves = [leaf for item in held for leaf in _leaves_of(item, around)]
    del around[id(value)]
    return leaves
