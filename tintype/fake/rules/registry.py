"""The table of shape rules.

A rule takes what the operator takes, with every tensor replaced by its :class:`TensorInfo` and every
symbolic number by its expression, and returns the infos of the results: one info, or a tuple or list of
them where the operator returns several. Rules raise what eager mode would raise for bad arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Rule = Callable[..., Any]

RULES: dict[torch._ops.OpOverload, Rule] = {}


def overload(name: str) -> torch._ops.OpOverload:
    """The operator for a name such as ``add.Tensor`` or ``linear`` (of the default overload)."""
    packet, _, variant = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), variant or "default")


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a function as the shape rule of aten operators."""

    def register(function: Rule) -> Rule:
        for name in names:
            operator = overload(name)
            if operator in RULES:
                raise AssertionError(f"{name} has two shape rules")
            RULES[operator] = function
        return function

    return register
