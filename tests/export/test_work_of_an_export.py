"""How much an export does: something that is done for every model, and needed for few, is found here.

Calls of functions are counted, which are the same each time; what they take in time is measured in ``benchmarks``.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tests.export.test_growth import calls_of

pytestmark = pytest.mark.direct("counts what an export does")


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = map(self.split, self.project(x).chunk(3, -1))
        found = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.out(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.first, self.second = Attention(width, 2), nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Transformer(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(8) for _ in range(layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def calls_of_an_export(layers: int, dynamic_shapes: Any) -> int:
    model, x = Transformer(layers).eval(), torch.randn(2, 3, 8)
    for _ in range(2):  # what is made once for a process, or for the code of a model, is there then
        tintype.export(model, (x,), dynamic_shapes=dynamic_shapes)
    return calls_of(lambda: tintype.export(model, (x,), dynamic_shapes=dynamic_shapes))


# a tenth more than at the time of writing: 3,073 calls and 3,116 for a layer; with sizes that vary 4,917 and 3,956
@pytest.mark.parametrize(("dynamic_shapes", "fixed", "per_layer"), [(None, 3380, 3428), ("auto", 5409, 4352)])
def test_an_export_does_no_more_than_it_did(dynamic_shapes: Any, fixed: int, per_layer: int) -> None:
    few, many = (calls_of_an_export(layers, dynamic_shapes) for layers in (2, 10))
    of_a_layer = (many - few) / 8
    assert of_a_layer < per_layer and few - 2 * of_a_layer < fixed
