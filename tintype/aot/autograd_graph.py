"""What autograd's graph of a recorded function tells about what the function returns.

To a caller, the whole function is one step of autograd's graph. So gradients of one result by another are none, and a
result that is computed from another one by the function gives that one no gradient.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from tintype.errors import CaptureError
from tintype.fake.tensor import FakeTensor

_grad_fn: Any = torch._C.TensorBase.grad_fn  # as autograd knows it: nobody's program asks


def edge_of(tensor: torch.Tensor) -> tuple[Any, int]:
    """Where gradients of a tensor go: a step, and which of its results the tensor is. The step of a leaf is None."""
    return _grad_fn.__get__(tensor), torch._C.TensorBase.output_nr.__get__(tensor)  # type: ignore[attr-defined]


def edges_behind(tensors: Iterable[torch.Tensor]) -> Iterator[tuple[Any, int]]:
    """All edges that gradients of tensors go along, each once."""
    pending = [edge_of(tensor) for tensor in tensors]
    seen: set[tuple[Any, int]] = set()
    followed: set[Any] = set()
    while pending:
        edge = pending.pop()
        step = edge[0]
        if step is None or edge in seen:
            continue
        seen.add(edge)
        yield edge
        if step not in followed:
            followed.add(step)
            pending += step.next_functions


def refuse_results_within(watched: Iterable[FakeTensor], started: list[torch.Tensor]) -> None:
    """Refuse results whose gradients somebody waits for, and that other results are computed from."""
    for tensor in watched:
        own = edge_of(tensor)
        others = [start for start in started if start is not tensor]
        for edge in edges_behind(others):
            if edge == own or getattr(edge[0], "variable", None) is tensor:
                raise CaptureError(
                    "the function returns a tensor whose gradient it wants to be kept (retain_grad(), or "
                    "requires_grad_() of a tensor without a history), and others that it computes from that: "
                    "gradients of one result by another are none in a compiled function",
                    remedy="make the tensor outside of the function and pass it as an argument",
                )


def refuse_own_zeros(started: list[torch.Tensor]) -> None:
    """Refuse gradient rules that ask which gradients are there: of several results of the function, a caller may go
    backward from some."""
    for step, _ in edges_behind(started) if len(started) > 1 else ():
        rule = getattr(step, "_forward_cls", None)
        if rule is None or getattr(rule, "none_is_zero", False):
            continue
        if len(step._input_metadata) > 1 and _asks_which_are_there(rule):
            raise CaptureError(
                f"{rule.__module__}.{rule.__qualname__} has several results and asks which gradients are there "
                "(set_materialize_grads(False)), which depends on what a caller does with the results of the "
                "compiled function",
                remedy="let the function return one loss, or leave set_materialize_grads out",
            )


def _asks_which_are_there(rule: type) -> bool:
    codes = [
        function.__code__
        for name in ("forward", "setup_context")
        if isinstance(function := getattr(rule, name), types.FunctionType)
    ]
    return any(not {"materialize_grads", "set_materialize_grads"}.isdisjoint(code.co_names) for code in codes)
