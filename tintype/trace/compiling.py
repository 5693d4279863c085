"""While a program is captured, ``torch.compiler.is_compiling()`` and its kin answer True."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

_lock = threading.Lock()
_depth = 0
_saved = (False, False)


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Set torch's flags. They are process-wide, so captures in several threads count themselves in and out."""
    global _depth, _saved
    flags = torch.compiler
    with _lock:
        if _depth == 0:
            _saved = (flags._is_compiling_flag, flags._is_exporting_flag)
            flags._is_compiling_flag = flags._is_exporting_flag = True
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                flags._is_compiling_flag, flags._is_exporting_flag = _saved
