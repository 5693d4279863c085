"""The model's own tensors while a joint graph is recorded: what autograd notes on them is taken back afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

aten = torch.ops.aten


@contextlib.contextmanager
def hooks_on_saved_tensors_off() -> Iterator[None]:
    """Within it, what autograd saves does not go to hooks from outside, such as those of a checkpoint around a
    compiled function: it is fakes that are saved."""
    hooks: list[Any] = []
    while (pair := torch._C._autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(pair)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


class RealTensor:
    """A tensor of the model as it was before the capture.

    One that has a history is given one of its own meanwhile, which ends at ``start``: gradients must not flow into
    what the tensor was computed from before, and the program may write to it, unlike to a leaf.
    """

    __slots__ = ("grad", "grad_fn", "history", "requires_grad", "start", "tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.version = tensor._version if not tensor.is_inference() else None
        self.requires_grad = tensor.requires_grad
        self.grad = tensor.grad if tensor.is_leaf else None
        self.history: torch.Tensor | None = None
        self.start = tensor
        if tensor.grad_fn is not None and not tensor._is_view():
            with torch.enable_grad(), torch._C._DisableTorchDispatch():
                self.history = _History.apply(tensor)
                self.start = _without_elements(tensor).requires_grad_()
                self._begin_with(self.start)
        self.grad_fn = tensor.grad_fn

    def _begin_with(self, history: torch.Tensor) -> None:
        self.tensor.detach_()
        _Restored.apply(self.tensor, history)

    def has_new_gradient(self) -> bool:
        return self.tensor.is_leaf and self.tensor.grad is not self.grad

    def put_back(self) -> None:
        tensor = self.tensor
        if self.history is not None:
            with torch.enable_grad():
                self._begin_with(self.history)
        elif tensor.grad_fn is not self.grad_fn:
            tensor.detach_()
        if tensor.requires_grad is not self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
        if tensor.is_leaf and tensor.grad is not self.grad:
            tensor.grad = self.grad
        if self.version is not None and tensor._version != self.version:
            torch._C._autograd._unsafe_set_version_counter((tensor,), (self.version,))


def _without_elements(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same size that takes no memory."""
    return tensor.detach().new_empty(()).expand(tensor.shape)


class _History(torch.autograd.Function):
    """A tensor of the same size that keeps the history which a tensor has now."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return _without_elements(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


class _Restored(torch.autograd.Function):
    """A tensor that gets another history. Its value stays what it is."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None, gradient
