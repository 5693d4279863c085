"""Pages name files that are there, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = [
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / "docs/errors").glob("*.md")),
]
# Files of torch, or of a user, that pages speak of.
NOT_OURS = frozenset({"_decomp/decompositions.py", "_export/non_strict_utils.py", "model.py"})

_FILE = re.compile(r"(?<![\w/.<*{-])(?!torch/)((?:[\w-]+/)*\w+\.py)\b")
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def files() -> set[str]:
    """Every source file by its path, also from inside of the package or a folder of it, and by its name alone."""
    found = set()
    for folder in ("tintype", "tests", "benchmarks", "examples"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            parts = path.relative_to(REPOSITORY).parts
            found.update("/".join(parts[start:]) for start in range(len(parts)))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    named = set(_FILE.findall(page.read_text(encoding="utf-8")))
    missing = sorted(named - files() - NOT_OURS)
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = set(_LINK.findall(text))
    assert not [target for target in targets if not (page.parent / target).exists()]
