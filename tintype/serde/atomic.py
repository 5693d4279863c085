"""Writing a file so that it is either there as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tintype.errors import InvalidRequestError
from tintype.serde.mapping import MissingFileError


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a pipe or a device that takes bytes one after the other: written to, never replaced."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    if stat.S_ISREG(mode):
        return False
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        return True
    kind = "folder" if stat.S_ISDIR(mode) else "disk" if stat.S_ISBLK(mode) else "socket"
    raise InvalidRequestError(
        f"{os.fspath(path)} is a {kind}, which a program can't be saved to", remedy="name a file: model.tt"
    )


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of another one when the block ends without an error.

    It is written beside its place, without a name where the system allows that, and given its own when every byte has
    reached the disk. If anything goes wrong before that, the old file stays as it was and nothing is left behind,
    even if the process is killed. After a power cut the file may be the old one or the new one, but never a part of
    one.
    """
    path = Path(os.path.realpath(path))  # the file that a link points to is replaced, not the link
    if not path.parent.is_dir():
        raise MissingFileError(f"there is no folder {path.parent} to write {path.name} to", remedy="make it first")
    temporary = path.with_name(f".tintype-{secrets.token_hex(8)}.tmp")
    try:
        with _opened(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            with contextlib.suppress(FileNotFoundError):  # a file that is there already keeps its mode
                os.fchmod(file.fileno(), path.stat().st_mode & 0o7777)
            _give_name(file, temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _opened(temporary: Path) -> IO[bytes]:
    """A new file: without a name, or with this one where the file system has no other."""
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):
            descriptor = os.open(temporary.parent, os.O_TMPFILE | os.O_RDWR, 0o666)
            return open(descriptor, "w+b")
    return open(temporary, "x+b")


def _give_name(file: IO[bytes], temporary: Path) -> None:
    if temporary.exists():
        return
    folder = os.open(temporary.parent, os.O_RDONLY)
    try:
        # naming the folder makes Python follow the link of the process's own files, which is how this is done
        os.link(f"/proc/self/fd/{file.fileno()}", temporary.name, dst_dir_fd=folder)
    finally:
        os.close(folder)
