"""Buffers that a program replaces (``self.buffer = tensor``)."""

from __future__ import annotations

import torch
from torch import nn

import tintype


class Transposing(nn.Module):
    """Its buffer gets other strides with every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(9.0).view(3, 3))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.table = self.table.t() + 1
        return value + self.table.reshape(-1)


def test_a_replacement_with_other_strides() -> None:
    eager, module = Transposing(), tintype.export(Transposing(), (torch.zeros(9),)).module()
    for _ in range(3):
        assert torch.equal(module(torch.ones(9)), eager(torch.ones(9)))
        assert torch.equal(module.table, eager.table)
        assert module.table.stride() == (3, 1)
