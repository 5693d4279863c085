"""Whether programs of a prefill and of a decode step are what the model is, at other sizes than the example's."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

import tintype
from tests.generation.architectures import Architecture
from tintype import tree

EXAMPLE = (2, 6)  # batch, length


def export(architecture: Architecture, step: str, example: tuple[int, int] = EXAMPLE) -> tintype.ExportedProgram:
    """The program of a prefill or of a decode step."""
    arguments = getattr(architecture, step)(*example)
    with torch.no_grad():
        return tintype.export(architecture.model, (), arguments, dynamic_shapes="auto")


def saved_and_loaded(program: tintype.ExportedProgram) -> tintype.ExportedProgram:
    """A program after a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.tt"
        tintype.save(program, path)
        return tintype.load(path)


STAGES: dict[str, Callable[[tintype.ExportedProgram], tintype.ExportedProgram]] = {
    "exported": lambda program: program,
    "saved": saved_and_loaded,
    "decomposed": lambda program: program.run_decompositions(),
}


def differences(
    program: tintype.ExportedProgram, architecture: Architecture, step: str, sizes: Iterable[tuple[int, int]]
) -> list[str]:
    """At which batches and lengths a program is not what the model is, and how; "refused" where it says so."""
    module = program.module()
    found = []
    for batch, length in sizes:
        arguments = getattr(architecture, step)(batch, length, seed=batch + length)
        expected = architecture.eager(arguments)
        try:
            with torch.no_grad():
                result = module(**copy.deepcopy(arguments))
        except RuntimeError as error:  # our errors, and assertions in the program
            found.append(f"batch {batch}, length {length}: refused, {str(error).splitlines()[0]}")
            continue
        difference = _difference(result, expected)
        if difference is not None:
            found.append(f"batch {batch}, length {length}: {difference}")
    return found


def _difference(result: Any, expected: Any) -> str | None:
    mine, structure = tree.flatten_with_paths(result)
    theirs, expected_structure = tree.flatten_with_paths(expected)
    if structure != expected_structure:
        return f"another structure, {structure} and not {expected_structure}"
    for (path, left), (_, right) in zip(mine, theirs, strict=True):
        if isinstance(right, torch.Tensor):
            if left.shape != right.shape:
                return f"{tree.path_text(path)} is of the size {list(left.shape)} and not {list(right.shape)}"
            if not torch.allclose(left.float(), right.float(), rtol=1e-4, atol=1e-5, equal_nan=True):
                return f"{tree.path_text(path)} differs by {(left.float() - right.float()).abs().max().item():.3g}"
        elif left != right:
            return f"{tree.path_text(path)} is {left!r} and not {right!r}"
    return None
