"""The table in docs/control_flow.md: every operator, in every way that a program can be used. Each cell is a test.

A row is a program of ``tests/ops/matrix.py``; a column is a function here. The names of the tests are the cells:
``test_cell[cond-export]``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype
from tests.ops.matrix import ROWS, Row
from tests.ops.programs import at_stage, compare

PAGE = Path(__file__).parents[2] / "docs" / "control_flow.md"


def with_gradients(row: Row, example: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.clone().requires_grad_() for tensor in example) if row.gradients else example


def check(row: Row, program: tintype.ExportedProgram, count: int = 1) -> None:
    """A program calls the operator, keeps the rules of its stage, and does what plain torch does."""
    program.validate()
    assert calls(row, program) is not row.dissolved
    module = program.module()
    for example in row.examples[:count]:
        compare(module, row.reference, with_gradients(row, example), "", gradients=row.gradients)


def calls(row: Row, program: tintype.ExportedProgram) -> bool:
    return any(node.target is row.operator for node in program.graph.nodes)


def eager(row: Row) -> None:
    for example in row.examples:
        compare(row.program, row.reference, with_gradients(row, example), "", gradients=row.gradients)


def export(row: Row) -> None:
    check(row, at_stage("export", row.program, with_gradients(row, row.examples[0])))


def training_stage(row: Row) -> None:
    program = at_stage("training", row.program, with_gradients(row, row.examples[0]))
    program.validate()
    assert calls(row, program) or not row.dissolved
    compare(program.module(), row.reference, with_gradients(row, row.examples[0]), "", gradients=row.gradients)


def retrace(row: Row) -> None:
    check(row, at_stage("retraced", row.program, with_gradients(row, row.examples[0])))


def decompose(row: Row) -> None:
    check(row, at_stage("decomposed", row.program, with_gradients(row, row.examples[0])))


class Loss(torch.nn.Module):
    """A program as a model: its last input is a parameter, and its outputs make a number. Where no gradient flows
    through the operator, one flows past it."""

    def __init__(self, row: Row, program: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(row.examples[0][-1].clone())
        self.function = program
        self.gradients = row.gradients

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        outputs = torch.utils._pytree.tree_leaves(self.function(*inputs, self.weight))
        total = sum((output.float() ** 2).sum() for output in outputs if output.is_floating_point())
        if self.gradients:
            return total
        return total.detach() + (self.weight**2).sum() + sum((value**2).sum() for value in inputs)


def joint(row: Row) -> None:
    """The loss and the gradients of a model that uses the operator."""
    inputs = tuple(tensor.clone().requires_grad_() for tensor in row.examples[0][:-1])
    program = tintype.export_joint(Loss(row, row.program), inputs)
    program.validate()
    loss, of_parameters, of_inputs = program.module()(*inputs)
    model = Loss(row, row.reference)
    expected = model(*inputs)
    gradients = torch.autograd.grad(expected, [model.weight, *inputs])
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close([*of_parameters.values(), *of_inputs.values()], list(gradients))


def dynamic_sizes(row: Row) -> None:
    example = with_gradients(row, row.examples[0])
    check(row, tintype.export(row.program, example, dynamic_shapes=row.dynamic_shapes), len(row.examples))


def save_and_load(row: Row) -> None:
    file = io.BytesIO()
    tintype.save(tintype.export(row.program, with_gradients(row, row.examples[0])), file)
    file.seek(0)
    check(row, tintype.load(file))
    if row.dissolved:
        training = tintype.export_for_training(row.program, with_gradients(row, row.examples[0]))
        file = io.BytesIO()
        tintype.save(training, file)
        file.seek(0)
        loaded = tintype.load(file)
        assert calls(row, loaded)
        compare(loaded.module(), row.reference, with_gradients(row, row.examples[0]), "", gradients=row.gradients)


def onnx(row: Row) -> None:
    """On ONNX Runtime, at all sizes; what has no form there is refused by name."""
    name = next(name for name, each in ROWS.items() if each is row)
    if name in WITHOUT_ONNX:
        with pytest.raises(tintype.TintypeError, match=WITHOUT_ONNX[name]):
            tintype.onnx.export(row.program, row.examples[0])
        return
    program = tintype.onnx.export(row.program, row.examples[0], dynamic_shapes=row.dynamic_shapes)
    for example in row.examples:
        torch.testing.assert_close(program(*example), row.reference(*example))


# Rows whose cell in the column "onnx" is "refused", and what is said there.
WITHOUT_ONNX = {
    "flex_attention_backward": "flex_attention_backward",
    "auto_functionalized": "auto_functionalized",
}


COLUMNS: dict[str, Callable[[Row], None]] = {
    "eager": eager,
    "export": export,
    "training stage": training_stage,
    "retrace": retrace,
    "decompose": decompose,
    "joint": joint,
    "dynamic sizes": dynamic_sizes,
    "save/load": save_and_load,
    "onnx": onnx,
}


@pytest.mark.parametrize(
    ("row", "column"), [pytest.param(row, column, id=f"{row}-{column}") for row in ROWS for column in COLUMNS]
)
def test_cell(row: str, column: str) -> None:
    COLUMNS[column](ROWS[row])


def test_the_page_has_the_table() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| operator |"))
    header = [cell.strip() for cell in lines[start].strip("|").split("|")]
    assert header[1:] == list(COLUMNS)
    rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[re.sub("`", "", name)] = cells
    assert rows == {name: [cell(name, column) for column in COLUMNS] for name in ROWS}


def cell(row: str, column: str) -> str:
    return "refused" if column == "onnx" and row in WITHOUT_ONNX else "yes"
