"""What is made of a program leaves the program as it was: its text, its contract, the bytes of its file.

Every test runs with this check around the passes, so that it holds over everything the suites export.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import pytest

import tintype
from tintype.export import decompose, joint
from tintype.export.program import ExportedProgram


def description(program: ExportedProgram) -> tuple[str, str, bytes | None]:
    """Everything that can be seen of a program without running it."""
    file: io.BytesIO | None = io.BytesIO()
    try:
        tintype.save(program, file)
    except tintype.TintypeError:  # it can't be saved: its text and its contract have to do
        file = None
    return program.code, str(program.contract()), None if file is None else file.getvalue()


def leaves_its_source(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a program that fails if it changes the program."""

    @functools.wraps(function)
    def checked(program: Any, *args: Any, **options: Any) -> Any:
        before = description(program)
        try:
            return function(program, *args, **options)
        finally:
            after = description(program)
            for what, old, new in zip(("text", "contract", "file"), before, after, strict=True):
                assert old == new, f"{function.__name__} changed the {what} of the program that it was given"

    return checked


def watch_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the check around everything that takes a program and makes something of it."""
    monkeypatch.setattr(decompose, "decompose_program", leaves_its_source(decompose.decompose_program))
    monkeypatch.setattr(joint, "_joint_program", leaves_its_source(joint._joint_program))
    monkeypatch.setattr(ExportedProgram, "module", leaves_its_source(ExportedProgram.module))
