"""Arms that can't be merged where they meet go on by themselves."""

from __future__ import annotations

import pytest
import torch

import tintype


class Filtering(torch.nn.Module):
    """Leaves early inside of a branch, and goes on with tensors of different numbers of dimensions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x
        if x.sum() > 0:
            kept = kept[kept > 0]
            if kept.sum() > 5:
                return x * 2
        return x + kept.sum()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("value", [-1.0, 0.25, 3.0])
def test_dimensions_that_differ_where_arms_meet(value: float, strict: bool) -> None:
    x = torch.full((2, 3), value)
    x[0, 0] = -0.5
    program = tintype.export(Filtering(), (torch.ones(2, 3),), strict=strict)
    torch.testing.assert_close(program.module()(x), Filtering()(x))
