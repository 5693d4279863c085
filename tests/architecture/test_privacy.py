"""What other rooms need of a program is public: its private attributes are read in its own room only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, package_files, parse, relative

PROGRAM = PACKAGE / "export" / "program.py"


def private_names() -> set[str]:
    """The private attributes and methods of ExportedProgram."""
    classes = [node for node in parse(PROGRAM).body if isinstance(node, ast.ClassDef)]
    (program,) = (node for node in classes if node.name == "ExportedProgram")
    names = {node.attr for node in ast.walk(program) if isinstance(node, ast.Attribute)}
    names |= {node.name for node in program.body if isinstance(node, ast.FunctionDef)}
    return {name for name in names if name.startswith("_") and not name.endswith("_")}


def test_a_program_keeps_something_private() -> None:
    assert {"_context", "_stage", "_module_state"} <= private_names()


@pytest.mark.parametrize("path", [path for path in package_files() if "export" not in path.parts], ids=relative)
def test_no_other_room_reads_what_is_private_to_a_program(path: Path) -> None:
    private = private_names() - {"_C", "_nn", "_parse_to"}  # torch's own
    read = [
        f"{relative(path)}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Attribute) and node.attr in private
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]
    assert not read
