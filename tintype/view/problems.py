"""What stands in the way of an export, and what a draft decided, as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tintype.errors import CaptureReport, Location, TintypeError
from tintype.view.sources import Lines

_PAGES = Path(__file__).resolve().parents[1] / "error_pages"


def problems_of(error: TintypeError) -> list[TintypeError]:
    """The problems that an error reports: one, or all of a report."""
    return list(error.problems) if isinstance(error, CaptureReport) else [error]


def problem_data(problem: TintypeError, lines: Lines) -> dict[str, Any]:
    """One problem: its id, what is wrong, where, what to do, and what the page of the error says."""
    return _row(problem.id, problem.fact, problem.location, problem.remedy, lines)


def decision_data(decision: Any, lines: Lines) -> dict[str, Any]:
    """One decision of a draft, in the same form."""
    return _row(decision.kind, decision.text, decision.location, decision.remedy, lines)


def _row(kind: str, fact: str, location: Location | None, remedy: str | None, lines: Lines) -> dict[str, Any]:
    row: dict[str, Any] = {"id": kind, "fact": fact, "remedy": remedy}
    line = lines.location(location)
    if line is not None:
        row["line"] = line
    page = _PAGES / f"{kind}.md"
    if page.name in {each.name for each in _PAGES.glob("*.md")}:  # an id is no path
        row["explanation"] = page.read_text(encoding="utf-8")
    return row
