"""Threads that a program starts, and work that it hands to a pool of threads.

A capture records what its own thread does. What the program computes in another one from tensors without data fails
by itself; what it computes there from weights, buffers and random numbers would be done once, while it is captured,
and never again. So a thread that the program's own code starts may do anything but compute.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from tintype.errors import CaptureError, Location
from tintype.fake.context import FakeContext
from tintype.fake.tensor import FakeTensor
from tintype.ir.process_switches import CountedSwitch
from tintype.symbolic.location import user_location
from tintype.trace.recorder import active_recorder

_pool = concurrent.futures.ThreadPoolExecutor
_WORKER = concurrent.futures.thread.__file__


class _ComputesNothing(TorchDispatchMode):
    """Refuses every operator of a thread, as long as the capture goes on that the thread belongs to."""

    def __init__(self, context: FakeContext, location: Location | None) -> None:
        super().__init__()
        self._context = context
        self._location = location

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._context.session is None or FakeTensor in types:  # those say themselves that they have no data
            return func(*args, **(kwargs or {}))
        error = CaptureError(
            f"the program computes in a thread of its own ({func}), which can't be captured: it would be done once, "
            "while the program is captured",
            location=user_location() or self._location,
            remedy="compute in the thread that calls the model, or compute it once in __init__",
        )
        self._context.used_outside(error)
        raise error


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a thread is to do, where the program that this thread captures has said so; else the same function."""
    recorder = active_recorder()
    if recorder is None or not recorder.is_recording:
        return function
    context, location = recorder.context, user_location()

    def work(*args: Any, **kwargs: Any) -> Any:
        with _ComputesNothing(context, location):
            return function(*args, **kwargs)

    return work


def _starting(start: Callable[..., Any]) -> Callable[..., Any]:
    """What ``threading.Thread.start`` calls with a method of the thread."""

    def watched_start(bootstrap: Any, *args: Any, **kwargs: Any) -> Any:
        thread = getattr(bootstrap, "__self__", None)
        target = getattr(thread, "_target", None)
        is_worker = getattr(getattr(target, "__code__", None), "co_filename", None) == _WORKER
        if isinstance(thread, threading.Thread) and not is_worker:  # a worker stays for others to use
            thread.run = _guarded(thread.run)  # type: ignore[method-assign]
        return start(bootstrap, *args, **kwargs)

    return watched_start


_STARTS = [name for name in ("_start_new_thread", "_start_joinable_thread") if hasattr(threading, name)]


def _watch() -> tuple[dict[str, Any], Any]:
    starts, submit = {name: getattr(threading, name) for name in _STARTS}, _pool.submit

    def watched_submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return submit(self, _guarded(fn), *args, **kwargs)

    for name, start in starts.items():
        setattr(threading, name, _starting(start))
    _pool.submit = watched_submit  # type: ignore[method-assign]
    return starts, submit


def _stop(before: tuple[dict[str, Any], Any]) -> None:
    starts, _pool.submit = before  # type: ignore[method-assign]
    for name, start in starts.items():
        setattr(threading, name, start)


watching_threads = CountedSwitch(_watch, _stop)
