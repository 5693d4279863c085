"""Writing a file so that it is either there as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of another one when the block ends without an error.

    It is written beside its place, under another name, and given its own when every byte has reached the disk. If
    anything goes wrong before that, the old file stays as it was and nothing is left behind. After a power cut the
    file may be the old one or the new one, but never a part of one.
    """
    path = Path(os.path.realpath(path))  # the file that a link points to is replaced, not the link
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):  # a file that is there already keeps its mode
            os.chmod(temporary, path.stat().st_mode & 0o7777)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
