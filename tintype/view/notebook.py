"""A program in a notebook: what it takes and gives as tables, its text and its code behind folds. There is no script
in it, so that it is shown wherever a notebook is. ``program.view()`` is the page with everything in it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from tintype.view.modules import module_tree
from tintype.view.text import inputs_of, program_text, results_of, short_bytes

if TYPE_CHECKING:
    from tintype.export.program import ExportedProgram


def program_html(program: ExportedProgram) -> str:
    """The elements that a notebook shows.

    >>> import torch, tintype
    >>> program_html(tintype.export(torch.nn.ReLU(), (torch.ones(2),)))[:50]
    '<div class="tintype-program"><p><b>Program</b>: fu'
    """
    root = module_tree(program)
    summary = (
        f"{program.stage.value} stage, {root.calls} operator calls, {root.parameters:,} parameters and buffers "
        f"({short_bytes(root.bytes)})"
    )
    asks = [(line.text, "") for line in program.contract()]
    tables = _table("takes", inputs_of(program)) + _table("gives", results_of(program)) + _table("asks", asks)
    return (
        f'<div class="tintype-program"><p><b>Program</b>: {escape(summary)}</p>{tables}'
        f"{_folded('by module', program_text(program))}{_folded('as Python', program.code)}</div>"
    )


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    cells = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td><code>{escape(value)}</code></td></tr>" for name, value in rows
    )
    return f"<table><caption>{title}</caption>{cells}</table>"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>"
