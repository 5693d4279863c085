"""Functions and modules of ``torch.compile`` in a model that is captured: they run as they were written.

torch would compile them meanwhile, with tensors that have no data, and look into the capture itself.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch

from tintype.ir.process_switches import is_capturing

_HOME = "torch._dynamo.eval_frame"


def take_over() -> tuple[ModuleType, Any] | None:
    """Let compiled functions run eagerly in threads that capture; returns what was there."""
    home = sys.modules.get(_HOME)
    if home is None:  # so nothing is compiled
        return None
    theirs: Any = home._callback_from_stance
    home._callback_from_stance = lambda callback: None if is_capturing() else theirs(callback)  # type: ignore[attr-defined]
    return home, theirs


def give_back(before: tuple[ModuleType, Any] | None) -> None:
    """Undo :func:`take_over`."""
    if before is not None:
        home, theirs = before
        home._callback_from_stance = theirs  # type: ignore[attr-defined]


def original_of(module: torch.nn.Module) -> torch.nn.Module:
    """The module that ``torch.compile`` made another one of; any other module itself."""
    kind = type(module)
    if kind.__module__ == _HOME and kind.__name__ == "OptimizedModule":
        original: Any = module._modules["_orig_mod"]
        return original
    return module
