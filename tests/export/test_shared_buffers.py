"""Buffers that are assigned memory of other buffers."""

from __future__ import annotations

import pytest
import torch

import tintype


class Sharing(torch.nn.Module):
    def __init__(self, writes: bool, swaps: bool) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(4))
        self.register_buffer("b", torch.ones(4))
        self.writes = writes
        self.swaps = swaps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.writes:
            self.b.add_(x)
        result = self.a + self.b
        self.a = self.b.view(4)
        if self.swaps:
            self.b = x * 2
        return result


@pytest.mark.parametrize("writes, swaps", [(False, False), (True, True)])
def test_buffers_that_take_the_place_of_others(writes: bool, swaps: bool) -> None:
    model = Sharing(writes, swaps)
    module = tintype.export(model, (torch.ones(4),)).module()
    for number in range(4):
        torch.testing.assert_close(module(torch.full((4,), float(number))), model(torch.full((4,), float(number))))


def test_memory_that_two_buffers_would_share_is_not_written_to() -> None:
    with pytest.raises(tintype.errors.StateChangedError, match="assigned memory of 'b' to the buffer 'a'"):
        tintype.export(Sharing(True, False), (torch.ones(4),))
