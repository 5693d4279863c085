"""Operators on complex numbers, at sizes that vary; unverified, so that a wrong one would be seen here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype

_GENERATOR = torch.Generator().manual_seed(0)
C = torch.complex(torch.randn(2, 3, 4, generator=_GENERATOR), torch.randn(2, 3, 4, generator=_GENERATOR))
WEIGHT = torch.complex(torch.randn(5, 4, generator=_GENERATOR), torch.randn(5, 4, generator=_GENERATOR))


def _written(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 0] = 2 - 1j
    y[:, 1] = 3
    return y


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "slices counted from the end": lambda x: (torch.ops.aten.slice(x, -1, 1, 3), x.narrow(-1, 1, 2), x[..., ::2]),
    "other shapes": lambda x: (x.flatten(), x.flatten(-2), x.reshape(4, -1), x.unflatten(-1, (2, 2)), x.view(-1)),
    "copies": lambda x: (x[:, :1].expand(-1, 3, 4), x.repeat(1, 2, 1), x.tile(2), x.repeat_interleave(2, -1)),
    "by index": lambda x: (
        x[:, [0, 2]],
        x[..., torch.tensor([1, 0])],
        x.index_select(-1, torch.tensor([0, 2])),
        x.gather(1, torch.zeros(x.shape[0], 1, 4, dtype=torch.int64)),
        x[x.real > 0],
    ),
    "parts of matrices": lambda x: (x.tril(), x.triu(1), torch.diagonal(x, 1, -2, -1), x.unfold(-1, 2, 1)),
    "parts written": lambda x: (
        torch.select_scatter(x, x[..., 0], -1, 1),
        torch.slice_scatter(x, x[..., :2], -1, 2),
        x.index_add(-1, torch.tensor([0, 1]), x[..., :2], alpha=2),
        _written(x),
    ),
    "choices": lambda x: (
        torch.where(x.real > 0, x, x * 2),
        torch.where(x.real > 0, x, 1.0),
        torch.where(x.imag > 0, 1j, x),
        x.masked_fill(x.real > 0, 1 + 1j),
        x.masked_fill(x.real > 0, 2),
    ),
    "sizes": lambda x: (x.shape[0], x.numel(), x.reshape(x.shape[0] * 3, -1), x.new_zeros(x.shape[0])),
    "sums": lambda x: (x.cumsum(-1), x.sum((-1, 0)), x.mean(-1), x.cumsum(0)),
    "filled": lambda x: (
        torch.zeros_like(x) + x,
        torch.ones_like(x),
        torch.full_like(x, 2j),
        x.new_zeros(3),
        torch.ones(2, dtype=torch.complex64),
        torch.full((2,), 1 + 2j),
        torch.zeros_like(x, dtype=torch.float32),
        torch.ones_like(x.real, dtype=torch.complex64),
    ),
    "products": lambda x: (
        x @ x.mT,
        torch.bmm(x, x.conj().mT),
        torch.einsum("bij,bkj->bik", x, x.conj()),
        torch.nn.functional.linear(x, WEIGHT, WEIGHT[:, 0]),
        torch.dot(x[0, 0], x[0, 1]),
        torch.addmm(x[0, :, :3], x[0], x[1].mT),
    ),
    "comparisons": lambda x: (x == x.conj(), x != x[:1], x == 1j, x != 2, x.isnan(), x.isinf(), x.isfinite()),
    "functions": lambda x: (x.exp(), x.sin(), x.cos(), x**2, x**3, x.square()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_complex_numbers(name: str) -> None:
    function = PROGRAMS[name]
    program = tintype.onnx.export(function, (C,), verify=False, dynamic_shapes=({0: tintype.Dim("rows", min=2)},))
    for x in (C, torch.cat([C * 2, C.conj()])):
        torch.testing.assert_close(program(x), function(x), rtol=1e-4, atol=1e-4)


def test_what_there_is_no_form_of_is_refused_by_name() -> None:
    with pytest.raises(tintype.TintypeError, match=r"aten.cumprod.default .* complex numbers"):
        tintype.onnx.export(lambda x: x.cumprod(0), (C,))
    with pytest.raises(tintype.TintypeError, match=r"powers 1 to 4"):
        tintype.onnx.export(lambda x: x**0.5, (C,))
    with pytest.raises(tintype.TintypeError, match="complex numbers"):
        tintype.onnx.export(lambda x: x + torch.linspace(0, 1, 4, dtype=torch.complex64), (torch.ones(4),))
