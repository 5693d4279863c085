"""Compiled functions and modules: calls go to the recorded program, and to a capture where it misses."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from tintype.compiler.backends import aot_eager, backend_of
from tintype.compiler.capture import Capture
from tintype.compiler.contract import contract_of
from tintype.compiler.dropping import drop_unused
from tintype.compiler.explaining import Explanation, explained
from tintype.compiler.graphs import make_graphs, of_free_sizes
from tintype.compiler.history import Captured, Failed, History, failed_guards
from tintype.compiler.known import is_of_namedtuples
from tintype.compiler.logs import log_capture
from tintype.compiler.making import NotMadeError
from tintype.compiler.operators import prepare
from tintype.compiler.policy import CapturePolicy, Hearing
from tintype.compiler.program import GONE, Program
from tintype.compiler.raising import CapturingMachine
from tintype.compiler.reads import TENSORS
from tintype.compiler.sources import Guard, Source, said
from tintype.compiler.stances import Stance, current_stance, follow
from tintype.compiler.trace import QUIET_STEPS, Call, Eagerly, Item, Return
from tintype.compiler.tree_of_runs import DivergedError, KnownError, Place
from tintype.compiler.undoing import take_back
from tintype.compiler.varying import Varying
from tintype.compiler.writing import sizes_asked
from tintype.errors import CaptureError, InvalidRequestError, Location, RecompileError, RecompileWarning
from tintype.ir.call_description import modes
from tintype.ir.process_switches import collector_paused
from tintype.symbolic.location import levels_to_the_user
from tintype.trace.recorder import active_recorder

# how many runs of a function are known at most, before those that were not used of late are dropped
MOST_RUNS = 64
# how often a run is taken over in its middle without being kept, before the function runs eagerly
MOST_TAKEN_OVER = 8

_thread = threading.local()

ENGINES: weakref.WeakSet[Engine] = weakref.WeakSet()


def follow_stance() -> None:
    """Let all compiled functions do as the stance says."""
    for engine in list(ENGINES):
        engine.choose()


follow(follow_stance)


def is_capturing() -> bool:
    """Whether this thread is inside of the capture of a compiled function.

    >>> import tintype
    >>> tintype.compile.is_compiling()
    False
    """
    return getattr(_thread, "depth", 0) > 0


class Engine:
    """The recorded program of one callable, and what happened to it.

    ``is_forced``: it stands in for another one by order of a stance, and has no stance of its own."""

    run: Callable[[tuple[Any, ...], dict[str, Any]], Any]

    def __init__(self, function: Callable[..., Any], options: Options, is_forced: bool = False) -> None:
        self.function = function
        self.options = options
        self.is_forced = is_forced
        self.lock = threading.RLock()
        self.writing = threading.RLock()  # while the tree of runs grows, or becomes code
        self.reset()
        ENGINES.add(self)

    def reset(self) -> None:
        """Forget what was recorded."""
        self.program = Program({"_miss": self.miss, "_eagerly": self.function})
        self.entry: Callable[..., Any] = self.first_call
        self.history = History()
        self.given_up: list[tuple[str, Location | None]] = []
        self.is_eager = False
        self.why_eager = ""
        # what code runs went through, by their ends
        self.codes: weakref.WeakKeyDictionary[Item, list[tuple[str, CodeType]]] = weakref.WeakKeyDictionary()
        self.taken_over = 0
        self.has_waited = False
        self._stand_ins: dict[Any, Engine] = {}
        self.varying = Varying(self.options.dynamic)
        if self.is_async:
            self.is_eager, self.why_eager = True, "async def is not captured"
        self.choose()

    @property
    def is_async(self) -> bool:
        """Whether calls give coroutines, which others run later, a part at a time."""
        called = getattr(self.function, "forward", self.function)
        return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)

    @property
    def captures(self) -> int:
        return self.history.captures

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def explain(self) -> Explanation:
        """What became of the calls so far: graphs, breaks, captures, each with its line and its reason."""
        return explained(self)

    def contract(self) -> str:
        """What calls have to be like to need no other capture, run by run: sizes that are fixed and that vary,
        values, and what else was read.

        >>> import torch, tintype
        >>> rows = tintype.compile(lambda x: x * x.shape[0], dynamic=True)
        >>> y = rows(torch.ones(3, 2))
        >>> print(*rows.contract().splitlines()[:4], sep="\\n")
        <lambda> takes any call; these need no other capture:
          run 1
            1 positional argument
            argument 0: a Tensor; 2 dimensions; size 0 varies; size 1 varies
        """
        return contract_of(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all runs that are known into a file, for :func:`tintype.compile.load`."""
        from tintype.compiler.saving import save

        save(self, path)

    # --- who is called ---------------------------------------------------------------------------------------------

    def choose(self) -> None:
        """Who runs calls, by the stance and what has happened."""
        stance = Stance() if self.is_forced else current_stance()
        if stance.backend is not None:
            self.run = self.stand_in(stance.backend).call
        elif stance.name == "force_eager" or self.is_eager:
            self.run = self.as_it_is
        else:
            self.run = self.timed if self.history.is_timed() else self.entry

    def stand_in(self, backend: Any) -> Engine:
        """An engine for the same function with another backend."""
        if backend not in self._stand_ins:
            self._stand_ins[backend] = Engine(self.function, self.options.with_backend(backend), is_forced=True)
        return self._stand_ins[backend]

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function in whichever way is right now."""
        return self.run(args, kwargs)

    def first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of which nothing is known."""
        return self.miss(args, kwargs, {}, Place(self.program.root))

    def write_and_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the program after a capture, and write it first: one that is not called again is never written."""
        with self.writing:
            if self.entry == self.write_and_call:  # else another thread has written it
                started = time.perf_counter()
                with collector_paused():
                    self.entry = self.program.compiled()
                self.history.has_written(time.perf_counter() - started)
                self.choose()
        return self.entry(args, kwargs)

    def as_it_is(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function itself."""
        if self.options.fullgraph and self.is_async and current_stance().name != "force_eager":
            raise CaptureError(f"{self.name!r} is no single graph: it is an async def, which is not captured")
        return self.function(*args, **kwargs)

    def timed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the program, and note how long it takes."""
        started = time.perf_counter()
        try:
            return self.entry(args, kwargs)
        finally:
            self.history.seconds += time.perf_counter() - started

    # --- where the program does not know further -------------------------------------------------------------------

    def miss(self, args: Any, kwargs: Any, found: dict[str, Any], place: Place) -> Any:
        """No run that is known has these answers: capture the rest of this one."""
        known_runs = self.program.count
        take_back(found.get("U") or [])
        count = sum(name[0] == "v" and name[1:].isdigit() for name in found)
        given = [found[f"v{position}"] for position in range(count)]
        if found.get("failed") is not None:  # a call raised what the program may catch
            given.append(found["failed"])
        gone = {position for position, value in enumerate(given) if value is GONE}
        shapes, numbers = self._shapes(place.path, found), self._numbers(place.path, found)
        found.clear()
        for item in place.path:
            if isinstance(item, Call) and item.number in gone:
                given[item.number] = stand_in(item)
            if isinstance(item, Call) and item.same_as is not None and item.number < len(given):
                if item.number in gone or item.same_as in gone:  # else they are what they are
                    given[item.number] = given[item.same_as]
        if not given and (is_capturing() or _is_observed(self.options.whole_graphs)):
            return self.function(*args, **kwargs)
        if not given and self._waits():
            wait_with = self.stand_in("aot_eager").run if current_stance().name.startswith("aot") else self.as_it_is
            return wait_with(args, kwargs)
        what_failed = functools.cache(
            lambda: failed_guards(place.guards(), args, kwargs, given) if self.captures else []
        )
        is_kept = self._may_capture(what_failed)
        if not is_kept and not given:
            return self.function(*args, **kwargs)
        failed = what_failed()
        with self.lock:
            if given or self.program.count == known_runs:
                self.varying.note([item.guard for item in failed], args, kwargs, given)
                capture = Capture(
                    args,
                    kwargs,
                    whole_graphs=self.options.whole_graphs,
                    frees_sizes=self.options.frees_sizes,
                    given=given,
                    varying=self.varying,
                )
                try:
                    capture.given_shapes = shapes
                    capture.again.take(place.path if given else [], numbers)
                    return self._capture(capture, place.path, failed, is_kept)
                finally:
                    capture.let_go()
        return self.run(args, kwargs)  # another thread has captured meanwhile

    def _shapes(self, path: list[Item], found: dict[str, Any]) -> dict[Any, Any]:
        """Sizes that the program has asked for: results may be gone, and a write may have given a tensor others."""
        asked = sizes_asked(path)
        names = {source.path: self.program.name_of(source) for source in asked}
        return {path: found[name] for path, name in names.items() if type(found.get(name)) is torch.Size}

    def _numbers(self, path: list[Item], found: dict[str, Any]) -> dict[Any, Any]:
        """Numbers that vary and that the program has read: a step may have changed what is there."""
        guards = [item for item in path if isinstance(item, Guard) and item.kind == "type"]
        names = {item.source.path: self.program.name_of(item.source) for item in guards}
        return {path: found[name] for path, name in names.items() if type(found.get(name)) in (int, float)}

    def _waits(self) -> bool:
        """Whether this call is the first one, in a stance that lets it pass."""
        if self.has_waited or self.is_forced or not current_stance().name.endswith("eager_then_compile"):
            return False
        self.has_waited = True
        return not self.captures

    def _may_capture(self, what_failed: Callable[[], list[Failed]]) -> bool:
        """``what_failed`` takes its time, and is asked where there is something to say."""
        stance = "default" if self.is_forced else current_stance().name
        if stance == "fail_on_recompile":
            failed = what_failed()
            again = f"again: {failed[0].words}" if failed else "now"
            raise RecompileError(
                f"{self.name!r} would be captured {again}",
                remedy=failed[0].remedy if failed else "call it in the stance 'default' first",
            )
        if stance == "eager_on_recompile":
            return False
        if self.history.may_capture():
            return True
        self.history.not_captured += 1
        if not self.history.has_warned:
            self.history.has_warned = True
            warnings.warn(
                self.history.warning(self.name, what_failed()), RecompileWarning, stacklevel=levels_to_the_user()
            )
        return False

    def _run_eagerly(self, why: str) -> None:
        self.is_eager, self.why_eager = True, why
        self.choose()

    # --- capturing -------------------------------------------------------------------------------------------------

    def _capture(self, capture: Capture, path: list[Item], failed: list[Failed], is_kept: bool) -> Any:
        capture.note_given(path)
        for listener in self.options.listeners if failed else ():
            listener([item.guard for item in failed])
        policy = WatchingPolicy(capture)
        machine = capture.machine = CapturingMachine(policy)
        prepare(machine)
        args, kwargs = self._read_arguments(capture)
        self.history.attempts += is_kept
        started = time.perf_counter()
        _thread.depth = getattr(_thread, "depth", 0) + 1
        try:
            with Hearing(capture):
                result = machine.call(self.function, *args, **kwargs)
        except BaseException as error:
            if capture.has_numbers:
                capture.without_numbers(error)
            raise
        finally:
            capture.is_over = True
            _thread.depth -= 1
        if is_kept:
            capture.refuse_fixed_sizes()
            with collector_paused(), self.writing:
                outcome = self._keep(capture, result, policy.codes)
            reasons = [item.words for item in failed]
            place = said(failed[0].guard.source) if failed else ""
            self.history.add(Captured(reasons, time.perf_counter() - started, outcome, place))
            log_capture(self.name, capture, self.history.captured[-1])
            self.choose()
            if self.options.fullgraph:
                refuse_breaks(capture)
        else:
            self._note_taken_over()
        return capture.without_numbers(result) if capture.has_numbers else result

    def _note_taken_over(self) -> None:
        """A run that is not kept was interpreted from its middle on, which takes longer than to run as it is."""
        if not self.history.may_capture():
            self.taken_over += 1
            if self.taken_over > MOST_TAKEN_OVER:
                self._run_eagerly("captures would take too much of its time, and its runs differ in the middle")

    def _read_arguments(self, capture: Capture) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = capture.args, capture.kwargs
        capture.guard("arguments", Source("constant", None), (len(args), tuple(kwargs)))
        if capture.whole_graphs:
            before = capture.given_answers.get(("modes", ()))  # at the start of a run that is taken over
            capture.guard("state", Source("constant", modes), (modes, (), before[0] if before else modes()))
        self._register_function(capture)
        read = capture.read_number
        return (
            tuple(read(Source("argument", position), value) for position, value in enumerate(args)),
            {name: read(Source("keyword", name), value) for name, value in kwargs.items()},
        )

    def _register_function(self, capture: Capture) -> None:
        function: Any = self.function
        while True:
            if type(function) is MethodType:
                capture.read(Source("constant", function.__self__), function.__self__)
                function = function.__func__
            elif type(function) is functools.partial:
                capture.read(Source("constant", function), function)
                return
            else:
                break
        if type(function) is FunctionType:
            capture.read(Source("constant", function), function)
        else:
            capture.register(Source("constant", function), function)

    def _keep(self, capture: Capture, result: Any, codes: Collection[tuple[str, CodeType]]) -> str:
        """Add a run to the program; says what became of it."""
        capture.machine = None
        value: Any = None
        if capture.is_noting:
            capture.check_given_away()
        if capture.is_noting:
            try:
                value = capture.shared_expression(result)
            except NotMadeError as problem:
                capture.give_up(f"{problem} is returned")
        items: list[Item] = capture.items()
        if capture.reason is not None:
            self.given_up.append(capture.reason)
            if capture.given or len(self.given_up) > 16:
                self._run_eagerly(f"{capture.reason[0]}")
                return f"runs eagerly: {capture.reason[0]}"
            items = [*capture.segments[0].guards, Eagerly(*capture.reason)]
        else:
            items.append(Return(value))
        try:
            new = self.program.insert(items)
        except KnownError:  # two threads ran into it at the same time
            return "known already"
        except DivergedError as problem:
            self._run_eagerly(str(problem))
            return f"runs eagerly: {problem}"
        self.codes[items[-1]] = list(codes)
        if self.options.make is not None and capture.reason is None:
            free = of_free_sizes(items)
            make_graphs(new.items, self.options.make, capture.value_of, free, ahead=self.options.fullgraph)
        if self.program.count > MOST_RUNS:
            drop_unused(self.program, new)
        self.entry = self.write_and_call
        return "kept" if capture.reason is None else f"such calls run eagerly: {capture.reason[0]}"


def stand_in(call: Call) -> torch.Tensor:
    """What takes the place of a result that is gone: nobody looks at its data, but code may ask for its class."""
    made, tensor = call.function[1], torch.empty(0)
    return made(tensor, requires_grad=False) if made in TENSORS[1:] else tensor


class WatchingPolicy(CapturePolicy):
    """Notes the code that a run went through, too."""

    def __init__(self, capture: Capture) -> None:
        super().__init__(capture)
        self.codes: set[tuple[str, CodeType]] = set()

    def interprets(self, function: FunctionType) -> bool:
        is_interpreted = super().interprets(function)
        if is_interpreted and not is_of_namedtuples(function.__globals__):
            self.codes.add((str(function.__module__), function.__code__))
        return is_interpreted


class Options:
    """How a function is compiled."""

    def __init__(
        self,
        backend: Any = "eager",
        fullgraph: bool = False,
        options: Mapping[str, Any] | None = None,
        mode: str | None = None,
        dynamic: bool | None = None,
    ) -> None:
        if dynamic not in (None, True, False):
            raise InvalidRequestError(f"dynamic is True, False or None, not {dynamic!r}")
        self.backend = backend
        self.dynamic = dynamic
        self.of_backend, self.mode = options, mode
        self.fullgraph = fullgraph
        self.make = backend_of(backend, options, mode)
        self.whole_graphs = self.make is not None
        self.frees_sizes = self.make is aot_eager
        # called with the guards that failed, before a function is captured again
        self.listeners: list[Callable[[list[Guard]], None]] = []

    def with_backend(self, backend: Any) -> Options:
        """The same with another backend."""
        return Options(backend, self.fullgraph, dynamic=self.dynamic)


def refuse_breaks(capture: Capture) -> None:
    """Raise an error that names all that is no part of one graph."""
    breaks = [(call.step, call.location) for call in capture.calls if call.step and call.step not in QUIET_STEPS]
    breaks += [] if capture.reason is None else [capture.reason]
    if breaks:
        lines = [
            f"  {reason}" + ("" if at is None else f"\n    {at}\n      {at.source_line()}") for reason, at in breaks
        ]
        count = f"{len(breaks)} break{'s' if len(breaks) > 1 else ''}"
        raise CaptureError(f"the function is no single graph: {count}\n" + "\n".join(lines))


def _is_observed(in_graphs: bool) -> bool:
    """Whether somebody else sees what this thread does: modes, a capture of another kind; of graphs, which are for
    tensors as they are, a transform such as vmap."""
    return bool(
        (in_graphs and torch._C._functorch.maybe_current_level() is not None)
        or torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or active_recorder() is not None
        or torch._C._get_tracing_state()
    )
