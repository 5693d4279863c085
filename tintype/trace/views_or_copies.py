"""Calls that return a view or a copy, as the layout of their argument says, in a capture above autograd.

There ``contiguous``, ``reshape`` and ``flatten`` are no operators: autograd takes them apart, into a view, a copy, or
nothing at all. Where the program writes to memory it matters which it was, so the calls are noted, and stand in the
graph as themselves again if it does (:mod:`tintype.transforms.joint_layouts`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from tintype.fake.tensor import FakeTensor

aten = torch.ops.aten

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
        if result is tensor and torch.is_grad_enabled():
            result = aten.alias.default(tensor)
        memory_format = options.get("memory_format", torch.contiguous_format)
        call = ViewOrCopy(base, localize(result).node, operator, memory_format)
        call.keeps_history = not torch.is_grad_enabled() and function not in _RESHAPED and tensor.requires_grad
        self.calls.append(call)
        return result
