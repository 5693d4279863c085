"""Sizes that vary, given with torch.export's dimensions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype


def _by_tensor(x: torch.Tensor) -> Any:
    shapes = torch.export.ShapesCollection()
    shapes[x] = (torch.export.Dim("n"), None)
    return shapes


def _by_example(x: torch.Tensor) -> Any:
    shapes = torch.export.AdditionalInputs()
    shapes.add((torch.ones(8, 3),))
    return shapes


THEIRS: dict[str, Any] = {
    "named": lambda x: {"x": {0: torch.export.Dim("n")}},
    "derived": lambda x: ((2 * torch.export.Dim("n", max=50), None),),
    "hint": lambda x: {"x": (torch.export.Dim.AUTO, torch.export.Dim.STATIC)},
    "hint with bounds": lambda x: {"x": {0: torch.export.Dim.DYNAMIC(min=2, max=40)}},
    "by tensor": _by_tensor,
    "by example": _by_example,
}


@pytest.mark.parametrize("name", THEIRS)
def test_sizes_given_as_torch_takes_them(name: str) -> None:
    x = torch.ones(4, 3)
    program = tintype.export(lambda x: x * 2, (x,), dynamic_shapes=THEIRS[name](x))
    assert program.module()(torch.ones(6, 3)).shape == (6, 3)


def test_dimensions_of_torch_are_one_by_their_name() -> None:
    shapes = {"x": {0: torch.export.Dim("n")}, "y": {0: torch.export.Dim("n")}}
    program = tintype.export(lambda x, y: x * 2, (torch.ones(4), torch.ones(4)), dynamic_shapes=shapes)
    with pytest.raises(tintype.TintypeError):
        program.module()(torch.ones(4), torch.ones(5))
