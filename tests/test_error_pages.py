"""Every error has a page, and the example on it raises that error."""

from __future__ import annotations

import ast
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tintype
from tests.architecture.sources import package_files, parse
from tintype.cli.app import app
from tintype.cli.explain import PAGES, error_ids

runner = CliRunner()


def ids_in_code() -> dict[str, str]:
    """The ids that classes of the package have, with the class."""
    found = {}
    for path in package_files():
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                for statement in node.body:
                    if ast.unparse(statement).startswith("id = '") and isinstance(statement, ast.Assign):
                        found[ast.literal_eval(statement.value)] = node.name
    return found


def test_every_error_has_a_page_and_every_page_an_error() -> None:
    assert error_ids() == sorted(ids_in_code())
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    for error_id, name in ids_in_code().items():
        page = (PAGES / f"{error_id}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# {error_id}: {name}\n")
        assert f"[{error_id}]({error_id}.md) | `{name}` |" in index


def test_the_pages_are_among_the_docs() -> None:
    assert (PAGES.parents[1] / "docs" / "errors").resolve() == PAGES


def test_pages_and_messages_name_no_file_that_the_wheel_has_not() -> None:
    for page in PAGES.glob("*.md"):
        assert not re.findall(r"docs/\S+", page.read_text(encoding="utf-8")), page.name
    for path in package_files():
        tree = parse(path)
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        docstrings = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
        assert not [text for text in texts if "docs/" in text and text not in docstrings], path


def raised(code: str, file: Path) -> list[Any]:
    """The ids of what a piece of code raises and warns of."""
    file.write_text(code, encoding="utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(code, str(file), "exec"), {"__name__": "model"})
        except Exception as error:
            return [getattr(error, "id", error)]
    return [getattr(warning.category, "id", None) for warning in caught]


@pytest.mark.parametrize("error_id", error_ids())
def test_the_example_of_a_page_raises_its_error(
    error_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if error_id.startswith("onnx"):
        pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    page = (PAGES / f"{error_id}.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    assert error_id in raised(code, tmp_path / "model.py")


def test_explain() -> None:
    shown = runner.invoke(app, ["explain", "data-dependent"])
    assert shown.stdout == (PAGES / "data-dependent.md").read_text(encoding="utf-8")
    listed = runner.invoke(app, ["explain"]).stdout.splitlines()
    assert [line.split()[0] for line in listed] == error_ids()
    refused = runner.invoke(app, ["explain", "data-dependend"])
    assert refused.exit_code == 1 and "the nearest is 'data-dependent'" in refused.stderr


def test_a_traceback_and_the_command_line_name_the_id(tmp_path: Path) -> None:
    error = tintype.TintypeError("x is too big")
    assert error.__notes__ == ["  More: tintype explain error"]
    (tmp_path / "empty.tt").touch()
    refused = runner.invoke(app, ["info", str(tmp_path / "empty.tt")])
    assert refused.stderr.endswith("  More: tintype explain file-format\n")
