"""Where in the user's program an operator was called, found out cheaply.

The recorder asks for an origin at every operator, so the work per operator must be small. The call stack
between the operator and the innermost module call is walked; everything further out is shared with the
operators before, since the frames around a module call stand still while it runs. Nothing is patched and
no hook is installed: a module call is recognised by its frame, ``torch.nn.Module._call_impl``.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from torch.fx import traceback

from tintype.ir.node_info import Frame, ModuleCall, Origin, Step
from tintype.symbolic.catching import goes_on_after
from tintype.symbolic.location import NATIVE

_CALL = torch.nn.Module._call_impl.__code__
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@functools.lru_cache(maxsize=65536)  # asked several times for every operator
def _is_own(filename: str) -> bool:
    """Whether a file is one of tintype's."""
    return filename.startswith(_OWN)


def program_steps(origin: Origin) -> list[Step]:
    """The frames of an origin without those of the recorder, of which there are as many as its way was long."""
    return [step for step in origin.steps if isinstance(step, Frame) or not step[0].co_filename.startswith(_OWN)]


def annotated(origin: Origin) -> Origin:
    """An origin with what the program says of itself at this point."""
    said = traceback.current_meta
    if said and "custom" in said:
        origin.annotations = dict(said["custom"])  # a statement inside of this one changes the dictionary itself
    return origin


class OriginTracker:
    """Knows the modules of a program by name, and follows which of them are being called.

    ``stack`` are the frames that the program runs on."""

    stack = NATIVE

    def __init__(self, modules: Iterable[tuple[str, torch.nn.Module]]) -> None:
        # of a module that has several, the first
        self.paths = {id(module): path for path, module in reversed(list(modules))}
        self.entry: FrameType | None = None
        self._serials: dict[str | None, int] = {}
        self._call_counts: dict[str, int] = {}
        # the calls that run, outermost first, and after them perhaps some that have ended
        self._calls: dict[Any, ModuleCall] = {}
        self._class_names: dict[type, str] = {}
        self._caught: dict[Any, bool] = {}  # by module call: whether what is around it goes on after an error

    def goes_on_after(self, frame: FrameType, error: type[BaseException]) -> bool:
        """Whether a frame of the program, or one that called it, may go on after an error of a class raised now."""
        return goes_on_after(frame, error, self._calls, self._caught)

    def enter(self) -> None:
        """Mark the caller's frame as the one the program is called from."""
        self.entry = sys._getframe(1)

    def leave(self) -> None:
        """Let go of all frames: they keep the program's local variables alive."""
        self.entry = None
        self._calls.clear()
        self._caught.clear()

    def forget_ended_calls(self) -> None:
        """Let go of the frames of calls that have ended, before somebody asks who holds what the program made."""
        running = set(map(id, self._running()))
        while self._calls and id(next(reversed(self._calls))) not in running:
            self._calls.popitem()

    def _running(self) -> Iterator[Any]:
        """What the calls that run are known by, among others."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame is not self.entry:
            yield frame
            frame = frame.f_back

    def origin(self, depth: int, function: str | None = None) -> Origin:
        """The origin of an operator; ``depth`` frames above the caller are not part of it, nor are tintype's own."""
        frame: FrameType | None = sys._getframe(depth + 1)
        serial = self._serials[function] = self._serials.get(function, 0) + 1
        entry, calls = self.entry, self._calls
        while frame is not None and frame is not entry and _is_own(frame.f_code.co_filename):
            frame = frame.f_back
        call: ModuleCall | None = None
        steps: list[Step] = []
        while frame is not None and frame is not entry:
            code = frame.f_code
            if code is _CALL:
                call = calls.get(frame)
                if call is not None:  # those inside of it have ended
                    while next(reversed(calls)) is not frame:
                        calls.popitem()
                    break
                if (call := self._call_of(frame)) is not None:
                    break
            steps.append((code, frame.f_lasti))
            frame = frame.f_back
        else:
            calls.clear()
        origin = Origin(call, tuple(steps), function, serial)
        return annotated(origin) if traceback.current_meta else origin

    def _call_of(self, frame: FrameType) -> ModuleCall | None:
        """The call that a frame is which is not known yet, if it is one of the program's modules'; then it is the
        innermost that runs."""
        # Python makes a dictionary of all variables of a frame for whoever asks for one
        module = frame.f_locals["self"]
        return self._follow(frame, module) if id(module) in self.paths else None

    def _end_those_inside(self, frame: Any) -> None:
        """The call that a frame is runs: those inside of it have ended."""
        calls = self._calls
        while next(reversed(calls)) is not frame:
            calls.popitem()

    def _follow(self, frame: FrameType, module: torch.nn.Module) -> ModuleCall:
        """Add a call to those that run, and the calls around it that called no operator before."""
        steps: list[Step] = []
        outer = frame.f_back
        parent: ModuleCall | None = None
        while outer is not None and outer is not self.entry:
            code = outer.f_code
            if code is _CALL:
                if (parent := self._calls.get(outer)) is not None:
                    self._end_those_inside(outer)
                    break
                if (parent := self._call_of(outer)) is not None:
                    break
            steps.append((code, outer.f_lasti))
            outer = outer.f_back
        return self._add_call(frame, module, parent, steps)

    def _add_call(
        self, frame: Any, module: torch.nn.Module, parent: ModuleCall | None, steps: list[Step]
    ) -> ModuleCall:
        if parent is None:
            self._calls.clear()
        call = self._calls[frame] = self._make_call(module, parent, tuple(steps))
        return call

    def _make_call(self, module: Any, parent: ModuleCall | None, steps: tuple[Step, ...]) -> ModuleCall:
        path = self.paths[id(module)]
        count = self._call_counts[path] = self._call_counts.get(path, -1) + 1
        cls = type(module)
        class_name = self._class_names.get(cls)
        if class_name is None:
            class_name = self._class_names[cls] = f"{cls.__module__}.{cls.__qualname__}"
        return ModuleCall(parent, path, f"{path}@{count}" if count else path, class_name, steps)
