"""Files in memory: read when they are used, shared between processes, never written to."""

from __future__ import annotations

import difflib
import mmap
import os
import sys
from typing import IO

from tintype.errors import FileFormatError, InvalidRequestError


def map_path(path: str | os.PathLike[str]) -> mmap.mmap:
    """The file at a path, in memory."""
    with opened(path) as file:
        return map_file(file)


class MissingFileError(InvalidRequestError, FileNotFoundError):
    """There is no file of that name."""


class FolderError(InvalidRequestError, IsADirectoryError):
    """A folder was named where a file is wanted."""


def opened(path: str | os.PathLike[str]) -> IO[bytes]:
    """A file to read; where there is none, the error names those that may be meant."""
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        folder, name = os.path.split(os.fspath(path))
        if not os.path.isdir(folder or "."):
            raise MissingFileError(f"there is no folder {folder}", remedy="look for a mistake in its name") from error
        near = difflib.get_close_matches(name, os.listdir(folder or "."), n=1)
        remedy = f"did you mean {os.path.join(folder, near[0])}?" if near else "look for a mistake in its name"
        raise MissingFileError(f"there is no file {os.fspath(path)}", remedy=remedy) from error
    except IsADirectoryError as error:
        inside = sorted(name for name in os.listdir(path) if name.endswith(".tt"))
        remedy = (
            f"name the file: {os.path.join(path, inside[0])}" if inside else "name a file that tintype.save wrote"
        )
        raise FolderError(f"{os.fspath(path)} is a folder, not a file", remedy=remedy) from error


def map_file(file: IO[bytes]) -> mmap.mmap:
    """A file in memory. What is written there is this process's own copy."""
    if os.fstat(file.fileno()).st_size == 0:
        raise FileFormatError(
            f"{os.fspath(file.name)} is empty",
            remedy="it was not written to the end, or by another program: save it again",
        )
    if os.name != "posix":
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    flags = mmap.MAP_PRIVATE
    if sys.platform == "linux":
        flags |= getattr(mmap, "MAP_NORESERVE", 0x4000)  # weights larger than this machine's memory are fine
    return mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
