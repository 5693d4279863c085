"""Values that lie otherwise in memory since something was written to are followed where something rests on that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tintype
from tintype.transforms.layouts import Layouts


def flattened(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).relu_().mul(2).flatten()


def viewed(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).relu_().mul(2).view(-1)


@pytest.mark.parametrize(("model", "follows"), [(flattened, False), (viewed, True)])
def test_layouts_are_followed_for_views_of_the_program(
    model: Callable[[torch.Tensor], torch.Tensor], follows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[torch.fx.Node] = []
    is_certain = Layouts.is_certain

    def ask(self: Layouts, node: torch.fx.Node) -> bool:
        asked.append(node)
        return is_certain(self, node)

    monkeypatch.setattr(Layouts, "is_certain", ask)
    program = tintype.export(model, (torch.randn(2, 3),))
    assert bool(asked) is follows
    x = torch.randn(2, 3)
    assert torch.equal(program.module()(x), model(x))
