"""Where a loop is left: the first operations behind it, with a stack that has nothing of the loop on it any more."""

from __future__ import annotations

from tintype.interpret import Frame
from tintype.interpret.flow import END, Flow, Loop
from tintype.interpret.machine import stop


class LoopExits:
    """The exits of a loop of a frame, and the operations on the way to them that are no part of the loop.

    A ``break`` in a ``for`` drops the iterator, and what stands in front of it (``found = row; break``) does not lead
    back, so that is no operation of the loop; a step does it all the same.
    """

    def __init__(self, frame: Frame, flow: Flow, loop: Loop) -> None:
        self.frame = frame
        self.flow = flow
        self.loop = loop
        self._depths = flow.depths
        header = self._depths[loop.header]
        assert header is not None
        self._outside = header - (flow.name_of(loop.header) == "for_iterator")
        self.labels: set[int] = set()
        self.on_the_way: set[int] = set()
        self._find()

    def _find(self) -> None:
        body, successors = self.loop.body, self.flow.successors
        waiting = [target for index in body for target in successors[index] if target not in body]
        while waiting:
            label = waiting.pop()
            if self._is_outside(label):
                self.labels.add(self._past_jumps(label))
            elif label not in self.on_the_way:
                self.on_the_way.add(label)
                waiting += self.flow.successors[label]

    def _is_outside(self, label: int) -> bool:
        if label == END or self._stops(label):
            return True
        depth = self._depths[label]
        return depth is None or depth <= self._outside

    def _stops(self, label: int) -> bool:
        """Whether an arm around the loop ends there."""
        return self.frame.instructions[label][0] is stop

    def _past_jumps(self, label: int) -> int:
        while label != END and self.flow.name_of(label) == "jump" and not self._stops(label):
            (following,) = self.flow.successors[label]
            if following in self.loop.body:
                break
            label = following
        return label

    def settled(self, label: int) -> int:
        """The exit that an operation leads to, if it is no part of the loop: a comparison chain in a condition leaves
        a value on the stack, which is dropped first."""
        while label not in self.loop.body and not self._is_outside(label):
            following = self.flow.successors[label]
            if len(following) != 1:
                break
            label = following[0]
        return label if label in self.loop.body else self._past_jumps(label)
