"""Control flow of plain Python with sizes that vary, and in joint graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype

ROWS = {"x": {0: tintype.Dim("rows", min=2, max=16)}}


def branches_and_loops(x):
    if x.sum() > 0:
        x = x * x.shape[0]
    else:
        x = x - 1
    while x.norm() > 4:
        x = x / 2
    return x


def of_rows(count: int, scale: float) -> torch.Tensor:
    return torch.linspace(-1.0, 1.5, count * 3).reshape(count, 3) * scale


def test_sizes_vary() -> None:
    module = tintype.export(branches_and_loops, (of_rows(4, 1),), dynamic_shapes=ROWS).module()
    for count in (2, 5, 16):
        for scale in (1.0, -1.0, 30.0):
            x = of_rows(count, scale)
            torch.testing.assert_close(module(x), branches_and_loops(x))


def adds_rows(x):
    total = x[0] * 0
    for row in x:
        if row.sum() > 0:
            total = total + row
    return total


def test_a_loop_over_rows_has_any_number_of_steps() -> None:
    module = tintype.export(adds_rows, (of_rows(4, 1),), dynamic_shapes=ROWS).module()
    for count in (2, 5, 16):
        for scale in (1.0, -1.0):
            torch.testing.assert_close(module(of_rows(count, scale)), adds_rows(of_rows(count, scale)))


class Choosing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(3, 3)
        self.down = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.up(x) if x.sum() > 0 else self.down(x) * 2
        return (y * y).sum()


@pytest.mark.parametrize("scale", [1.0, -1.0])
def test_a_joint_graph_has_the_gradients_of_the_way_that_is_taken(scale: float) -> None:
    model = Choosing()
    x = of_rows(4, scale) + 0.5 * scale
    joint = tintype.export_joint(model, (of_rows(4, 1),))
    results = joint.module()(x)
    expected = model(x)
    expected.backward()
    torch.testing.assert_close(results[0], expected)
    for name, parameter in model.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(results[1][name], gradient)
