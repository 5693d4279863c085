"""Loops over rows where there are none: what their function asks of sizes holds all the same, as in eager mode, which
calls it on a row of zeros to learn what there would be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype

AUTO = {"x": {0: tintype.Dim.AUTO, 1: tintype.Dim.AUTO}}


def mapped(x: torch.Tensor) -> Any:
    return tintype.map(lambda row: torch.stack(tuple(row)) * 2, x)


def scanned(x: torch.Tensor) -> Any:
    return tintype.scan(lambda total, row: (total + 1, torch.stack(tuple(row)) * 2), torch.zeros(()), x)[1]


@pytest.mark.parametrize("function", [mapped, scanned])
@pytest.mark.parametrize("decomposed", [False, True])
def test_without_rows_sizes_are_checked_as_with_rows(function: Any, decomposed: bool) -> None:
    program = tintype.export(function, (torch.randn(3, 4),), dynamic_shapes=AUTO)
    module = (program.run_decompositions() if decomposed else program).module()
    assert module(torch.randn(0, 4)).shape == (0, 4) == function(torch.randn(0, 4)).shape
    for rows in (0, 2):
        with pytest.raises(tintype.RuntimeAssertionError, match=r"4\)\n.*x.shape\[1\]"):
            module(torch.randn(rows, 5))


def test_without_rows_no_data_are_checked() -> None:
    def checked(x: torch.Tensor) -> Any:
        def step(row: torch.Tensor) -> torch.Tensor:
            count = int(row.sum().item())
            torch._check(count > 0)
            return row * count

        return tintype.map(step, x)

    module = tintype.export(checked, (torch.ones(3, 4),), dynamic_shapes={"x": {0: tintype.Dim.AUTO}}).module()
    assert module(torch.zeros(0, 4)).shape == (0, 4)
    with pytest.raises(tintype.RuntimeAssertionError):
        module(torch.zeros(1, 4))
