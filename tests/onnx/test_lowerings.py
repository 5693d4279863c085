"""Lowerings of ours, beside eager mode on the example and on other sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.onnx.comparing import compared, operators

aten = torch.ops.aten
BATCH = tintype.Dim("batch", max=64)
F = torch.nn.functional


def x(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes)


# name: function, example, further inputs; the first dimension of the first input varies
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "reshape": (
        lambda x: (x.reshape(x.shape[0], 2, -1), x.flatten(1), x.flatten(), x.view(-1, 3)),
        (x(2, 4, 3),),
        (x(5, 4, 3),),
    ),
    "expand": (lambda x: (x[:, None].expand(-1, 4, -1), x.expand(2, *x.shape)), (x(3, 4),), (x(7, 4),)),
    "parts": (lambda x: (*x.split(2, 1), *x.chunk(3), *x.unbind(1), x.narrow(1, 1, 2), x[1:-1, ::2]), (x(6, 5),), ()),
    "chunks of sizes that vary": (lambda x: x.chunk(2, 1), (x(3, 8),), (x(4, 8),)),
    "sort": (lambda x: (*x.sort(1, descending=True), x.argsort(), x.msort(), *x.topk(2)), (x(3, 4),), (x(5, 4),)),
    "running": (
        lambda x: (x.cumprod(1), x.logcumsumexp(0), *x.cummax(1), *x.cummin(0), x.cumsum(1)),
        (x(3, 4),),
        (x(6, 4),),
    ),
    "mean": (
        lambda x: (x.mean(), x.mean(0), x.mean(1, keepdim=True), x.var(0), x.std(1), *torch.var_mean(x, 1)),
        (x(3, 4),),
        (x(6, 4),),
    ),
    "extremes": (
        lambda x: (x.amax(), x.amin(1), *torch.aminmax(x), x.median(), x.kthvalue(2, 1)[0]),
        (x(3, 5),),
        (x(4, 5),),
    ),
    "masked_select": (lambda x: x.masked_select(x > 0), (x(3, 4),), (x(6, 4),)),
    "searchsorted": (lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x), (x(3, 4),), (x(6, 4),)),
    "special": (
        lambda x: (x.lgamma(), x.digamma(), x.tanh().erfinv(), x.sinc(), x.hypot(x + 1), x.angle()),
        (x(3, 4),),
        (x(6, 4),),
    ),
    "signs": (
        lambda x: (x.signbit(), x.copysign(-x), x.atan2(x * 2 - 1), x.fmax(x * 2), x.trunc(), x.frac()),
        (x(3, 4),),
        (x(6, 4),),
    ),
    "cdist": (lambda x: (torch.cdist(x, x), torch.cdist(x, x, 1.0)), (x(3, 4),), (x(6, 4),)),
    "scatter": (
        lambda x: x.scatter_add(1, torch.zeros(2, 2, dtype=torch.int64), torch.ones(2, 3)),
        (x(3, 4),),
        (x(6, 4),),
    ),
    "index": (
        lambda x: (x.index_add(1, torch.tensor([0, 2]), x[:, :2]), x.index_copy(1, torch.tensor([1]), x[:, :1])),
        (x(3, 4),),
        (x(6, 4),),
    ),
    "adaptive pooling": (
        lambda x: (F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_max_pool2d(x, (2, 5)), F.adaptive_avg_pool2d(x, 1)),
        (x(2, 3, 7, 8),),
        (x(4, 3, 7, 8),),
    ),
    "average pooling": (
        lambda x: (F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 2, divisor_override=3)),
        (x(2, 3, 8, 8),),
        (x(4, 3, 8, 8),),
    ),
    "padding": (
        lambda x: (F.pad(x, (1, 2), mode="circular"), F.pad(x, (1, -1), mode="replicate"), F.pad(x, (2, 1))),
        (x(2, 3, 5),),
        (x(4, 3, 5),),
    ),
    "products": (lambda x: (torch.addmm(x, x, torch.ones(4, 4), beta=0.5, alpha=2), x @ x.T), (x(3, 4),), (x(5, 4),)),
    "unique_consecutive": (
        lambda x: torch.unique_consecutive(x.round(), return_inverse=True, return_counts=True),
        (x(9),),
        (x(12),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_lowering(name: str) -> None:
    torch.manual_seed(0)
    function, args, other = CASES[name]
    others = [other] if other else []
    compared(function, args, *others, dynamic_shapes=({0: BATCH},) if others else None, tolerance=1e-3)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_integers_and_truth_values(dtype: torch.dtype) -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (
            x.ceil() if x.dtype is not torch.bool else x,
            x.relu() if x.dtype is not torch.bool else y,
            x > y,
            (torch.where(x > 0, x, y)),
            x.masked_fill(y > 0, 1),
            x.amax(0),
            x.cummax(0)[0],
            x.isnan(),
            x.sort()[0],
            x.prod(),
            x.any(),
            x.all(),
        )

    x, y = torch.tensor([3, 0, 1]).to(dtype), torch.tensor([1, 1, 0]).to(dtype)
    compared(model, (x, y), (y, x))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_are_nodes(layer: Any, bidirectional: bool) -> None:
    model = layer(3, 4, 2, batch_first=True, bidirectional=bidirectional).eval()
    shapes = ({0: BATCH, 1: tintype.Dim("length", max=64)},)
    program = compared(model, (x(2, 5, 3),), (x(3, 7, 3),), dynamic_shapes=shapes)
    assert operators(program).count(layer.__name__) == 2


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any) -> Any:
    return (
        F.scaled_dot_product_attention(q, k, v),
        F.scaled_dot_product_attention(q, k, v, mask),
        (F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    )


@pytest.mark.parametrize("opset", [20, 23])
def test_attention(opset: int) -> None:
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    mask[2] = False  # nothing to be seen there: torch gives 0
    example = (x(2, 4, 5, 8), x(2, 4, 5, 8), x(2, 4, 5, 8), mask)
    program = compared(_attention, example, opset=opset)
    assert operators(program).count("Attention") == (3 if opset >= 23 else 0)


def test_attention_with_shared_heads() -> None:
    compared(lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), (x(2, 4, 5, 8), x(2, 2, 5, 8)))


@pytest.mark.parametrize("opset", [20, 21, 23])
def test_normalization(opset: int) -> None:
    model = torch.nn.Sequential(torch.nn.GroupNorm(2, 4), torch.nn.RMSNorm((5,)), torch.nn.LayerNorm((4, 5))).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    program = compared(model, (x(2, 4, 5),), (x(3, 4, 5),), opset=opset, dynamic_shapes=({0: BATCH},))
    assert ("RMSNormalization" in operators(program)) == (opset >= 23)
    assert ("GroupNormalization" in operators(program)) == (opset >= 21)


def test_half_precision() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).half().eval()
    compared(model, (x(2, 4).half(),), tolerance=2e-2)


def test_as_strided_of_a_part_is_refused() -> None:
    base = torch.randn(20)
    with pytest.raises(tintype.TintypeError, match="as_strided"):
        tintype.onnx.export(lambda x: x.as_strided((2, 2), (1, 2), 1), (base[3:13],))


def test_elements_along_a_dimension() -> None:
    x, wide = torch.randn(3, 4), torch.randint(0, 3, (2, 5))
    rows = ({0: tintype.Dim("rows")}, {0: tintype.Dim("rows")})
    index = torch.randint(0, 4, (3, 2))
    compared(lambda x, i: x.take_along_dim(i, 1), (x, index), (x[:1], index[:1]), dynamic_shapes=rows, verify=False)
    compared(lambda x, i: x.take_along_dim(i, 1), (x, index[:1]), verify=False)
    compared(lambda x, i: x.take_along_dim(i, -2), (x[:, :1], wide), verify=False)
    compared(lambda x, i: x.take_along_dim(i), (x, wide), verify=False)


def test_indices_of_different_dtypes() -> None:
    x, number = torch.randn(3, 4), torch.tensor(9.0)
    i, j = torch.tensor([0, 2], dtype=torch.int32), torch.tensor([1, -1])
    compared(lambda x, i, j: (x[i, j], x.index_put((i, j), number)), (x, i, j), verify=False)


@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rms_norm_in_half_precision(dtype: torch.dtype, opset: int) -> None:
    small, weight = torch.linspace(-0.05, 0.05, 20).reshape(4, 5).to(dtype), torch.linspace(0.5, 2, 5)
    for scale in (None, weight.to(dtype), weight):
        compared(lambda x, scale=scale: F.rms_norm(x, (5,), scale), (small,), opset=opset, tolerance=2e-2)
