"""What the architecture tests share: where the package lies, its rooms, and its parsed files."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "tintype"

# In the order data flows: a room imports only rooms that stand before it.
ROOMS = (
    "errors",
    "tree",
    "symbolic",
    "ir",
    "interpret",
    "fake",
    "trace",
    "transforms",
    "ops",
    "flow",
    "export",
    "aot",
    "compiler",
    "serde",
    "onnx",
    "interop",
    "comparison",
    "view",
    "cli",
)


def package_files() -> list[Path]:
    """Every Python file of the package, sorted."""
    return sorted(PACKAGE.rglob("*.py"))


def relative(path: Path) -> str:
    """The path as shown in messages: from the repository's root, with forward slashes."""
    return path.relative_to(REPOSITORY).as_posix()


@cache
def parse(path: Path) -> ast.Module:
    """The file's syntax tree; a file that does not parse fails the test that asked."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
