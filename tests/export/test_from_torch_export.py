"""docs/from_torch_export.md names everything that torch.export has, and what it names here is there."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
import torch.export

import tintype

PAGE = Path(__file__).resolve().parents[2] / "docs/from_torch_export.md"
ROW = re.compile(r"^\| `([\w.]+)` \| (?:`([\w.]+)`|-) \|", re.MULTILINE)
CLASSES = (torch.export.ExportedProgram, torch.export.ExportGraphSignature)


def rows() -> dict[str, str | None]:
    return {theirs: ours or None for theirs, ours in ROW.findall(PAGE.read_text(encoding="utf-8"))}


def public_modules() -> list[str]:
    names = [module.name for module in pkgutil.iter_modules(torch.export.__path__)]
    return ["torch.export", *(f"torch.export.{name}" for name in names if not name.startswith("_"))]


@pytest.mark.parametrize("module", public_modules())
def test_every_public_name_of_torchs_is_on_the_page(module: str) -> None:
    names = getattr(importlib.import_module(module), "__all__", ())
    assert not sorted(set(names) - rows().keys())


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_public_attribute_of_torchs_is_on_the_page(cls: type) -> None:
    names = {f"{cls.__name__}.{name}" for name in vars(cls) if not name.startswith("_")}
    assert not sorted(names - rows().keys())


def find(dotted: str) -> Any:
    """What a dotted name stands for; modules on the way are imported."""
    value: Any = tintype
    path = "tintype"
    for name in dotted.split(".")[1:]:
        path = f"{path}.{name}"
        try:
            value = getattr(value, name)
        except AttributeError:
            value = importlib.import_module(path)
    return value


@pytest.mark.parametrize("ours", sorted({name for name in rows().values() if name}))
def test_what_the_page_names_here_is_there(ours: str) -> None:
    assert find(ours) is not None
