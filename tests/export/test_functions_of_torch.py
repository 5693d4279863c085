"""Functions of torch's that ask about sizes or gradients on their way, with sizes that vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype

TRANSFORMED: dict[str, Callable[..., Any]] = {
    "grad": lambda x: torch.func.grad(lambda z: (z**2).sum())(x),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1],
    "jacrev": lambda x: torch.func.jacrev(lambda z: z**2)(x),
    "vmap of grad": lambda x: torch.func.vmap(torch.func.grad(lambda z: (z**2).sum()))(x),
}


@pytest.mark.parametrize("shapes", [None, "auto"])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_gradients_by_transforms(name: str, shapes: Any) -> None:
    function = TRANSFORMED[name]
    module = tintype.export(function, (torch.randn(3, 2),), dynamic_shapes=shapes).module()
    for size in (3,) if shapes is None else (3, 2, 5):
        x = torch.randn(size, 2)
        torch.testing.assert_close(module(x), function(x))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_with_probabilities(reduction: str) -> None:
    def function(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target, reduction=reduction)

    example = (torch.randn(2, 3), torch.rand(2, 3))
    module = tintype.export(function, example, dynamic_shapes="auto").module()
    for samples, classes in ((2, 3), (4, 3), (5, 7)):
        args = (torch.randn(samples, classes), torch.rand(samples, classes))
        torch.testing.assert_close(module(*args), function(*args))
