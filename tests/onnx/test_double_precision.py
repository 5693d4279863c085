"""Double precision, for much of which ONNX Runtime has no kernels: right to its own precision, unverified."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype

F = torch.nn.functional
inf, nan = math.inf, math.nan
_SIZES = (1e-12, 1e-6, 1e-3, 0.1, 1.0, 3.0, 30.0, 300.0, 1e5, 1e12, 1e160, 1e300)
_SPECIAL = [0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 0.5, 2.0, 710.0, -710.0, 1e-300]
SMALL = torch.linspace(-2, 2, 60, dtype=torch.float64).reshape(3, 4, 5)
HEADS = torch.linspace(-1, 1, 128, dtype=torch.float64).reshape(2, 2, 4, 8).sin()


def numbers() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(len(_SIZES), 40, generator=generator, dtype=torch.float64)
    return torch.cat([(normal * torch.tensor(_SIZES)[:, None]).reshape(-1), torch.tensor(_SPECIAL).double()])


def held(function: Callable[..., Any], x: torch.Tensor, relative: float, opset: int) -> None:
    program = tintype.onnx.export(function, (x,), verify=False, opset=opset)
    torch.testing.assert_close(program(x), function(x), rtol=relative, atol=relative / 10, equal_nan=True)


@pytest.mark.parametrize(
    "name", ["tan", "sinh", "cosh", "asinh", "acosh", "atanh", "atan", "asin", "acos", "erf", "erfc", "log2", "log10"]
)
def test_functions_of_one_number(name: str) -> None:
    function = getattr(torch, name)
    x = numbers()
    for each in (x, x.clamp(-1, 1)):
        given = each.clamp(-1e4, 1e4) if name == "tan" else each  # beyond, libraries reduce angles otherwise
        program = tintype.onnx.export(lambda x: function(x), (given,), verify=False)
        torch.testing.assert_close(program(given), function(given), rtol=2e-13, atol=1e-300, equal_nan=True)


@pytest.mark.parametrize("opset", [18, 20, 24])
@pytest.mark.parametrize(
    "function",
    [
        F.gelu,
        lambda x: F.gelu(x, approximate="tanh"),
        F.softsign,
        lambda x: F.prelu(x, x[0, :, 0]),
        F.instance_norm,
        lambda x: F.group_norm(x, 2, x[0, :, 0], x[0, :, 1]),
        lambda x: torch.atan2(x, x.flip(0)),
        lambda x: F.fold(x[:, :4, :4], (4, 4), 2, stride=2),
        lambda x: F.fold(x[:, :4, :1], (3, 4), 2, dilation=(2, 3), padding=0),
        lambda x: (x * 0.3333) @ x.mT,
    ],
)
def test_other_operators(function: Callable[..., Any], opset: int) -> None:
    held(function, SMALL, 1e-11, opset)


@pytest.mark.parametrize("opset", [18, 24])
def test_attention(opset: int) -> None:
    held(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), HEADS, 1e-12, opset)


@pytest.mark.parametrize("opset", [18, 24])
def test_kernels_that_half_precision_has_not(opset: int) -> None:
    x = torch.tensor([1.0, -2.0, inf, nan, 0.0])

    def function(x: torch.Tensor) -> Any:
        return x.isinf(), F.mse_loss(x, x + 1)

    for dtype in (torch.float16, torch.bfloat16):
        given = x.to(dtype)
        program = tintype.onnx.export(function, (given,), verify=False, opset=opset)
        torch.testing.assert_close(program(given), function(given), equal_nan=True)
