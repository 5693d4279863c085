"""Calls that return a view or a copy, as the layout of their argument says, in a capture above autograd.

There ``contiguous``, ``reshape`` and ``flatten`` are no operators: autograd takes them apart, into a view, a copy, or
nothing at all. Where the program writes to memory it matters which it was, so the calls are noted, and stand in the
graph as themselves again if it does (:mod:`tintype.transforms.joint_layouts`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from tintype.errors import CaptureError
from tintype.fake.tensor import FakeTensor
from tintype.symbolic.location import user_location

if TYPE_CHECKING:
    from tintype.trace.recorder import Recorder

aten = torch.ops.aten
_ALIAS = aten.alias.default

CONTIGUOUS = frozenset({torch.Tensor.contiguous, aten.contiguous.default})
_RAVELLED = frozenset({torch.Tensor.ravel, torch.ravel})
_RESHAPED = frozenset(
    {
        torch.Tensor.reshape, torch.Tensor.reshape_as, torch.Tensor.flatten, torch.reshape, torch.flatten,
        aten.reshape.default, aten.flatten.using_ints,
    }
)  # fmt: skip
VIEWS_OR_COPIES = CONTIGUOUS | _RAVELLED | _RESHAPED


@dataclasses.dataclass
class ViewOrCopy:
    """A call: what it was given and what it returned, and the operator that it is."""

    base: Node
    result: Node
    operator: Any
    memory_format: torch.memory_format
    # whether the argument came back, with its history, where a copy would have none
    keeps_history: bool = False


_is_grad_enabled = torch.is_grad_enabled  # as it is while no capture listens to who asks


@dataclasses.dataclass(frozen=True)
class MadeContiguous:
    """A call of ``contiguous()``, which returns its argument where that is so: what it was given and returned."""

    source: FakeTensor
    result: FakeTensor
    memory_format: torch.memory_format = torch.contiguous_format

    @property
    def is_one(self) -> bool:
        """Whether both are one object in eager mode, by the example's layout."""
        return self.source.info.storage is self.result.info.storage


class NotedCalls:
    """The calls of one capture, in their order."""

    def __init__(self) -> None:
        self.calls: list[ViewOrCopy] = []

    def note(self, function: Any, tensor: Any, result: Any, options: dict[str, Any]) -> Any:
        """Remember a call; returns what the program gets, which is another tensor than the argument, so that it can
        be told which of the two is used."""
        if type(tensor) is not FakeTensor or type(result) is not FakeTensor:
            return result
        operator = aten.reshape.default if function in _RESHAPED else aten.contiguous.default
        operator = aten.ravel.default if function in _RAVELLED else operator
        # a branch or a loop has nodes of its own for what is around it
        localize: Callable[[FakeTensor], FakeTensor] = getattr(
            tensor.context.session, "localize", lambda outer: outer
        )
        base = localize(tensor).node
        if result is tensor and _is_grad_enabled():
            result = _ALIAS(tensor)
        memory_format = options.get("memory_format", torch.contiguous_format)
        call = ViewOrCopy(base, localize(result).node, operator, memory_format)
        call.keeps_history = not _is_grad_enabled() and function not in _RESHAPED and tensor.requires_grad
        self.calls.append(call)
        return result


def detached_in_place(recorder: Recorder, args: Any, kwargs: Any) -> Any:
    """``tensor.detach_()``. In eager mode ``contiguous()`` may have returned its argument, which loses its history
    with this; the tensor that stands for it here is a view, which autograd does not detach."""
    tensor, noted = args[0], recorder.noted_calls
    if noted is None or type(tensor) is not FakeTensor or tensor.node is None or tensor.node.target is not _ALIAS:
        return NotImplemented
    if not any(call.result is tensor.node for call in noted.calls):
        return NotImplemented
    if not tensor.requires_grad:
        return tensor
    raise CaptureError(
        "the program calls detach_() on what contiguous(), reshape() or flatten() returned: whether their argument "
        "loses its history, too, is a question of its layout",
        location=user_location(),
        remedy="say y = y.detach() instead",
    )
