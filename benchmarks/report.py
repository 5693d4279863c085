"""Markdown tables, and their places in docs/benchmarks.md.

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; what is around it is written by hand.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
REPORT = REPOSITORY / "docs" / "benchmarks.md"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def number(value: float | None, form: str = ".2f") -> str:
    """A number as the tables show it; a dash where there is none."""
    return "-" if value is None else format(value, form)


def geometric_mean(values: Iterable[float]) -> float | None:
    """The geometric mean, or None of nothing."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def machine() -> str:
    """One line that says where the figures come from."""
    import torch

    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), flags=re.MULTILINE)
        processor = model.group(1) if model else processor
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{versions}, {processor}, {os.cpu_count()} cores, one thread."


def add_write_argument(parser: argparse.ArgumentParser) -> None:
    """The option that the scripts share."""
    parser.add_argument("--write", action="store_true", help="also put the table into docs/benchmarks.md")


def publish(section: str, text: str, write: bool) -> None:
    """Print a table and, if asked, put it into its section of docs/benchmarks.md."""
    print(text)
    if write:
        replace_section(REPORT, section, f"{text}\n\n{machine()}")


def replace_section(path: Path, section: str, text: str) -> None:
    """Put the text between the section's markers; a file or section that is missing is added."""
    begin, end = f"<!-- begin {section} -->", f"<!-- end {section} -->"
    block = f"{begin}\n{text.strip()}\n{end}"
    old = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), flags=re.DOTALL)
    if pattern.search(old):
        new = pattern.sub(lambda _: block, old)
    else:
        new = f"{old.rstrip()}\n\n{block}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(new, encoding="utf-8")
