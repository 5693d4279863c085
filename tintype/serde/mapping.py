"""Files in memory: read when they are used, shared between processes, never written to."""

from __future__ import annotations

import mmap
import os
import sys
from typing import IO

from tintype.errors import FileFormatError


def map_path(path: str | os.PathLike[str]) -> mmap.mmap:
    """The file at a path, in memory."""
    with open(path, "rb") as file:
        return map_file(file)


def map_file(file: IO[bytes]) -> mmap.mmap:
    """A file in memory. What is written there is this process's own copy."""
    if os.fstat(file.fileno()).st_size == 0:
        raise FileFormatError(f"{os.fspath(file.name)} is empty")
    if os.name != "posix":
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    flags = mmap.MAP_PRIVATE
    if sys.platform == "linux":
        flags |= getattr(mmap, "MAP_NORESERVE", 0x4000)  # weights larger than this machine's memory are fine
    return mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
