"""``TINTYPE_LOGS=guards,breaks,recompiles``: what compiled functions do, as it happens, on standard error.

The lines are records of the loggers ``tintype.compile.guards`` and so on; a program that sets up logging gets them
without the variable.
"""

from __future__ import annotations

import functools
import logging
import os
import warnings
from typing import TYPE_CHECKING

from tintype.compiler.history import Captured, line_of
from tintype.compiler.trace import SETS_MODE

if TYPE_CHECKING:
    from tintype.compiler.capture import Capture

TOPICS = ("guards", "breaks", "recompiles")


@functools.cache
def logger(topic: str) -> logging.Logger:
    """The logger of a topic; the variable is looked at when the first one is asked for."""
    _set_up()
    return logging.getLogger(f"tintype.compile.{topic}")


@functools.cache
def _set_up() -> None:
    asked = [topic.strip() for topic in os.environ.get("TINTYPE_LOGS", "").split(",") if topic.strip()]
    unknown = [topic for topic in asked if topic not in (*TOPICS, "all")]
    if unknown:
        warnings.warn(f"TINTYPE_LOGS has {', '.join(unknown)}; what there is: {', '.join(TOPICS)}, all", stacklevel=2)
    for topic in TOPICS if "all" in asked else asked:
        if topic in TOPICS:
            target = logging.getLogger(f"tintype.compile.{topic}")
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
            target.addHandler(handler)
            target.setLevel(_level_of(topic))
            target.propagate = False


def log_capture(name: str, capture: Capture, captured: Captured) -> None:
    """Tell of a capture that was made."""
    if is_logged("recompiles") and captured.reasons:
        logger("recompiles").info("%s is captured again: %s", name, "; ".join(captured.reasons))
    if is_logged("breaks"):
        for call in capture.calls:
            if call.step and call.step != SETS_MODE:
                logger("breaks").info("%s: %s%s", name, call.step, line_of(call.location))
        if capture.reason is not None:
            logger("breaks").info("%s: runs eagerly: %s%s", name, capture.reason[0], line_of(capture.reason[1]))
    if is_logged("guards"):
        for segment in capture.segments:
            for guard in segment.guards:
                logger("guards").debug("%s: %s", name, guard)


def is_logged(topic: str) -> bool:
    """Whether anybody wants to hear of a topic: texts are made only then."""
    return logger(topic).isEnabledFor(_level_of(topic))


def _level_of(topic: str) -> int:
    """Guards are many, and only for who asks for them."""
    return logging.DEBUG if topic == "guards" else logging.INFO
