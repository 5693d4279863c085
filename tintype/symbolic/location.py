"""Where in the user's program something happened."""

from __future__ import annotations

import os
import sys
import sysconfig

import torch

from tintype.errors import Location

_PACKAGES = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (torch.__file__, os.path.dirname(os.path.abspath(__file__)))
)
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
# Whether a file is the user's, by its name: asked for every frame of every guard.
_is_users: dict[str, bool] = {}


def user_location() -> Location | None:
    """The innermost frame outside torch, tintype and Python's library; None when there is none."""
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
    # Code without a file is the user's ("<stdin>", "<ipython-input-1>"), except these.
    if filename.startswith(("<frozen ", "<__array_function__", *_PACKAGES)):
        return True
    return filename.startswith(_STANDARD_LIBRARY) and "site-packages" not in filename
