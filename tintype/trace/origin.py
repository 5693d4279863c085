"""Where in the user's program an operator was called, found out cheaply.

The recorder asks for an origin at every operator, so the work per operator must be small. The call stack
between the operator and the innermost module call is walked; everything further out is shared with the
operators before, since the frames around a module call stand still while it runs. Nothing is patched and
no hook is installed: a module call is recognised by its frame, ``torch.nn.Module._call_impl``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch

from tintype.ir.node_info import Frame, ModuleCall, Origin, Step

_CALL = torch.nn.Module._call_impl.__code__
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def program_steps(origin: Origin) -> list[Step]:
    """The frames of an origin without those of the recorder, of which there are as many as its way was long."""
    return [step for step in origin.steps if isinstance(step, Frame) or not step[0].co_filename.startswith(_OWN)]


class OriginTracker:
    """Knows the modules of a program by name, and follows which of them are being called."""

    def __init__(self, modules: Iterable[tuple[str, torch.nn.Module]]) -> None:
        self.paths: dict[int, str] = {}
        for path, module in modules:
            self.paths.setdefault(id(module), path)
        self.entry: FrameType | None = None
        self._serials: dict[str | None, int] = {}
        self._call_counts: dict[str, int] = {}
        self._calls: list[tuple[FrameType, ModuleCall]] = []

    def enter(self) -> None:
        """Mark the caller's frame as the one the program is called from."""
        self.entry = sys._getframe(1)

    def leave(self) -> None:
        """Let go of all frames: they keep the program's local variables alive."""
        self.entry = None
        self._calls.clear()

    def origin(self, depth: int, function: str | None = None) -> Origin:
        """The origin of an operator; ``depth`` frames above the caller are not part of it."""
        frame: FrameType | None = sys._getframe(depth + 1)
        serial = self._serials[function] = self._serials.get(function, 0) + 1
        calls = self._calls
        top = calls[-1][0] if calls else None
        entry = self.entry
        steps: list[Step] = []
        while frame is not None and frame is not entry:
            if frame is top:
                return Origin(calls[-1][1], tuple(steps), function, serial)
            code = frame.f_code
            if code is _CALL and self._is_known(frame):
                return Origin(self._follow(frame), tuple(steps), function, serial)
            steps.append((code, frame.f_lasti))
            frame = frame.f_back
        calls.clear()
        return Origin(None, tuple(steps), function, serial)

    def _is_known(self, frame: FrameType) -> bool:
        return id(frame.f_locals["self"]) in self.paths

    def _follow(self, frame: FrameType) -> ModuleCall:
        """Bring the list of running calls up to date: the innermost one is ``frame``."""
        running = {known: index for index, (known, _) in enumerate(self._calls)}
        new: list[tuple[FrameType, tuple[Step, ...]]] = []
        current = frame
        steps: list[Step] = []
        outer: FrameType | None = frame
        parent: ModuleCall | None = None
        keep = 0
        while outer is not None and outer is not self.entry:
            if outer in running:
                keep = running[outer] + 1
                parent = self._calls[keep - 1][1]
                break
            if outer.f_code is _CALL and self._is_known(outer):
                if outer is not current:
                    new.append((current, tuple(steps)))
                    current, steps = outer, []
            else:
                steps.append((outer.f_code, outer.f_lasti))
            outer = outer.f_back
        del self._calls[keep:]
        if not (keep and self._calls[-1][0] is current):
            new.append((current, tuple(steps)))
        for call_frame, call_steps in reversed(new):
            parent = self._make_call(call_frame.f_locals["self"], parent, call_steps)
            self._calls.append((call_frame, parent))
        assert parent is not None
        return parent

    def _make_call(self, module: Any, parent: ModuleCall | None, steps: tuple[Step, ...]) -> ModuleCall:
        path = self.paths[id(module)]
        count = self._call_counts[path] = self._call_counts.get(path, -1) + 1
        cls = type(module)
        name = f"{path}@{count}" if count else path
        return ModuleCall(parent, path, name, f"{cls.__module__}.{cls.__qualname__}", steps)
