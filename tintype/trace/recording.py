"""A capture that is going on: who records, and what is different meanwhile for the thread and the process.

    with Recording(recorder) as recording:
        program(*fakes)                 # every operator comes to the recorder
        with recording.suspended():
            model(*tensors)             # runs for real, and may capture other programs

What is replaced in torch asks :func:`~tintype.trace.recorder.active_recorder`, which knows the thread, so that a
recording that is suspended, and other threads, see torch as it is. Recordings nest: the innermost one records.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch

from tintype.fake.context import FakeContext
from tintype.ir.process_switches import compiling, not_capturing
from tintype.symbolic.environment import Environment
from tintype.symbolic.location import NATIVE, program_runs_on
from tintype.trace.distributed_tensors import remembering_no_divisions
from tintype.trace.gradients import gradients_refused
from tintype.trace.modes import DEVICES, statements_unwatched, watching_statements
from tintype.trace.origin import OriginTracker
from tintype.trace.other_threads import watching_threads
from tintype.trace.recorder import Recorder
from tintype.trace.script_methods import script_methods
from tintype.trace.surroundings import refuse_changed_seed, watching_surroundings

# A program may assign fakes to attributes of a model that another thread is about to look at: from looking at a
# model to having put it back, captures take turns. A recording that is suspended keeps its turn.
one_at_a_time = threading.RLock()


class Recording:
    """A recorder at work. While it is, fakes of its context ask it, and torch's own state is kept for afterwards."""

    def __init__(self, recorder: Recorder, *, watches_functions: bool = False) -> None:
        self.recorder = recorder
        # whether calls of functions are heard from the start, and not only when there are symbols or gradients
        self._watches_functions = watches_functions
        recorder.recording = self
        self._outside: ThreadState | None = None
        self._entered = ExitStack()
        self._seed = 0

    @property
    def context(self) -> FakeContext:
        """What its fakes share."""
        return self.recorder.context

    @property
    def environment(self) -> Environment:
        """What is known of sizes and numbers."""
        return self.recorder.context.environment

    @property
    def origins(self) -> OriginTracker:
        """Who knows where in the program an operator was called."""
        return self.recorder.origins

    def __enter__(self) -> Recording:
        recorder = self.recorder
        self._outside = ThreadState.now()
        self._seed = torch.initial_seed()
        with ExitStack() as entered:
            entered.callback(self._put_back, torch.random.get_rng_state())
            entered.enter_context(self.answering())
            torch.set_autocast_cache_enabled(False)  # it would keep fakes for the eager code after us
            switches = (compiling, gradients_refused, watching_surroundings, remembering_no_divisions, script_methods)
            for replacement in (*switches, watching_threads):
                entered.enter_context(replacement())
            recorder.modes.watch(entered.enter_context(watching_statements()))
            if recorder.below_autograd:
                entered.enter_context(torch._C._AutoDispatchBelowADInplaceOrView())
                # above autograd composite operators are taken apart first: what is a view stays one of a conjugate
                entered.enter_context(torch._C._ExcludeDispatchKeyGuard(_RESOLVED))
            entered.enter_context(recorder)
            entered.callback(recorder.stop_watching)
            if self._watches_functions or self.environment.symbols or not recorder.below_autograd:
                recorder.watch_functions()
            self._entered = entered.pop_all()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        with self._entered:
            if error is None:
                refuse_changed_seed(self._seed)

    def _put_back(self, generator_state: torch.Tensor) -> None:
        assert self._outside is not None
        self._outside.restore()
        if torch.initial_seed() != self._seed:  # the program set it; other threads may draw meanwhile
            torch.random.set_rng_state(generator_state)

    def answering(self) -> AbstractContextManager[None]:
        """Within it the recorder answers what its fakes are asked."""
        return self._answered_by(self.recorder)

    @contextlib.contextmanager
    def _answered_by(self, recorder: Recorder | None) -> Iterator[None]:
        context, environment = self.context, self.environment
        session, was_running = context.session, environment.has_running_program
        context.session, environment.has_running_program = recorder, recorder is not None
        try:
            with program_runs_on(NATIVE if recorder is None else recorder.origins.stack):
                yield
        finally:
            context.session, environment.has_running_program = session, was_running

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Within it nothing is recorded, and torch is as it was outside of the recording.

        Tensors are real there: a fake of the program has no data that could be computed with.
        """
        if self._outside is None:
            raise RuntimeError("the recording has not begun")
        inside = ThreadState.now()
        try:
            with modes_set_aside(), self._answered_by(None), not_capturing(), statements_unwatched():
                self._outside.restore()
                with self._outside.dispatching():
                    yield
        finally:
            inside.restore()


_RESOLVED = torch._C.DispatchKeySet(torch._C.DispatchKey.Conjugate) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.Negative
)


class ThreadState:
    """What a program may switch in its thread: gradients, autocast, the default dtype, and how torch dispatches."""

    def __init__(self, included: Any, excluded: Any, gradients: bool, dtype: torch.dtype, cache: bool) -> None:
        self._keys = included, excluded
        self._gradients = gradients
        self._dtype = dtype
        self._cache = cache
        self._autocast = {device: torch.is_autocast_enabled(device) for device in DEVICES}
        self._dtypes = {device: torch.get_autocast_dtype(device) for device in DEVICES if self._autocast[device]}

    @classmethod
    def now(cls) -> ThreadState:
        """The state that the thread is in."""
        return cls(
            torch._C._dispatch_tls_local_include_set(),
            torch._C._dispatch_tls_local_exclude_set(),
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
            torch.is_autocast_cache_enabled(),
        )

    def dispatching(self) -> Any:
        """A context in which operators are dispatched as they were."""
        return torch._C._ForceDispatchKeyGuard(*self._keys)

    def restore(self) -> None:
        """Let the thread be in this state again."""
        torch.set_autocast_cache_enabled(self._cache)
        torch.set_grad_enabled(self._gradients)
        torch.set_default_dtype(self._dtype)
        for device, enabled in self._autocast.items():
            if torch.is_autocast_enabled(device) is not enabled:
                torch.set_autocast_enabled(device, enabled)
        for device, dtype in self._dtypes.items():
            torch.set_autocast_dtype(device, dtype)


@contextlib.contextmanager
def modes_set_aside() -> Iterator[None]:
    """Within it this thread has none of the modes that see operators and functions, ours or the program's."""
    operators: list[Any] = []
    functions: list[Any] = []
    while torch._C._len_torch_dispatch_stack():
        operators.append(torch._C._pop_torch_dispatch_stack(None))
    while torch._C._len_torch_function_stack():
        functions.append(torch._C._pop_torch_function_stack())
    try:
        yield
    finally:
        for mode in reversed(functions):
            torch._C._push_on_torch_function_stack(mode)
        for mode in reversed(operators):
            torch._C._push_on_torch_dispatch_stack(mode)
