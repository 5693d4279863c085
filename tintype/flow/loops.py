"""A loop that the data decide: its step runs into a graph of its own, on values that stand for those of any step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import BranchMismatchError, CaptureError, TintypeError
from tintype.flow.arms import Choice, Leave, Start, recording
from tintype.flow.branches import Branch, write_merged
from tintype.flow.ends import End, Refused, Signal, as_flag, goes_on_at, label_tensor, location_of, number_of, refuse
from tintype.flow.forms import NOTHING, Form, containers_in, described, put_together, take_apart
from tintype.flow.frames import copied_frame, let_go
from tintype.flow.journal import Notes
from tintype.flow.loop_exits import LoopExits
from tintype.flow.memory import Memory
from tintype.flow.merging import KINDS, like
from tintype.flow.modes import Modes, ModesAt, joined
from tintype.flow.plain_objects import is_plain_object
from tintype.flow.twins import shared_after, shared_before, taken_apart
from tintype.interpret import NULL, Frame
from tintype.interpret.flow import END, Flow, Loop, flow_of
from tintype.ops.while_loop import while_loop
from tintype.trace.places import Place
from tintype.trace.undecided import note_undecided_history, note_undecided_layout
from tintype.trace.users_code import MISSING

if TYPE_CHECKING:
    from tintype.flow.policy import FlowPolicy


_autograd_s: Any = torch._C.TensorBase.requires_grad  # not the fakes' own, which is a question of the program's


class AgainError(Signal):
    """A step showed something that was not known when the loop began to be recorded."""


class Variables:
    """What a loop changes: locals, places, and the value that the function returns."""

    def __init__(self, frame: Frame, flow: Flow, loop: Loop, exits: LoopExits, *others: int | None) -> None:
        self.frame = frame
        live = flow.live_before(loop.header)
        for label in (*exits.labels, *others):
            live |= 0 if label is None else flow.live_before(label)
        stored = flow.stored_in(loop.body | exits.on_the_way)
        self.slots = [slot for slot in sorted(stored) if live >> slot & 1]
        self.dead = [slot for slot in sorted(stored) if not live >> slot & 1]
        self.places: dict[Any, Place] = {}
        # variables that have no value before the first step; makes one like that after it, outside of the step
        self.fillings: dict[Any, Callable[[], Any]] = {}
        # positions of leaves that no step changes
        self.fixed: set[Any] = set()
        # those whose objects are other ones after a step, and so taken apart
        self.opened: set[Any] = set()
        # those whose containers and objects somebody else has, too
        self.shared: set[Any] = set()

    def open(self, key: Any) -> None:
        """Let the objects of a variable be taken apart; what they hold is no place of its own then."""
        self.opened.add(key)
        mine = {id(found) for found in containers_in(self.initial()[key])}
        self.places = {name: place for name, place in self.places.items() if id(place.owner) not in mine}

    def keys(self) -> list[Any]:
        return [*self.slots, *self.places, "result"]

    def initial(self) -> dict[Any, Any]:
        """The values before the first step; NULL for none."""
        values: dict[Any, Any] = {slot: self.frame.locals[slot] for slot in self.slots}
        for key, place in self.places.items():
            value = place.read()
            values[key] = NULL if value is MISSING else value
        values["result"] = NULL
        for key, fill in self.fillings.items():
            if values[key] is NULL:
                values[key] = fill()
        return values

    def name_of(self, key: Any) -> str:
        if key == "result":
            return "what the function returns"
        if key in self.places:
            return str(self.places[key])
        return f"the variable {self.frame.decoded.names[key]!r}"


class RecordedLoop:
    """A loop of a frame that stands before its header."""

    def __init__(self, policy: FlowPolicy, frame: Frame, loop: Loop, stays: int | None = None) -> None:
        self.policy = policy
        self.frame = frame
        self.flow = flow_of(frame.code)
        self.loop = loop
        self.found = LoopExits(frame, self.flow, loop)
        self.exits = sorted(self.found.labels)
        # where it goes on if there is no step at all; None: there is one
        self.without_steps = stays if stays is None else self.found.settled(stays)
        self.variables = Variables(frame, self.flow, loop, self.found, self.without_steps)
        self.left_at: list[int] = [] if self.without_steps is None else [self.without_steps]
        self.location = location_of(frame, loop.header)
        self.forms: dict[Any, Form] = {}
        self.leaves: list[Any] = []
        self.positions: list[int] = []  # of the leaves that are carried
        self._entered: list[Any] = []  # the leaves, as the step has them that runs
        self._left: list[Any] = []  # as it leaves them
        self._undecided: set[int] = set()  # positions of those that lie in memory as the data decide
        self.memory = Memory()
        self.modes_at: ModesAt = {}  # where it is left
        self._values: dict[Any, Any] = {}
        # why variables have no value after a step
        self._missing: dict[int, BaseException] = {}

    def run(self, goes_on: Any, branch: int | None = None) -> End:
        """Record the loop; the frame stands where it is left. ``branch`` decides about a first step."""
        test = None if branch is None else self._test(branch)
        if test is not None:  # what the condition reads need not be read by the step that follows
            self.variables = Variables(self.frame, self.flow, self.loop, self.found, self.without_steps, test[0])
        return self.repeated(lambda: self._while(goes_on) if test is None else self._while_test(test))

    def _test(self, before: int) -> range | None:
        """The operations of the one condition that decides about another step, if it is the one before the loop, too;
        None if there is none such."""
        flow, loop = self.flow, self.loop
        leaving = [i for i in loop.body if any(target not in loop.body for target in flow.successors[i])]
        if len(leaving) != 1:
            return None
        if {self.found.settled(target) for target in flow.successors[leaving[0]]} != {
            loop.header,
            self.without_steps,
        }:
            return None
        last, count = leaving[0], 1
        positions = self.frame.decoded.positions(self.frame.code)
        while (
            flow.operations[last - count] == flow.operations[before - count]
            and positions[last - count] == positions[before - count]
        ):
            count += 1
        test = range(last - count + 1, last + 1)
        plain = all(len(flow.successors[index]) == 1 for index in test[:-1]) and not flow.stored_in(test)
        return test if plain and count > 1 and test[0] in loop.body else None

    def _while_test(self, test: range) -> End:
        """A loop whose condition is a function of what it carries."""
        header = self.loop.header
        jumps, target = self.flow.operations[test[-1]]
        goes_on_if = (jumps == "pop_jump_if_true") == (target == header)

        def condition(*values: Any) -> Any:
            step = copied_frame(self.frame)
            self._together(list(values), step)
            with self.policy.journal.taking_notes(self.frame, repeats=True) as notes:
                for key, place in self.variables.places.items():
                    value = self._values[key]
                    self.policy.journal.write(place, MISSING if value is NULL else value)
                written = len(notes.places)
                end = self.policy.run_region(step, test[0], frozenset({test[-1]}))
            if end.label != test[-1] or len(notes.places) != written:
                raise refuse("the condition of a loop that the data decide writes to something", self.location)
            flag = as_flag(self.policy.condition_of(step.stack[-1]))
            return flag if goes_on_if else flag.logical_not()

        def body(*values: Any) -> Any:
            return tuple(self.step(list(values), header, frozenset({test[0]}))[1])

        results = while_loop(condition, body, tuple(self.carried()))
        self.policy.became("while_loop", self.location)
        self.leave(results)
        return self.go_on(None)

    def repeated(self, record: Callable[[], End]) -> End:
        before = Modes()
        for _ in range(20):
            self._open()
            try:
                return record()
            except AgainError:
                before.restore(self.location)  # a step may have been left from inside of a block
            except BranchMismatchError as error:
                raise Refused(self._mismatch(error)) from error
            except TintypeError as error:
                raise Refused(error) from error
        raise refuse("a loop that the data decide changes its variables in ever new ways", self.location)

    def _open(self) -> None:
        self.leaves, self.forms, self._missing = [], {}, {}
        self._values, self._entered = {}, []  # which would hold what nobody else has
        initial = self.variables.initial()
        self.variables.shared |= shared_before(self.policy, self.frame, initial, self.variables.opened)
        self._note_twins(initial)
        for key, value in initial.items():
            self.forms[key] = take_apart(value, self.leaves, key in self.variables.opened)
        self.positions = [p for p in range(len(self.leaves)) if p not in self.variables.fixed]
        self._undecided |= {p for p in self.positions if not is_laid_out(self.leaves[p])}

    def carried(self) -> list[Any]:
        return [self._as_carried(self.leaves[position]) for position in self.positions]

    def _as_carried(self, leaf: Any) -> Any:
        """Gradients stop at numbers: where there are some to be computed, tensors carry them."""
        if self.policy.carries_tensors and type(leaf) in KINDS:
            return _number_as_tensor(leaf)
        return leaf

    # --- while -----------------------------------------------------------------------------------------------

    def _while(self, goes_on: Any) -> End:
        chooses = len(self.left_at) > 1
        initial = [as_flag(goes_on), *([label_tensor(self.left_at[0])] if chooses else ())]

        def body(*values: Any) -> Any:
            end, following = self.step(list(values[len(initial) :]))
            selected = [number_of(end)] if chooses else []
            return (goes_on_at(end, self.loop.header), *selected, *following)

        results = list(while_loop(lambda *values: values[0], body, (*initial, *self.carried())))
        self.policy.became("while_loop", self.location)
        self.leave(results[len(initial) :])
        return self.go_on(results[1] if chooses else None)

    def step(
        self, carried: list[Any], start: int | None = None, stops: frozenset[int] | None = None
    ) -> tuple[End, list[Any]]:
        """Run the body once; gives where it ended, and the values for the next step."""
        step = copied_frame(self.frame)
        try:
            return self._run_step(step, carried, start, stops)
        finally:
            let_go(step)

    def _run_step(
        self, step: Frame, carried: list[Any], start: int | None, stops: frozenset[int] | None
    ) -> tuple[End, list[Any]]:
        step.result = NULL
        values = self._together(carried, step)
        self._note_entered()
        self._note_twins(values)
        if stops is None:
            stops = frozenset({self.loop.header, *self.exits} - {END})
        self.policy.steps.append((step.code, step.depth))
        before = Modes()
        try:
            with self.policy.journal.taking_notes(self.frame, repeats=True) as notes:
                for key, place in self.variables.places.items():
                    self.policy.journal.write(place, MISSING if values[key] is NULL else values[key])
                self.note_own(values)
                begin = self.prepare(step)
                end = self.policy.run_region(step, begin if start is None else start, stops, again=True)
        finally:
            self.policy.steps.pop()
        after_step = end.modes or dict.fromkeys(end.labels, Modes())
        before.restore(self.location)
        without = {} if self.without_steps is None else {self.without_steps: before}
        self.modes_at = joined(({self.loop.header: before, **without}, self.modes_at, after_step), self.location)
        self._learn(end, notes)
        self._missing.update(step.missing or {})
        after: dict[Any, Any] = {slot: step.locals[slot] for slot in self.variables.slots}
        for key in self.variables.places:
            value = notes.after[key]
            after[key] = NULL if value is MISSING else value
        after["result"] = step.result if end.returns else NULL
        following = self._following(after, self._read_after(end))
        shared = shared_after(self.frame, after, self.variables.opened) - self.variables.shared
        if shared:
            self.variables.shared |= shared
            raise AgainError
        return end, following

    def note_own(self, values: dict[Any, Any]) -> None:
        """Note the containers and objects that a step has as its own, made of what the one before it left."""
        for slot in self.variables.slots:
            for container in taken_apart(values[slot], slot in self.variables.opened):
                self.policy.note_made(container)

    def _note_twins(self, values: dict[Any, Any]) -> None:
        for key in self.variables.shared:
            self.policy.twins.note(taken_apart(values[key], key in self.variables.opened), self.location)

    def _note_entered(self) -> None:
        entered = [self._entered[position] for position in self.positions]
        self.policy.identities.note_carried(entered)
        for position, value in zip(self.positions, entered, strict=True):
            note_undecided_history(value)
            if position in self._undecided:
                note_undecided_layout(value)

    def prepare(self, step: Frame) -> int:
        """The operation that a step begins with."""
        return self.loop.header

    def _together(self, carried: list[Any], step: Frame) -> dict[Any, Any]:
        """The variables of a step."""
        leaves = list(self.leaves)
        for position, value in zip(self.positions, carried, strict=True):
            is_number = type(leaves[position]) in KINDS
            leaves[position] = value.item() if is_number and isinstance(value, torch.Tensor) else value
        self._entered = leaves
        following = iter(leaves)
        values = {key: put_together(form, following) for key, form in self.forms.items()}
        for slot in self.variables.slots:
            step.locals[slot] = values[slot]
        self._values = values
        return values

    def _learn(self, end: End, notes: Notes) -> None:
        """Take notice of what a step does; raises if that is news."""
        news = False
        for key, place in self.written_places(notes).items():
            if key not in self.variables.places:
                self.variables.places[key] = place
                news = True
        for label in sorted(end.labels - {self.loop.header}):
            if label not in self.left_at and (label == END or label not in self.loop.body):
                news = news or bool(self.left_at)
                self.left_at.append(label)
        if news:
            raise AgainError

    def written_places(self, notes: Notes) -> dict[Any, Place]:
        """The places that a step wrote to and that the next one finds so."""
        return notes.places

    def differs(self, refused: Refused) -> BaseException:
        """What to raise for a variable that is something else after a step."""
        return refused

    def is_read_later(self, key: Any) -> bool:
        """Whether a variable without a value before the loop must have one after it."""
        return False

    def further_results(self) -> list[Any]:
        """Tensors of a step that are results besides what it carries on."""
        return []

    def _read_after(self, end: End) -> int:
        """The locals that may be read where a step ends, as a set of bits."""
        live = 0
        for label in end.labels:
            live |= self.flow.live_before(label)
        return live

    def _following(self, after: dict[Any, Any], read: int) -> list[Any]:
        following: list[Any] = []
        news = False
        position = 0
        for key, form in self.forms.items():
            count = len(following)
            found = take_apart(after[key], following, key in self.variables.opened)
            if found is NOTHING and form is not NOTHING:
                is_read = key in self.variables.places or (key != "result" and read >> key & 1)
                if is_read and key not in self.variables.fillings:
                    raise self.differs(self._differs(key, form, found, following[count:]))
                # nobody will look at what it is in this case
                del following[count:]
                following += self._entered[position : position + _count(form)]
            elif form is NOTHING and found is not NOTHING:
                if key != "result" and self.is_read_later(key):
                    raise self.differs(Refused(self._unbound(key)))
                self.variables.fillings[key] = _filling(after[key])
                news = True
            elif not found.is_like(form):
                if key not in self.variables.opened and self._has_objects(key, after[key]):
                    self.variables.open(key)
                    raise AgainError
                raise self.differs(self._differs(key, form, found, following[count:]))
            position += _count(form)
        if news:
            raise AgainError
        unchanged = {p for p in self.positions if following[p] is self._entered[p] and _is_tensor(following[p])}
        if unchanged:
            self.variables.fixed |= unchanged
            raise AgainError
        self._left = following
        if not self._undecided.issuperset(odd := {p for p in self.positions if not is_laid_out(following[p])}):
            self._undecided |= odd
            raise AgainError
        self.memory.note(
            [self._entered[position] for position in self.positions],
            [*(following[position] for position in self.positions), *self.further_results()],
        )
        return [self._as_carried(following[position]) for position in self.positions]

    # --- afterwards ------------------------------------------------------------------------------------------

    def leave(self, results: Sequence[Any], further: Sequence[Any] = ()) -> None:
        """Let the frame have the values after the last step."""
        initial = [self.leaves[position] for position in self.positions]
        self.memory.share(initial, [*results, *further], may_be_initial=self.without_steps is not None)
        entered, left = ([values[position] for position in self.positions] for values in (self._entered, self._left))
        self.policy.identities.leave(initial, entered, left, results)
        for position, before, after, result in zip(self.positions, initial, left, results, strict=True):
            if position in self._undecided:
                note_undecided_layout(result)
            if _requires_gradient(before) is not _requires_gradient(result if self.policy.carries_tensors else after):
                note_undecided_history(result)
        values = self._together(list(results), self.frame)
        self._note_twins(values)
        missing = {**(self.frame.missing or {}), **self._missing}
        for slot in self.variables.dead:
            self.frame.locals[slot] = NULL
        for key, place in self.variables.places.items():
            if key in self.variables.fillings and self.without_steps is not None:
                raise Refused(self._unbound(key))
            write_merged(self.policy, place, MISSING if values[key] is NULL else values[key])
        unset = 0 if self.without_steps is None else self.flow.live_before(self.without_steps)
        for slot in self.variables.slots:
            if slot in self.variables.fillings and unset >> slot & 1:
                self.frame.locals[slot] = NULL
                missing[slot] = Refused(self._unbound(slot))
        self.frame.missing = missing or None
        self.frame.result = values["result"]

    def go_on(self, selector: Any) -> End:
        """Where the frame stands."""
        if selector is None:
            if not self.left_at:
                raise refuse("a loop that the data decide is never left", self.location)
            if self.left_at[0] in self.modes_at:
                self.modes_at[self.left_at[0]].restore(self.location)
            return End(frozenset({self.left_at[0]}))
        return self._choose(selector, self.left_at, self.frame)

    def _choose(self, selector: Any, labels: Sequence[int], frame: Frame) -> End:
        """Go to the place that a number says."""
        first: Start = self._start(labels[0], frame)
        second: Start
        if len(labels) == 2:
            second = self._start(labels[1], frame)
        else:
            second = Choice(lambda arm: self._choose(selector, labels[1:], arm))
        join = self.flow.common_join(labels)
        branch = Branch(self.policy, frame, selector == labels[0], (first, second))
        branch.location = self.location
        branch.modes_at = self.modes_at
        return branch.run(join)

    def _start(self, label: int, frame: Frame) -> Start:
        return Leave(frame.result) if label == END else label

    # --- what can't be ---------------------------------------------------------------------------------------

    def _has_objects(self, key: Any, after: Any) -> bool:
        """Whether a variable holds objects before and after a step that are nothing but their attributes."""
        for value in (self.variables.initial()[key], after):
            found = containers_in(value)
            if not any(is_plain_object(one) for one in found) or len(set(map(id, found))) < len(found):
                return False
        return True

    def _differs(self, key: Any, form: Form, found: Form, leaves: Sequence[Any]) -> Refused:
        first = sum(_count(known) for known in list(self.forms.values())[: list(self.forms).index(key)])
        before = described(form, iter(self._entered[first:]))
        return refuse(
            f"{self.variables.name_of(key)} is something else after a step of a loop that the data decide:\n"
            f"  before a step: {before}\n  after it:      {described(found, iter(leaves))}",
            self.location,
            "let variables keep their kind and their containers from step to step: torch.zeros(...) in place of "
            "None, 0.0 in place of 0; collect values in a tensor of a fixed size",
        )

    def _unbound(self, key: Any) -> CaptureError:
        return CaptureError(
            f"{self.variables.name_of(key)} has no value if the loop makes no step, which only the data decide",
            location=self.location,
            remedy="give it a value before the loop",
        )

    def _mismatch(self, error: BranchMismatchError) -> BranchMismatchError:
        names = [self.frame.decoded.names[slot] for slot in self.variables.slots]
        return BranchMismatchError(
            f"a loop that the data decide changes what its variables ({', '.join(names)}) are: {error.fact}",
            location=self.location,
            remedy="let tensors keep their dtype, device and number of dimensions from step to step",
        )


def _count(form: Form) -> int:
    return 1 if form.kind in ("tensor", "number") else sum(map(_count, form.parts))


def _filling(value: Any) -> Callable[[], Any]:
    leaves: list[Any] = []
    form = take_apart(value, leaves)
    made = [like(leaf) for leaf in leaves]
    return lambda: put_together(form, iter([leaf() if callable(leaf) else leaf for leaf in made]))


def is_laid_out(value: Any) -> bool:
    """Whether a loop carries a value as it lies in memory."""
    if not isinstance(value, torch.Tensor):
        return True
    info = recording().as_fake(value).info
    return info.is_contiguous() and not info.conjugate and not info.negative


def _requires_gradient(value: Any) -> bool:
    """Whether a tensor has a history: as it says itself, or as autograd knows where that records."""
    recorder = recording()
    if not isinstance(value, torch.Tensor):
        return False
    fake = recorder.as_fake(value)
    known = _autograd_s.__get__(recorder.source_of(fake))
    return bool(fake.info.requires_grad if recorder.below_autograd else known)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _number_as_tensor(number: Any) -> torch.Tensor:
    dtype = {"bool": torch.bool, "int": torch.int64, "float": torch.float64}[KINDS[type(number)]]
    return torch.scalar_tensor(number, dtype=dtype)
