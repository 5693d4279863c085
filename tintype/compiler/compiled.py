"""Compiled functions and modules: calls go to the recorded program, and to a capture where it misses."""

from __future__ import annotations

import collections
import functools
import threading
import time
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any

import torch

from tintype.compiler.backends import backend_of
from tintype.compiler.capture import Capture
from tintype.compiler.explaining import explained
from tintype.compiler.graphs import make_graphs
from tintype.compiler.making import NotMadeError
from tintype.compiler.operators import prepare
from tintype.compiler.policy import CapturePolicy, Hearing
from tintype.compiler.program import GONE, DivergedError, Node, Program
from tintype.compiler.sources import Guard, Source
from tintype.compiler.trace import SETS_MODE, Call, Eagerly, Item, Return
from tintype.compiler.undoing import take_back
from tintype.errors import CaptureError, Location
from tintype.interpret import Machine
from tintype.ir.call_description import modes
from tintype.trace.recorder import active_recorder

# how often a function is captured before it runs eagerly
MOST_CAPTURES = 64

_thread = threading.local()


def is_capturing() -> bool:
    """Whether this thread is inside of the capture of a compiled function.

    >>> import tintype
    >>> tintype.compile.is_compiling()
    False
    """
    return getattr(_thread, "depth", 0) > 0


class Engine:
    """The recorded program of one callable, and what happened to it."""

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        self.function = function
        self.options = options
        self.lock = threading.RLock()
        self.reset()

    def reset(self) -> None:
        """Forget what was recorded."""
        self.program = Program({"_miss": self.miss, "_eagerly": self.function})
        self.run: Callable[..., Any] = self.program.compiled()
        self.captures = 0
        self.capture_seconds = 0.0
        self.given_up: list[tuple[str, Location | None]] = []
        self.recompiles: list[str] = []
        self.is_eager = False
        self.why_eager = ""

    def explain(self) -> str:
        """What became of the calls so far: graphs, breaks, captures, each with its line and its reason."""
        return explained(self)

    def as_it_is(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    # --- where the program does not know further -------------------------------------------------------------------

    def miss(self, args: Any, kwargs: Any, found: dict[str, Any], number: int) -> Any:
        """No run that is known has these answers: capture the rest of this one."""
        take_back(found.get("U") or [])
        count = sum(name[0] == "v" and name[1:].isdigit() for name in found)
        given = [found[f"v{position}"] for position in range(count)]
        given = [torch.empty(0) if value is GONE else value for value in given]
        found.clear()
        path = self._path(self.program.nodes[number])
        for item in path:
            if isinstance(item, Call) and item.same_as is not None and item.number < len(given):
                given[item.number] = given[item.same_as]
        if not given and (is_capturing() or _is_observed() or not self._may_capture()):
            return self.function(*args, **kwargs)
        self._note_recompile(args, kwargs, given)
        with self.lock:
            return self._capture(args, kwargs, given, path)

    @staticmethod
    def _path(node: Node) -> list[Item]:
        nodes = [node]
        while nodes[-1].parent is not None:
            nodes.append(nodes[-1].parent)
        return [item for step in reversed(nodes) for item in step.items]

    def _may_capture(self) -> bool:
        if self.captures < self.options.captures:
            return True
        self._run_eagerly(f"it was captured {self.captures} times")
        return False

    def _note_recompile(self, args: Any, kwargs: Any, given: list[Any]) -> None:
        if not self.captures:
            return
        node = self.program.root
        reasons: list[Guard] = []
        for child in node.children:
            for below in child.walk():
                for guard in below.items:
                    if isinstance(guard, Guard) and guard.source.root.kind != "value":
                        if not guard.holds(args, kwargs, given):
                            reasons.append(guard)
                            break
        if reasons:
            self.recompiles.append(reasons[0].failure(args, kwargs, given))
            for listener in self.options.listeners:
                listener(reasons)

    # --- capturing -------------------------------------------------------------------------------------------------

    def _capture(self, args: Any, kwargs: Any, given: list[Any], path: list[Item]) -> Any:
        capture = Capture(args, kwargs, whole_graphs=self.options.whole_graphs, given=given)
        for item in path:
            if isinstance(item, Guard) and item.kind in ("answer", "state"):
                read, arguments, answer = item.expected
                key = (read, arguments, item.source.path) if item.kind == "answer" else (read.__name__, arguments)
                capture.given_answers.setdefault(key, collections.deque()).append(answer)
        machine = capture.machine = Machine(CapturePolicy(capture))
        prepare(machine)
        self._read_arguments(capture)
        started = time.perf_counter()
        _thread.depth = getattr(_thread, "depth", 0) + 1
        try:
            with Hearing(capture):
                result = machine.call(self.function, *args, **kwargs)
        finally:
            capture.is_over = True
            _thread.depth -= 1
        self.captures += 1
        self._keep(capture, result)
        if self.options.fullgraph:
            refuse_breaks(capture)
        self.capture_seconds += time.perf_counter() - started
        return result

    def _read_arguments(self, capture: Capture) -> None:
        args, kwargs = capture.args, capture.kwargs
        capture.guard("arguments", Source("constant", None), (len(args), tuple(kwargs)))
        if capture.whole_graphs:
            before = capture.given_answers.get(("modes", ()))  # at the start of a run that is taken over
            capture.guard("state", Source("constant", modes), (modes, (), before[0] if before else modes()))
        self._register_function(capture)
        for position, value in enumerate(args):
            capture.read(Source("argument", position), value)
        for name, value in kwargs.items():
            capture.read(Source("keyword", name), value)

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

    def _keep(self, capture: Capture, result: Any) -> None:
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
                return
            items = [*capture.segments[0].guards, Eagerly(*capture.reason)]
        else:
            items.append(Return(value))
        try:
            new = self.program.insert(items)
        except DivergedError as problem:
            self._run_eagerly(str(problem))
            return
        if self.options.make is not None and capture.reason is None:
            make_graphs(new.items, self.options.make, capture.value_of)
        self.run = self.program.compiled()

    def _run_eagerly(self, why: str) -> None:
        self.is_eager, self.why_eager = True, why
        self.run = self.as_it_is


class Options:
    """How a function is compiled."""

    def __init__(
        self,
        backend: Any = "eager",
        fullgraph: bool = False,
        options: Mapping[str, Any] | None = None,
        mode: str | None = None,
    ) -> None:
        self.backend = backend
        self.fullgraph = fullgraph
        self.make = backend_of(backend, options, mode)
        self.whole_graphs = self.make is not None
        self.captures = MOST_CAPTURES
        # called with the guards that failed, before a function is captured again
        self.listeners: list[Callable[[list[Guard]], None]] = []


def refuse_breaks(capture: Capture) -> None:
    """Raise an error that names all that is no part of one graph."""
    breaks = [(call.step, call.location) for call in capture.calls if call.step and call.step != SETS_MODE]
    breaks += [] if capture.reason is None else [capture.reason]
    if breaks:
        lines = [
            f"  {reason}" + ("" if at is None else f"\n    {at}\n      {at.source_line()}") for reason, at in breaks
        ]
        count = f"{len(breaks)} break{'s' if len(breaks) > 1 else ''}"
        raise CaptureError(f"the function is no single graph: {count}\n" + "\n".join(lines))


def _is_observed() -> bool:
    """Whether somebody else sees what this thread does: modes, a capture of another kind."""
    return bool(
        torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or active_recorder() is not None
        or torch._C._get_tracing_state()
    )
