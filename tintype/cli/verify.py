"""``tintype verify``: whether a file is as it was written, and its program keeps the rules of its stage."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from tintype.serde.files import load
from tintype.serde.foreign import archive_of
from tintype.serde.mapping import map_path


def verify_file(path: Path) -> None:
    """Raise what is wrong with a file; say so if nothing is."""
    archive = archive_of(map_path(path), path)
    total = sum(place.size for place in archive.places.values())
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress("verifying", *columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("verifying", total=total)
        archive.verify(lambda count: bar.advance(task, count))
    loaded = load(path)
    programs = loaded if isinstance(loaded, dict) else {"": loaded}
    for program in programs.values():
        program.validate()
    described = ", ".join(f"{name} {program!r}".lstrip() for name, program in programs.items())
    print(f"{path.name}: {len(archive.places)} entries, {total} bytes, {described}: all right")
