"""One HTML file with all in it: the data, the style and the code that shows them.

The data come from programs, and programs from anybody. They are JSON inside of a script element that no browser runs,
with every character that could end it written as an escape; the code puts text into the page as text, never as
markup; and the page's security policy names the checksums of its own code and style, so that nothing else would run
and nothing is fetched from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import sys
import tempfile
import webbrowser
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tintype.errors import InvalidRequestError, TintypeError
from tintype.export.stage import Stage
from tintype.view.problems import problem_data, problems_of
from tintype.view.programs import program_data
from tintype.view.sources import Lines

if TYPE_CHECKING:
    from tintype.export.program import ExportedProgram

_FOLDER = Path(__file__).resolve().parent / "page"
# the code of the page, in the order in which its parts need each other
_PARTS = (
    "dom", "expressions", "contract", "program", "search", "diff", "rows", "formulas",
    "contract_view", "modules_view", "graph_view", "sides_view", "problems_view", "panel", "app",
)  # fmt: skip


class Page:
    """A page that shows programs or problems: ``html`` is all of it. Notebooks show it as it is.

    >>> import torch, tintype
    >>> page = tintype.export(torch.nn.ReLU(), (torch.ones(2),)).view()
    >>> sorted(page.data)
    ['compare', 'lines', 'problems', 'programs', 'title', 'version']
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    @property
    def html(self) -> str:
        """The page as the text of a file."""
        return page_html(self.data)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file."""
        target = Path(path)
        if not target.parent.is_dir():
            raise InvalidRequestError(f"there is no folder {target.parent}", remedy="make it first")
        if target.is_dir():
            raise InvalidRequestError(f"{target} is a folder", remedy="name a file: page.html")
        target.write_text(self.html, encoding="utf-8")
        return target

    def open(self) -> Path:
        """Write the page to a file for this purpose, and show it in the browser."""
        target = self.save(Path(tempfile.mkdtemp(prefix="tintype-")) / "program.html")
        webbrowser.open(target.as_uri())
        return target

    def __repr__(self) -> str:
        shown = ", ".join(f"{each['name']}: {len(each['nodes'])} nodes" for each in self.data["programs"])
        return f"<Page: {shown or str(len(self.data['problems'])) + ' problems'}>"

    def _repr_html_(self) -> str:
        text = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{text}" style="width: 100%; height: 720px; border: 1px solid #8884"></iframe>'


def page_of(
    programs: Mapping[str, ExportedProgram],
    *,
    title: str | None = None,
    source: bool = False,
    statistics: bool = False,
    compare: bool = False,
) -> Page:
    """A page of one or several programs, by the names that it is to call them: the programs of a file, the stages of
    one program, two versions of a model.

    The page has neither weights nor lines of the user's program. ``source=True`` adds the lines that nodes and
    conditions come from, with short paths; ``statistics=True`` adds ranges and histograms of weights. With
    ``compare=True`` the page begins with what differs, rather than with what was made of what.

    >>> import torch, tintype
    >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> tintype.view.page_of({"functional": ep, "core": ep.run_decompositions()})
    <Page: functional: 5 nodes, core: 6 nodes>
    """
    if not programs:
        raise InvalidRequestError("a page needs a program", remedy="page_of({'model': program})")
    lines = Lines(source=source)
    rows = [program_data(name, program, lines, statistics=statistics) for name, program in programs.items()]
    return _page(title or " · ".join(programs), rows, lines, [], compare=compare)


def view_program(
    program: ExportedProgram,
    path: str | os.PathLike[str] | None,
    against: ExportedProgram | None,
    *,
    stages: bool,
    title: str | None,
    **options: bool,
) -> Page:
    """What ``program.view`` does."""
    programs = stages_of(program) if stages else {program.stage.value: program}
    if against is not None:
        if not hasattr(against, "graph_signature"):
            raise InvalidRequestError(
                f"against is a program to compare with, but got a {type(against).__name__}",
                remedy="export it first, or load its file: program.view(against=tintype.load(path))",
            )
        programs = {"this program": program, "the other": against}
    page = page_of(programs, title=title or "Program", compare=against is not None, **options)
    if path is not None:
        page.save(path)
    return page


def stages_of(program: ExportedProgram) -> dict[str, ExportedProgram]:
    """A program, and what later stages make of it, by the names of the stages."""
    found = {program.stage.value: program}
    if program.stage is Stage.TRAINING:
        found["functional"] = program.run_decompositions({})
    return found if "core" in found else {**found, "core": program.run_decompositions()}


def problems_page(error: TintypeError, *, title: str | None = None, source: bool = True) -> Page:
    """A page of what stands in the way of an export: every problem with its line, what to do, and what it means.

    It shows the lines of the user's program, which problems are about; ``source=False`` leaves them out.

    >>> import torch, tintype
    >>> try:
    ...     tintype.export(lambda x: x * x.numpy().sum(), (torch.ones(2),))
    ... except tintype.TintypeError as error:
    ...     print(problems_page(error))
    <Page: 1 problems>
    """
    if not isinstance(error, TintypeError):
        raise InvalidRequestError(f"expected an error of tintype, not a {type(error).__name__}")
    lines = Lines(source=source)
    problems = [problem_data(problem, lines) for problem in problems_of(error)]
    return _page(title or "Problems", [], lines, problems)


def _page(title: str, programs: list[Any], lines: Lines, problems: list[Any], *, compare: bool = False) -> Page:
    head = {"title": title, "version": sys.modules["tintype"].__version__}
    return Page({**head, "compare": compare, "programs": programs, "lines": lines.rows, "problems": problems})


def page_html(data: Mapping[str, Any]) -> str:
    """The file: policy, style, data and code."""
    style, code = page_style(), page_code()
    policy = (
        f"default-src 'none'; script-src '{_checksum(code)}'; style-src '{_checksum(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(str(data['title']))}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<div id="page"></div>\n<noscript>This page needs JavaScript, which is switched off.</noscript>\n'
        f'<script type="application/json" id="data">{embedded_json(data)}</script>\n<script>{code}</script>\n'
        "</body>\n</html>\n"
    )


def embedded_json(data: Any) -> str:
    """JSON that can stand in a script element: no text in it is a tag, a comment or the end of the element.

    >>> embedded_json("</script><!--")
    '"\\\\u003c/script\\\\u003e\\\\u003c!--"'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII alone: no odd line ends either
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def page_code() -> str:
    """The JavaScript of the page: its parts as they are, in one function."""
    parts = [f"// {name}.js\n{(_FOLDER / f'{name}.js').read_text(encoding='utf-8')}" for name in _PARTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "\n})();\n"


@cache
def page_style() -> str:
    """The style of the page."""
    return (_FOLDER / "style.css").read_text(encoding="utf-8")


def _checksum(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
