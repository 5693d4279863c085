"""The lines of the user's program that a page shows, where it was asked for them; without, that two nodes come from
the same line is all that a page knows."""

from __future__ import annotations

import os
import sysconfig
from functools import cache
from typing import Any

from tintype.errors import Location
from tintype.ir.node_info import Frame, Origin, frame_of, is_shown


class Lines:
    """Numbers lines; ``rows`` has their text if the user wants it in the page, and nothing otherwise."""

    def __init__(self, *, source: bool) -> None:
        self.source = source
        self.rows: list[dict[str, Any]] = []
        self._numbers: dict[Any, int] = {}
        self._places: dict[Any, int] = {}
        self._known: dict[int, tuple[Origin, dict[str, Any]]] = {}

    def of(self, origin: Origin) -> dict[str, Any]:
        """What a record says of the lines that a node comes from: ``place`` is the same for nodes of one line in one
        module call, ``lines`` are the frames of the user's program, the innermost last."""
        known = self._known.get(id(origin))
        if known is None:
            # origins are kept, so that none is made where one was
            known = self._known[id(origin)] = origin, self._found(origin)
        return known[1]

    def _found(self, origin: Origin) -> dict[str, Any]:
        line = origin.user_line()
        name = origin.call.name if origin.call is not None else ""
        if line is None and not name:
            return {}
        found: dict[str, Any] = {"place": self._places.setdefault((name, line), len(self._places))}
        if self.source:
            frames = [frame_of(step) for step in origin.stack() if is_shown(step)]
            shown = [frame for frame in frames if not frame.internal]
            if shown:
                found["lines"] = [self._number(frame) for frame in shown]
        return found

    def _number(self, frame: Frame) -> int:
        key = frame.filename, frame.line, frame.function, frame.source
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.rows)
            self.rows.append(line_data(frame.filename, frame.line, frame.function, frame.source))
        return found

    def location(self, location: Location | None) -> dict[str, Any] | None:
        """A line of the contract; None where it is not known or not wanted."""
        if location is None or not self.source:
            return None
        return line_data(location.filename, location.line, location.function, location.source_line())


def line_data(filename: str, line: int, function: str, text: str) -> dict[str, Any]:
    """One line, with its file as short as it can be told."""
    return {"file": short_path(filename), "line": line, "function": function, "text": text}


@cache
def short_path(filename: str) -> str:
    """A file from inside of the folder that it was installed to, or from the current one; else its name alone.

    >>> short_path("/home/somebody/project/model.py")
    'model.py'
    """
    for folder in (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), os.getcwd()):
        if folder and filename.startswith(folder + os.sep):
            return os.path.relpath(filename, folder)
    _, installed, inside = filename.rpartition(f"site-packages{os.sep}")
    return inside if installed else os.path.basename(filename)
