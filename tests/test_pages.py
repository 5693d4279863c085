"""Pages name files that are there, links lead somewhere, and the site has every page and every public name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tintype

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


def test_every_page_is_part_of_the_site() -> None:
    index = (REPOSITORY / "docs/index.md").read_text(encoding="utf-8")
    listed = {
        line
        for block in re.findall(r"^```{toctree}\n(.*?)^```", index, re.DOTALL | re.MULTILINE)
        for line in block.split()
    }
    pages = {page.stem for page in (REPOSITORY / "docs").glob("*.md")} - {"index"}
    assert not pages - listed


def test_the_reference_has_every_public_name() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (REPOSITORY / "docs/reference").glob("*.md")]
    listed = {
        name for page in pages for name in re.findall(r"^\.\. auto\w+:: (?:tintype\.)?(\w+)", page, re.MULTILINE)
    }
    assert listed >= set(tintype.__all__)
