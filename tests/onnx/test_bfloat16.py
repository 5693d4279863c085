"""Models in bfloat16, which ONNX Runtime has no kernels for on the processor: they run there, and are verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch

import tintype
from tests.onnx.comparing import compared, operators

BATCH = tintype.Dim("batch")


def random(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0)).bfloat16()


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4)) for _ in range(2)]
    return torch.nn.Sequential(*layers).bfloat16().eval()


@pytest.mark.parametrize("options", [{}, {"functions": True}, {"optimize": "full"}, {"opset": 23}])
def test_a_model_is_verified(options: dict[str, Any], tmp_path: Path) -> None:
    given = [(random(rows, 4),) for rows in (2, 0, 1, 5)]
    program = compared(model(), *given, dynamic_shapes=({0: BATCH},), tolerance=3e-2, **options)
    assert len(program.report.comparisons) == 2
    program.save(tmp_path / "model.onnx")
    loaded = tintype.onnx.load(tmp_path / "model.onnx")
    torch.testing.assert_close(loaded(*given[3]), program(*given[3]), rtol=0, atol=0)


def test_the_file_keeps_its_operators() -> None:
    program = tintype.onnx.export(model(), (random(2, 4),))
    assert "Cast" not in operators(program)
    assert {value.dtype for value in program.model.graph.initializers.values()} == {ir.DataType.BFLOAT16}


class _Everything(torch.nn.Module):
    """State, branches and loops, constants, other dtypes beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3, dtype=torch.bfloat16))
        self.lstm = torch.nn.LSTM(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        self.total += x.sum(0)
        y = x * 2 + torch.ones(3, dtype=torch.bfloat16) if x.sum() > 0 else x.float().cumsum(0).bfloat16()
        z = tintype.map(lambda row: row.softmax(0) * self.total, y)
        return {"z": z, "x": x, "sorted": x.sort(0).values, "max": x.argmax(), "lstm": self.lstm(x[:, None])[0]}


@pytest.mark.parametrize("opset", [18, 21, 24])
def test_everything(opset: int) -> None:
    torch.manual_seed(0)
    compared(_Everything().bfloat16(), (random(4, 3),), (-random(4, 3).abs(),), opset=opset, tolerance=5e-2)
