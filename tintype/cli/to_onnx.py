"""``tintype convert``: writes a program as an ONNX model."""

from __future__ import annotations

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
    """Load a program, make an ONNX model of it, compare the two, write it; each step is said when it begins."""
    console = Console(stderr=True)
    with console.status(f"reading {path.name}") as status:
        program = load_one(path, entry)
        status.update("translating to ONNX")
        from tintype.onnx import export

        options: dict[str, Any] = {} if opset is None else {"opset": opset}
        if optimize:
            options["optimize"] = "full"
        made = export(program, verify=verify, progress=status.update, **options)
        status.update(f"writing {output.name}")
        made.save(output, external_data=external_data or None)
    Console().print(str(made.report), markup=False, highlight=False, soft_wrap=True)
