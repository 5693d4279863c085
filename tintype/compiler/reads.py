"""What a run reads: guards, and where objects come from. The other half of a capture is in capture.py."""

from __future__ import annotations

import enum
import functools
import operator
import types
import weakref
from contextvars import ContextVar
from types import FunctionType, MethodType, ModuleType, NoneType
from typing import Any

import torch

from tintype.compiler import known
from tintype.compiler.calls import Handler, without_modes
from tintype.compiler.expressions import Expression, sources_in
from tintype.compiler.identities import Identities
from tintype.compiler.numbers import number
from tintype.compiler.plain_again import PlainAgain
from tintype.compiler.reading_again import ReadingAgain
from tintype.compiler.sources import (
    Guard,
    Source,
    contiguous_strides,
    description,
    item_of,
    parts_of,
    said,
    with_free_sizes,
)
from tintype.compiler.trace import Call, Item, Segment
from tintype.compiler.varying import Varying, promised_ranges, promised_sizes
from tintype.errors import ConstraintViolationError, Location
from tintype.interpret import Frame, Machine
from tintype.interpret.decode import Decoded
from tintype.ir.call_values import PLAIN, is_library
from tintype.symbolic.location import is_internal

LARGEST_CONTAINER = 4096
# classes whose objects are tensors like any
TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
# what is known by being itself: nothing in it is looked at
ITSELF = (
    type,
    ModuleType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    ContextVar,
    type(functools.lru_cache(len)),
)
_BOUND_IN_C = (types.BuiltinFunctionType, types.MethodWrapperType)


class Reads:
    """What a run read, as guards: the part of a capture that looks back to what was there before."""

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        whole_graphs: bool,
        frees_sizes: bool = False,
        given: list[Any] | None = None,
        varying: Varying | None = None,
    ) -> None:
        self.args, self.kwargs = args, kwargs
        self.varying = Varying(False) if varying is None else varying
        self.has_numbers = False  # whether there are numbers that vary in this run
        # what was stored in what was there before, and what is there in its place: the same with plain numbers
        self.shadows: dict[tuple[int, Any], tuple[Any, Any]] = {}
        # whether graphs go to a backend that may rest on all of their inputs' metadata
        self.whole_graphs = whole_graphs
        self.frees_sizes, self.of_free_sizes = frees_sizes, set[Any]()  # whether sizes may be left open; of whom
        self.promised: dict[Any, tuple[Source, int]] = {}  # sizes that were marked to vary, by their paths
        self.given = [] if given is None else given
        # answers in the part that was done already, and sizes by the source of the shape
        self.given_answers: dict[Any, tuple[Any]] = {}
        self.given_shapes: dict[Any, torch.Size] = {}
        self.machine: Machine | None = None
        self.in_flight: list[Any] = []  # arguments of native calls that are under way
        self._begin_looking()
        self.is_over = False  # what dies then is no business of the program's
        self.heard: str | None = None  # the function of torch's that was told of first since one was called
        self.segments = [Segment()]
        self.calls: list[Call] = []
        self.results: list[Any] = []  # kept only where a backend wants to see them
        # tensors that calls gave: what the program lets go of can be let go of in every run
        self._tensors: dict[int, weakref.ref[Any]] = {}
        self.reason: tuple[str, Location | None] | None = None  # why nothing is noted any more
        self.sources: dict[int, Source] = {}  # of objects that were there before, by identity
        self.values: dict[int, Expression] = {}  # tensors and objects that calls gave
        self.kept: list[Any] = []  # so that identities stay what they are
        self.originals: dict[int, Any] = {}  # containers before the first write to them
        self.written: set[tuple[int, Any]] = set()
        self.unsettled: set[int] = set()  # tensors whose metadata may not be what it was at the start
        self.identities = Identities(self)
        self.has_writes = self.has_reshaped = False  # whether the program wrote to a tensor; to its metadata
        self.follows = True  # whether metadata of results follow from metadata of what went in
        self._state_set: dict[Any, Any] = {}  # modes that the program set, by who is asked for them
        self._seen, self._classes = set[Any](), set[type]()
        self._looked_into, self._making, self._gone = set[int](), set[int](), list[int]()
        self._shares, self._tokens = False, dict[int, int]()
        self.again = ReadingAgain()
        self.last_write: tuple[Frame, int] | None = None  # the operation that was told of a write last
        self._begin_handing_on()

    def _begin_handing_on(self) -> None:
        """What others have got of the program."""
        self.handed_on: list[Any] = []  # values that went into effects and steps
        # new objects that did, and what they were then
        self._given_away: list[tuple[Any, Expression, Any, int]] = []
        self._steps_done = 0
        # context variables that are set: by token, the variable and its number
        self._tokens_of_context: dict[int, tuple[Any, int]] = {}
        self._count_of_tokens = 0

    def _begin_looking(self) -> None:
        """What is known of the program's code and of what it has read, so that it is not looked at again."""
        self._handlers: dict[tuple[Decoded, int], list[Handler]] = {}  # by what code of the program raises
        # what was read last of an object that is kept, by its identity and a name, unless the program writes
        self.known_reads: dict[tuple[int, str], Any] = {}
        self.is_called_unheard = False  # whether it is known that nothing listens to all modules

    # --- giving up -----------------------------------------------------------------------------------------------

    @property
    def is_noting(self) -> bool:
        return self.reason is None

    @property
    def is_computing(self) -> bool:
        """Whether what is computed of numbers that vary remembers how."""
        return self.reason is None and not self.is_over

    def give_up(self, reason: str) -> None:
        """Note nothing further; the run goes on, with plain numbers."""
        if self.reason is None:
            self.reason = (reason, self.location())
            self.shadows.clear()
            if self.has_numbers and self.machine is not None:
                plain = PlainAgain(self.sources)
                plain.value([*self.in_flight])
                plain.frames(self.machine.frame)

    def location(self) -> Location | None:
        """The user's line that is being interpreted."""
        frame: Frame | None = None if self.machine is None else self.machine.frame
        while frame is not None:
            if not is_internal(frame.code.co_filename):
                return Location(frame.code.co_filename, frame.line, frame.code.co_name)
            frame = frame.back
        return None

    # --- the state of the thread ---------------------------------------------------------------------------------

    def state_read(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """The program asks for a mode; what it set itself is known."""
        key = (function.__name__, arguments)
        if key in self._state_set:
            return self._state_set[key]
        given = self._given_answer(key)
        answer = given[0] if given else function(*arguments)
        self.guard("state", Source("constant", function), (function, arguments, answer))
        return answer

    def note_given(self, path: list[Item]) -> None:
        """Take answers from the items of the run that is taken over. One that could be another after the next call
        belongs to its place among the calls. Some may stand beyond the place where the run has missed: answers are
        only taken for what was asked before the last call that was done."""
        count = 0
        for item in path:
            if isinstance(item, Call):
                count += 1
            elif isinstance(item, Guard) and item.kind in ("answer", "assumed", "state"):
                read, arguments, answer = item.expected[:3]
                key = (read.__name__, arguments) if item.kind == "state" else (read, arguments, item.source.path)
                self.given_answers[(*key, count) if item.inline else key] = (answer,)
            elif isinstance(item, Guard) and item.kind == "tensor":
                self.given_answers[("tensor", (), item.source.path)] = (item.expected,)

    def _given_answer(self, key: tuple[Any, ...]) -> tuple[Any] | None:
        """The answer to a question in the part that was done already."""
        count = len(self.calls)
        if count >= len(self.given):
            return None
        return self.given_answers.get((*key, count)) or self.given_answers.get(key)

    def _note_state(self, function: Any, args: Any) -> None:
        reader = known.READ_BY.get(getattr(function, "__name__", ""))
        if reader is not None:
            self._state_set[(reader, tuple(args[:-1]))] = args[-1]

    def are_two(self, one: Source, other: Source) -> bool:
        """Whether two places hold two objects whenever the guards hold: one of them is what a call in a graph has
        made, which is a tensor of its own as long as metadata are the same."""
        return self.whole_graphs and self.follows and (self._is_made(one) or self._is_made(other))

    def _is_made(self, source: Source) -> bool:
        if source.root.kind != "value":
            return False
        call = self.calls[source.root.key]
        if call.step is not None or call.alias is not None:
            return False
        is_part = source.kind == "item" and source.parent is source.root
        return call.gives_tensor if source.kind == "value" else is_part and call.tensors is not None

    # --- guards --------------------------------------------------------------------------------------------------

    def guard(self, kind: str, source: Source, expected: Any, inline: bool = False) -> None:
        """Let the recorded program rest on an answer."""
        if self.reason is not None:
            return
        if self.again.step:
            source = self.again.place(source, kind)
        guard = Guard(kind, source, expected, inline or source.root.kind == "value" or source.is_now)
        if kind == "assumed":
            self.segments[-1].body.append(guard)
            return
        if guard.inline:
            if kind != "answer" and guard.key in self._seen:
                return
            self.segments.append(Segment())
        elif guard.key in self._seen:
            return
        self._seen.add(guard.key)
        self.segments[-1].guards.append(guard)

    def read(self, source: Source, value: Any) -> Any:
        """A value that the program got from a place; gives it back."""
        if self.reason is not None:
            return value
        if self.again.step:
            source = self.again.place(source)
        kind = type(value)
        if kind in PLAIN or value is ... or value is NotImplemented:
            if kind in PLAIN:
                self.guard("value", source, value)
            else:
                self.guard("is", source, value)
            return value
        identity = id(value)
        if identity in self.values:
            return value
        found = self.sources.get(identity)
        if found is not None:
            if found is not source and found.path != source.path:
                self.guard("same", source, found)
            return value
        self.register(source, value)
        self._guard_object(source, value, kind)
        return value

    def read_number(self, source: Source, value: Any) -> Any:
        """The same where the program can be given another object: a number may vary."""
        if self.again.step:
            source = self.again.place(source)
        if self.again.given and type(value) in PLAIN and len(self.calls) < len(self.given):
            value = self.again.given.get(source.path, value)
        if self.reason is None and type(value) in (int, float) and self.varying.number(source):
            self.guard("type", source, type(value))
            return number(self, value, ("source", source))
        return self.read(source, value)

    def may_have_written(self) -> None:
        """The last call may have changed whatever the program has read."""
        if self.reason is None:
            self.again.note(len(self.calls), self.segments)
            for known_before in (self.known_reads, self.written, self.originals, self.shadows):
                known_before.clear()
            self._looked_into.clear()
            self.has_writes = True

    def relate(self, function: Any, operands: tuple[Expression, ...], answer: Any) -> None:
        """Let the recorded program rest on an answer about numbers that vary."""
        if self.reason is not None or self.is_over:
            return
        sources = [source for operand in operands for source in sources_in(operand)]
        if sources:
            inline = any(source.root.kind == "value" for source in sources)
            self.guard("relation", sources[0], (function, operands, answer), inline)

    def register(self, source: Source, value: Any) -> None:
        self.sources[id(value)] = source
        self.kept.append(value)
        self.identities.registered(source, value)

    def _guard_object(self, source: Source, value: Any, kind: type) -> None:
        if issubclass(kind, torch.Tensor):
            self._guard_tensor(source, value, kind)
        elif kind is FunctionType:
            self._guard_function(source, value)
        elif issubclass(kind, _BOUND_IN_C) and not isinstance(value.__self__, (type, ModuleType, NoneType)):
            # a method such as results.append, which is made anew each time that it is asked for
            self.guard("type", source, kind)
            self.guard("value", Source("attribute", "__name__", source), value.__name__)
            self.read(Source("attribute", "__self__", source), value.__self__)
        elif issubclass(kind, (*ITSELF, enum.Enum)):
            self.guard("is", source, value)
        elif kind is MethodType:
            self.guard("type", source, kind)
            self.read(Source("attribute", "__func__", source), value.__func__)
            self.read(Source("attribute", "__self__", source), value.__self__)
        elif kind is functools.partial:
            self.guard("type", source, kind)
            self.read(Source("attribute", "func", source), value.func)
            for name in ("args", "keywords"):
                part = getattr(value, name)
                self.read(Source("attribute", name, source), part)
                self.look_into(part)
        elif issubclass(kind, (staticmethod, classmethod, property)):
            self.guard("is", source, value)
            for name in ("__func__", "fget", "fset"):
                function = getattr(value, name, None)
                if type(function) is FunctionType:
                    self.rest_on_code(Source("attribute", name, source), function)
        else:
            self.guard("type", source, kind)

    def _guard_tensor(self, source: Source, value: torch.Tensor, kind: type) -> None:
        if kind not in TENSORS:
            self.give_up(f"a tensor of the class {kind.__name__}")
        elif self.whole_graphs:
            described = self._described(source, value)
            if None in described[2]:
                self.of_free_sizes.add(source.path)
                self.follows = False
            self.guard("tensor", source, described)
        else:
            self.guard("type", source, kind)
        if value.__dict__:
            self._note_marks(source, value)

    def _described(self, source: Source, value: torch.Tensor) -> tuple[Any, ...]:
        """What graphs rest on about an input; where calls were done already, what they rested on:
        they may have written to it."""
        given = self._given_answer(("tensor", (), source.path))
        if given:
            return given[0]
        described: tuple[Any, ...] = without_modes(description, (value,), {})
        free = self._free_sizes(source, value, described)
        return with_free_sizes(described, free) if free else described

    def _note_marks(self, source: Source, tensor: torch.Tensor) -> None:
        """Rest on the ranges that marks promise, and remember which sizes must not be fixed."""
        shape = Source("attribute", "shape", source)
        sizes = without_modes(getattr, (tensor, "shape"), {})
        self.promised.update((Source("item", dim, shape).path, (source, dim)) for dim in promised_sizes(tensor))
        for dim, (low, high) in promised_ranges(tensor).items():
            place = Source("item", dim, shape)
            for bound, compares, is_beyond in ((low, operator.ge, operator.lt), (high, operator.le, operator.gt)):
                if bound is not None and is_beyond(sizes[dim], bound):
                    raise ConstraintViolationError(
                        f"size {dim} of {said(source)} is {sizes[dim]}, which is not in the range of its mark: "
                        f"{'' if low is None else f'{low} <= '}size{'' if high is None else f' <= {high}'}. "
                        "Pass such a size, or give mark_dynamic another min or max"
                    )
                if bound is not None:
                    self.relate(compares, (("source", place), ("constant", bound)), True)

    def refuse_fixed_sizes(self) -> None:
        """Raise an error if the program rests on one value of a size that was marked to vary."""
        for guard in (guard for segment in self.segments for guard in segment.guards):
            if guard.kind != "relation" or guard.expected[0] is not operator.eq or guard.expected[2] is not True:
                continue
            sizes, constants = [sources_in(operand) for operand in guard.expected[1]]
            found = self.promised.get(sizes[0].path) if len(sizes) == 1 and not constants else None
            if found is not None:
                source, dim = found
                raise ConstraintViolationError(
                    f"size {dim} of {said(source)} was marked to vary (mark_dynamic), and the program rests on its "
                    f"being {guard.expected[1][1][1]}. Mark it with maybe_mark_dynamic, or let the program do the "
                    "same for all sizes"
                )

    def _free_sizes(self, source: Source, tensor: torch.Tensor, described: tuple[Any, ...]) -> list[int]:
        """Dimensions of an input of graphs that vary: of tensors that lie in memory as their sizes say."""
        if not self.frees_sizes or described[3] != contiguous_strides(described[2]) or source.root.kind == "value":
            return []
        shape = Source("attribute", "shape", source)
        return [dim for dim in range(tensor.dim()) if self.varying.size(tensor, shape, dim, made=False)]

    def _guard_function(self, source: Source, value: FunctionType) -> None:
        if is_library(value.__module__) and not value.__closure__:
            self.guard("is", source, value)
            return
        self.rest_on_code(source, value)

    def rest_on_code(self, source: Source, value: FunctionType) -> None:
        """A function's code and defaults, which somebody may replace in the same function: notebooks do that when a
        file has changed."""
        if not is_library(value.__module__) or value.__closure__:
            self.guard("code", source, parts_of(value))
        self.register_parts(source, value)

    def register_parts(self, source: Source, value: FunctionType) -> None:
        """The cells and defaults of a function that was there before."""
        for position, cell in enumerate(value.__closure__ or ()):
            place = Source("attribute", "__closure__", source)
            if id(cell) not in self.sources:
                self.register(Source("item", position, place), cell)
        for position, default in enumerate(value.__defaults__ or ()):
            if type(default) not in PLAIN and id(default) not in self.sources:
                self.register(Source("item", position, Source("attribute", "__defaults__", source)), default)
        for name, default in (value.__kwdefaults__ or {}).items():
            if type(default) not in PLAIN and id(default) not in self.sources:
                self.register(Source("item", name, Source("attribute", "__kwdefaults__", source)), default)

    def note_class(self, kind: type) -> None:
        """Methods and attributes that a class of the user's has not would be others than those that are found."""
        if kind in self._classes:
            return
        self._classes.add(kind)
        if known.is_users_class(kind):
            self.guard("value", Source("attribute", "__mro__", Source("constant", kind)), kind.__mro__)
        for base in kind.__mro__:
            if known.is_users_class(base) and base.__dict__:
                table = Source("constant", base).table
                self.guard("members", table, (len(base.__dict__), next(reversed(base.__dict__))))

    def source_of(self, value: Any) -> Source | None:
        """Where an object was found; classes, modules and functions are found anywhere."""
        found = self.sources.get(id(value))
        if found is None and (isinstance(value, (type, ModuleType)) or type(value) is FunctionType):
            found = Source("constant", value)
            self.register(found, value)
        return found

    def _as_it_is_now(self, container: Any, source: Source) -> tuple[Source, set[int]]:
        """A container that the program has written to, as a source, and what of it the program put there itself.

        The writes happen before these guards in every run: they ask for what is there by now."""
        before = self.originals[id(container)]
        known_before = set(map(id, before.values() if isinstance(before, dict) else before))
        items = container.values() if isinstance(container, dict) else container
        made = {id(item) for item in items if id(item) not in known_before and type(item) not in PLAIN}
        return Source("now", len(self._seen), source), made

    def look_into(self, container: Any) -> None:
        """The program may see all that a container holds."""
        identity = id(container)
        source = self.sources.get(identity)
        if source is None or identity in self._looked_into or self.reason is not None:
            return
        self._looked_into.add(identity)
        content: Any = container
        unseen: set[int] = set()
        if identity in self.originals:
            source, unseen = self._as_it_is_now(container, source)
        if any(isinstance(getattr(type(content), name), FunctionType) for name in ("__iter__", "__len__")):
            self.give_up(f"a {type(container).__name__} is looked into, which has its own methods for that")
        elif len(content) > LARGEST_CONTAINER:
            self.give_up(f"a {type(container).__name__} of {len(content)} items is looked into")
        elif isinstance(content, dict):
            if not all(type(key) in PLAIN for key in content):
                self.give_up("a dictionary whose keys are no plain values is looked into")
                return
            self.guard("keys", source, tuple(content))
            for key, item in dict.items(content):
                if id(item) not in unseen:
                    self.read(item_of(container, key, source), item)
        elif isinstance(content, (list, tuple)):
            self.guard("length", source, len(content))
            for position, item in enumerate(content):
                if id(item) not in unseen:
                    self.read(Source("item", position, source), item)
        elif isinstance(content, (set, frozenset)) and all(type(item) in PLAIN for item in content):
            self.guard("value", source, frozenset(content)) if isinstance(content, frozenset) else self.guard(
                "answer", source, ("copy", (), set(content))
            )
        else:
            self.give_up(f"a {type(container).__name__} is looked into")
