"""flex_attention on ONNX Runtime: with every kind of score and mask, sizes that vary, shared heads and statistics."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import tintype
from tests.onnx.comparing import compared
from tests.ops.test_flex_attention import MASKS, SCORES, inputs, with_mask, with_score


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


@pytest.mark.parametrize("name", SCORES)
def test_scores(name: str) -> None:
    compared(with_score(SCORES[name]), inputs(), verify=False)


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str) -> None:
    compared(with_mask(MASKS[name]), inputs(), verify=False)


@pytest.mark.parametrize("opset", [18, 24])
def test_sizes_that_vary(opset: int) -> None:
    slopes = torch.linspace(0.1, 1, 4)

    def attend(x: torch.Tensor) -> Any:
        def score(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
            return torch.where(q >= k, s - slopes[h] * (q - k), -float("inf"))

        return flex_attention(x, x, x, score, return_aux=AuxRequest(lse=True))

    others = [(torch.randn(1, 4, 1, 8),), (torch.randn(3, 4, 9, 8),)]
    shapes = ({0: tintype.Dim("batch"), 2: tintype.Dim("length")},)
    compared(attend, (torch.randn(2, 4, 5, 8),), *others, dynamic_shapes=shapes, opset=opset, verify=False)


def test_heads_that_are_shared_and_a_parameter_in_the_score() -> None:
    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.randn(4, 16, 16), requires_grad=False)

        def forward(self, query: torch.Tensor, key: torch.Tensor) -> Any:
            mask = create_block_mask(lambda b, h, q, k: q + 2 >= k, None, None, 5, 7, device="cpu")
            return flex_attention(
                query, key, key, lambda s, b, h, q, k: s + self.bias[h, q, k], mask, 0.3, enable_gqa=True
            )

    compared(Attention().eval(), (torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8)))
