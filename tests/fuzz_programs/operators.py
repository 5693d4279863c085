"""Operators with effects that random programs call: one that logs, one that writes to its argument."""

from __future__ import annotations

import functools
from typing import Any

import torch

LOG: list[tuple[str, float]] = []
_libraries: list[Any] = []


def _log(x: torch.Tensor, tag: str) -> None:
    LOG.append((tag, round(float(x.detach().abs().double().nan_to_num(7.0, 8.0, 9.0).sum()), 2)))


def _count(x: torch.Tensor) -> None:
    x.add_(x.numel())


@functools.cache
def register() -> None:
    """Make the operators known to PyTorch."""
    library = torch.library.Library("fuzz_programs", "DEF")
    library.define("log(Tensor x, str tag) -> ()")
    library.define("count_(Tensor(a!) x) -> ()")
    library.impl("log", _log, "CPU")
    library.impl("log", lambda x, tag: None, "Meta")
    library.impl("count_", _count, "CPU")
    library.impl("count_", lambda x: None, "Meta")
    _libraries.append(library)


def repro_lines() -> list[str]:
    """Source that registers the operators, for a program that calls them."""
    return [
        "LOG = []",
        'library = torch.library.Library("fuzz_programs", "DEF")',
        'library.define("log(Tensor x, str tag) -> ()")',
        'library.define("count_(Tensor(a!) x) -> ()")',
        'library.impl("log", lambda x, tag: LOG.append(float(x.detach().abs().double().sum())), "CPU")',
        'library.impl("log", lambda x, tag: None, "Meta")',
        'library.impl("count_", lambda x: x.add_(x.numel()) and None, "CPU")',
        'library.impl("count_", lambda x: None, "Meta")',
    ]
