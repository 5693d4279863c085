"""A new user promises plain names for heights and widths, and then does nothing but what the error says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

import tintype
from tintype import Dim


class UNet(nn.Module):
    """Down and up again, with what was there on the way down beside what comes up."""

    def __init__(self, depth: int, down: str, up: str, largest: int | None = None) -> None:
        super().__init__()
        self.up, self.largest = up, largest
        layers = {"pool": nn.MaxPool2d(2), "strided": nn.Conv2d(2, 2, 3, 2, 1)}
        self.downs = nn.ModuleList(layers[down] for _ in range(depth))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(2, 2, 2, 2) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for layer in self.downs:
            kept.append(x)
            x = layer(x)
        for layer in self.ups:
            if self.largest is not None and x.numel() * 4 > self.largest:  # as diffusers does
                x = x.contiguous()
            x = layer(x) if self.up == "transposed" else functional.interpolate(x, scale_factor=2.0)
            x = torch.cat([x, kept.pop()], 1).relu()[:, :2]
        return x


def follow(model: nn.Module, x: Tensor, shapes: Any) -> tuple[tintype.ExportedProgram, dict[str, str]]:
    with pytest.raises(tintype.ConstraintViolationError) as caught:
        tintype.export(model, (x,), dynamic_shapes=shapes)
    fixes = {name: repr(fix) for name, fix in caught.value.suggested_fixes.items()}
    return tintype.export(model, (x,), dynamic_shapes=caught.value.suggested), fixes


@pytest.mark.parametrize("up", ["transposed", "interpolated"])
@pytest.mark.parametrize("down", ["pool", "strided"])
def test_heights_and_widths_of_an_encoder_and_decoder(down: str, up: str) -> None:
    model, x = UNet(3, down, up).eval(), torch.randn(1, 2, 64, 64)
    named = {"x": {2: Dim("H", min=32, max=512), 3: Dim("W", min=32, max=512)}}
    program, fixes = follow(model, x, named)
    expected = {"_H": "Dim('_H', min=4, max=64)", "H": "8*_H", "_W": "Dim('_W', min=4, max=64)", "W": "8*_W"}
    assert fixes == expected
    other = torch.randn(1, 2, 40, 96)
    for stage in (program, program.run_decompositions()):
        torch.testing.assert_close(stage.module()(other), model(other))
    with pytest.raises(tintype.InputMismatchError, match=r"of the form 8\*"):
        program.module()(torch.randn(1, 2, 44, 96))


@pytest.mark.parametrize("depth", [1, 4])
def test_a_limit_on_the_number_of_elements_fixes_no_size(depth: int) -> None:
    model, x = UNet(depth, "strided", "interpolated", largest=2**31).eval(), torch.randn(2, 2, 64, 64)
    program, fixes = follow(model, x, {"x": {0: Dim("batch"), 2: Dim("H"), 3: Dim("W")}})
    scale = 2**depth
    assert fixes["H"] == f"{scale}*_H" and fixes["W"] == f"{scale}*_W"
    assert fixes["batch"].startswith("Dim('batch', max=")
    other = torch.randn(3, 2, 3 * scale, 5 * scale)
    torch.testing.assert_close(program.module()(other), model(other))


def test_sizes_of_which_one_is_at_most_another() -> None:
    def model(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] <= 2 * x.shape[1] else x * 3

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return model(x)

    program, fixes = follow(Model(), torch.ones(5, 6), {"x": {0: Dim("rows"), 1: Dim("columns")}})
    assert fixes == {"rows": "Dim('rows', max=8)", "columns": "Dim('columns', min=4)"}
    for sizes in [(8, 4), (1, 50), (3, 9)]:
        assert torch.equal(program.module()(torch.ones(sizes)), model(torch.ones(sizes)))
