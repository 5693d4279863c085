"""A program that is interpreted while it is captured: what torch means to the machine.

The values are the fakes that a native run has too, so the recorder sees the same operators. What differs is where
frames are found: the machine's own frames stand for those of the program that it runs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CellType, CodeType, FrameType, FunctionType, GeneratorType, MethodType
from typing import Any

import torch
import torch.nn.modules.module as module_calls
from torch.fx import GraphModule

from tintype.interpret import Frame, Machine, Policy
from tintype.interpret.generators import frame_of
from tintype.interpret.lookup import find_in_class
from tintype.interpret.policy import Caller, Outcome
from tintype.interpret.stand_ins import FrameView
from tintype.interpret.tracebacks import original_code
from tintype.ir.node_info import ModuleCall, Origin, Step
from tintype.symbolic.location import CallStack, is_internal
from tintype.trace.origin import OriginTracker, annotated
from tintype.trace.users_code import CALLING_THE_USERS

_RUN = Machine.run.__code__
_ROOM = os.path.dirname(os.path.abspath(sys.modules["tintype.interpret"].__file__ or "")) + os.sep
# the machine, and the policies that do what handlers do
_ROOMS = (
    _ROOM,
    os.path.join(os.path.dirname(os.path.dirname(_ROOM)), "flow") + os.sep,
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "watching.py"),
)


class _Files(dict[str, bool]):
    """Files by their names, and whether the machine's code is in them; asked for many frames of every operator."""

    def __missing__(self, name: str) -> bool:
        answer = self[name] = name.startswith(_ROOMS)
        return answer


_IS_MACHINES = _Files()
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_CALL = torch.nn.Module._call_impl.__code__

# Code of others that calls the user's: run natively, it would hide what it calls.
PASSES_ON = (
    os.path.join(_TORCH, "nn", "modules", "container.py"),
    os.path.join(_TORCH, "utils", "_contextlib.py"),
    contextlib.__file__,
    os.path.join(os.path.dirname(contextlib.__file__), "functools.py"),
)
# Modules that branch on their buffers, as models of the user's do.
_QUANTIZATION = os.path.join(_TORCH, "ao") + os.sep
_CALLS_OF_MODULES = (
    torch.nn.Module._call_impl.__code__,
    torch.nn.Module._wrapped_call_impl.__code__,
    # where there are hooks, they and forward are called by a function inside of it
    *(part for part in torch.nn.Module._call_impl.__code__.co_consts if isinstance(part, CodeType)),
)


class ModuleRun:
    """A call of a module that the machine does in one step."""

    __slots__ = ("module",)

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module


class TorchPolicy(Policy):
    """The user's code is interpreted, and what stands between the user's code and the user's code."""

    def interprets(self, function: FunctionType) -> bool:
        if not super().interprets(function):
            return False
        code = function.__code__
        if code in _CALLS_OF_MODULES or code in CALLING_THE_USERS:
            return True
        file = code.co_filename
        return not is_internal(file) or file in PASSES_ON or file.startswith(_QUANTIZATION)

    def caller_for(self, type_of_callable: type) -> Caller | None:
        if issubclass(type_of_callable, torch.nn.Module):
            if _call_of(type_of_callable) is torch.nn.Module.__call__ or only_calls_forward(type_of_callable):
                return call_module
        return None


def call_module(
    frame: Frame, module: torch.nn.Module, arguments: list[Any], keywords: dict[str, Any] | None
) -> Outcome:
    """A call of a module: of its ``forward`` at once where nothing listens to it."""
    machine = frame.machine
    is_entry = only_calls_forward(type(module))
    if is_entry or not has_hooks(module):
        if not is_interpreted(machine, module.forward):
            return machine.call_native(frame, module, arguments, keywords)
        try:
            outcome = machine.begin(frame, module.forward, arguments.copy(), keywords)
        except TypeError:  # arguments that don't fit, which is Python's to say
            return machine.call_native(frame, module, arguments, keywords)
        outcome.note = ModuleRun(module)
        return outcome
    return machine.begin(frame, _call_of(type(module)), [module, *arguments], keywords)


def _call_of(kind: type) -> Any:
    """What a call of a module calls; graph modules print more of an exception, and are called like any other."""
    wrapped = getattr(kind, "_wrapped_call", None) if issubclass(kind, GraphModule) else None
    return kind.__call__ if wrapped is None or wrapped.cls_call is not None else torch.nn.Module.__call__


def is_interpreted(machine: Machine, callable: Any) -> bool:
    """Whether a call of a function, a method, a partial or an object begins with code that is interpreted."""
    if type(callable) is functools.partial:
        return is_interpreted(machine, callable.func)
    function = callable.__func__ if type(callable) is MethodType else callable
    return machine.interprets(function) or machine.interprets(find_in_class(type(function), "__call__"))


def only_calls_forward(kind: type) -> bool:
    """Whether it is a class of ours that makes a module of a function."""
    return getattr(kind, "only_calls_forward", False)


def has_hooks(module: torch.nn.Module) -> bool:
    """Whether a call of a module does more than to call its ``forward``."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or module_calls._global_forward_hooks
        or module_calls._global_forward_pre_hooks
        or module_calls._global_backward_hooks
        or module_calls._global_backward_pre_hooks
        or module._compiled_call_impl is not None
        or torch._C._get_tracing_state()
    )


# --- frames ----------------------------------------------------------------------------------------------------


class ProgramFrame(FrameView):
    """A frame of the program, with the native frame of the run that it belongs to."""

    def __init__(self, frame: Frame, run: FrameType) -> None:
        super().__init__(frame)
        self.run = run

    @property
    def f_back(self) -> Any:
        frame = self.frame
        if frame.is_entry or frame.back is None:
            return None if self.run.f_back is None else interpreted_frame(self.run.f_back)
        return ProgramFrame(frame.back, self.run)


def interpreted_frame(frame: FrameType | None) -> Any:
    """The frame of the program that a frame of the machine's stands for; any other as it is."""
    while frame is not None and _IS_MACHINES[frame.f_code.co_filename]:
        if frame.f_code is _RUN:
            return ProgramFrame(frame.f_locals["frame"], frame)
        frame = frame.f_back
    return frame


class InterpretedStack(CallStack):
    """The frames of a program that is interpreted."""

    def frame(self, frame: FrameType) -> FrameType | None:
        return interpreted_frame(frame)

    def code(self, code: CodeType) -> CodeType:
        return original_code(code)

    def generator(self, generator: GeneratorType[Any, Any, Any]) -> tuple[CodeType, Mapping[str, Any]] | None:
        frame = frame_of(generator)
        return super().generator(generator) if frame is None else (frame.code, frame.globals)


def first_argument(frame: Frame) -> Any:
    first = frame.locals[0]
    return first.cell_contents if isinstance(first, CellType) else first


class InterpretedOrigins(OriginTracker):
    """Where operators come from, by the frames of a machine."""

    stack = InterpretedStack()

    def __init__(self, modules: Iterable[tuple[str, torch.nn.Module]], machine: Machine) -> None:
        super().__init__(modules)
        self.machine = machine

    def frames(self, native: FrameType | None) -> Iterator[tuple[Any, Step, torch.nn.Module | None]]:
        """(what it is known by, place, module that it calls) of every frame from the inside out."""
        inner = self.machine.frame
        while native is not None and native is not self.entry:
            code = native.f_code
            if not _IS_MACHINES[code.co_filename]:
                yield native, (code, native.f_lasti), native.f_locals["self"] if code is _CALL else None
            elif code is _RUN:
                while inner is not None:
                    place = (inner.code, inner.decoded.offsets[inner.pc] if inner.pc >= 0 else -1)
                    yield inner, place, first_argument(inner) if inner.code is _CALL else None
                    if inner.note.__class__ is ModuleRun and id(inner.note.module) in self.paths:
                        yield inner.note, place, inner.note.module
                    is_last, inner = inner.is_entry, inner.back
                    if is_last:
                        break
            native = native.f_back

    def origin(self, depth: int, function: str | None = None) -> Origin:
        serial = self._serials[function] = self._serials.get(function, 0) + 1
        steps: list[Step] = []
        frames = self.frames(sys._getframe(depth + 1))
        for key, place, module in frames:
            if module is not None and id(module) in self.paths:
                return annotated(Origin(self._call_among(key, module, frames), tuple(steps), function, serial))
            steps.append(place)
        self._calls.clear()
        return annotated(Origin(None, tuple(steps), function, serial))

    def _running(self) -> Iterator[Any]:
        return (key for key, _, _ in self.frames(sys._getframe(2)))

    def _call_among(
        self, key: Any, module: torch.nn.Module, outer: Iterator[tuple[Any, Step, torch.nn.Module | None]]
    ) -> ModuleCall:
        """The call of a module that runs innermost of all, from the frames around it."""
        known = self._calls.get(key)
        if known is not None:
            self._end_those_inside(key)
            return known
        parent: ModuleCall | None = None
        steps: list[Step] = []
        for outer_key, place, caller in outer:
            if caller is not None and id(caller) in self.paths:
                parent = self._call_among(outer_key, caller, outer)
                break
            steps.append(place)
        return self._add_call(key, module, parent, steps)


# --- the capture -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def interpreting(capture: Any, policy: Policy | None = None) -> Iterator[None]:
    """Within it, a capture interprets its program."""
    policy = policy or TorchPolicy()
    capture.effects = getattr(policy, "effects", None)
    machine = Machine(policy)
    origins = InterpretedOrigins(capture.modules, machine)
    capture.origins = capture.recorder.origins = origins
    capture.program = functools.partial(machine.call, capture.program)
    yield
