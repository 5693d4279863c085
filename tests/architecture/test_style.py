"""No file is named after nothing; what is public is documented, with an example."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, package_files, parse, relative

EMPTY_NAMES = frozenset({"utils", "util", "helpers", "helper", "misc", "common"})


def is_public(path: Path) -> bool:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return not any(part.startswith("_") and part not in ("__init__", "__main__") for part in parts)


def public_names() -> list[str]:
    """The names in `tintype.__all__`; empty before the package has an __init__."""
    if not (PACKAGE / "__init__.py").exists():
        return []
    return sorted(importlib.import_module("tintype").__all__)


def test_no_file_is_named_after_nothing() -> None:
    empty = [
        relative(path)
        for path in package_files()
        if any(part.strip("_") in EMPTY_NAMES for part in path.relative_to(PACKAGE).with_suffix("").parts)
    ]
    assert not empty


@pytest.mark.parametrize("path", [p for p in package_files() if is_public(p)], ids=relative)
def test_a_public_module_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(parse(path)), f"{relative(path)} does not say what it is for"


def test_the_package_says_what_is_public() -> None:
    names = public_names()
    assert names
    assert len(names) == len(set(names))
    assert set(names) <= set(dir(importlib.import_module("tintype")))


@pytest.mark.parametrize("name", public_names())
def test_a_public_name_is_documented_with_an_example(name: str) -> None:
    thing = getattr(importlib.import_module("tintype"), name)
    if not inspect.isclass(thing) and not callable(thing):
        return  # a constant or a module: modules are held to their own docstring
    documentation = thing.__doc__
    assert documentation, f"tintype.{name} has no docstring"
    assert ">>> " in documentation, f"tintype.{name} has no example in its docstring"
