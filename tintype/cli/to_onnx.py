"""``tintype convert``: writes a program as an ONNX model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from tintype.cli.progress import Tell
from tintype.export.program import ExportedProgram


def write_onnx(
    program: ExportedProgram,
    output: Path,
    tell: Tell,
    *,
    opset: int | None,
    optimize: bool,
    functions: bool,
    verify: bool | None,
    external_data: bool,
) -> None:
    """Make an ONNX model of a program, compare the two, write it, and say what is in it."""
    from tintype.onnx import export

    options: dict[str, Any] = {} if opset is None else {"opset": opset}
    if optimize:
        options["optimize"] = "full"
    made = export(program, verify=verify, functions=functions, progress=tell, **options)
    tell(f"writing {output.name}")
    made.save(output, external_data=external_data or None, progress=tell)
    Console().print(str(made.report), markup=False, highlight=False, soft_wrap=True)
