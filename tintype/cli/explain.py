"""``tintype explain``: the page of an error, by its id. The pages are part of the package."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from tintype.errors import InvalidRequestError

PAGES = Path(__file__).resolve().parents[1] / "error_pages"


def error_ids() -> list[str]:
    """The ids of all errors, in order of the alphabet."""
    return sorted(page.stem for page in PAGES.glob("*.md") if page.stem != "README")


def print_explanation(error_id: str | None) -> None:
    """Print the page of an error, or the list of all of them."""
    if error_id is None:
        for known in error_ids():
            print(f"{known:24}{_title(known)}")
        return
    if error_id.isidentifier():  # perhaps a class
        error_id = next((known for known in error_ids() if _title(known) == error_id), error_id)
    if error_id not in error_ids():
        close = difflib.get_close_matches(error_id, error_ids(), n=1)
        raise InvalidRequestError(
            f"there is no error {error_id!r}" + (f"; the nearest is {close[0]!r}" if close else ""),
            remedy="tintype explain lists all of them",
        )
    text = (PAGES / f"{error_id}.md").read_text(encoding="utf-8")
    if sys.stdout.isatty():
        Console().print(Markdown(text))
    else:
        print(text, end="")


def _title(error_id: str) -> str:
    """The class of an error, which the first line of its page names."""
    with (PAGES / f"{error_id}.md").open(encoding="utf-8") as page:
        return page.readline().partition(": ")[2].strip()
