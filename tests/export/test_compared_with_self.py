"""``x is not self`` in a method: the object of a method is no tensor and no truth value, so nothing rests on it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype


class Inner(torch.nn.Module):
    def found(self) -> torch.nn.Module:
        other = getattr(self, "other", None)
        return other if other is not None and other is not self else self

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2 if self.found() is self and x.shape[0] > 1 else x * 2 + 0
        return z.transpose(0, 1).contiguous() + y.float()


def test_sizes_layouts_and_inputs_stay_free(mode: str) -> None:
    model = Inner()
    example = torch.randn(4, 3), torch.randn(3, 4)
    program = tintype.export(model, example, dynamic_shapes=({0: tintype.Dim.AUTO}, {1: tintype.Dim.AUTO}))
    assert "is the tensor" not in str(program.contract()) and "stride" not in str(program.contract())
    module = program.module()
    for rows in (2, 5):
        x = torch.randn(3, rows).t()
        torch.testing.assert_close(module(x, x.t()), model(x, x.t()))


class Compared(torch.nn.Module):
    """A function that is given ``self``, which anybody may be."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def same(self: Any, other: Any) -> bool:
            return self is other

        return x + y if same(x, y) else x - y


class Assigned(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self = x  # type: ignore[assignment]
        return x + y if self is y else x - y


class Owned(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y if self.weight is y else x - y


@pytest.mark.parametrize("model", [Compared(), Assigned()], ids=lambda model: type(model).__name__)
def test_other_variables_of_that_name_are_compared(model: torch.nn.Module) -> None:
    x, y = torch.randn(2), torch.randn(2)
    module = tintype.export(model, (x, y)).module()
    torch.testing.assert_close(module(x, y), model(x, y))
    with pytest.raises(tintype.InputMismatchError):
        module(x, x)


def test_attributes_of_the_object_are_compared() -> None:
    model, x = Owned(), torch.randn(2)
    module = tintype.export(model, (x, x + 1)).module()
    with pytest.raises(tintype.InputMismatchError):
        module(x, model.weight)
