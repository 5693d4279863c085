"""Timing of calls that compete with each other on a machine that is not quiet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


def interleaved(contenders: Mapping[str, Callable[[], Any]], seconds: float, rounds: int) -> dict[str, list[float]]:
    """Microseconds per call of each contender in each of the rounds, in which they take turns.

    Each turn lasts about `seconds`, so that slow and fast contenders meet the same noise.
    """
    loops = {label: _calls_within(function, seconds) for label, function in contenders.items()}
    samples: dict[str, list[float]] = {label: [] for label in contenders}
    for _ in range(rounds):
        for label, function in contenders.items():
            count = loops[label]
            start = time.perf_counter()
            for _ in range(count):
                function()
            samples[label].append((time.perf_counter() - start) / count * 1e6)
    return samples


def _calls_within(function: Callable[[], Any], seconds: float) -> int:
    for _ in range(5):
        function()
    start = time.perf_counter()
    for _ in range(3):
        function()
    return max(3, int(seconds / max((time.perf_counter() - start) / 3, 1e-7)))
