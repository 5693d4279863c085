"""Native functions that read what another call would find changed, or of which somebody outside hears."""

from __future__ import annotations

import datetime
import io
import logging
import os
import random
import secrets
import sys
import time
import uuid
from typing import Any

# methods of containers that change them
WRITERS = frozenset(
    {
        "__delitem__", "__iadd__", "__setitem__", "add", "append", "appendleft", "clear", "difference_update",
        "discard", "extend", "extendleft", "insert", "intersection_update", "move_to_end", "pop", "popitem",
        "popleft", "remove", "reverse", "rotate", "setdefault", "sort", "symmetric_difference_update", "update",
    }
)  # fmt: skip

_CLOCKS = (
    time.time, time.time_ns, time.perf_counter, time.perf_counter_ns, time.monotonic, time.monotonic_ns,
    time.process_time, time.process_time_ns, time.localtime, time.gmtime, time.ctime,
)  # fmt: skip
_DRAWS = (
    os.urandom, uuid.uuid1, uuid.uuid4, secrets.token_bytes, secrets.token_hex, secrets.token_urlsafe,
    secrets.randbits, secrets.randbelow, secrets.choice,
)  # fmt: skip
_FILES = (open, os.listdir, os.scandir, os.stat, os.getcwd)
_READS: dict[int, str] = {
    **{id(function): f"reads a clock ({function.__name__})" for function in _CLOCKS},
    **{id(function): f"draws a random number ({function.__name__})" for function in _DRAWS},
    **{id(function): f"looks at files ({function.__name__})" for function in _FILES},
    id(os.getenv): "reads the environment (os.getenv)",
    id(input): "asks for input",
}
ENVIRONMENT = type(os.environ)
_LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR,
    "critical": logging.CRITICAL, "exception": logging.ERROR,
}  # fmt: skip


def reading_of(callable: Any, owner: Any, name: str) -> str | None:
    """What a call reads that is another one in the next call; None if it reads no such thing. ``owner`` is what it is
    a method of."""
    found = _READS.get(id(callable))
    if found is not None or owner is None:
        return found
    if issubclass(type(owner), (random.Random, *_numpys_generators())):
        return f"draws a random number ({name})"
    if issubclass(type(owner), ENVIRONMENT):
        return "reads the environment (os.environ)"
    if issubclass(type(owner), type) and issubclass(owner, datetime.date) and name in ("now", "today", "utcnow"):
        return f"reads a clock ({name})"
    return None


def is_of_outside_world(kind: type) -> bool:
    """Whether methods of a class may read or write something outside of the program."""
    return issubclass(kind, (random.Random, ENVIRONMENT, io.IOBase, logging.Logger, *_numpys_generators()))


def _numpys_generators() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    return () if numpy is None else (numpy.random.RandomState, numpy.random.Generator)


def output_of(callable: Any, owner: Any, name: str) -> str | None:
    """What a call does that somebody outside of the program hears of; None if nobody does."""
    if callable is print:
        return "prints"
    if issubclass(type(owner), io.IOBase) and name.startswith("write"):
        return "writes to a file"
    if issubclass(type(owner), logging.Logger) and owner.isEnabledFor(_LEVELS.get(name, logging.CRITICAL + 1)):
        return f"writes to a log ({name})"
    return None
