"""tintype takes the programs that torch.export refuses, and they do what eager mode does on other inputs too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tests.export.refused_by_torch import PROGRAMS, Program, first_lines


def programs(program: Program) -> dict[str, tintype.ExportedProgram]:
    shapes = program.shapes(tintype.Dim)
    exported = tintype.export(program.model, program.example, dynamic_shapes=shapes)
    return {
        "exported": exported,
        "decomposed": exported.run_decompositions(),
        "training": tintype.export_for_training(program.model, program.example, dynamic_shapes=shapes),
        "captured again": tintype.export(exported.module(), program.example, dynamic_shapes=shapes),
    }


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name.replace(" ", "_"))
def test_matches_eager_on_all_inputs(program: Program) -> None:
    for stage, exported in programs(program).items():
        exported.validate()
        module = exported.module()
        for inputs in (program.example, *program.others):
            found: Any = module(*inputs)
            expected = program.model(*inputs)
            torch.testing.assert_close(found, expected, msg=lambda text: f"{stage}: {text}")  # noqa: B023


def test_no_two_programs_have_one_name() -> None:
    """The page that lists them is made by name."""
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)


def test_messages_are_cut_at_a_word() -> None:
    assert first_lines("Constraints violated (a)! For more information, run with X\n  - a  is") == (
        "Constraints violated (a)! - a is"
    )
    assert first_lines("word " * 100).endswith("word ...")
