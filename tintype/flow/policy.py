"""What the machine does where the data of tensors decide."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import CellType, CodeType
from typing import Any

import torch

from tintype.errors import Location, StateChangedError, TintypeError
from tintype.flow.apart import Apart
from tintype.flow.arms import recording
from tintype.flow.branches import Branch, UnmergedError, ended, outcome_of, stops_at
from tintype.flow.crossing import Crossings
from tintype.flow.ends import End, Refused, Test, Wanted, as_flag, location_of, refuse
from tintype.flow.extremes import EXTREMES
from tintype.flow.identities import Identities
from tintype.flow.iterators import refuse_throwing, take_from
from tintype.flow.journal import Journal
from tintype.flow.loops import RecordedLoop
from tintype.flow.merging import SYMBOLIC, is_decidable
from tintype.flow.native_writes import (
    METHODS,
    keeps_items_in_attributes,
    may_change_modules,
    place_of_content,
    written_through,
)
from tintype.flow.rows_loops import RecordedFor
from tintype.flow.sequences import SEQUENCES, VaryingIterator, elements_of, varies
from tintype.flow.sums import SUMS
from tintype.flow.truths import TRUTHS
from tintype.flow.twins import Twins
from tintype.flow.unseen import Watched
from tintype.interpret import Frame
from tintype.interpret.decode import Bound
from tintype.interpret.flow import Flow, Loop, flow_of
from tintype.interpret.handlers.attributes import find_setter
from tintype.interpret.policy import Caller, Outcome
from tintype.symbolic.interruptions import Interruption
from tintype.symbolic.raising import needed_answer
from tintype.trace.hidden_state import is_state
from tintype.trace.interpreted import TorchPolicy, interpreting
from tintype.trace.known_values import known_value
from tintype.trace.places import (
    CONTAINERS,
    AttributePlace,
    CellPlace,
    GlobalPlace,
    attribute_set_by,
    is_memory,
    may_change_itself,
)
from tintype.trace.reachable import UsersClasses, namespace_of
from tintype.trace.snapshot import Change, contained
from tintype.trace.tensor_rows import TensorRows
from tintype.trace.watching import Watching

# so often what follows a branch may be captured with each of its arms
_MOST_TWICE = 500
# so often a function may call itself in an arm of one branch on data
_MOST_RECURSIVE = 64
# operations that take elements from an iterator
_TAKING = frozenset(
    {
        "call_spread", "call_spread_above", "contains", "get_yield_from_iterator", "list_extend", "set_update",
        "unpack_sequence", "unpack_with_star",
    }
)  # fmt: skip


class FlowPolicy(TorchPolicy):
    """Strict capture's policy; a branch or a loop that only a run can decide becomes an operator."""

    def __init__(
        self,
        loops: Collection[tuple[CodeType, int]] = (),
        *,
        carries_tensors: bool = False,
        unrolls: bool = False,
        apart: Apart | None = None,
    ) -> None:
        self.loops = loops  # that are recorded when they are come to: code and header
        # whether loops carry numbers as tensors, since gradients go through them
        self.carries_tensors = carries_tensors
        # whether loops over sizes that vary have the example's number of steps; those over data never have
        self.unrolls = unrolls
        # branches whose arms go on by themselves where they leave behind what can't be merged
        self.apart = apart or Apart()
        self.crossings = Crossings()
        self._branches: list[Branch] = []  # that are open, from the outermost to the innermost
        self.journal = Journal()
        self.identities = Identities()
        self.twins = Twins()
        self.classes = UsersClasses()
        self.root: Any = None  # the model
        # ends of frames that stand at one of several places
        self.split_ends: dict[int, End] = {}
        # steps of loops that are being recorded: their code and depth
        self.steps: list[tuple[Any, int]] = []
        # branches whose arms both have what follows, in the outermost such branch that is open
        self._twice: int | None = None
        # lines that became operators
        self.lines: dict[Location, str] = {}

    def became(self, operator: str, location: Location) -> None:
        self.lines.setdefault(location, operator)

    def holders(self) -> list[Any]:
        """Who holds values only to know them."""
        return [*self.journal.holders(), *self.crossings.holders()]

    def note_made(self, value: Any) -> None:
        """Something was made in the program's place, which nobody else has."""
        self.journal.note_made(value)

    # --- regions ---------------------------------------------------------------------------------------------

    def may_split(self, frame: Frame) -> bool:
        """Whether a frame is in a step of a recorded loop, which can end at several places."""
        return (frame.code, frame.depth) in self.steps

    def run_region(self, frame: Frame, start: int, stops: frozenset[int], *, again: bool = False) -> End:
        """Run a frame from an operation up to others."""
        frame.pc = start - 1
        return ended(self, frame, frame.machine.run_until(frame, stops, again=again))

    # --- branches --------------------------------------------------------------------------------------------

    def on_branch(self, frame: Frame, value: Any, if_true: int, if_false: int) -> Outcome:
        value = filled(value)
        if value is True or value is False or not is_data(value) or needed_answer() is not None:
            return if_true if value else if_false
        flow = flow_of(frame.code)
        condition = as_condition(value)
        if self.may_split(frame) and stops_at(frame, if_true) and stops_at(frame, if_false):
            end = End(frozenset({if_true, if_false}), Test(condition, if_true, if_false))
            return outcome_of(self, frame, end)
        around = flow.loop_around(frame.pc)
        if around is not None and (is_for(flow, around) or stops_at(frame, around.header)):
            around = None
        for target, other, goes_on in ((if_true, if_false, True), (if_false, if_true, False)):
            loop = flow.loop_at(target)
            if loop is None or frame.pc in loop.body or is_for(flow, loop):
                continue
            if around is None or other in around.body:  # else `continue` leads back to this condition
                recorded = RecordedLoop(self, frame, loop, other)
                flag = as_flag(condition)
                return outcome_of(self, frame, recorded.run(flag if goes_on else flag.logical_not(), frame.pc))
        branch = Branch(self, frame, condition, (if_true, if_false))
        join = flow.join_of(frame.pc)
        if around is not None and join not in around.body:
            raise NeedsLoop(frame.code, around.header)
        branch.around = None if around is None else (frame.code, around.header)
        return branch.run_in_program(join)

    def while_around(self, frame: Frame) -> tuple[CodeType, int] | None:
        """The `while` that a frame is in, which can be recorded: code and header."""
        flow = flow_of(frame.code)
        around = flow.loop_around(frame.pc)
        if around is None or is_for(flow, around) or stops_at(frame, around.header):
            return None
        return frame.code, around.header

    def wanted_of(self, branches: Sequence[Branch]) -> list[Wanted]:
        """What would have to go on by itself where values can't be merged, in the order in which it is tried: the
        open branches of a frame, given innermost first, then the outermost one beyond its function."""
        wanted = [Wanted(branch.key, "within") for branch in branches if not (branch.is_crossing or branch.leaves)]
        if branches and self.crossings.may_cross(branches[-1].frame):
            wanted += [Wanted(branch.key, "across") for branch in reversed(branches)]
        return wanted

    @contextmanager
    def in_branch(self, branch: Branch) -> Iterator[None]:
        """Within it, both arms of a branch run."""
        if len(self._branches) >= _MOST_RECURSIVE:
            self._refuse_recursion(branch)
        self._branches.append(branch)
        try:
            yield
        finally:
            self._branches.pop()

    def _refuse_recursion(self, branch: Branch) -> None:
        """A function that calls itself in an arm has that branch again in the call, and so on; only a run could tell
        how often."""
        frame = branch.frame
        calls = {
            other.frame.depth
            for other in self._branches
            if other.frame.code is frame.code and other.frame.pc == frame.pc and other.frame.depth != frame.depth
        }
        if len(calls) >= _MOST_RECURSIVE:
            raise refuse(
                f"the function calls itself in an arm of a branch on data, {len(calls)} times one inside of the "
                "other: how often it would in a run, nobody knows before",
                branch.location,
                "write it as a while loop, or end it by a number that the data do not decide",
            )

    def branches_of(self, frame: Frame) -> list[Branch]:
        """The branches of a frame that are open, innermost first."""
        return [
            branch
            for branch in reversed(self._branches)
            if branch.frame.code is frame.code and branch.frame.depth == frame.depth
        ]

    # --- for -------------------------------------------------------------------------------------------------

    def on_iterate(self, frame: Frame, value: Any) -> Any:
        elements = elements_of(value)
        if elements is None or not varies(elements) or (self.unrolls and is_decidable(elements.count)):
            return NotImplemented
        return value if type(value) is VaryingIterator else VaryingIterator(elements, lambda: iter(value))

    def on_loop(self, frame: Frame, iterator: Any, body: int, after: int) -> Outcome:
        take_from(self.journal, frame, iterator)
        if type(iterator) is not VaryingIterator or iterator.is_begun:
            return NotImplemented
        loop = flow_of(frame.code).loop_at(frame.pc)
        if loop is None:  # there is no second step
            return NotImplemented
        end = RecordedFor(self, frame, loop, iterator, after).record()
        return None if end is None else outcome_of(self, frame, end)

    def operations(self, code: CodeType, bound: Bound) -> Bound:
        headers = [header for known, header in self.loops if known is code]
        if headers:
            bound = bound.copy()
            for header in headers:
                bound[header] = (enter_loop, flow_of(code).loop_at(header))
        return bound

    def condition_of(self, value: Any) -> Any:
        return as_condition(value) if is_data(value) else bool(value)

    def on_truth(self, frame: Frame, value: Any) -> Any:
        return truth_of(value)

    def negated(self, truth: Any) -> Any:
        return torch.sym_not(truth)

    @contextmanager
    def following_twice(
        self, is_shared: bool, location: Location, most: int | None = None, loop: Any = None
    ) -> Iterator[None]:
        """Within it, both arms of a branch are captured with what follows them, if ``is_shared``; branches that do so
        one after the other double each time, up to a limit."""
        if not is_shared:
            yield
            return
        before = self._twice
        self._twice = (self._twice or 0) + 1
        most = most or _MOST_TWICE
        if self._twice > most and loop is not None:
            raise NeedsLoop(*loop)
        if self._twice > most:
            raise refuse(
                "branches on data that may return from inside of another branch follow each other, and what follows "
                f"is captured for each way there, more than {most:,} times",
                location,
                "assign the result to a variable and return it at the end of the function",
            )
        try:
            yield
        except UnmergedError:
            self._twice = before
            raise
        finally:
            if before is None:
                self._twice = None

    # --- code that is not interpreted -------------------------------------------------------------------------

    def on_operands(self, frame: Frame, operation: str, values: list[Any]) -> AbstractContextManager[Any] | None:
        if operation in _TAKING:
            for value in values:
                take_from(self.journal, frame, value)
        self.identities.look(frame, operation, values)
        if self.twins and operation == "is_operator":
            self.twins.look_at_comparison(frame, *values)
        if self.journal and self.classes.any_in(values):
            self.watch(frame, values)
        return None

    def watch(self, frame: Frame, values: Sequence[Any]) -> None:
        """Look for what is written unseen, where native code is given code of the user's."""
        notes = self.journal.innermost
        if notes.watched is None:
            notes.watched = Watched(notes.frame, [self.root], location_of(frame))
        notes.watched.add_code_of(values)

    # --- writes ----------------------------------------------------------------------------------------------

    def on_write_attribute(self, frame: Frame, owner: Any, name: str, value: Any) -> None:
        self.twins.look_at_write(frame, owner)
        if self.journal and find_setter(frame, owner, name, "__setattr__", "fset") is None:
            self.note_attribute(frame, owner, name)

    def note_attribute(self, frame: Frame, owner: Any, name: str) -> None:
        if isinstance(owner, torch.Tensor):
            if self.journal.is_made_here(owner):
                return
            raise refuse(
                f"{name!r} of a tensor is assigned where only the data decide whether it is", location_of(frame)
            )
        self.journal.note(AttributePlace(owner, name, location_of(frame)))

    def on_write_item(self, frame: Frame, owner: Any, key: Any, value: Any) -> None:
        self.twins.look_at_write(frame, owner)
        self._note_items(frame, owner)

    def on_update(self, frame: Frame, owner: Any) -> None:
        if not isinstance(owner, (tuple, *SYMBOLIC, torch.Tensor)):
            self.twins.look_at_write(frame, owner)
        self._note_items(frame, owner)

    def _note_items(self, frame: Frame, owner: Any) -> None:
        if self.journal and keeps_items_in_attributes(type(owner)):
            self.note_object(frame, owner)
        else:
            self.note_content(frame, owner)

    def note_content(self, frame: Frame, owner: Any) -> None:
        if self.journal:
            place = place_of_content(owner, location_of(frame))
            if place is not None:
                self.journal.note(place)

    def note_object(self, frame: Frame, owner: Any) -> None:
        """A method that is not interpreted may write to its object, and further on."""
        self.watch(frame, [owner])
        for name, value in list(namespace_of(owner).items()):
            self.journal.note(AttributePlace(owner, name, location_of(frame)))
            self.note_content(frame, value)

    def on_create(self, frame: Frame, value: Any) -> None:
        self.journal.note_made(value)

    def on_write_cell(self, frame: Frame, cell: CellType, name: str, value: Any) -> None:
        if self.journal:
            self.journal.note(CellPlace(cell, name, location_of(frame)))

    def on_write_global(self, frame: Frame, name: str, value: Any) -> None:
        if self.journal:
            self.journal.note(GlobalPlace(frame.globals, name, location_of(frame)))

    def on_native_call(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        values = [*arguments, *keywords.values()]
        self.identities.look_at_call(frame, callable, arguments)
        if self.journal and getattr(callable, "__name__", None) == "throw":
            refuse_throwing(self.journal, frame, getattr(callable, "__self__", None))
        for value in (getattr(callable, "__self__", None), *values) if self.journal or self.journal.taken else ():
            take_from(self.journal, frame, value)
        if self.twins:
            before = self.twins.contents()
            value = self._call_natively(frame, callable, arguments, keywords)
            self.twins.look_at_changes(frame, before)
            return value
        return self._call_natively(frame, callable, arguments, keywords)

    def _call_natively(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        values = [*arguments, *keywords.values()]
        if not self.journal:
            return callable(*arguments, **keywords)
        if self.classes.are_called(callable, values):
            self.watch(frame, [callable, *values])
        kind = type(callable)
        owner = getattr(callable, "__self__", None)
        if kind in METHODS and (isinstance(owner, CONTAINERS) or is_memory(type(owner)) or is_state(owner)):
            self.note_content(frame, owner)
            for argument in values:
                for written in written_through(argument):
                    if not isinstance(written, CONTAINERS):
                        self.note_content(frame, written)
        elif (attribute := attribute_set_by(callable, arguments)) is not None:
            self.note_attribute(frame, *attribute)
        elif callable is next:
            raise refuse(
                "next() is called where only the data decide whether it is", location_of(frame), "loop with for"
            )
        else:
            if may_change_itself(callable, arguments):
                self.note_object(frame, arguments[0])
            elif may_change_modules(callable, values):
                self.watch(frame, [callable])
            for argument in values:
                for written in written_through(argument):
                    self.note_content(frame, written)
        value = callable(*arguments, **keywords)
        if kind is type and type(value) is callable and is_made_anew(callable):
            self.note_made(value)
        return value

    def stand_ins(self) -> Mapping[Any, Caller]:
        return {bool: make_bool, **SEQUENCES, **EXTREMES, **SUMS, **TRUTHS}


def is_made_anew(kind: Any) -> bool:
    """Whether a call of a class gives an object that nobody has yet."""
    return kind in CONTAINERS or kind.__new__ is object.__new__


class NeedsLoop(Interruption):
    """The data decide whether a loop is left from inside: capture again, with the loop recorded from the start."""

    def __init__(self, code: CodeType, header: int) -> None:
        super().__init__(code.co_qualname)
        self.loop = (code, header)


class NeedsApart(Interruption):
    """Arms of a branch leave behind what can't be merged: capture again, with what follows in each of them."""

    def __init__(self, wanted: Wanted, error: TintypeError) -> None:
        super().__init__(wanted.branch[0].co_qualname)
        self.wanted = wanted
        self.error = error


def enter_loop(frame: Frame, loop: Loop) -> Outcome:
    policy: Any = frame.machine.policy
    return outcome_of(policy, frame, RecordedLoop(policy, frame, loop).run(True))


def is_for(flow: Flow, loop: Loop) -> bool:
    """Whether a loop goes through an iterator."""
    return flow.name_of(loop.header) == "for_iterator"


def make_bool(frame: Frame, kind: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    """``bool(x)``."""
    value = truth_of(arguments[0]) if len(arguments) == 1 and not keywords else bool(*arguments, **(keywords or {}))
    frame.stack.append(value)


def truth_of(value: Any) -> Any:
    """The truth of a value; a symbolic one where only a run can tell."""
    value = filled(value)
    if not is_data(value) or needed_answer() is not None:
        return bool(value)
    condition = as_condition(value)
    return condition.item() if isinstance(condition, torch.Tensor) else condition


def filled(value: Any) -> Any:
    """Whether there are rows in a list whose number of them varies; any other value as it is."""
    if type(value) is TensorRows and value.tensor is not None:
        return value.tensor.shape[0] != 0
    return value


def is_data(value: Any) -> bool:
    """Whether only a run can tell if a value is true."""
    if isinstance(value, torch.Tensor):
        recorder = recording()
        fake = recorder.as_fake(value)
        if value.numel() != 1 or not recorder.is_recording:
            return False
        return known_value(recorder.constant_of, getattr(recorder, "localize", lambda x: x)(fake)) is None
    return isinstance(value, SYMBOLIC) and not is_decidable(value)


def as_condition(value: Any) -> Any:
    """A tensor or a number as a condition."""
    if isinstance(value, torch.SymBool) or (isinstance(value, torch.Tensor) and value.dtype is torch.bool):
        return value
    return value != 0


# --- the capture -------------------------------------------------------------------------------------------------

# Arms in arms are calls in calls; as many as this deep a program may nest.
_DEEPEST = 20_000


def refuse_kept_number(capture: Any, change: Change) -> StateChangedError | None:
    """The error for a number that only a run can tell, put where the next call would find it."""
    if not any(isinstance(value, SYMBOLIC) and not is_decidable(value) for value in contained(change.after)):
        return None
    error: StateChangedError = capture.changed.undecided_number(change)
    return error


class StrictFlowPolicy(Watching, FlowPolicy):
    """The same, and what the program does besides computing is noted."""


@contextmanager
def flowing(
    capture: Any,
    loops: Collection[tuple[CodeType, int]],
    *,
    unrolls: bool = False,
    apart: Apart | None = None,
    may_go_apart: bool = False,
    strict: bool = False,
) -> Iterator[None]:
    """Within it, a capture interprets its program, and branches on data become control flow. Arms of the branches
    that ``apart`` has may go on by themselves; ``may_go_apart`` lets :class:`NeedsApart` tell of one that would have
    to."""
    kind = StrictFlowPolicy if strict else FlowPolicy
    policy = kind(loops, carries_tensors=not capture.recorder.below_autograd, unrolls=unrolls, apart=apart)
    policy.root = capture.root
    capture.judge_change = partial(refuse_kept_number, capture)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEPEST))
    try:
        with interpreting(capture, policy):
            yield
    except Refused as refused:
        wanted = policy.apart.first_new(refused.wanted) if may_go_apart else None
        if wanted is not None:
            raise NeedsApart(wanted, refused.error) from refused.error.__cause__
        raise refused.error from refused.error.__cause__
    finally:
        sys.setrecursionlimit(limit)
