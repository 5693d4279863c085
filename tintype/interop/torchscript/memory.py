"""Memory that variables of a recorded loop share with others.

A recorded loop gives results with memory of their own, where the script's variables may still be the tensors that
they were before the first step, or views of what is around the loop. As long as nobody writes to either that is the
same. So a loop that writes to such memory itself is refused; its results are marked as what they may be, and whoever
writes to them, or to their source and then reads them, is refused by the rules for such copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import CaptureError
from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor
from tintype.interop.torchscript.heap import Container, ScriptList
from tintype.symbolic.location import user_location
from tintype.trace.inner import InnerRecorder
from tintype.trace.recorder import Recorder, active_recorder

if TYPE_CHECKING:
    from tintype.interop.torchscript.interpreter import Interpreter
    from tintype.interop.torchscript.reading import Statement


class LoopMemory:
    """What the results of one loop may share memory with. Results are its carried leaves, then its rows."""

    def __init__(self, recorder: Recorder, interpreter: Interpreter, statement: Statement, leaves: list[Any]) -> None:
        self.recorder = recorder
        self.interpreter = interpreter
        self.leaves = leaves
        self.seen = _visible(recorder, interpreter, statement)
        # by position among the results
        self.sources: dict[int, set[Storage]] = {}

    def look(self, carried: list[Any], given: list[Any]) -> None:
        """Look at a step that was recorded, with the values that it was called with and those that it gave."""
        inner = active_recorder()
        if not isinstance(inner, InnerRecorder):
            return
        written = {outer for outer, own in inner.storages.items() if own.written}
        before = [_storage(self.recorder, leaf) for leaf in self.leaves]
        if any(storage in written for storage in before):
            raise _writes("a variable of the loop is another name for it before the first step")
        entered = {
            leaf.info.storage: before[position] for position, leaf in enumerate(carried) if type(leaf) is FakeTensor
        }
        groups: dict[Storage, list[int]] = {}
        for position, leaf in enumerate(given):
            if not isinstance(leaf, torch.Tensor):
                continue
            own = inner.localize(leaf) if type(leaf) is FakeTensor else inner.fake_of(leaf)
            groups.setdefault(own.info.storage, []).append(position)
            before_it = entered.get(own.info.storage)
            for source in (*inner.shared_with(own), *(() if before_it is None else (before_it,))):
                if source in written:
                    raise _writes("a step keeps a view of it for later steps")
                if source in self.seen:
                    self.sources.setdefault(position, set()).add(source)
        for positions in groups.values():
            if len(positions) > 1:
                together = Storage()  # nobody's but theirs
                for position in positions:
                    self.sources.setdefault(position, set()).add(together)
        for position, storage in enumerate(before):  # if there is no step at all
            if storage is not None and storage in self.seen:
                self.sources.setdefault(position, set()).add(storage)

    def mark(self, results: list[Any]) -> None:
        """Mark the results of the loop."""
        for position, result in enumerate(results):
            sources = self.sources.get(position, set())
            if type(result) is not FakeTensor or not sources:
                continue
            source, *others = sources
            result.info.storage = Storage(frozen=True, source=source, others=tuple(others))
            if self.recorder.is_for_training:  # nobody else looks whether these are written to afterwards
                known = (*sources, result.info.storage)
                self.interpreter.not_to_be_written += [(storage, user_location()) for storage in known]


def refuse_written(interpreter: Interpreter) -> None:
    """Raise if the script writes to what a variable may be after a recorded loop."""
    for source, location in interpreter.not_to_be_written:
        if source.written:
            raise CaptureError(
                "a variable may be one of several tensors after a recorded loop, and the script writes to one",
                location=location,
                remedy="give the variable a copy before the loop: x = x.clone()",
            )


def _writes(how: str) -> CaptureError:
    return CaptureError(
        f"a recorded loop writes to a tensor in place, and {how}",
        location=user_location(),
        remedy="compute new tensors in the loop in place of writing, or make a copy before it: clone()",
    )


def _storage(recorder: Recorder, value: Any) -> Storage | None:
    if not isinstance(value, torch.Tensor):
        return None
    fake = value if type(value) is FakeTensor else recorder.fake_of(value)
    return fake.info.storage


def _visible(recorder: Recorder, interpreter: Interpreter, statement: Statement) -> set[Storage]:
    """All memory that somebody besides the loop may look at: arguments, state, and every other value there is."""
    uses = statement.procedure.uses
    own = {unique for unique in statement.inputs if uses[unique] == 1}
    stack: list[Any] = list(interpreter.given)
    *around, running = interpreter.environments
    stack += [value for environment in around for value in environment.values()]
    stack += [value for unique, value in running.items() if unique not in own]
    for mirror in interpreter.mirroring.mirrors.values():
        stack += [value for table in (mirror._parameters, mirror._buffers) for value in table.values()]
    stack += [instance for _, instance in interpreter.attributes.values()]
    found: set[Storage] = set()
    done: set[int] = set()
    while stack:
        value = stack.pop()
        if isinstance(value, torch.Tensor):
            storage = _storage_if_known(recorder, value)
            if storage is not None:
                found.add(storage)
        elif isinstance(value, Container) and id(value) not in done:
            done.add(id(value))
            stack += value.content if isinstance(value.content, list) else value.content.values()
            stack += value.rows if isinstance(value, ScriptList) else ()
        elif isinstance(value, tuple):
            stack += value
    return found


def _storage_if_known(recorder: Recorder, value: torch.Tensor) -> Storage | None:
    if type(value) is FakeTensor:
        return value.info.storage
    # a constant that nobody has used yet shares memory with nothing
    return recorder.fake_of(value).info.storage if recorder.is_lifted(value) else None
