"""A branch whose arms leave a function with values that can't be merged, as one of the function that called it: each
arm leaves, and goes on in a copy of the caller's frame."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tintype.flow.arms import Arm, Choice, Start
from tintype.flow.branches import Branch, Crossed, outcome_of
from tintype.flow.ends import CROSSED, End
from tintype.flow.frames import copied_frame, let_go
from tintype.interpret import Frame
from tintype.interpret.frame import DISCARDED
from tintype.interpret.policy import Outcome

if TYPE_CHECKING:
    from tintype.flow.policy import FlowPolicy


class Crossings:
    """The frames of functions whose arms go on in their callers."""

    def __init__(self) -> None:
        # copies that arms run, by their ids: what becomes of the result
        self._finish: dict[int, Any] = {}
        # how runs of such copies ended, by their ids
        self.crossed: dict[int, Crossed] = {}
        self.frames: list[Frame] = []  # that are being left

    def may_cross(self, frame: Frame) -> bool:
        """Whether each arm can leave a frame: interpreted code called it, and waits for its result alone."""
        return id(frame) in self._finish or (not frame.is_entry and frame.back is not None and frame.names is None)

    def holders(self) -> list[Any]:
        """Who holds values only to know them."""
        return [store for frame in self.frames for store in (frame.locals, frame.stack)]

    def cross(self, branch: Branch) -> Crossed:
        """Run both arms of a branch out of its function, and on in its caller."""
        frame, caller = branch.frame, branch.frame.back
        assert caller is not None
        first, second = (Choice(partial(self._leave, branch, start), frame) for start in branch.starts)
        crossing = Branch(branch.policy, caller, branch.predicate, (first, second))
        crossing.location = branch.location
        crossing.around = branch.policy.while_around(caller)
        self.frames.append(frame)
        try:
            return crossing.run_crossing()
        finally:
            self.frames.pop()

    def _leave(self, branch: Branch, start: Start, caller: Frame) -> End:
        """Run an arm out of the function, for a copy of the caller's frame."""
        arm = Arm(branch.policy, branch.frame, start, frozenset(), branch.modes_at)
        arm.frame = left = copied_frame(branch.frame)
        left.back = caller
        finish = self._finish[id(left)] = self._finish.get(id(branch.frame), branch.frame.finish)
        try:
            with branch.policy.in_branch(branch):
                arm.leave()
        except Crossed as crossed:
            if crossed.frame is not caller:
                raise
            return crossed.end
        finally:
            del self._finish[id(left)]
            result = left.result
            let_go(left)
        value = result if finish is None else finish(left, result)
        if value is not DISCARDED:
            caller.stack.append(value)
        return End(frozenset({caller.pc + 1}))

    def outcome(self, policy: FlowPolicy, frame: Frame | None, crossed: Crossed) -> Outcome:
        """How the machine goes on after a frame was left, and what follows captured."""
        while frame is not crossed.frame:
            assert frame is not None
            if id(frame) in self._finish:
                self.crossed[id(frame)] = crossed
                return CROSSED
            frame = frame.back
        outcome = outcome_of(policy, crossed.frame, crossed.end)
        if type(outcome) is not int:
            return outcome
        crossed.frame.pc = outcome - 1
        return crossed.frame
