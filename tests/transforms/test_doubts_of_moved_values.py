"""Whether a call copies stays in doubt where its argument was laid out anew by a write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tintype import Dim

WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "nothing": lambda x: None,
    "add": lambda x: x.add_(1),
    "tril": lambda x: x.tril_(),
    "cumsum": lambda x: x.cumsum_(0),
}


@pytest.mark.parametrize("sizes", ["fixed", "varying"])
@pytest.mark.parametrize("name", WRITES)
def test_a_view_at_the_size_of_the_example(name: str, sizes: str) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        WRITES[name](x)
        view = x.contiguous()
        x[:, :2].add_(1)
        return view

    def given() -> torch.Tensor:
        return torch.arange(3.0)[:, None].mT  # contiguous as one row, and only then

    if sizes == "varying":
        with pytest.raises(tintype.MutationError, match="contiguous"):
            tintype.export(model, (given(),), dynamic_shapes={"x": {0: Dim("rows")}})
        return
    module = tintype.export(model, (given(),)).module()
    assert torch.equal(module(given()), model(given()))
