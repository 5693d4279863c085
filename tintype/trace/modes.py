"""Which of torch's modes a program runs in, compared with those that its capture began with.

A captured program does not keep Python's ``with`` statements, but what they do to gradients and dtypes is part of its
meaning. The recorder looks before every operator whether the modes have changed. The gradient mode can be asked for.
Autocast can't: inside of an operator that casts its arguments it passes for disabled, so the statements themselves
are watched. So are those that switch gradients off: a program that is captured without gradients sees nothing of
them, and has their effect all the same where it is called with gradients.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import meta_of
from tintype.ir.process_switches import CountedSwitch
from tintype.ir.regions import GRAD_MODES, Autocast, Region
from tintype.symbolic.location import caller_of, frames_running, program_caller
from tintype.trace.lost_gradients import LostGradients

# as they are while no capture listens to who asks
is_grad_enabled = torch.is_grad_enabled
is_inference_mode_enabled = torch.is_inference_mode_enabled
is_autocast_enabled = torch.is_autocast_enabled
get_autocast_dtype = torch.get_autocast_dtype


class Modes:
    """The modes of one recorder, and where in its graph they changed."""

    def __init__(self, grad: bool, entered: Statements | None = None) -> None:
        # as the graph as a whole is called
        self.grad = grad
        # those of the program, for a graph inside of it
        self.outermost = self
        # the statements that this thread is in; those around the graph are in no region
        self.watch(Statements() if entered is None else entered)
        # now
        self.gradients = grad
        self.region: Region = ()
        # after which nodes of the graph another region begins
        self.marks: list[tuple[Node, Region]] = []
        # custom functions and hooks that the program has for its gradients
        self.lost_gradients = LostGradients()
        # settings that undo those of statements around the graph, which an arm of a branch has left
        self._left: dict[tuple[int, ...], list[Autocast]] = {}

    def watch(self, entered: Statements) -> None:
        """The program is about to run in this thread."""
        self.entered, self.around, self._around_gradients = entered, entered.copy(), entered.gradients
        # how many statements about gradients there were when they were last looked at
        self.seen = entered.gradients

    def inside(self) -> Modes:
        """The modes of a graph that is called from here."""
        inside = Modes(self.gradients, self.entered)
        inside.lost_gradients = self.lost_gradients
        inside.outermost = self.outermost
        return inside

    def in_own_autocast(self) -> bool:
        """Whether the program itself is in an autocast statement."""
        return len(self.entered) > len(self.outermost.around)

    def in_own_gradients(self, enabled: bool) -> bool:
        """Whether the program itself has switched gradients on or off, as they are: by a statement that it is in, or
        so that they are not what they were around it."""
        program = self.outermost
        return enabled is not program.grad or self.entered.gradients > program._around_gradients

    def _casting_devices(self) -> list[str]:
        enabled: dict[str, bool] = {}
        for autocast in self.entered:
            device_type, _, enabled[device_type], _ = autocast.setting.arguments
        return [device for device, on in enabled.items() if on]

    def casts(self, operator: Any) -> bool:
        """Whether autocast casts the arguments of an operator, on some device that it is enabled for."""
        return any(_casts(operator, device) for device in self._casting_devices())

    @contextlib.contextmanager
    def autocast_on(self) -> Iterator[None]:
        """Autocast as the program has it, for code that runs while an operator is handled."""
        devices = [device for device in self._casting_devices() if not torch.is_autocast_enabled(device)]
        for device in devices:
            torch.set_autocast_enabled(device, True)
        try:
            yield
        finally:
            for device in devices:
                torch.set_autocast_enabled(device, False)

    def follow(self, graph: Graph) -> None:
        """Take notice of the modes that the next node of the graph is recorded in."""
        grad = torch.is_grad_enabled()
        if not grad:
            tracked = _tracked_by_function(self.lost_gradients, self.entered)
            grad = grad if tracked is None else self.grad if tracked is _UNKNOWN else tracked
        self.gradients = grad
        self.seen = self.entered.gradients
        region = self._region(grad)
        if region != self.region:
            self.region = region
            self.marks.append((graph._root._prev, region))

    def _region(self, grad: bool) -> Region:
        settings: list[Any] = []
        differs = grad is not self.grad or (not grad and self.seen > self._around_gradients)
        shared = 0
        while shared < len(self.around) and self.entered[shared : shared + 1] == [self.around[shared]]:
            shared += 1
        if shared < len(self.around):  # an arm of a branch left statements around the branch
            settings += self._as_before(shared)
        for autocast in self.entered[shared:]:
            if differs and autocast.grad is grad:  # it was entered inside of the region with this gradient mode
                settings.append(GRAD_MODES[grad])
                differs = False
            settings.append(autocast.setting)
        if differs:
            settings.append(GRAD_MODES[grad])
        return tuple(settings)

    def _as_before(self, count: int) -> list[Autocast]:
        """Settings that make those around the graph what they are with the first few alone."""
        key = (count, *map(id, self.around))
        known = self._left.get(key)
        if known is None:
            left = {statement.setting.arguments[0] for statement in self.around[count:]}
            before = {statement.setting.arguments[0]: statement.setting for statement in self.around[:count]}
            known = [before.get(device, Autocast(device, None, False, None)) for device in sorted(left)]
            self._left[key] = known
        return known

    def label(self, graph: Graph) -> None:
        """Let the nodes of the finished graph know their regions."""
        # what switches off what is off already makes a difference only to what could have a gradient
        idle = () if self.grad else (GRAD_MODES[False],)
        end = graph._root._prev
        for before, region in reversed(self.marks):
            node = before
            while region and node is not end:
                node = node._next
                if node.op != "placeholder" and not (region == idle and not _may_have_gradient(node)):
                    meta_of(node).region = region
            end = before


def _may_have_gradient(node: Node) -> bool:
    value = node.meta.get("val")
    if type(value) is FakeTensor:
        dtype = value.info.dtype
        return dtype.is_floating_point or dtype.is_complex
    values = node.meta.get("val")
    tensors = values if isinstance(values, (tuple, list)) else (values,)
    known = [tensor.dtype for tensor in tensors if isinstance(tensor, torch.Tensor)]
    return not known or any(dtype.is_floating_point or dtype.is_complex for dtype in known)


# --- statements --------------------------------------------------------------------------------------------


class EnteredAutocast:
    """An autocast statement that is being executed, and the gradient mode around it."""

    __slots__ = ("grad", "setting")

    def __init__(self, device_type: str, dtype: torch.dtype | None, enabled: bool) -> None:
        # what the cache would keep is cast explicitly in a captured program: whether there is one does not matter
        self.setting = Autocast(device_type, dtype, enabled, None)
        self.grad = torch.is_grad_enabled()


class Statements(list[EnteredAutocast]):
    """The autocast statements that a thread is in, outermost first, and the number of those about gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.gradients = 0
        # of those about gradients, the frames that entered them, and the modes since
        self.modes: list[tuple[FrameType | None, bool]] = []

    def copy(self) -> Statements:
        """Those that there are now."""
        copied = Statements()
        copied += self
        copied.gradients, copied.modes = self.gradients, self.modes.copy()
        return copied


DEVICES = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "maia", "xla", "ipu")
_this_thread = threading.local()


@functools.cache
def _casts(operator: Any, device_type: str) -> bool:
    name = operator.name()
    return torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(
        name, f"Autocast{device_type.upper()}"
    )


def _watch_statements() -> list[tuple[Any, Any, Any]]:
    enter, leave = torch.autocast.__enter__, torch.autocast.__exit__

    def watched_enter(self: torch.autocast) -> Any:
        result = enter(self)
        entered = getattr(_this_thread, "entered", None)
        if entered is not None:
            entered.append(EnteredAutocast(self.device, self.fast_dtype, self._enabled))
        return result

    def watched_exit(self: torch.autocast, *exception: Any) -> Any:
        entered = getattr(_this_thread, "entered", None)
        if entered:
            entered.pop()
        return leave(self, *exception)

    before: list[tuple[Any, Any, Any]] = [(torch.autocast, enter, leave)]
    torch.autocast.__enter__, torch.autocast.__exit__ = watched_enter, watched_exit  # type: ignore[method-assign]
    for statement in _GRADIENT_STATEMENTS:
        before.append((statement, statement.__enter__, statement.__exit__))
        statement.__enter__, statement.__exit__ = _counted(statement.__enter__, statement.__exit__)
    return before


_GRADIENT_STATEMENTS: tuple[Any, ...] = (
    torch.no_grad,
    torch.enable_grad,
    torch.set_grad_enabled,
    torch.inference_mode,
)


def _counted(enter: Any, leave: Any) -> tuple[Any, Any]:
    """The methods of a statement about gradients that count how many of them a thread is in."""

    def counted_enter(self: Any) -> Any:
        result = enter(self)
        entered = getattr(_this_thread, "entered", None)
        if entered is not None:
            entered.gradients += 1
            entered.modes.append((program_caller(1), is_grad_enabled()))
        return result

    def counted_exit(self: Any, *exception: Any) -> Any:
        entered = getattr(_this_thread, "entered", None)
        if entered is not None:
            entered.gradients -= 1
            del entered.modes[-1:]
        return leave(self, *exception)

    return counted_enter, counted_exit


def _stop_watching(methods: list[tuple[Any, Any, Any]]) -> None:
    for statement, enter, leave in methods:
        statement.__enter__, statement.__exit__ = enter, leave


_watching = CountedSwitch(_watch_statements, _stop_watching)


@contextlib.contextmanager
def watching_statements() -> Iterator[Statements]:
    """The statements that this thread is in: first the autocast that is enabled now, one per device."""
    before = getattr(_this_thread, "entered", None)
    entered = Statements()
    if torch._C._is_any_autocast_enabled():
        enabled = [device for device in DEVICES if torch.is_autocast_enabled(device)]
        entered += [EnteredAutocast(device, torch.get_autocast_dtype(device), True) for device in enabled]
    _this_thread.entered = entered
    try:
        with _watching():
            yield entered
    finally:
        _this_thread.entered = before


@contextlib.contextmanager
def statements_unwatched() -> Iterator[None]:
    """Within it the thread's statements are not those of a program."""
    before = getattr(_this_thread, "entered", None)
    _this_thread.entered = None
    try:
        yield
    finally:
        _this_thread.entered = before


# --- torch.autograd.Function -----------------------------------------------------------------------------

_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
_Context = torch.autograd.function.FunctionCtx
_UNKNOWN = object()


def _tracked_by_function(lost: LostGradients, entered: Statements) -> Any:
    """Whether autograd takes notice of the ``torch.autograd.Function`` that is running; None if none is.

    Its forward always runs without gradients, which come from its backward. In a captured program they come from the
    operators that its forward consists of.
    """
    outermost: FrameType | None = None
    found: FrameType | None = None
    for frame, inner in frames_running(_APPLY, program_caller(2)):
        lost.add_function(frame)
        outermost, found = frame, inner  # the outermost one decides
    if outermost is None:
        return None
    tracked = _UNKNOWN if found is None else _tracked(found)
    return _mode_around(outermost, program_caller(2), entered) if tracked is _UNKNOWN else tracked


def _mode_around(outermost: FrameType, frame: FrameType | None, entered: Statements) -> Any:
    """The mode that the innermost statement about gradients made which was entered outside of a function's frame."""
    inside = {id(outermost)}
    while frame is not None and frame is not outermost:
        inside.add(id(frame))
        frame = caller_of(frame)
    return next((mode for frame, mode in reversed(entered.modes) if id(frame) not in inside), _UNKNOWN)


def _tracked(forward: FrameType) -> Any:
    """Whether the results of a forward, given its frame, will have a gradient."""
    names = forward.f_code.co_varnames
    context = forward.f_locals.get(names[0]) if names else None
    inputs = getattr(context, "needs_input_grad", ()) if isinstance(context, _Context) else ()
    if not any(inputs):
        return _UNKNOWN  # a forward without a context, or nothing that could have a gradient
    return bool(getattr(context, "next_functions", ()))
