"""Switches of the whole process that a capture needs in a certain position.

They are not per thread, so captures in several threads count themselves in and out: the first one sets a switch,
the last one puts it back.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._library import simple_registry


class CountedSwitch:
    """A context manager that sets something up for the first who enters and puts it back for the last who leaves."""

    def __init__(self, set_up: Callable[[], Any], put_back: Callable[[Any], None]) -> None:
        self._set_up = set_up
        self._put_back = put_back
        self._lock = threading.Lock()
        self._depth = 0
        self._saved: Any = None

    @contextlib.contextmanager
    def put_aside(self) -> Iterator[None]:
        """Within it, everything is as it was before the first one entered."""
        with self._lock:
            if self._depth:
                self._put_back(self._saved)
            try:
                yield
            finally:
                if self._depth:
                    self._saved = self._set_up()

    def __call__(self) -> CountedSwitch:
        """What ``with`` takes: it may be entered again and again, as it only counts."""
        return self

    def __enter__(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._saved = self._set_up()
            self._depth += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._put_back(self._saved)


def _pause_collector() -> bool:
    was_enabled = gc.isenabled()
    gc.disable()
    return was_enabled


def _resume_collector(was_enabled: bool) -> None:
    if was_enabled:
        gc.enable()


# A graph is made of many small objects that all stay alive. Python would look through all objects of the
# process for garbage again and again while they are made, which can take longer than making them.
collector_paused = CountedSwitch(_pause_collector, _resume_collector)


_this_thread = threading.local()


def is_capturing() -> bool:
    """Whether this thread is capturing a program."""
    return getattr(_this_thread, "captures", 0) > 0


# While a capture runs, the code of torch.compiler's own functions is that of the two below, so that the answer is
# right under every name that somebody has imported them by. They look names up in torch.compiler; there these two
# stand for the functions as they were.
_is_compiling_elsewhere: Callable[[], bool] = bool
_is_exporting_elsewhere: Callable[[], bool] = bool


def _is_compiling() -> bool:
    return is_capturing() or _is_compiling_elsewhere()


def _is_exporting() -> bool:
    return is_capturing() or _is_exporting_elsewhere()


_ANSWERS = {"is_compiling": _is_compiling, "is_exporting": _is_exporting}


# Before a mode gets to see an operator, torch looks in two tables, by functions of Python's, for what somebody has
# registered for modes of its class. Nobody has for the classes that say so, of which there is one operator after the
# other while a program is captured.
_find_rule_elsewhere: Callable[[Any, Any], Any] = getattr


def _find_rule(op: Any, torch_dispatch_class: Any) -> Any:
    if getattr(torch_dispatch_class, "takes_no_rules", False):
        return None
    return _find_rule_elsewhere(op, torch_dispatch_class)


def _leave_rules_out() -> types.CodeType:
    find = simple_registry.find_torch_dispatch_rule
    there = find.__code__
    vars(simple_registry)["_find_rule_elsewhere"] = types.FunctionType(there, vars(simple_registry))
    find.__code__ = _find_rule.__code__
    return there


def _start_compiling() -> tuple[Any, ...]:
    from tintype.interop import batched_operators, compiled_by_torch, nested_regions, their_tables

    their_tables.fill_before_capture()
    flags = torch.compiler
    names = vars(flags)
    names["is_capturing"] = is_capturing
    codes = {}
    for name, answer in _ANSWERS.items():
        function: Any = names[name]
        codes[name] = function.__code__
        names[f"_{name}_elsewhere"] = types.FunctionType(function.__code__, names)
        function.__code__ = answer.__code__
    codes["find_torch_dispatch_rule"] = _leave_rules_out()
    is_dynamo_compiling = flags.is_dynamo_compiling
    # torch's own control-flow functions hand their operator to whoever records only when asked by dynamo
    flags.is_dynamo_compiling = lambda: is_capturing() or is_dynamo_compiling()
    taken = nested_regions.take_over(), batched_operators.take_over(), compiled_by_torch.take_over()
    return codes, is_dynamo_compiling, *taken


def _stop_compiling(saved: tuple[Any, ...]) -> None:
    from tintype.interop import batched_operators, compiled_by_torch, nested_regions, their_tables

    their_tables.stop_waiting()
    codes, torch.compiler.is_dynamo_compiling, regions, batched, compiled = saved
    simple_registry.find_torch_dispatch_rule.__code__ = codes.pop("find_torch_dispatch_rule")
    names = vars(torch.compiler)
    for name, code in codes.items():
        names[name].__code__ = code  # what it asks stays: another thread may be in the middle of asking
    nested_regions.give_back(regions)
    batched_operators.give_back(batched)
    compiled_by_torch.give_back(compiled)


_compiling_somewhere = CountedSwitch(_start_compiling, _stop_compiling)

# What puts aside names of torch's that are replaced while a program is captured, for who looks at torch meanwhile and
# remembers what it finds.
replaced_names: list[Callable[[], contextlib.AbstractContextManager[None]]] = [_compiling_somewhere.put_aside]


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """While a program is captured, torch.compiler.is_compiling() and its kin answer True in this thread."""
    with _compiling_somewhere():
        _this_thread.captures = getattr(_this_thread, "captures", 0) + 1
        try:
            yield
        finally:
            _this_thread.captures -= 1


@contextlib.contextmanager
def not_capturing() -> Iterator[None]:
    """Within it this thread does something else, in the middle of a capture."""
    captures = getattr(_this_thread, "captures", 0)
    _this_thread.captures = 0
    try:
        yield
    finally:
        _this_thread.captures = captures


def _switch_onednn_off() -> bool:
    was_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    return was_enabled


# oneDNN's recurrent layer keeps what its backward needs only if gradients are enabled when it runs, so it can't be
# part of a graph that holds its own backward. Without it a recurrent layer is the operators of its steps.
onednn_off = CountedSwitch(_switch_onednn_off, torch._C._set_mkldnn_enabled)
