"""Assignments to modules by other threads, while snapshots of a model (:mod:`tintype.trace.snapshot`) are open."""

from __future__ import annotations

import time
import types
from typing import Any

import torch

from tintype.ir.process_switches import CountedSwitch, is_capturing
from tintype.symbolic.location import is_run_by_another_thread

# The assignments of other threads since each open snapshot was taken: (module, name), the module by its id.
OPEN: list[set[tuple[int, str]]] = []


def _watch() -> tuple[Any, Any]:
    assign, remove = torch.nn.Module.__setattr__, torch.nn.Module.__delattr__

    def note(module: torch.nn.Module, name: str) -> None:
        here = is_capturing()
        for assigned in OPEN:
            (assigned.discard if here else assigned.add)((id(module), name))

    def watched_assign(self: torch.nn.Module, name: str, value: Any) -> None:
        note(self, name)  # first: a snapshot that is put back in between has nothing to put back yet
        assign(self, name, value)

    def watched_remove(self: torch.nn.Module, name: str) -> None:
        note(self, name)
        remove(self, name)

    torch.nn.Module.__setattr__, torch.nn.Module.__delattr__ = watched_assign, watched_remove  # type: ignore[method-assign]
    _wait_for_others({assign.__code__, remove.__code__})
    return assign, remove


def _wait_for_others(codes: set[types.CodeType]) -> None:
    """Let other threads finish assignments that nobody watches; but not for ever, one may be waiting for us."""
    for _ in range(1000):
        if not is_run_by_another_thread(codes):
            return
        time.sleep(0.0001)


def _leave(methods: tuple[Any, Any]) -> None:
    torch.nn.Module.__setattr__, torch.nn.Module.__delattr__ = methods  # type: ignore[method-assign]


watching = CountedSwitch(_watch, _leave)
