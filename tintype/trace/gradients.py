"""Gradients that a program computes itself: refused by name, for who captures again with autograd on.

A program is captured below autograd, so ``backward()`` and ``torch.autograd.grad`` find no history and would answer
None, zeros, or nothing at all. While a capture runs, the call of the engine that both of them make is refused.
Gradients by ``torch.func`` are no matter of autograd's history but of transforms of their own, which are captured.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from tintype.errors import CaptureError
from tintype.fake.tensor import FakeTensor
from tintype.ir.process_switches import CountedSwitch
from tintype.symbolic.location import caller_of, native_caller, user_location
from tintype.trace.recorder import active_recorder


class ComputesGradients(CaptureError):
    """The program calls autograd's engine, below which it is captured."""


def _run_unless_captured(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What stands in for the call of autograd's engine; other threads go on as usual."""
    recorder = active_recorder()
    if recorder is None:
        return run(*args, **kwargs)
    if _is_below_autograd() and not _called_by_transform(native_caller(2)):
        # backward() writes gradients to tensors, torch.autograd.grad returns them
        kind = CaptureError if kwargs.get("accumulate_grad") else ComputesGradients
        raise kind(
            "the program computes gradients itself (backward() or torch.autograd.grad), which can't be captured",
            location=user_location(),
            remedy="write it with torch.func (grad, vjp, jacrev), which is captured, or export the forward "
            "computation alone and differentiate the result",
        )
    _, _, _, _, inputs, *_ = args
    recorder.asks_for_gradients(inputs)
    # now: the engine leaves the stack of modes as it was, without one for symbols that turned up inside
    recorder.watch_functions()
    return run(*args, **kwargs)


def _is_below_autograd() -> bool:
    return torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradFunctionality)


# torch.autograd.grad, and what stands between it and its caller where functions are watched
_BETWEEN = tuple(
    os.path.join(*path)
    for path in (("autograd", "__init__.py"), ("torch", "overrides.py"), ("trace", "function_mode.py"))
)


def _called_by_transform(frame: FrameType | None) -> bool:
    """Whether a frame, that of ``torch.autograd.grad``, was called by a transform of ``torch.func``."""
    while frame is not None and frame.f_code.co_filename.endswith(_BETWEEN):
        frame = caller_of(frame)
    return frame is not None and frame.f_code.co_filename.endswith("eager_transforms.py")


_Context = torch.autograd.function.FunctionCtx
_Tensor: Any = torch._C.TensorBase


def _may_be_written(tensor: Any) -> None:
    """What a program computed is no leaf to autograd in eager mode, and may be written to by a function with a
    gradient of its own. Below autograd all tensors look like leaves."""
    if type(tensor) is FakeTensor and tensor.node is not None and tensor.node.op != "placeholder":
        if _Tensor.is_leaf.__get__(tensor) and _Tensor.requires_grad.__get__(tensor):
            _Tensor.requires_grad_(tensor, False)


def _refuse() -> tuple[Callable[..., Any], Callable[..., Any]]:
    run, mark = torch.autograd._engine_run_backward, _Context.mark_dirty

    def mark_dirty(self: Any, *args: Any) -> Any:
        if active_recorder() is not None and _is_below_autograd():
            for argument in args:
                _may_be_written(argument)
        return mark(self, *args)

    torch.autograd._engine_run_backward = lambda *args, **kwargs: _run_unless_captured(run, *args, **kwargs)
    _Context.mark_dirty = mark_dirty  # type: ignore[method-assign]
    return run, mark


def _allow(before: tuple[Callable[..., Any], Callable[..., Any]]) -> None:
    torch.autograd._engine_run_backward, _Context.mark_dirty = before  # type: ignore[method-assign]


gradients_refused = CountedSwitch(_refuse, _allow)
