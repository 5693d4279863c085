"""Whose memory the values may lie in that a loop leaves.

In eager mode a variable after a loop is what it was before, if there was no step, or what the last step made of it,
which may be a view of something; in a captured program it is a copy. So the copy knows what it may be in eager mode,
and a write that would have to be seen elsewhere is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor
from tintype.flow.arms import recording
from tintype.trace.inner import InnerRecorder


class Memory:
    """What a step was seen to do with memory."""

    def __init__(self) -> None:
        # of rows that a step is given: the memory outside that they lie in
        self.rows: dict[Storage, Storage] = {}
        self._steps: list[tuple[set[int], set[Storage]]] = []  # for each result: values carried, memory outside

    def note(self, entered: Sequence[Any], results: Sequence[Any]) -> None:
        """Look, within a step, at what its results are made of."""
        inner = recording()
        assert isinstance(inner, InnerRecorder)
        carried = {value.info.storage: index for index, value in enumerate(entered) if type(value) is FakeTensor}
        outside = {local: outer for outer, local in inner.storages.items()}
        outside.update(self.rows)
        fakes = [inner.own(value) if isinstance(value, torch.Tensor) else None for value in results]
        storages = [None if fake is None else fake.info.storage for fake in fakes]
        common = {storage: Storage() for storage in storages if storage is not None and storages.count(storage) > 1}
        self._steps = []
        for storage in storages:
            aliases: tuple[set[int], set[Storage]] = (set(), set())
            if storage in common:
                aliases[1].add(common[storage])
            pending = [] if storage is None else [storage]
            while pending:
                found = pending.pop()
                if found in carried:
                    aliases[0].add(carried[found])
                elif found in outside:
                    aliases[1].add(outside[found])
                else:
                    pending += found.sources
            self._steps.append(aliases)

    def is_written_outside(self, index: int) -> bool:
        """Whether a result lies in memory from around the loop that a step writes to."""
        inner = recording()
        assert isinstance(inner, InnerRecorder)
        return any(outer in inner.storages and inner.storages[outer].written for outer in self._steps[index][1])

    def share(self, initial: Sequence[Any], results: Sequence[Any], *, may_be_initial: bool) -> None:
        """Let the results know what they may be in eager mode; they are in the order of the step's."""
        recorder = recording()
        before = [
            {recorder.as_fake(value).info.storage} if isinstance(value, torch.Tensor) else set() for value in initial
        ]
        found = [set(outside) for _, outside in self._steps]
        changed = True
        while changed:
            changed = False
            for index, (carried, _) in enumerate(self._steps):
                more = set().union(*(before[other] | found[other] for other in carried))
                if not more <= found[index]:
                    found[index] |= more
                    changed = True
        for index, (result, sources) in enumerate(zip(results, found, strict=True)):
            if may_be_initial and index < len(before):
                sources = sources | before[index]
            if sources and type(result) is FakeTensor:
                first, *others = sources
                result.info.storage = Storage(frozen=True, source=first, others=tuple(others))
