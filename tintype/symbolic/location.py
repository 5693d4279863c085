"""Where in the user's program something happened."""

from __future__ import annotations

import os
import sys

import torch

from tintype.errors import Location

_PACKAGES = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (torch.__file__, os.path.dirname(os.path.abspath(__file__)))
)
# Whether a file is the user's, by its name: asked for every frame of every guard.
_is_users: dict[str, bool] = {}


def user_location() -> Location | None:
    """The innermost frame outside torch and tintype; None when there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        filename = code.co_filename
        users = _is_users.get(filename)
        if users is None:
            users = _is_users[filename] = not _is_internal(filename)
        if users:
            return Location(filename, frame.f_lineno, code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _is_internal(filename: str) -> bool:
    # "<string>", "<frozen ...>", "<__array_function__ internals>": code without a file.
    return filename.startswith("<") or filename.startswith(_PACKAGES)
