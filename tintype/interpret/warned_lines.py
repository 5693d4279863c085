"""Warnings of interpreted code: about which line they are, and who remembers that they were given."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType
from typing import Any

from tintype.interpret.frame import Frame

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

# A line of interpreted code: file, line, name of the module, and whether the code's globals are that module's. Or how
# many calls outside of the interpreted code, where the line is that of whoever calls it then.
Place = tuple[str, int, str, bool] | int

# what was warned of in code whose globals are those of no module, by module and file
_REGISTRIES: dict[tuple[str, str], dict[Any, Any]] = {}


def place_of_warning(frame: Frame, depth: int) -> Place:
    """The line that a warning is about, so many calls outside of a frame."""
    about = frame
    for step in range(depth):
        if about.back is None:
            return depth - step
        about = about.back
    module = about.globals.get("__name__") or "<string>"
    is_of_module = about.globals is getattr(sys.modules.get(module), "__dict__", None)
    return (about.code.co_filename, about.line, module, is_of_module)


def warn_at(message: Any, category: Any, place: Place, source: Any) -> None:
    """Warn of a line; the module that it is in remembers that."""
    if not issubclass(category, Warning):  # Python does not look here, and calls it
        raise TypeError(f"category must be a Warning subclass, not {category!r}")
    if isinstance(place, int):
        warnings.warn_explicit(message, category, *_place_outside(place), None, source)
        return
    filename, line, module, is_of_module = place
    if is_of_module and module in sys.modules:
        registry = vars(sys.modules[module]).setdefault("__warningregistry__", {})
    else:
        registry = _REGISTRIES.setdefault((module, filename), {})
    warnings.warn_explicit(message, category, filename, line, module, registry, None, source)


def _place_outside(levels: int) -> tuple[str, int, str, dict[Any, Any]]:
    """File, line, module and registry of a frame so many calls outside of what is interpreted or repeated."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith((_PACKAGE, "<tintype ")):
            levels -= 1
            if not levels:
                module = frame.f_globals.get("__name__") or "<string>"
                return filename, frame.f_lineno, module, frame.f_globals.setdefault("__warningregistry__", {})
        frame = frame.f_back
    return "sys", 1, "sys", vars(sys).setdefault("__warningregistry__", {})
