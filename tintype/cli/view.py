"""``tintype view``: a page of the programs of one file, or of two files to compare; or a file for another viewer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tintype.cli.progress import progress
from tintype.errors import InvalidRequestError
from tintype.export.program import ExportedProgram
from tintype.serde.files import load
from tintype.view.pages import page_of, stages_of

FORMATS = ("page", "model-explorer")


def view_files(
    paths: Sequence[Path],
    output: Path | None,
    *,
    entry: str | None,
    form: str,
    stages: bool,
    source: bool,
    statistics: bool,
    containers: str,
) -> None:
    """Write the page, or what another viewer reads, and say where it is."""
    if form not in FORMATS:
        raise InvalidRequestError(f"--format {form}: there is none", remedy=f"one of {', '.join(FORMATS)}")
    title = " and ".join(dict.fromkeys(path.stem for path in paths))
    with progress(f"reading {title}") as tell:
        programs = _programs(paths, entry, containers)
        if stages:
            tell("decomposing")
            programs = {
                f"{name}, {stage}" if len(programs) > 1 else stage: each
                for name, program in programs.items()
                for stage, each in stages_of(program).items()
            }
        tell("making the page")
        if form == "page":
            page = page_of(programs, title=title, source=source, statistics=statistics, compare=len(paths) > 1)
    if form == "page":
        target = output or Path(f"{paths[0].stem}.html")
        page.save(target)
        print(f"{target}: {target.stat().st_size:,} bytes; open it in a browser")
        return
    from tintype.view.model_explorer import model_explorer_data

    target = output or Path(f"{paths[0].stem}.json")
    target.write_text(json.dumps(model_explorer_data(programs), allow_nan=False), encoding="utf-8")
    print(f"{target}: {target.stat().st_size:,} bytes; open it in Model Explorer")


def _programs(paths: Sequence[Path], entry: str | None, containers: str) -> dict[str, ExportedProgram]:
    """All programs of the files, by names that tell them apart."""
    found: dict[str, ExportedProgram] = {}
    for path in paths:
        loaded: Any = load(path, entry=entry, containers=containers)
        several = loaded if isinstance(loaded, dict) else {"": loaded}
        for name, program in several.items():
            file = path.stem if len({each.stem for each in paths}) == len(paths) else str(path)
            label = name if len(paths) == 1 and name else f"{file}: {name}" if name else file
            while label in found:  # a file beside itself
                label += "'"
            found[label] = program
    return found
