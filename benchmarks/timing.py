"""Timing of calls that compete with each other on a machine that is not quiet."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any


def best_of(function: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """The least wall time of `repeat` calls, in seconds, and the last call's result."""
    best, result = float("inf"), None
    for _ in range(repeat):
        result = None
        gc.collect()
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return best, result


def interleaved_minimum(contenders: Mapping[str, Callable[[], Any]], seconds: float, rounds: int) -> dict[str, float]:
    """Microseconds per call of each contender: the minimum over rounds in which they take turns.

    Each turn lasts about `seconds`, so that slow and fast contenders meet the same noise.
    """
    loops = {label: _calls_within(function, seconds) for label, function in contenders.items()}
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for label, function in contenders.items():
            count = loops[label]
            start = time.perf_counter()
            for _ in range(count):
                function()
            best[label] = min(best[label], (time.perf_counter() - start) / count * 1e6)
    return best


def _calls_within(function: Callable[[], Any], seconds: float) -> int:
    for _ in range(5):
        function()
    start = time.perf_counter()
    for _ in range(3):
        function()
    return max(3, int(seconds / max((time.perf_counter() - start) / 3, 1e-7)))
