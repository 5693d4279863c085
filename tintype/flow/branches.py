"""A branch that the data decide: both arms run, each into a graph of its own, and what they leave is merged."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import BranchMismatchError, CaptureError, Location, TintypeError
from tintype.flow.apart import places_further_on
from tintype.flow.arms import Arm, Choice, Leave, Start, leaves_of, recording
from tintype.flow.ends import (
    CROSSED,
    SPLIT,
    BranchKey,
    End,
    Refused,
    Signal,
    goes_on_at,
    location_of,
    number_of,
    refuse,
)
from tintype.flow.frames import drop_above, let_go
from tintype.flow.growing import GrowingList, merged_growth
from tintype.flow.iterators import LostIterator
from tintype.flow.merging import ABSENT, SYMBOLIC, Builder, Merger, NotMergedError, is_decidable
from tintype.flow.modes import Modes, ModesAt, joined
from tintype.flow.raising_arms import ArmRaisedError, assert_not_taken, refuse_caught
from tintype.flow.references import has_unknown_holder, with_closures
from tintype.interpret import NULL, RETURNED, STOPPED, Frame
from tintype.interpret.flow import END, Flow, flow_of
from tintype.interpret.machine import stop
from tintype.interpret.policy import Outcome
from tintype.ops.cond import capture_arms
from tintype.ops.subgraphs import set_aside
from tintype.trace.inner import InnerRecorder
from tintype.trace.iterators import is_iterator
from tintype.trace.places import AttributePlace, ContentPlace, GlobalPlace, Place
from tintype.trace.recorder import Recorder
from tintype.trace.users_code import MISSING

if TYPE_CHECKING:
    from tintype.flow.policy import FlowPolicy


# so often what follows a branch may be captured with each of its arms, where they can't be merged
_MOST_APART = 100


class DontMeetError(Signal):
    """Arms end at different places where they can't."""


class Crossed(Signal):
    """Both arms of a branch have left the function: the frame that called it, and where that one stands."""

    def __init__(self, frame: Frame, end: End) -> None:
        super().__init__()
        self.frame = frame
        self.end = end


class UnmergedError(Signal):
    """Values of two arms that can't be merged, where the arms may go on by themselves."""

    def __init__(self, branch: Branch) -> None:
        super().__init__()
        self.branch = branch


class Branch:
    """A branch of a frame that only a run can decide."""

    def __init__(self, policy: FlowPolicy, frame: Frame, predicate: Any, starts: tuple[Start, Start]) -> None:
        self.policy = policy
        self.frame = frame
        self.flow: Flow = flow_of(frame.code)
        self.predicate = predicate
        self.starts = starts
        self.modes_at: ModesAt = {}  # that its arms begin with
        self.merger: Merger
        self.build: Callable[[Sequence[Any]], End]
        self.location = location_of(frame)
        self.arms: list[Arm] = []
        self.key: BranchKey = (frame.code, frame.pc, frame.depth)
        self.around: tuple[Any, int] | None = None  # the loop that is unrolled: code and header
        self.may_go_apart = False  # where values can't be merged
        self.crosses = False  # and beyond the end of the function
        self.leaves = False  # whether both arms leave the function, and meet nowhere before
        self.is_crossing = False  # whether it was one of a function that the frame called

    def run_in_program(self, join: int | None) -> Outcome:
        """Run a branch of the program's: where values can't be merged that somebody looks at, the capture begins
        anew, and what follows is captured with each arm."""
        self.crosses = self.key in self.policy.apart.across and self.policy.crossings.may_cross(self.frame)
        self.leaves = join in (None, END) and self._meeting() is None
        goes_apart = self.crosses or self.key in self.policy.apart.within
        try:
            with self.policy.in_branch(self):
                end = self._unless_unmerged(lambda: self.run(join), goes_apart)
                if end is None and not (self.crosses and self.leaves):
                    end = self._unless_unmerged(lambda: self.run_apart(join), self.crosses)
        except Crossed as crossed:
            return self.policy.crossings.outcome(self.policy, self.frame, crossed)
        if end is not None:
            return outcome_of(self.policy, self.frame, end)
        return self.policy.crossings.outcome(self.policy, self.frame, self.policy.crossings.cross(self))

    def run_crossing(self) -> Crossed:
        """Run a branch that was one of a function which the frame called, and that both arms leave: where the frame,
        or one that called it, goes on."""
        self.is_crossing = True
        self.crosses = self.key in self.policy.apart.across and self.policy.crossings.may_cross(self.frame)
        try:
            with self.policy.in_branch(self):
                end = self._unless_unmerged(lambda: self.run_apart(self.frame.pc + 1), self.crosses)
        except Crossed as crossed:
            return crossed
        return self.policy.crossings.cross(self) if end is None else Crossed(self.frame, end)

    def _unless_unmerged(self, run: Callable[[], End], may_fail: bool) -> End | None:
        """Run both arms; None if they leave behind what can't be merged."""
        was, self.may_go_apart = self.may_go_apart, may_fail
        before = Modes() if may_fail else None
        try:
            return run()
        except UnmergedError as unmerged:
            if unmerged.branch is not self or before is None:
                raise
            before.restore(self.location)
        finally:
            self.may_go_apart = was
        for arm in self.arms:  # who holds what they made would be somebody else, to the next ones
            arm.forget()
        self.arms, self.merger = [], Merger()
        return None

    def run_apart(self, start: int | None) -> End:
        """Run both arms as far as they go, or until they can be merged, behind ``start``; one may come to an end that
        only the branch around this one knows."""
        failed = self.policy.apart.failed
        for place in () if start in (None, END) else places_further_on(self.flow, start):
            if (self.key, place) not in failed:
                end = self._unless_unmerged(partial(self._run_twice, place), True)
                if end is not None:
                    return end
                failed.add((self.key, place))
        return self._run_twice(None)

    def _run_twice(self, place: int | None) -> End:
        with self.policy.following_twice(True, self.location, _MOST_APART, self.around):
            return self._run_to_meeting(place)

    def run(self, join: int | None) -> End:
        """Run both arms up to their join; the frame stands there with what they have in common."""
        if join is None or join == END:
            meeting = self._meeting()
            if meeting is not None:
                return self._run_to_meeting(meeting)
            with self.policy.following_twice(self._shares_what_follows(), self.location):
                return self._run_to(frozenset())
        return self._met(self._run_to(frozenset({join})), join)

    def _meeting(self) -> int | None:
        """Where the arms meet if they don't leave the function before, which one of them may do."""
        first, second = self.starts
        if not isinstance(first, int) or not isinstance(second, int) or END in (first, second):
            return None
        return self.flow.meeting_of((first, second), self.frame.pc)

    def _run_to_meeting(self, meeting: int | None) -> End:
        """Run both arms up to there (None: as far as they go), or out of the function; then what follows is captured
        once, in a branch that asks which of both it was."""
        self.policy.steps.append((self.frame.code, self.frame.depth))
        try:
            end = self._run_to(frozenset() if meeting is None else frozenset({meeting}))
        finally:
            self.policy.steps.pop()
        return end if meeting is None else self._met(end, meeting)

    def _met(self, end: End, meeting: int) -> End:
        """Go on from where the arms meet, if one of them may have ended elsewhere: what follows is for the other one
        alone. Where the frame is to stop anyway, an end may be open."""
        if end.label is not None or meeting not in end.labels or stops_at(self.frame, meeting):
            return end
        self.may_go_apart = False  # the frame is what both arms made of it
        others = end.labels - {meeting}
        elsewhere = End(others, None if len(others) == 1 else end.selector)
        following = Branch(self.policy, self.frame, goes_on_at(end, meeting), (meeting, elsewhere))
        following.location = self.location
        following.modes_at = end.modes
        if not self.crosses:
            return following.run(END)
        with self.policy.in_branch(following):
            merged = following._unless_unmerged(lambda: following.run(END), True)
        if merged is None:
            raise self.policy.crossings.cross(following)
        return merged

    def _shares_what_follows(self) -> bool:
        """Whether both arms come to the same operations before the function is left: each has them then."""
        reached = [
            self.flow.ways_from(start, set()) for start in self.starts if isinstance(start, int) and start != END
        ]
        return len(reached) == 2 and not reached[0].isdisjoint(reached[1])

    def _run_to(self, stops: frozenset[int]) -> End:
        end = self._try(stops)
        if end is None:  # an exception led one of them elsewhere: they meet when the function is left
            end = self._try(frozenset())
        if end is None:
            raise refuse("the arms of a branch on data don't meet anywhere", self.location)
        return end

    def _try(self, stops: frozenset[int]) -> End | None:
        arms = self.arms = [Arm(self.policy, self.frame, start, stops, self.modes_at) for start in self.starts]
        recorder = recording()

        def agree() -> Sequence[tuple[Any, Any]]:
            meet = arms[0].end.label is not None and arms[0].end.label == arms[1].end.label
            if not meet and not self.policy.may_split(self.frame):
                raise DontMeetError
            recorder.origins.forget_ended_calls()
            self.build = self._agree(arms[0], arms[1])
            return self.merger.pairs_to_make()

        try:
            results = record_arms(recorder, self.predicate, [arm.run for arm in arms], agree)
        except DontMeetError:
            return None
        except ArmRaisedError as raised:
            return self._without(raised, arms)
        except BranchMismatchError as error:
            raise self._unmerged(self._mismatch(error)) from error
        except TintypeError as error:
            raise Refused(error) from error
        self.policy.became("cond", self.location)
        end = self.build(results)
        for arm in arms:
            let_go(arm.frame)
        return end

    def _without(self, raised: ArmRaisedError, arms: Sequence[Arm]) -> End:
        """Go on with the other arm than one that raises, which the program asserts not to be taken."""
        refuse_caught(raised.error, self.location)
        assert_not_taken(self.predicate, raised.arm is arms[0], raised.error)
        start = self.starts[raised.arm is arms[0]]
        if isinstance(start, Leave):
            self.frame.result = start.value
            return End(frozenset({END}))
        if isinstance(start, Choice):
            return start.choose(self.frame)
        end = End(frozenset({start})) if isinstance(start, int) else start
        drop_above(self.frame, end.labels)
        return end

    def _unmerged(self, error: TintypeError) -> BaseException:
        """What to raise for values that can't be merged."""
        branches = self.policy.branches_of(self.frame)
        apart = next((branch for branch in branches if branch.may_go_apart), None)
        return Refused(error, self.policy.wanted_of(branches)) if apart is None else UnmergedError(apart)

    def _mismatch(self, error: BranchMismatchError) -> BranchMismatchError:
        fact = error.fact.replace(
            "the branches of cond return different values", "the arms of a branch on data differ"
        )
        return BranchMismatchError(
            fact.replace("true_fn: ", "one arm:  ").replace("false_fn:", "the other:"),
            location=self.location,
            remedy="give the variable the same dtype, device and number of dimensions in both arms",
        )

    # --- what both have in common ----------------------------------------------------------------------------

    def _agree(self, first: Arm, second: Arm) -> Callable[[Sequence[Any]], End]:
        self.merger = merger = Merger()
        labels = first.end.labels | second.end.labels
        splits = len(labels) > 1
        selector = merger.made(*(partial(number_of, arm.end) for arm in (first, second))) if splits else None
        locals_ = self._merge_locals(first, second)
        stack = self._merge_stack(first, second)
        result: Builder | None = None
        if END in labels:
            values = [arm.frame.result if arm.end.returns else ABSENT for arm in (first, second)]
            result = self._merged(values[0], values[1], "the function returns", first, second)
        places = self._merge_places(first, second)
        modes = joined((first.modes_after, second.modes_after), self.location)
        self._check_sharing(first, second)

        frame, policy, location = self.frame, self.policy, self.location  # not the branch, which holds this function
        key = self.key

        def build(results: Sequence[Any]) -> End:
            for pair, merged in zip(merger.pairs, results, strict=True):
                policy.identities.note(merged, pair)
            for slot, builder in locals_.items():
                frame.locals[slot] = builder(results)
            frame.stack[:] = [part(results) for part in stack]
            drop_above(frame, labels)
            for place, part in places:
                write_merged(policy, place, part(results))
            if result is not None:
                frame.result = result(results)
            for built, one, other in merger.tuples:
                policy.identities.note(built, (one, other))
            policy.twins.note(merger.twins(), location, key)
            if len(labels) == 1:
                modes[next(iter(labels))].restore(location)
                return End(labels)
            return End(labels, None if selector is None else selector(results), modes)

        return build

    def _merge_locals(self, first: Arm, second: Arm) -> dict[int, Builder]:
        found: dict[int, Builder] = {}
        if first.end.label == second.end.label == END:
            return found
        live = [self._live(first.end), self._live(second.end)]
        missing = dict(self.frame.missing or {})
        for slot, (one, other) in enumerate(zip(first.frame.locals, second.frame.locals, strict=True)):
            wanted = [bits >> slot & 1 for bits in live]
            if one is other:
                if one is not self.frame.locals[slot]:
                    found[slot] = _always(one)
                if any(wanted):
                    self.merger.unchanged.append(one)
                continue
            name = self.frame.decoded.names[slot]
            found[slot] = _always(NULL)
            if not any(wanted):
                continue
            values = [value if want else ABSENT for value, want in zip((one, other), wanted, strict=True)]
            try:
                if values[0] is NULL or values[1] is NULL:
                    raise NotMergedError(*(MISSING if value is NULL else value for value in values))
                found[slot] = self.merger.merge(values[0], values[1])
            except NotMergedError as error:
                unmerged = self._unmerged(self._not_merged(f"the variable {name!r} is", error, first, second, slot))
                if isinstance(unmerged, UnmergedError):
                    raise unmerged from error
                known = [(arm.frame.missing or {}).get(slot) for arm in (first, second)]
                missing[slot] = next(filter(None, known), None) or unmerged
        self.frame.missing = missing or None
        return found

    def _live(self, end: End) -> int:
        bits = 0
        for label in end.labels:
            bits |= self.flow.live_before(label)
        return bits

    def _merge_stack(self, first: Arm, second: Arm) -> list[Builder]:
        one, other = first.frame.stack, second.frame.stack
        if first.end.label == second.end.label == END:
            return [_always(value) for value in self.frame.stack]
        if first.end.label == END or second.end.label == END:  # one leaves: the other's stack is what counts
            return [_always(value) for value in (other if first.end.label == END else one)]
        if len(one) != len(other) and first.end.label == second.end.label:
            raise refuse("the arms of a branch leave different stacks behind", self.location)
        # at different places, one of them inside of a loop: what only that one has is looked at there alone
        pairs = list(zip_longest(one, other, fillvalue=ABSENT))
        self.merger.unchanged += [a for a, b in pairs if a is b]
        return [self._merged_on_stack(a, b, first, second) for a, b in pairs]

    def _merged_on_stack(self, one: Any, other: Any, first: Arm, second: Arm) -> Builder:
        try:
            return self._merged(one, other, "the value is", first, second)
        except Refused as refused:
            if not is_iterator(one) or not is_iterator(other):
                raise
            return _always(LostIterator(refused))  # of a loop that may only be left

    def _merge_places(self, first: Arm, second: Arm) -> list[tuple[Place, Builder]]:
        found = []
        leave = first.end.label == second.end.label == END
        for twice in written_by_two_names(first.notes.places, second.notes.places):
            if leave and self._is_over(twice.owner, first, second):
                continue
            raise self._unmerged(
                CaptureError(
                    f"the arms of a branch on data write to {twice} in different ways: as an attribute, and to the "
                    "dictionary that it is kept in",
                    location=self.location,
                    remedy="write to it in the same way in both arms",
                )
            )
        for key, place in {**first.notes.places, **second.notes.places}.items():
            before = place.read()
            one, other = first.notes.after.get(key, before), second.notes.after.get(key, before)
            try:
                if isinstance(place, ContentPlace):
                    part = self._merge_content(place, before, (one, other), (first.graph, second.graph))
                else:
                    part = self.merger.merge(one, other)
            except NotMergedError as error:
                if leave and self._is_over(place.owner, first, second):
                    continue
                raise self._unmerged(
                    self._not_merged(f"{place} becomes", error, first, second, None, place)
                ) from error
            found.append((place, part))
        return found

    def _merge_content(self, place: Place, before: Any, contents: tuple[Any, Any], graphs: Sequence[Any]) -> Builder:
        kind = type(place.owner)
        if kind is GrowingList:
            return merged_growth(self.merger, contents, graphs)
        if kind is list and len(contents[0]) != len(contents[1]):
            lists = self.policy.journal.lists_around(place.owner)
            if lists is not None:
                lists.may_grow_sometimes(place, before, contents)
        return self.merger.content(*contents)

    def _merged(self, one: Any, other: Any, what: str, first: Arm, second: Arm) -> Builder:
        try:
            return self.merger.merge(one, other)
        except NotMergedError as error:
            raise self._unmerged(self._not_merged(what, error, first, second, None)) from error

    def _is_over(self, owner: Any, first: Arm, second: Arm) -> bool:
        """Whether nobody but variables of the function, which both arms leave, holds what an arm wrote to."""
        if any(arm.end.returns and arm.frame.result is owner for arm in (first, second)):
            return False
        frames = [self.frame, *self.policy.crossings.frames]
        known: list[Any] = self.policy.holders()
        for branch in (self, *self.policy.branches_of(self.frame)):
            frames.append(branch.frame)
            for arm in branch.arms:
                known += arm.holders()
                frames += [arm.frame] if hasattr(arm, "frame") else []
        known += [store for frame in frames for store in (frame, frame.locals, frame.stack)]
        # objects whose __init__ both arms have left
        known += [frame.finish for frame in self.policy.crossings.frames if frame.depth > self.frame.depth]
        group = with_closures(owner, known)
        if has_unknown_holder(group, known, variables=1):
            gc.collect()  # arms that have run and could not be merged
            return not has_unknown_holder(group, known, variables=1)
        return True

    def _check_sharing(self, first: Arm, second: Arm) -> None:
        known: list[Any] = [self.frame.locals, self.frame.stack, *self.policy.holders()]
        for arm in (first, second):
            known += (arm.frame, arm.frame.locals, arm.frame.stack, *arm.notes.after.values(), arm.notes.after)
            known.append(arm.notes.made)
        shared = self.merger.held_elsewhere(known)
        if shared is None and self.key in self.policy.apart.objects:
            shared = next(iter(self.merger.twins()), None)
        if shared is not None:
            raise self._unmerged(
                CaptureError(
                    f"a branch on data decides which of two {type(shared).__name__} objects a variable is, and one "
                    "of them is known elsewhere too: a later change would have to change only the right one",
                    location=self.location,
                    remedy="make a new one in both arms, or change the one that is there",
                )
            )

    def _not_merged(
        self, what: str, error: NotMergedError, first: Arm, second: Arm, slot: int | None, place: Place | None = None
    ) -> CaptureError:
        lines = [self._line(arm, slot, place) for arm in (first, second)]
        return CaptureError(
            f"{what} something else in each arm of a branch on data, which has no common form:\n"
            f"  {error.first} at line {lines[0].line}\n  {error.second} at line {lines[1].line}",
            location=self.location,
            remedy=error.remedy
            or "compute the same kind of value in both arms, or move what depends on it into the arms",
        )

    def _line(self, arm: Arm, slot: int | None, place: Place | None) -> Location:
        """The line that gave a variable its value in an arm."""
        noted = None if place is None else arm.notes.places.get(place.key)
        if noted is not None and noted.location is not None:
            return noted.location
        if slot is not None and isinstance(arm.start, int) and arm.start != END:
            for index in sorted(self.flow.reached_from(arm.start, arm.end.labels)):
                if self.flow.operations[index] == ("store_local", slot):
                    return location_of(self.frame, index)
        return arm.location


def written_by_two_names(first: Mapping[Any, Place], second: Mapping[Any, Place]) -> list[Place]:
    """Attributes that arms write to, and to a dictionary that they are kept in, not both of them in both arms: what
    is noted of the one does not tell what the other one holds."""
    both = {**first, **second}
    alone = {key: place for key, place in both.items() if (key in first) != (key in second)}
    tables = {id(place.owner) for place in both.values() if type(place) is ContentPlace and type(place.owner) is dict}
    if not alone or not tables:
        return []
    partly = {id(place.owner) for place in alone.values()}
    return [
        place
        for key, place in both.items()
        if isinstance(place, AttributePlace)
        and any(id(names) in tables and (key in alone or id(names) in partly) for names in place.namespaces() or ())
    ]


def write_merged(policy: FlowPolicy, place: Place, value: Any) -> None:
    """Write what arms or steps agree on to a place. A number that the data decide is nothing that a model can keep:
    the next call would not find it."""
    outlives = isinstance(place, GlobalPlace) or isinstance(place.owner, torch.nn.Module)
    if outlives and any(isinstance(leaf, SYMBOLIC) and not is_decidable(leaf) for leaf in leaves_of(value)):
        raise refuse(
            f"the data decide about {place}, which the next call would find; a captured program can only keep "
            "tensors in registered buffers",
            place.location,
            "keep the number in a buffer: self.register_buffer(name, torch.tensor(...))",
        )
    try:
        policy.journal.write(place, value)
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, TintypeError):
            raise
        raise refuse(
            f"the data decide about {place}, which does not take what stands for either value: {error}",
            place.location,
            "let the arms assign to variables of their own, and compute with those",
        ) from error


def _always(value: Any) -> Builder:
    return lambda results: value


def outcome_of(policy: FlowPolicy, frame: Frame, end: End) -> Outcome:
    """How the machine goes on with a frame that stands at an end."""
    if end.label is None:
        policy.split_ends[id(frame)] = end
        return SPLIT
    if end.label == END:
        return frame.machine.leave(frame, frame.result)
    return end.label


def ended(policy: FlowPolicy, frame: Frame, outcome: Any) -> End:
    """The end that a run came to."""
    if outcome is STOPPED:
        return End(frozenset({frame.pc + 1}))
    if outcome is RETURNED:
        return End(frozenset({END}))
    if outcome is SPLIT:
        return policy.split_ends.pop(id(frame))
    if outcome is CROSSED:
        raise policy.crossings.crossed.pop(id(frame))
    raise refuse(
        "a generator yields where only the data decide whether it does",
        location_of(frame),
        "collect the values in a list, or yield in every case",
    )


def stops_at(frame: Frame, index: int) -> bool:
    """Whether a frame stops at an operation."""
    return frame.instructions[index][0] is stop


def record_arms(recorder: Recorder, predicate: Any, arms: Sequence[Callable[[], Any]], agree: Any) -> list[Any]:
    recorder.follow_modes()
    if isinstance(recorder, InnerRecorder):
        predicate = recorder.localize(predicate)
    with set_aside(recorder):
        return capture_arms(recorder, predicate, arms, agree)
