"""Files and functions stay small enough to be read at one go; an exception is named here with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import REPOSITORY, package_files, parse, relative

MOST_LINES_OF_A_FILE = 600
MOST_LINES_OF_A_FUNCTION = 50  # without its docstring: examples are welcome

# "tintype/room/file.py": "why it is better whole"
LONG_FILES: dict[str, str] = {}
# "tintype/room/file.py:Class.method": "why it is better whole"
LONG_FUNCTIONS: dict[str, str] = {}


def count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    """(qualified name, number of lines without docstring) of every function below a node, nested ones too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            if not isinstance(child, ast.ClassDef):
                assert child.end_lineno is not None
                yield name, child.end_lineno - child.lineno + 1 - _lines_of_docstring(child)
            yield from functions(child, f"{name}.")
        else:
            yield from functions(child, prefix)


def _lines_of_docstring(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    if ast.get_docstring(function) is None or first.end_lineno is None:
        return 0
    return first.end_lineno - first.lineno + 1


def long_functions(path: Path) -> dict[str, int]:
    return {
        f"{relative(path)}:{name}": lines
        for name, lines in functions(parse(path))
        if lines > MOST_LINES_OF_A_FUNCTION
    }


@pytest.mark.parametrize("path", package_files(), ids=relative)
def test_a_file_is_short(path: Path) -> None:
    if relative(path) not in LONG_FILES:
        assert count_lines(path) <= MOST_LINES_OF_A_FILE


@pytest.mark.parametrize("path", package_files(), ids=relative)
def test_a_files_functions_are_short(path: Path) -> None:
    too_long = {name: lines for name, lines in long_functions(path).items() if name not in LONG_FUNCTIONS}
    assert not too_long


def test_every_exception_is_still_needed() -> None:
    unneeded_files = [
        name
        for name in LONG_FILES
        if not (REPOSITORY / name).exists() or count_lines(REPOSITORY / name) <= MOST_LINES_OF_A_FILE
    ]
    needed = {name for path in package_files() for name in long_functions(path)}
    assert not unneeded_files
    assert set(LONG_FUNCTIONS) <= needed
    assert all([*LONG_FILES.values(), *LONG_FUNCTIONS.values()]), "an exception has no reason"


def test_the_count_sees_methods_and_nested_functions() -> None:
    body = "\n".join(["        x = 1"] * 100)
    source = f"class A:\n    def method(self):\n{body}\n\ndef outer():\n    def inner():\n{body}\n"
    counted = dict(functions(ast.parse(source)))
    assert counted == {"A.method": 101, "outer": 102, "outer.inner": 101}
    documented = f'def f():\n    """What\n    it does."""\n{body.replace("        ", "    ")}\n'
    assert dict(functions(ast.parse(documented))) == {"f": 101}
