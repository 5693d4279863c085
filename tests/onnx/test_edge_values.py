"""Values that examples rarely have: nothing, nan, infinite numbers, integers above 2**53, zeros with a sign.

Programs are not verified when they are exported, so that a wrong lowering would be seen here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed

import tintype

nan, inf = float("nan"), float("inf")
ODD = torch.tensor([1.0, nan, -inf, inf, 0.0, -0.0, 2.5, -3.5, inf, nan, -1.0])
LARGE = torch.tensor([2**53 + 1, -(2**53) - 1, 2**31 + 1, 5, -7, 2**62, 3 * 2**40 + 1])


def check(function: Callable[..., Any], *inputs: Any, example: tuple[Any, ...] | None = None, **options: Any) -> None:
    """Hold an unverified program against eager mode, nan and signs of zeros included."""
    program = tintype.onnx.export(function, example or inputs, verify=False, **options)
    wanted, got = function(*inputs), program(*inputs)
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sort().values,
        lambda x: x.argsort(stable=True),
        lambda x: x.sort(descending=True).values,
        lambda x: x.topk(4, largest=False).values,
        lambda x: x.kthvalue(3).values,
        lambda x: x.unique(),
        lambda x: x.unique(return_inverse=True, return_counts=True),
        lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 2.0]), x),
        lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 2.0]), right=True),
        lambda x: torch.heaviside(x, torch.tensor(0.5)),
        lambda x: x.clamp(min=0.0),
        lambda x: x.clamp(max=1.0),
        lambda x: x.clamp(min=nan),
        lambda x: torch.diagonal(x[:9].reshape(3, 3)),
        lambda x: torch.diagonal(x[:8].reshape(2, 4), offset=1),
        lambda x: torch.diagonal(x[:8].reshape(2, 2, 2), offset=-1, dim1=2, dim2=0),
        lambda x: x // 0.3,
        lambda x: torch.div(x, -0.7, rounding_mode="floor"),
        lambda x: torch.div(x, -0.7, rounding_mode="trunc"),
        lambda x: x % -0.7,
        lambda x: torch.fmod(x, 0.7),
        lambda x: torch.xlogy(x[:, None], x),
        lambda x: torch.special.xlog1py(x[:, None], x),
        lambda x: (torch.xlogy(0, x), torch.xlogy(x, 0), torch.xlogy(2.5, x), torch.special.xlog1py(x, 3)),
    ],
)
def test_nan_and_infinite_numbers(function: Callable[..., Any]) -> None:
    check(function, ODD)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(),
        lambda x: x[None].sum(-1, keepdim=True),
        lambda x: x[:4].prod(),
        lambda x: torch.stack([x[:3], x[2:5]]).prod(1),
        lambda x: torch.div(x, 3, rounding_mode="floor"),
        lambda x: torch.div(x, -3, rounding_mode="trunc"),
        lambda x: x // -3,
        lambda x: 7 // (x + 1),
        lambda x: torch.fmod(x, 10),
        lambda x: x % -10,
        lambda x: x % 10,
        lambda x: torch.diag(x).trace(),
        lambda x: (x[3:5].to(torch.int32) // 3, x[3:5].to(torch.int32) % -3),
        lambda x: x[3:5] // 2.5,
        lambda x: torch.where(x > 0, x, 0.5),
        lambda x: torch.where(x > 0, 0.5, x),
        lambda x: x.unique(),
    ],
)
def test_large_integers(function: Callable[..., Any]) -> None:
    check(function, LARGE)


def test_floor_division_rounds_the_exact_quotient() -> None:
    x = torch.tensor([1.0, 0.6, -0.6, 0.3, 6.0, -1.0])
    check(lambda x: x // 0.1, x)
    check(lambda x: 1.0 // x, x)
    generator = torch.Generator().manual_seed(0)
    halves = (torch.randn(100, generator=generator) * 500).half()
    check(lambda x, y: (x // y, x % y), halves, torch.rand(100, generator=generator).half() + 0.1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.any(),
        lambda x: x.any(0),
        lambda x: x.any(-1, keepdim=True),
        lambda x: x.all(),
        lambda x: x.all(0),
        lambda x: x.sum(-1),
        lambda x: x.sum(-1, keepdim=True),
        lambda x: x.amax(-1),
        lambda x: x.logsumexp(-1),
        lambda x: x.norm(dim=-1),
        lambda x: x.mean(-1),
        lambda x: x.mean(),
        lambda x: x.long().prod(-1),
        lambda x: x.long().prod(),
        lambda x: x.long().sum(),
        lambda x: torch.nn.functional.mse_loss(x, x + 1),
        lambda x: torch.nn.functional.cosine_similarity(x, x + 1, dim=-1),
        lambda x: torch.cdist(x, x),
        lambda x: x.cumprod(0),
        lambda x: x.logcumsumexp(0),
        lambda x: x.cummax(0),
        lambda x: x.cummin(1),
        lambda x: x.sort(0),
        lambda x: x.unique(),
        lambda x: torch.diagonal(x),
    ],
)
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_nothing_along_a_size_that_varies(function: Callable[..., Any], rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    example = (torch.randn(3, 4, generator=generator),)
    call = torch.randn(rows, 4, generator=generator)
    check(function, call, example=example, dynamic_shapes=({0: tintype.Dim("rows", min=0)},))


def test_random_numbers_have_their_distribution() -> None:
    p = torch.linspace(0, 1, 5).repeat(4000, 1)
    drawn = tintype.onnx.export(torch.bernoulli, (p,))(p)
    assert torch.allclose(drawn.mean(0), p[0], atol=0.05)
    x = torch.ones(8000)
    dropout = torch.nn.functional.dropout
    twice = tintype.onnx.export(lambda x: dropout(dropout(x + 1, 0.5), 0.5), (x,))(x)
    assert abs(float((twice == 0).float().mean()) - 0.75) < 0.05
    assert set(twice.unique().tolist()) == {0.0, 8.0}


def quantized(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Rounded to multiples of a scale, by the operators of quantized models."""
    operators = torch.ops.quantized_decomposed
    small = operators.quantize_per_tensor(x, scale, 0, -128, 127, torch.int8)
    return operators.dequantize_per_tensor(small, scale, 0, -128, 127, torch.int8)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.T @ x[:, 0],
        lambda x: torch.mv(x.t(), x[:, 1]),
        lambda x: (x.T + 1) @ x[:, 0],
        lambda x: torch.stack([x, x + 1]).mT @ x[:, 0],
        lambda x: torch.nn.functional.max_pool2d(torch.nn.functional.pad(x[None], (1, 1, 1, 1)), 2),
        lambda x: torch.nn.functional.max_pool1d(torch.nn.functional.pad(x, (1, 1)).view(1, 3, 6), 2),
        lambda x: torch.nn.functional.max_pool2d(torch.nn.functional.pad(x[None], (1, 1, 1, 1)), 2, ceil_mode=True),
        lambda x: quantized(quantized(x, 0.1), 0.03),
        lambda x: quantized(quantized(x, 0.1).T.reshape(2, 6), 0.03),
        lambda x: quantized(quantized(x, 0.1), 0.1),
    ],
)
@pytest.mark.parametrize("optimize", [True, "full"])
def test_patterns_that_the_runtime_would_fuse(function: Callable[..., Any], optimize: Any) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)) - 2
    check(function, x, optimize=optimize)


@pytest.mark.parametrize("options", [{}, {"stride": 1}, {"dilation": 2}, {"ceil_mode": True}])
def test_max_pool_of_infinite_numbers(options: dict[str, Any]) -> None:
    x = torch.full((1, 1, 5, 5), -inf)
    x[0, 0, 4, 4] = torch.finfo(torch.float32).min
    check(lambda x: torch.nn.functional.max_pool2d(x, 3, padding=1, **options), x)
    check(lambda x: torch.nn.functional.max_pool2d(x, 3, **options), x)
    check(lambda x: torch.nn.functional.max_pool2d(x.relu(), 3, padding=1, **options), x)


@pytest.mark.parametrize("least, greatest", [(-127, 127), (-8, 7), (0, 100), (-128, 127)])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16])
def test_quantization_has_its_range(least: int, greatest: int, dtype: torch.dtype) -> None:
    operators = torch.ops.quantized_decomposed
    x, scale, zero = torch.tensor([20.0, -20.0, 1.0, 0.26]), torch.tensor(0.1), torch.tensor([3])
    check(lambda x: operators.quantize_per_tensor(x, 0.1, 3, least, greatest, dtype), x)
    check(lambda *a: operators.quantize_per_tensor.tensor(*a, least, greatest, dtype), x, scale, zero)
    small = operators.quantize_per_tensor(x, 0.1, 3, least, greatest, dtype)
    check(lambda *a: operators.dequantize_per_tensor.tensor(*a, least, greatest, dtype), small, scale, zero)


@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"ignore_index": 1}, {"weight": torch.rand(3) + 0.5}])
def test_gradients_of_a_loss_by_classes(options: dict[str, Any]) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.layer(x), y, **options)

    model, x, y = Model(), torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 1])
    gradients = tintype.onnx.export(tintype.export_joint(model, (x, y)), verify=False)(x, y)[1]
    model(x, y).backward()
    torch.testing.assert_close(gradients["layer.weight"], model.layer.weight.grad)


def test_truth_values_are_counted() -> None:
    x = torch.tensor([[True, False], [True, True]])
    check(lambda x: torch.einsum("ij->j", x), x)
    check(lambda x: torch.einsum("ij->", x), x)
    check(lambda x: torch.einsum("ij->ji", x), x)
    check(lambda x: torch.einsum("ij,ij->ij", x, x.T), x)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_recurrent_layers_of_nothing(kind: Any, rows: int) -> None:
    layer = kind(4, 5, 2, batch_first=True, bidirectional=True)
    example = (torch.randn(3, 6, 4),)
    options = {"dynamic_shapes": ({0: tintype.Dim("rows", min=0)},)}
    program = tintype.onnx.export(layer, example, verify=False, **options)
    x = torch.randn(rows, 6, 4)
    torch.testing.assert_close(program(x), layer(x), check_dtype=True)


def test_branches_inside_of_branches_have_names_of_their_own() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        for step in range(4):
            if x.max() > step:
                x = x - step
            else:
                break
        return x

    for largest in (-1.0, 0.5, 4.0, 9.0):
        check(model, torch.tensor([0.1, largest]), example=(torch.ones(2),))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, c: c + 1,
        lambda x, c: 2 - c,
        lambda x, c: c - 2j,
        lambda x, c: c * 2,
        lambda x, c: c / 2,
        lambda x, c: 2 / c,
        lambda x, c: c / (c + 1),
        lambda x, c: c * (1 + 2j),
        lambda x, c: x + c,
        lambda x, c: c - x.double(),
        lambda x, c: x * torch.tensor(2j),
        lambda x, c: x / c,
        lambda x, c: c / x,
        lambda x, c: x + 1j,
        lambda x, c: torch.add(c, x, alpha=3),
        lambda x, c: torch.rsub(c, x, alpha=3),
        lambda x, c: c * c,
        lambda x, c: c[:1] * x,
    ],
)
def test_complex_numbers_beside_real_ones(function: Callable[..., Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, generator=generator)
    c = torch.complex(torch.randn(3, 4, generator=generator), torch.randn(3, 4, generator=generator))
    check(function, x, c)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_shifts(dtype: torch.dtype) -> None:
    x = torch.tensor([1, -1, 100, -128, 127, 3, 5], dtype=torch.int64).to(dtype)
    places = torch.tensor([0, 1, 3, 2, 7, 6, 5], dtype=torch.int64).to(dtype)
    check(lambda x, y: (x << y, x >> y, x << 2, x >> 1, 5 << y, 100 >> y, x << 70, x >> 70), x, places)


def test_kernels_that_are_missing() -> None:
    check(lambda x: -x, torch.tensor([1, 255, 0], dtype=torch.uint8))
    check(lambda x: torch.where(x > 0, x, 0), torch.tensor([-1, 255], dtype=torch.int16))
    check(lambda x: torch.nn.functional.pad(x, (1, 2)), torch.tensor([[-1, 255]], dtype=torch.int16))


def test_drawing_without_replacement() -> None:
    weights = torch.tensor([0.0, 1.0, 2.0, 0.0, 1.0])
    program = tintype.onnx.export(lambda w: torch.multinomial(w, 3), (weights,))
    assert all(sorted(program(weights).tolist()) == [1, 2, 4] for _ in range(20))
    single = tintype.onnx.export(lambda w: torch.multinomial(w, 1), (weights,))
    assert single(weights).shape == (1,)
    many = tintype.onnx.export(lambda w: torch.multinomial(w, 2), (weights.repeat(4000, 1),))
    first = torch.bincount(many(weights.repeat(4000, 1))[:, 0], minlength=5) / 4000
    torch.testing.assert_close(first, weights / 4, atol=0.05, rtol=0)


@pytest.mark.parametrize("repeats", [0, 1, 2, 3])
def test_repeats_that_vary(repeats: int) -> None:
    x = torch.arange(12.0).view(3, 4)
    for dim in (0, 1, None):
        check(lambda x, k, dim=dim: x.repeat_interleave(k, dim), x, repeats, example=(x, 2),
              dynamic_shapes=(None, tintype.Dim.DYNAMIC))  # fmt: skip


@pytest.mark.parametrize("opset, rows", [(20, 0), (20, 2), (21, 2), (23, 2)])
def test_group_norm_of_large_means_and_of_nothing(opset: int, rows: int) -> None:
    x = torch.randn(rows, 6, 5, 5, generator=torch.Generator().manual_seed(0)) + 1000
    program = tintype.onnx.export(
        lambda x: torch.nn.functional.group_norm(x, 3), (torch.randn(3, 6, 5, 5),), opset=opset,
        dynamic_shapes=({0: tintype.Dim("rows", min=0)},),
    )  # fmt: skip
    torch.testing.assert_close(program(x), torch.nn.functional.group_norm(x, 3), rtol=1e-3, atol=1e-3)


class _Divides(torch.nn.Module):
    """Integers divided, where the dividend is a buffer or a number."""

    def __init__(self, number: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("number", torch.tensor(number, dtype=dtype))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b, half = self.number, torch.div(self.number + 0, x, rounding_mode="trunc")
        mixed = (b % x, b // x, torch.fmod(b, x), torch.remainder(1, x), (1 // x) * 6)
        more = (x * torch.div(1, x, rounding_mode="trunc"), half * 5, b**2 // 3 * 3, torch.pow(b, 3) % 2)
        return (b % 3, b // 3, (b // 3) * 7, -(b % -3), *mixed, *more)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
@pytest.mark.parametrize("number", [1, -7])
def test_integers_divided_by_weights(number: int, dtype: torch.dtype) -> None:
    """ONNX Runtime's optimizer makes ``y / x`` of ``(1 / x) * y``, which rounds elsewhere."""
    x = torch.tensor([3, 1, 2, 7]).to(dtype)
    check(_Divides(number % 256 if dtype is torch.uint8 else number, dtype), x)
    if dtype is torch.int64:
        check(_Divides(number, dtype), x, optimize="full")


def test_products_of_one_integer() -> None:
    check(lambda x: (x.prod(0, keepdim=True), x.prod(), (x > 1).prod(0)), torch.tensor(5))


@pytest.mark.parametrize("padding", [0, 1, 3])
def test_transposed_convolutions_with_more_at_the_end_than_a_step(padding: int) -> None:
    layer = torch.nn.ConvTranspose2d(2, 4, (3, 4), stride=2, padding=padding, output_padding=(3, 2), dilation=4)
    x = torch.randn(3, 2, 5, 6, generator=torch.Generator().manual_seed(0))
    program = tintype.onnx.export(layer, (x,), verify=False)
    torch.testing.assert_close(program(x), layer(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("numbers", [[1.0, 2.0, 5.0, 2.5, -1.0], [3.0, 3.0, 3.0, 3.0, 3.0]])
def test_histograms_of_the_numbers_own_range(numbers: list[float]) -> None:
    check(lambda x: (torch.histc(x, 4), torch.histc(x, 7, 2, 2), torch.histc(x, 3, 0, 4)), torch.tensor(numbers))


def test_factors_that_give_another_size() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._upsample_bilinear2d_aa(x, [3, 3], False, 1.7, 0.9)

    check(model, torch.arange(200.0).view(1, 1, 10, 20).sin())


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_aligned_corners_beside_antialias(mode: str) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, size=(5, 7), mode=mode, antialias=True, align_corners=True)

    check(model, torch.arange(200.0).view(1, 1, 10, 20).sin())
    check(model, torch.arange(35.0).view(1, 1, 5, 7))


def test_the_report_tells_that_half_precision_is_wider_on_the_processor() -> None:
    of_half = tintype.onnx.export(lambda x: (x.half() * 2).float(), (torch.ones(3),))
    assert "does not become infinite" in str(of_half.report)
    assert "infinite" not in str(tintype.onnx.export(lambda x: x.half().float() * 2, (torch.ones(3),)).report)
