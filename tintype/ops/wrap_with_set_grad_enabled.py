"""``wrap_with_set_grad_enabled``: a region of a program with or without gradients, in the training stage.

``wrap_with_set_grad_enabled(enabled, graph, *operands)`` calls the graph on the operands under
``torch.set_grad_enabled(enabled)``. Programs of the functional stage detach what comes into a region without
gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from tintype.ir.operators import HigherOrderOperator, declare
from tintype.ir.regions import GRAD_MODES, GradMode
from tintype.ops.subgraphs import captured
from tintype.trace.inner import call_or_replay
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder
from tintype.transforms.regions import WRAPPERS

target = torch.ops.higher_order.wrap_with_set_grad_enabled


def run(enabled: bool, function: Callable[..., Any], *operands: Any) -> Any:
    """The operator on tensors with data."""
    with torch.set_grad_enabled(enabled):
        return function(*operands)


@captures(target)
def capture(recorder: Recorder, enabled: bool, function: Any, *operands: Any) -> Any:
    """What is recorded is a region again."""
    with torch.set_grad_enabled(enabled):
        return recorder.inside(lambda: call_or_replay(recorder, function, operands))


def wrap_with_set_grad_enabled(*arguments: Any) -> Any:
    """The operator, captured where a program is being captured: torch's own goes past whoever records."""
    return captured(capture, run, *arguments)


def _shared(node: Node) -> list[Any]:
    return list(node.args[2:])


def _setting(node: Node) -> GradMode:
    return GRAD_MODES[bool(node.args[0])]


WRAPPERS[GradMode] = target
declare(HigherOrderOperator(target, {1: "submod"}, _shared, run, wrap_with_set_grad_enabled, _setting))
