"""A ``for`` whose number of steps varies: ``map``, ``scan``, or ``while_loop`` where the data decide if it is left.

Lists that a step appends to become the stacked results (:mod:`tintype.flow.growing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from tintype.fake.info import Storage
from tintype.flow.arms import recording
from tintype.flow.ends import End, Refused, Signal, as_flag, goes_on_at, label_tensor, number_of, refuse
from tintype.flow.growing import (
    GrowingList,
    SometimesItem,
    columns_of,
    has_grown,
    holders_in,
    in_place_of,
    is_longer,
    joined_rows,
)
from tintype.flow.iterators import LostIterator
from tintype.flow.journal import Notes
from tintype.flow.loops import AgainError, RecordedLoop
from tintype.flow.sequences import VaryingIterator
from tintype.interpret import Frame
from tintype.interpret.flow import Loop
from tintype.ops import map as map_operator
from tintype.ops import scan as scan_operator
from tintype.ops.subgraphs import captured
from tintype.ops.while_loop import while_loop
from tintype.trace.inner import InnerRecorder
from tintype.trace.places import ContentPlace, Place
from tintype.trace.tensor_rows import rows_of

if TYPE_CHECKING:
    from tintype.flow.policy import FlowPolicy


class FirstIsDifferentError(Signal):
    """The first step finds other variables than those that follow: a number that becomes a tensor, none at all."""

    def __init__(self, refused: Refused) -> None:
        super().__init__()
        self.refused = refused


class RecordedFor(RecordedLoop):
    """A ``for`` of a frame that stands at its header, with the iterator on the stack."""

    def __init__(self, policy: FlowPolicy, frame: Frame, loop: Loop, iterator: VaryingIterator, after: int) -> None:
        super().__init__(policy, frame, loop, after)
        self.iterator = iterator
        self.elements = iterator.elements
        self.count = iterator.elements.count
        self.is_left = False  # from inside, as the data decide
        self.writes = False  # to memory around it
        self.lists = GrowingLists(frame, policy)
        # what the element of a step is made of
        self._rows: Sequence[Any] = ()
        self._number: Callable[[], Any]

    def record(self) -> End | None:
        """Record the loop; the frame stands where it is left. None: the frame is to do the first step, after which
        its variables are what they are after every step."""
        try:
            return self.repeated(lambda: self._counted() if self.is_left else self._through_rows())
        except FirstIsDifferentError as error:
            if self.iterator.has_taken_first:
                raise error.refused from None
        self.lists.undo()
        self.frame.stack.append(self.iterator.take_first())
        return None

    def differs(self, refused: Refused) -> BaseException:
        return FirstIsDifferentError(refused)

    def is_read_later(self, key: Any) -> bool:
        assert self.without_steps is not None
        return key in self.variables.places or bool(self.flow.live_before(self.without_steps) >> key & 1)

    def _open(self) -> None:
        self.lists.settle(self.location)
        super()._open()

    # --- map and scan ----------------------------------------------------------------------------------------

    def _through_rows(self) -> End:
        tensors = self.elements.tensors(self.count)
        numbers = [torch.arange(self.count)] if self.elements.is_numbered else []
        initial = self.carried()
        outside = [recording().as_fake(tensor) for tensor in tensors]
        storages = [tensor.info.storage for tensor in outside]

        def step(*values: Any) -> Any:
            rows = values[len(initial) :]
            self._number = cache(lambda: rows[0].item())
            self._rows = rows[len(numbers) :]
            for row, tensor in zip(self._rows, outside, strict=True):
                row.layout_of = tensor
            self.memory.rows = {row.info.storage: outer for row, outer in zip(self._rows, storages, strict=True)}
            end, following = self.step(list(values[: len(initial)]))
            self._check_step(end, is_map=not initial)
            return (*following, *self.lists.appended)

        rows = [*numbers, *tensors]
        if initial or self.writes:
            results = captured(scan_operator.capture, scan_operator.run, step, initial, rows, ())
        else:
            results = captured(map_operator.capture, map_operator.run, step, rows, ())
        self.policy.became("scan" if initial or self.writes else "map", self.location)
        self.frame.stack.pop()
        self.leave(results[: len(initial)], results[len(initial) :])
        self.lists.replace(results[len(initial) :], self.location)
        self.iterator.become(iter(()))
        return self.go_on(None)

    def _check_step(self, end: End, *, is_map: bool) -> None:
        """See that a step is one of what is recorded; raises if it isn't."""
        if end.labels != {self.loop.header}:
            self.is_left = True
            raise AgainError
        inner = recording()
        assert isinstance(inner, InnerRecorder)
        if is_map and not self.writes and any(storage.written for storage in inner.storages.values()):
            self.writes = True  # rows of a map have no order
            raise AgainError
        self.lists.check(self.memory, len(self.positions), self.location)
        self._refuse_histories(inner)

    def _refuse_histories(self, inner: InnerRecorder) -> None:
        """Below ``no_grad`` the rows of a list are new tensors without a history; in eager mode what was made before
        the step has its own."""
        rows = {inner.own(row).node for row in self._rows}
        for item in () if torch.is_grad_enabled() else self.lists.given:
            node = inner.own(item).node
            if item.is_floating_point() and node is not None and node.op == "placeholder" and node not in rows:
                raise refuse(
                    "a loop below torch.no_grad() appends to a list what was there before the step: in eager mode "
                    "the list has that tensor, with its gradient, here a copy without",
                    self.location,
                    "append a copy: items.append(x.clone())",
                )

    def prepare(self, step: Frame) -> int:
        step.stack.append(self.elements.element(iter(self._rows), self._number))
        return self.loop.header + 1

    def written_places(self, notes: Notes) -> dict[Any, Place]:
        # a list that is a variable of the loop, too, is made anew for every step
        self.lists.known, self.lists.originals = self.variables.places, self._originals()
        return self.lists.without(notes)

    def note_own(self, values: dict[Any, Any]) -> None:
        """Lists that a step may append to are told apart from those that it writes to when it has run."""
        if not self.is_left:
            self.lists.known, self.lists.originals = self.variables.places, self._originals()
            self.policy.journal.innermost.lists = self.lists

    def _originals(self) -> dict[int, Any]:
        return {id(self._values[slot]): self.frame.locals[slot] for slot in self.variables.slots}

    def further_results(self) -> list[Any]:
        return self.lists.appended

    # --- while_loop ------------------------------------------------------------------------------------------

    def _counted(self) -> End:
        """The loop with the number of the step as a variable."""
        if self.lists.lists:
            raise refuse(
                "a list grows in a loop that the data may leave before its last step, so that only they decide about "
                "its length",
                self.location,
                "collect into a tensor: results[i] = value",
            )
        tensors = self.elements.tensors(self.count)
        after, chooses = self.left_at[0], len(self.left_at) > 1
        initial = [as_flag(self.count > 0), *([label_tensor(after)] if chooses else ()), self._as_carried(0)]

        def body(*values: Any) -> Any:
            number = values[len(initial) - 1]
            index: Any = number.item() if isinstance(number, torch.Tensor) else number
            self._number = lambda: index
            self._rows = [tensor[index] for tensor in tensors]
            end, following = self.step(list(values[len(initial) :]))
            goes_on = goes_on_at(end, self.loop.header)
            selected = [torch.where(goes_on, label_tensor(after), number_of(end))] if chooses else []
            return (goes_on & as_flag(index + 1 < self.count), *selected, number + 1, *following)

        results = list(while_loop(lambda *values: values[0], body, (*initial, *self.carried())))
        self.policy.became("while_loop", self.location)
        self.frame.stack.pop()
        self.leave(results[len(initial) :])
        self.iterator.become(LostIterator(self._left_in_between()))
        return self.go_on(results[1] if chooses else None)

    def _left_in_between(self) -> Refused:
        return refuse(
            "an iterator is used again behind a loop over it that the data may leave before its last step, so that "
            "only they decide which element comes next",
            self.location,
            "go through what it is made of instead, with the number of the step in a variable",
        )


class GrowingLists:
    """The lists that steps of a loop append to, with what one step appended."""

    def __init__(self, frame: Frame, policy: FlowPolicy) -> None:
        self.frame = frame
        self.policy = policy
        self.lists: list[GrowingList] = []
        self._holders: list[Any] = []
        self._candidates: dict[Any, Place] = {}
        self._others: set[Any] = set()  # that somebody else knows
        self._sometimes: list[list[bool]] = []  # of the items that a step appended, whether they have a flag
        self.appended: list[Any] = []  # of what is there sometimes, a flag comes first
        self.given: list[Any] = []  # items, and what may be one that a branch in the step has not made
        self.known: dict[Any, Place] = {}  # that are carried from step to step
        # lists of the frame that a step has another one of, by the identity of that
        self.originals: dict[int, Any] = {}

    def without(self, notes: Notes) -> dict[Any, Place]:
        """The places that a step wrote to, without lists that it only appended to."""
        written: dict[Any, Place] = {}
        self.appended, self._sometimes = [], [[] for _ in self.lists]
        for key, place in notes.places.items():
            found = [index for index, growing in enumerate(self.lists) if place.owner is growing]
            if found:
                self._sometimes[found[0]] = [type(item) is SometimesItem for item in notes.after[key]]
            elif type(place.owner) is GrowingList:
                raise refuse(
                    "a list grows in a loop in a loop, and the number of steps of both varies",
                    place.location,
                    "collect the items of the inner loop in a list of its own, and append them stacked",
                )
            elif self._may_grow(key) and has_grown(place, place.read(), notes.after[key]):
                self._add_candidate(place)
            else:
                written[key] = place
        if self._candidates:
            raise AgainError
        after = {id(place.owner): notes.after[key] for key, place in notes.places.items()}
        items = [item for growing in self.lists for item in after.get(id(growing), [])]
        self.appended = columns_of(items)
        self.given = [one for item in items for one in (item.given if type(item) is SometimesItem else (item,))]
        return written

    def _may_grow(self, key: Any) -> bool:
        return key not in self.known and key not in self._others

    def _add_candidate(self, place: Place) -> None:
        owner = self.originals.get(id(place.owner), place.owner)
        self._candidates[place.key] = ContentPlace(owner, None, place.location)

    def may_grow_sometimes(self, place: Place, before: list[Any], contents: Sequence[list[Any]]) -> None:
        """Arms of a branch append to a list, not equally often: raises if it may be one that only grows."""
        if self._may_grow(place.key) and all(is_longer(before, content) for content in contents):
            self._add_candidate(place)
            raise AgainError

    def settle(self, location: Any) -> None:
        """Let lists that were seen to grow be such, unless somebody else knows them."""
        self.originals = {}  # which would hold them
        for key, place in self._candidates.items():
            holders = holders_in(recording(), self.frame, place.owner, [*self.policy.holders(), place])
            if holders is None:
                self._others.add(key)
                continue
            growing = GrowingList(list(place.owner), place.location or location)
            in_place_of(holders, growing)
            self.lists.append(growing)
            self._holders.append(holders)
        self._candidates = {}

    def undo(self) -> None:
        """Let the lists be what they were."""
        for growing, holders in zip(self.lists, self._holders, strict=True):
            in_place_of(holders, growing.before)
        self.lists, self._holders = [], []

    def check(self, memory: Any, first: int, location: Any) -> None:
        """Refuse items that later steps would change: in eager mode the list holds one tensor many times."""
        if any(memory.is_written_outside(first + index) for index in range(len(self.appended))):
            raise refuse(
                "a tensor is appended to a list in a loop and written to in place: all items are that one tensor",
                location,
                "append a copy: items.append(x.clone())",
            )

    def replace(self, columns: Sequence[torch.Tensor], location: Any) -> None:
        """Let rows stand where the lists were."""
        first = 0
        for growing, holders, sometimes in zip(self.lists, self._holders, self._sometimes, strict=True):
            count = len(sometimes) + sum(sometimes)
            own = columns[first : first + count]
            first += count
            rows = rows_of(_with_sources(growing, own, sometimes)) if count else growing.before
            self.policy.note_made(rows)
            in_place_of(holders, rows)


def _with_sources(growing: GrowingList, columns: Sequence[Any], sometimes: Sequence[bool]) -> Any:
    """The items as rows of one tensor that knows what they may be in eager mode."""
    joined: Any = joined_rows(growing, columns, sometimes)
    if joined is columns[0]:
        return joined
    recorder = recording()
    sources = {source for column in columns for source in column.info.storage.sources}
    sources |= {recorder.as_fake(item).info.storage for item in growing.before}
    if sources:
        first, *others = sources
        joined.info.storage = Storage(frozen=True, source=first, others=tuple(others))
    return joined
