"""``wrap_with_autocast``: a region of a program with automatic casts, in the training stage.

``wrap_with_autocast(device_type, dtype, enabled, cache_enabled, graph, *operands)`` calls the graph on the operands
under ``torch.autocast``. The casts that were made when the program was captured are part of the graph, so there is
nothing left to cast when it runs; programs of the functional stage have the casts alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from tintype.ir.operators import HigherOrderOperator, declare
from tintype.ir.regions import Autocast
from tintype.ops.subgraphs import captured
from tintype.trace.inner import call_or_replay
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder
from tintype.transforms.regions import WRAPPERS

target = torch.ops.higher_order.wrap_with_autocast


def run(
    device_type: str,
    dtype: torch.dtype | None,
    enabled: bool,
    cache_enabled: bool | None,
    function: Callable[..., Any],
    *operands: Any,
) -> Any:
    """The operator on tensors with data."""
    with torch.autocast(device_type, dtype, enabled, cache_enabled):
        return function(*operands)


@captures(target)
def capture(
    recorder: Recorder,
    device_type: str,
    dtype: torch.dtype | None,
    enabled: bool,
    cache_enabled: bool | None,
    function: Any,
    *operands: Any,
) -> Any:
    """What is recorded is a region again."""
    with torch.autocast(device_type, dtype, enabled, cache_enabled):
        return recorder.inside(lambda: call_or_replay(recorder, function, operands))


def wrap_with_autocast(*arguments: Any) -> Any:
    """The operator, captured where a program is being captured: torch's own goes past whoever records."""
    return captured(capture, run, *arguments)


def _shared(node: Node) -> list[Any]:
    return list(node.args[5:])


def _setting(node: Node) -> Autocast:
    return Autocast(*node.args[:4])


WRAPPERS[Autocast] = target
declare(HigherOrderOperator(target, {4: "submod"}, _shared, run, wrap_with_autocast, _setting))
