"""Numbers that vary where ONNX, as torch, takes plain ones: reductions where they say all, refused otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tintype

functional: Any = nn.functional


class Called(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def exported(function: Callable[[torch.Tensor], torch.Tensor], verify: bool) -> Any:
    sizes = {"x": {2: tintype.Dim("height", min=6), 3: tintype.Dim("width", min=1)}}
    return tintype.onnx.export(Called(function), (torch.randn(2, 3, 7, 6),), dynamic_shapes=sizes, verify=verify)


@pytest.mark.parametrize("pool", [functional.avg_pool2d, functional.max_pool2d], ids=["mean", "maximum"])
def test_pooling_over_everything_is_a_reduction(pool: Any) -> None:
    program = exported(lambda x: pool(x, x.shape[2:]), verify=True)
    for sizes in ((7, 6), (6, 1), (11, 13)):
        x = torch.randn(2, 3, *sizes)
        x[0, 0, 2, 0] = torch.nan
        torch.testing.assert_close(program(x), pool(x, x.shape[2:]), equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.avg_pool2d(x, (x.shape[2] // 2, 1)),
        lambda x: functional.avg_pool2d(x, x.shape[2:], divisor_override=3),
        lambda x: functional.max_pool2d(x, x.shape[2:], return_indices=True)[1],
        lambda x: x[0, 0].diagonal(x.shape[2] - 6),
        lambda x: functional.unfold(x, (x.shape[2] // 2, 1)),
    ],
)
def test_others_are_refused_by_name(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(tintype.onnx.OnnxExportError, match=r"(kernel_size|offset) varies, and ONNX takes a number"):
        exported(function, verify=False)


def test_as_many_groups_as_there_are_images_are_refused_by_name() -> None:
    def each_its_own(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x.flatten(0, 1)[None], weights.flatten(0, 1), groups=x.shape[0])

    batch = {0: tintype.Dim("batch")}
    with pytest.raises(tintype.onnx.OnnxExportError, match="its groups varies, and ONNX takes a number") as raised:
        tintype.onnx.export(
            each_its_own, (torch.randn(3, 2, 5, 5), torch.randn(3, 4, 2, 3, 3)), dynamic_shapes=(batch, batch)
        )
    assert "bug" not in str(raised.value)


def test_counts_of_at_least_as_many_as_there_are_rows() -> None:
    def mean_of_neighbours(rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        degree = torch.bincount(places, minlength=rows.shape[0]).clamp(min=1)
        return torch.zeros_like(rows).index_add(0, places, rows[places]) / degree.unsqueeze(-1)

    sizes = ({0: tintype.Dim("nodes", min=1)}, {0: tintype.Dim("edges")})
    program = tintype.onnx.export(
        mean_of_neighbours, (torch.randn(5, 3), torch.tensor([0, 1, 1, 3])), dynamic_shapes=sizes
    )
    for rows, places in ((torch.randn(2, 3), torch.tensor([0, 0, 1])), (torch.randn(7, 3), torch.tensor([6]))):
        assert torch.allclose(program(rows, places), mean_of_neighbours(rows, places), atol=1e-6)
