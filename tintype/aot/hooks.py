"""Hooks on the gradients of tensors that are not the function's own.

Autograd calls the hooks of parameters and arguments when ``backward()`` reaches them, so graphs must not do what they
do as well. A hook that the function itself puts on such a tensor stays there in eager mode and is called in every
later backward, once more after each call: no graph does that, and it is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from tintype.errors import MutationError
from tintype.fake.tensor import FakeTensor

_PLACES = ("_backward_hooks", "_post_accumulate_grad_hooks")


class KnownHooks:
    """The hooks that tensors had before the function ran."""

    def __init__(self) -> None:
        self._tensors: list[tuple[torch.Tensor, list[set[int]]]] = []
        # hooks are numbered as they are registered: a tensor may be noted after the function has put one on it
        self._first_other = RemovableHandle.next_id

    def note(self, tensor: torch.Tensor) -> None:
        """A tensor of the model, or one that is given to the function."""
        known = [{key for key in _hooks(tensor, place) if key < self._first_other} for place in _PLACES]
        self._tensors.append((tensor, known))

    def refuse_others(self, given: Iterable[torch.Tensor]) -> None:
        """Refuse a function that has put hooks on them, or on what stands for its arguments."""
        has_others = any(map(has_hooks, given)) or any(
            not known.issuperset(_hooks(tensor, place))
            for tensor, before in self._tensors
            for place, known in zip(_PLACES, before, strict=True)
        )
        if has_others:
            raise MutationError(
                "the function puts a hook on the gradient of a tensor that it was given, or of one of the model, "
                "where it stays when the call is over",
                remedy="register the hook outside of the function, or on a tensor that the function computes "
                "(y = x.view_as(x))",
            )

    def take_away_others(self) -> None:
        """Remove the hooks that the function has put on them."""
        for tensor, before in self._tensors:
            for place, known in zip(_PLACES, before, strict=True):
                hooks = _hooks(tensor, place)
                for key in [key for key in hooks if key not in known]:
                    del hooks[key]

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Within it, hooks do nothing with gradients that have no data: those of the call will be given to them.
        Gradients of other threads go to them as ever."""
        replaced = [
            (hooks, key, hook)
            for tensor, _ in self._tensors
            if (hooks := _hooks(tensor, "_backward_hooks"))
            for key, hook in hooks.items()
        ]
        try:
            for hooks, key, hook in replaced:
                hooks[key] = _for_data_alone(hook)
            yield
        finally:
            for hooks, key, hook in replaced:
                if key in hooks:  # else somebody has removed it meanwhile
                    hooks[key] = hook


def refuse_hooks_of_result(tensor: torch.Tensor) -> None:
    """Refuse hooks of a result that is a leaf or whose gradient is kept: the caller gets another tensor."""
    if has_hooks(tensor):
        raise MutationError(
            "the function puts a hook on a tensor that it returns, and that is a leaf or whose gradient is kept",
            remedy="register the hook on what the function returned",
        )


def _hooks(tensor: torch.Tensor, place: str) -> dict[int, Callable[..., Any]]:
    """Hooks of a tensor by number; what takes them away changes this dictionary."""
    return getattr(torch._C.TensorBase, place).__get__(tensor) or {}


def _for_data_alone(hook: Callable[..., Any]) -> Callable[..., Any]:
    return lambda gradient: None if type(gradient) is FakeTensor else hook(gradient)


def has_hooks(tensor: torch.Tensor) -> bool:
    """Whether somebody is called when there is a gradient for a tensor."""
    return any(_hooks(tensor, place) for place in _PLACES)
