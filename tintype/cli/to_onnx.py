"""``tintype convert``: writes a program as an ONNX model."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from tintype.cli.inputs import load_one


def convert_program(
    path: Path,
    output: Path,
    *,
    entry: str | None,
    opset: int | None,
    optimize: bool,
    verify: bool,
    external_data: bool,
) -> None:
    """Load a program, make an ONNX model of it, compare the two, write it. A terminal shows what is being done; where
    there is none, steps that begin after the first second are lines."""
    console = Console(stderr=True)
    began = time.monotonic()
    with console.status(f"reading {path.name}") as status:

        def tell(step: str) -> None:
            status.update(step)
            seconds = time.monotonic() - began
            if not console.is_terminal and seconds > 1:
                print(f"{seconds:.0f} s: {step}", file=sys.stderr)

        program = load_one(path, entry)
        from tintype.onnx import export

        options: dict[str, Any] = {} if opset is None else {"opset": opset}
        if optimize:
            options["optimize"] = "full"
        made = export(program, verify=verify, progress=tell, **options)
        tell(f"writing {output.name}")
        each = status.update if console.is_terminal else None
        made.save(output, external_data=external_data or None, progress=each)
    Console().print(str(made.report), markup=False, highlight=False, soft_wrap=True)
