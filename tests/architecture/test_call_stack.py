"""Who is calling is asked in one place: nobody else looks at Python's frames.

A program may be interpreted, and then Python's frames are not its own.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.sources import package_files, parse, relative

# Those who know how a program runs.
PROVIDERS = (
    "tintype/symbolic/location.py",  # frames and lines
    "tintype/trace/origin.py",  # module calls of a program that runs natively
    "tintype/trace/interpreted.py",  # both, of one that is interpreted
    "tintype/interpret/",  # the interpreter itself
)
WALKING = frozenset({"_getframe", "currentframe", "f_back", "walk_stack", "extract_stack"})


def walks(tree: ast.Module) -> list[int]:
    """The lines that look at frames."""
    found: list[int] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found += [node.lineno for alias in node.names if alias.name in WALKING]
        elif isinstance(node, ast.Attribute) and node.attr in WALKING:
            found.append(node.lineno)
    return sorted(found)


@pytest.mark.parametrize("path", package_files(), ids=relative)
def test_only_providers_walk_frames(path: Path) -> None:
    if not relative(path).startswith(PROVIDERS):
        assert not walks(parse(path)), relative(path)


@pytest.mark.parametrize("source", ["sys._getframe(1)", "frame = frame.f_back", "from inspect import currentframe"])
def test_the_scan_catches_a_walk(source: str) -> None:
    assert walks(ast.parse(source)) == [1]
