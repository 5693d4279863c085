"""Operators whose forms in torchlib or in onnxscript's optimizer give something else than torch does, unverified."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.onnx.comparing import assert_same, compared

F = torch.nn.functional
aten = torch.ops.aten
inf, nan = math.inf, math.nan
EVERY = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def unverified(function: Callable[..., Any], *args: torch.Tensor, tolerance: float = 1e-5, **options: Any) -> None:
    compared(function, args, verify=False, tolerance=tolerance, **options)


def test_windows_have_torchs_weights() -> None:
    def windows(x: torch.Tensor) -> Any:
        return (
            torch.hamming_window(16), torch.hamming_window(10, False, 0.3, 0.6), torch.hann_window(7, False),
            torch.blackman_window(9), torch.bartlett_window(8), torch.kaiser_window(9, False, 5.0),
            torch.hann_window(5, dtype=torch.float64), torch.hamming_window(8, dtype=torch.bfloat16),
            torch.hann_window(0), torch.stft(x, 16, 4, window=torch.hamming_window(16), return_complex=True).abs(),
        )  # fmt: skip

    unverified(windows, torch.randn(64), tolerance=1e-6)


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize(
    "row", [[1.0, 2, inf, 0], [1, 2, -inf, 0], [1, nan, -inf, 0], [1, nan, inf, 0], [-inf] * 4, [inf, inf, 1, 2]]
)
def test_sums_of_exponentials_of_what_is_not_finite(dtype: torch.dtype, row: list[float]) -> None:
    def sums(x: torch.Tensor) -> Any:
        return x.logsumexp(1), x.logsumexp((0, 1)), x.logsumexp(-1, True), x.log_softmax(1), x.log_softmax(0)

    unverified(sums, torch.tensor([row, [0.0, 1, 2, 3]]).to(dtype), tolerance=2e-2)


@pytest.mark.parametrize("dtype", EVERY)
def test_sums_of_exponentials_of_nothing(dtype: torch.dtype) -> None:
    def sums(x: torch.Tensor) -> Any:
        return x.logsumexp(1), x.logsumexp(0), x.log_softmax(1), x.log_softmax(0)

    empty, rows = torch.randn(0, 3).to(dtype), torch.randn(2, 3).to(dtype)
    compared(sums, (rows,), (empty,), tolerance=2e-2, dynamic_shapes=({0: tintype.Dim("rows", min=0)},))


def test_numbers_in_double_precision() -> None:
    """What Python has of a number is used, not what float32 has of it."""

    def numbers(x: torch.Tensor) -> Any:
        return (
            x.rad2deg(), x.deg2rad(), 1.7**x, x.quantile(0.3), torch.linspace(0.1, 0.7, 5, dtype=torch.float64),
            torch.logspace(0.1, 0.7, 5, 1.7, dtype=torch.float64), torch.add(x, 0.1, alpha=0.3),
            torch.sub(x, 0.1, alpha=0.3), F.layer_norm(x, (20,), eps=0.1), F.rms_norm(x, (20,), eps=0.1),
        )  # fmt: skip

    def matrices(x: torch.Tensor) -> Any:
        statistics = (x[0], x[1].abs() + 0.1, x[2], x[3])
        return (
            torch.addmm(x, x, x, beta=0.1, alpha=0.3), F.batch_norm(x, *statistics, eps=0.1),
            F.layer_norm(x, (4, 4), x * 2, x, 0.1), torch.native_layer_norm(x, (4,), x[0], x[1], 0.1),
        )  # fmt: skip

    for opset in (20, 24):
        unverified(numbers, torch.randn(20).double(), tolerance=1e-13, opset=opset)
        unverified(matrices, torch.randn(4, 4).double(), tolerance=1e-13, opset=opset)


def test_multiples_of_numbers_are_added_in_every_dtype() -> None:
    def added(x: torch.Tensor, b: torch.Tensor) -> Any:
        return (
            torch.add(x, 2, alpha=3),
            torch.sub(x, 2, alpha=3),
            torch.add(b, 1, alpha=2),
            torch.add(b, 2.5, alpha=2),
        )

    for dtype in (torch.int64, torch.float32, torch.float16, torch.float64):
        unverified(added, torch.tensor([1, -4]).to(dtype), torch.tensor([True, False]), tolerance=1e-3)


def test_the_inverse_of_the_error_function_in_its_tail() -> None:
    inside = [0.0, 0.5, 0.996, 0.997, 0.99999, 1 - 1e-12, 1 - 2**-53, -0.997, -(1 - 1e-10)]
    unverified(torch.special.erfinv, torch.tensor([*inside, 1.0, -1.0, 1.5, nan]).double(), tolerance=1e-14)


def test_nothing_flows_back_from_the_bounds_of_a_hardtanh() -> None:
    x = torch.tensor([-1.0, 1.0, 0.5, 2.0, -3.0, nan])
    unverified(lambda g, x: aten.hardtanh_backward(g, x, -1.0, 1.0), torch.randn(6), x)


def test_what_attention_becomes_on_a_device() -> None:
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
    fused = aten._scaled_dot_product_flash_attention_for_cpu
    for opset in (20, 24):
        unverified(lambda q, k, v: fused(q, k, v, 0.0, True, scale=0.2)[0], q, k, v, opset=opset)
        unverified(lambda q, k, v, m: fused(q, k, v, attn_mask=m)[0], q, k, v, torch.randn(5, 7), opset=opset)
    with pytest.raises(tintype.TintypeError, match="only the result itself has a form in ONNX"):
        tintype.onnx.export(lambda q, k, v: fused(q, k, v), (q, k, v))


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_bags_whose_last_offset_is_not_the_end(dtype: torch.dtype, mode: str, padding: int | None) -> None:
    table = torch.randn(10, 3).to(dtype)

    def bags(indices: torch.Tensor, offsets: torch.Tensor) -> Any:
        return F.embedding_bag(
            indices, table, offsets, mode=mode, include_last_offset=True, padding_idx=padding
        )  # fmt: skip

    indices = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9])
    others = [(indices, torch.tensor(offsets)) for offsets in ([0, 4, 4, 7], [0, 4, 4, 4], [0, 0, 0, 0])]
    compared(bags, (indices, torch.tensor([0, 4, 4, 8])), *others, verify=False, tolerance=2e-2)


def test_bags_beside_infinite_rows() -> None:
    bag = torch.nn.EmbeddingBag(4, 3, mode="sum")
    with torch.no_grad():
        bag.weight[2] = -inf
    unverified(bag, torch.tensor([0, 1, 2, 3]), torch.tensor([0, 2, 3]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("training", [True, False])
def test_statistics_in_half_precision(dtype: torch.dtype, training: bool) -> None:
    """They have the dtype of the weight."""

    def statistics(x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> Any:
        mean, variance = mean.clone(), variance.clone()
        _, *saved = aten._native_batch_norm_legit(x, weight, weight, mean, variance, training, 0.1, 1e-5)
        return *saved, mean, variance

    def updated(*tensors: torch.Tensor) -> Any:
        return aten._batch_norm_with_update_functional(*tensors, 0.1, 1e-5)[1:]

    for kept, tolerance in ((dtype, 4e-2), (torch.float32, 1e-5)):
        ones = torch.ones(3, dtype=kept)
        unverified(statistics, torch.randn(2, 3, 4).to(dtype), ones, ones, ones, tolerance=tolerance)
        given = (torch.randn(2, 3, 4).to(dtype), ones, ones, ones, ones)
        unverified(updated, *given, tolerance=tolerance)


def test_small_numbers_stay_when_everything_is_optimized() -> None:
    def divided(x: torch.Tensor, y: torch.Tensor) -> Any:
        wide = y.double()
        return x / (y.abs() + 1e-9), x - 1e-9, wide * (1 + 1e-9), wide / (1 + 1e-10), x * 1, 1 * x, x / 1

    unverified(divided, torch.randn(3), torch.zeros(3), tolerance=1e-15, optimize="full")


def test_bounds_of_the_same_number_twice_when_everything_is_optimized() -> None:
    x = torch.linspace(-20, 20, 50).double()
    program = tintype.onnx.export(torch.special.i0, (x,), verify=False, optimize="full")
    assert_same(program(x), torch.special.i0(x), 1e-12)
