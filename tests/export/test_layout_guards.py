"""Layouts that nobody looks at decide nothing about sizes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tintype
from tests.export.size_comparison import compare
from tintype import Dim


def every_third(x: torch.Tensor) -> torch.Tensor:
    return x[:, ::3] * 2


def test_the_order_of_dimensions_in_a_result_is_no_guard() -> None:
    shapes = {"x": {0: Dim("h", min=1), 1: Dim("w", min=1)}}
    program = tintype.export(every_third, (torch.ones(3, 6),), dynamic_shapes=shapes)
    assert "x.shape[1] >=" not in str(program.contract())
    for height, width in ((1, 1), (1, 2), (4, 2), (5, 9)):
        compare(program.module(), every_third, (torch.randn(height, width),))


def test_a_look_at_the_layout_of_a_finished_program_decides_nothing() -> None:
    shapes = {"x": {0: Dim("h"), 1: Dim("w")}}
    program = tintype.export(every_third, (torch.ones(3, 6),), dynamic_shapes=shapes)
    before = str(program.contract())
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "call_function"]
    assert all(len(value.stride()) == 2 for value in values)
    assert str(program.contract()) == before


def test_a_program_that_looks_at_the_layout_rests_on_it() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x[:, ::3].permute(1, 0) * 2
        return y + 1 if y.stride(0) == 1 else y - 1

    program = tintype.export(function, (torch.ones(3, 6),), dynamic_shapes={"x": {0: Dim.AUTO, 1: Dim.AUTO}})
    for height, width in ((3, 6), (4, 2), (2, 1), (7, 7)):
        value = torch.randn(height, width)
        try:
            result = program.module()(value)
        except (RuntimeError, tintype.TintypeError):
            continue
        torch.testing.assert_close(result, function(value))


class Windows(torch.nn.Module):
    """Padding to whole windows, as in Swin transformers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, channels = x.shape
        x = F.pad(x, (0, 0, 0, -width % 4, 0, -height % 4))
        rows, columns = x.shape[1] // 4, x.shape[2] // 4
        x = x.view(batch, rows, 4, columns, 4, channels).permute(0, 1, 3, 2, 4, 5)
        return x.sum((3, 4))


@pytest.mark.parametrize("size", [(10, 9), (8, 8)])
def test_padding_to_whole_windows_is_general(size: tuple[int, int]) -> None:
    shapes = {"x": {0: Dim("batch"), 1: Dim("height"), 2: Dim("width")}}
    program = tintype.export(Windows(), (torch.ones(2, *size, 3),), dynamic_shapes=shapes)
    for height, width in ((1, 1), (4, 7), (13, 8)):
        compare(program.module(), Windows(), (torch.randn(3, height, width, 3),))


class CroppedDecoder(torch.nn.Module):
    """A small U-Net that cuts its skip connection to the size that comes back up."""

    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.up = torch.nn.ConvTranspose2d(4, 4, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = self.down(x)
        above = self.up(F.max_pool2d(skip, 2))
        top, left = (skip.shape[2] - above.shape[2]) // 2, (skip.shape[3] - above.shape[3]) // 2
        skip = skip[:, :, top : top + above.shape[2], left : left + above.shape[3]]
        return torch.cat([skip, above], 1)


@pytest.mark.parametrize("size", [(17, 18), (16, 16)])
def test_a_cropped_skip_connection_is_general(size: tuple[int, int]) -> None:
    model = CroppedDecoder().eval()
    shapes = {"x": {0: Dim("batch"), 2: Dim("height", min=2), 3: Dim("width", min=2)}}
    program = tintype.export(model, (torch.ones(2, 3, *size),), dynamic_shapes=shapes)
    for height, width in ((2, 2), (5, 8), (9, 11)):
        compare(program.module(), model, (torch.randn(1, 3, height, width),))
