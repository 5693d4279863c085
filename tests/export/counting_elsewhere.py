"""What the tests of state outside of a model count in: a module's variables."""

from __future__ import annotations

import types
from typing import Any

COUNT = 0
SEEN: list[Any] = []
OBJECT = types.SimpleNamespace(count=0)


def count() -> int:
    """One more than the last time."""
    global COUNT
    COUNT += 1
    return COUNT
