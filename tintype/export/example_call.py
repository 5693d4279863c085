"""A model with the call that it is exported by: something that can be captured, as often as needed.

One capture makes the program. Others find out what the first one can't tell: whether the order of keys makes another
program (:mod:`~tintype.export.key_order`), whether the second call of the model would be one
(:mod:`~tintype.export.lost_state`), and which sizes the program refuses (:mod:`~tintype.export.refused_sizes`).
"""

from __future__ import annotations

import copy
import functools
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from tintype import tree
from tintype.errors import DataDependentError, TintypeError
from tintype.export.dimensions import Dim, DimHint
from tintype.export.input_sizes import InputSizes
from tintype.export.kept_tensors import TwoCalls
from tintype.export.key_order import Reordered
from tintype.export.module_calls import signatures_preserved
from tintype.fake.context import FakeContext
from tintype.ir.sources import named_input
from tintype.symbolic.environment import Environment
from tintype.trace.answers import NeedsControlFlow
from tintype.trace.argument_names import argument_names
from tintype.trace.capture import Capture
from tintype.trace.captured_graph import CapturedGraph
from tintype.trace.example_answers import Decision, ExampleAnswers, assert_profiles
from tintype.trace.plain_flags import NeedsPlainFlags, PlainFlags
from tintype.trace.python_sequences import NeedsRewriting, rewritten, watch_plain_numbers
from tintype.trace.recording import one_at_a_time
from tintype.trace.snapshot import Change


class ExampleCall:
    """A model, the arguments of a call, and what was said about their sizes (``entries``, one per leaf)."""

    def __init__(
        self,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        entries: Sequence[Any],
        *,
        capture_class: Callable[..., Capture] = Capture,
        preserved: Sequence[str] = (),
        strict: bool = False,
        control_flow: str = "refuse",
        is_for_training: bool = False,
        decisions: list[Decision] | None = None,
    ) -> None:
        self.module = module
        self.args = args
        self.kwargs = kwargs
        self.entries = entries
        self._capture_class = capture_class
        self._preserved = preserved
        self.strict = strict
        self._interpreted: Callable[[Capture], AbstractContextManager[Any]] = _by_machine if strict else _natively
        self._may_flow = control_flow == "auto"
        self._has_varying_sizes = any(entry is not None for leaf in entries for entry in leaf or ())
        hints = [entry for leaf in entries for entry in leaf or () if isinstance(entry, (Dim, DimHint))]
        self._is_promised = any(isinstance(hint, Dim) or hint.kind == "DYNAMIC" for hint in hints)
        self.refused_loop: TintypeError | None = None  # why a loop was not recorded
        self._is_for_training = is_for_training
        # of a draft: what the example decided
        self._decisions = decisions
        self._watches_functions = False
        names = argument_names(module, args, kwargs)
        self._flat = tree.flatten_with_paths((args, kwargs))
        self._sources = [named_input(path, names) for path, _ in self._flat[0]]
        self._pretended: frozenset[tuple[str, tuple[Any, ...]]] = frozenset()
        self._flags = PlainFlags()  # those that the first capture asks for, others of the same call will, too

    def capture(self) -> tuple[CapturedGraph, InputSizes]:
        """Capture the call; also gives the sizes of its inputs."""
        try:
            return self._capture()
        except NeedsControlFlow:
            return self._capture_flow()
        except DataDependentError:
            if self._watches_functions:
                raise
        # positions in tensors of the model (self.rows[self.count]) are only heard where calls of functions are, which
        # costs every call something: a program that asks for no data does without
        self._watches_functions = True
        try:
            return self._capture()
        except NeedsControlFlow:
            return self._capture_flow()
        except DataDependentError:
            if not self._may_flow:
                raise
        return self._capture_flow()

    def fails_by_sizes(self, error: Exception) -> bool:
        """Whether the model raises an error only because sizes or numbers vary: captured with those of the example it
        raises none of its kind. Python's own functions in C take plain numbers, and say of others what they like."""
        if not self._has_varying_sizes or isinstance(error, TintypeError):
            return False
        fixed = copy.copy(self)
        fixed.entries, fixed._has_varying_sizes = [None] * len(self.entries), False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fixed.capture()
        except Exception as other:
            return type(other) is not type(error)
        return True

    def _capture_flow(self) -> tuple[CapturedGraph, InputSizes]:
        """Interpret the program: where it branches on data, both arms are captured; loops over sizes that vary are
        recorded. Where a loop can't be, it has the example's number of steps, unless a size was promised to vary."""
        self._may_flow = False
        try:
            return self._capture_interpreted(unrolls=False)
        except TintypeError as error:
            if self._is_promised or not self._has_varying_sizes:
                raise
            self.refused_loop = error
        try:
            return self._capture_interpreted(unrolls=True)
        except TintypeError:
            raise self.refused_loop from self.refused_loop.__cause__

    def _capture_interpreted(self, *, unrolls: bool) -> tuple[CapturedGraph, InputSizes]:
        from tintype.flow.apart import Apart  # few programs need it
        from tintype.flow.policy import NeedsApart, NeedsLoop, flowing

        loops: set[Any] = set()
        apart = Apart()
        flows = functools.partial(flowing, loops=loops, apart=apart, unrolls=unrolls, strict=self.strict)
        self._interpreted = functools.partial(flows, may_go_apart=True)
        unmerged: TintypeError | None = None
        while True:
            try:
                captured = self.capture()
            except NeedsLoop as need:
                if need.loop in loops:
                    raise AssertionError("a loop is met again") from need
                loops.add(need.loop)
            except NeedsApart as need:
                unmerged = unmerged or need.error
                apart.add(need.wanted)
            except Exception as error:  # what follows can't be captured in each arm either
                if unmerged is None:
                    raise
                raise unmerged from error
            else:
                self._interpreted = flows
                return captured

    def capture_loops(self) -> tuple[CapturedGraph, InputSizes]:
        """Capture a program that fixes a size which was to vary once more: with loops over it recorded."""
        self._may_flow = False
        return self._capture_interpreted(unrolls=False)

    @property
    def may_record_loops(self) -> bool:
        """Whether :meth:`capture_loops` could make a difference."""
        return self._may_flow and self._has_varying_sizes

    def _capture(self) -> tuple[CapturedGraph, InputSizes]:
        return self._again_and_again(lambda: self._run(self.entries, FakeContext(new_environment())))

    def capture_reordered(self, call: Reordered) -> CapturedGraph:
        """The same with dictionaries of the arguments in another order."""
        return self._again_and_again(lambda: self._run_reordered(call))

    def capture_pretending(self, questions: frozenset[tuple[str, tuple[Any, ...]]]) -> CapturedGraph:
        """The same with the opposite answers to questions about what is around the program."""
        self._pretended = questions
        try:
            return self._capture()[0]
        finally:
            self._pretended = frozenset()

    def capture_with(self, entries: Sequence[Any], environment: Environment) -> CapturedGraph:
        """The same with something else said about sizes; what is found out stands in ``environment``, also if the
        capture fails."""
        return self._run(entries, FakeContext(environment))[0]

    def capture_twice(self, kept: Sequence[Change], numbers: Sequence[Change]) -> str | None:
        """Call the model twice in one capture; why the second call is another one than the first, or None."""
        with one_at_a_time, self._library_forms(), rewritten(_make_sequences), self._flags.answered():
            context = FakeContext()
            inputs = InputSizes(context.environment, self.entries, self._sources)
            capture = Capture(
                self.module,
                self.args,
                self.kwargs,
                context,
                inputs.sizes_of,
                inputs.number_of,
                watches_functions=self._watches_functions,
            )
            with self._interpreted(capture):
                calls = capture.program = TwoCalls(capture, kept, numbers)
                capture.run(after_inputs=inputs.finish)
        return calls.difference

    def _again_and_again(self, run: Callable[[], Any]) -> Any:
        """Run a capture, again and again while functions turn up that make sequences of lengths that vary, or flags
        of sizes."""
        with one_at_a_time, self._library_forms():
            while True:
                try:
                    with rewritten(_make_sequences), self._flags.answered():
                        return run()
                except NeedsRewriting as need:
                    _make_sequences.add(need.function)
                except NeedsPlainFlags as need:
                    self._flags.add(need)

    def _library_forms(self) -> AbstractContextManager[None]:
        """Functions of libraries in the form that decides least, and of torch's where there are sizes to decide."""
        plug_ins = tree.loaded_plug_ins()
        if not plug_ins and not self._has_varying_sizes:
            return nullcontext()
        from tintype.interop.general_forms import TORCH_FORMS, general_forms

        return general_forms([*TORCH_FORMS, *(form for plug_in in plug_ins for form in plug_in.FORMS)])

    def _run(self, entries: Sequence[Any], context: FakeContext) -> tuple[CapturedGraph, InputSizes]:
        inputs = InputSizes(context.environment, entries, self._sources)
        return self._record(self.args, self.kwargs, inputs, context, inputs.sizes_of, inputs.number_of), inputs

    def _run_reordered(self, call: Reordered) -> CapturedGraph:
        context = FakeContext()
        inputs = InputSizes(context.environment, self.entries, self._sources)
        described = inputs.in_order(tree.leaves((self.args, self.kwargs)))  # symbols have the names that they had

        def size_of(position: int, _: Any) -> Any:
            return described[call.positions[position]]

        return self._record(call.args, call.kwargs, inputs, context, size_of, size_of)

    def _record(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: InputSizes,
        context: FakeContext,
        sizes_of: Any,
        number_of: Any,
    ) -> CapturedGraph:
        capture = self._capture_class(
            self.module,
            args,
            kwargs,
            context,
            sizes_of,
            number_of,
            is_for_training=self._is_for_training,
            watches_functions=self._watches_functions,
        )
        if kwargs is self.kwargs:  # the call itself, not one with its keys in another order
            capture.flat = self._flat
        capture.recorder.stops_at_branches = self._may_flow
        capture.recorder.observer.pretended = self._pretended
        answers = None if self._decisions is None else self._answered_by_example(capture, self._decisions)
        with signatures_preserved(capture.modules, self._preserved, capture.recorder), self._interpreted(capture):
            captured = capture.run(after_inputs=inputs.finish)
        if answers is not None:
            assert_profiles(captured.graph, answers.profiled)
        return captured

    def _answered_by_example(self, capture: Capture, decisions: list[Decision]) -> ExampleAnswers:
        """Let the example answer what only data can tell; what an earlier try decided is decided again."""
        decisions.clear()
        answers = ExampleAnswers(capture, decisions)
        capture.recorder.example = answers
        capture.context.environment.by_example = answers.number
        return answers


def new_environment() -> Environment:
    """What a capture learns sizes into; it looks for sequences whose lengths vary."""
    return Environment(before_plain=watch_plain_numbers)


def _natively(capture: Capture) -> AbstractContextManager[None]:
    return nullcontext()


def _by_machine(capture: Capture) -> AbstractContextManager[None]:
    from tintype.trace.interpreted import interpreting  # a room of its own, which most exports need not load
    from tintype.trace.watching import StrictPolicy

    return interpreting(capture, StrictPolicy())


# Functions that were found to make such sequences: rewritten they do the same with plain numbers, so that the next
# capture may begin with them.
_make_sequences: weakref.WeakSet[Any] = weakref.WeakSet()
