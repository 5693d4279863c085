"""Loops over no rows and over one, dimensions of nothing that are rolled, and numbers that vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype

F = torch.nn.functional
nan, inf = float("nan"), float("inf")


def held(function: Callable[..., Any], example: tuple[Any, ...], *others: tuple[Any, ...], **options: Any) -> None:
    """Hold an unverified program against eager mode."""
    program = tintype.onnx.export(function, example, verify=False, **options)
    for inputs in (example, *others):
        torch.testing.assert_close(program(*inputs), function(*inputs), rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("optimize", [True, "full"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: tintype.map(lambda row: row * 2, x),
        lambda x: tintype.map(lambda row: (torch.cat([row, row]), row.sum()), x),
        lambda x: tintype.map(lambda row: tintype.map(lambda number: number + 1, row), x),
        lambda x: tintype.scan(lambda carry, row: (carry + row, carry * row), x.sum(0), x),
        lambda x: tintype.scan(lambda carry, row: (carry + row, carry * row), x.sum(0), x, reverse=True),
        lambda x: tintype.associative_scan(lambda a, b: a + b, x, 0),
        lambda x: tintype.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x + 1), 0),
        lambda x: x.roll(2),
        lambda x: x.roll((1, -4), (0, 1)),
    ],
)
def test_few_rows(function: Callable[..., Any], optimize: Any) -> None:
    x = torch.randn(5, 3)
    both = ({0: tintype.Dim("rows"), 1: tintype.Dim("columns")},)
    others = [(x[:0],), (x[:1],), (x[:2],), (torch.randn(0, 4),), (torch.randn(1, 7),), (torch.randn(3, 0),)]
    held(function, (x,), *others, dynamic_shapes=both, optimize=optimize)


def test_rows_whose_number_is_fixed() -> None:
    held(lambda x: tintype.map(lambda row: row * 2, x), (torch.randn(0, 3),))
    held(lambda x: tintype.associative_scan(lambda a, b: a + b, x, 0), (torch.randn(1, 3),))


def test_complex_numbers_are_rolled_in_pairs() -> None:
    x = torch.randn(4, 3, dtype=torch.complex64)
    held(lambda x: (x.roll(2), x.roll((1, -1), (0, 1))), (x,), (x[:0],), dynamic_shapes=({0: tintype.Dim("rows")},))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, number: x**number,
        lambda x, number: F.elu(x, number),
        lambda x, number: F.celu(x, number),
        lambda x, number: F.leaky_relu(x, number),
        lambda x, number: torch.addcmul(x, x, x, value=number),
        lambda x, number: torch.addcdiv(x, x, x + 9, value=number),
        lambda x, number: torch.std(x, 0, correction=number),
        lambda x, number: torch.add(x, x, alpha=number),
        lambda x, number: torch.lerp(x, x + 1, number),
    ],
)
def test_numbers_that_vary(function: Callable[..., Any]) -> None:
    x = torch.rand(4, 3) + 0.1
    held(function, (x, 0.75), (x, 0.3), (x, 2.0), dynamic_shapes=(None, tintype.Dim.DYNAMIC))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, number: x.roll(number, 0),
        lambda x, number: (x & number, x | number, x ^ number, (x > 0) & True),
        lambda x, number: x.float() ** number,
    ],
)
def test_integers_that_vary(function: Callable[..., Any]) -> None:
    x = torch.arange(-6, 6).reshape(4, 3)
    held(function, (x, 2), (x, 1), (x, 3), (x, 7), dynamic_shapes=(None, tintype.Dim.DYNAMIC))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("function", [F.elu, F.celu, F.leaky_relu, F.selu, lambda x: F.elu(x, 0.3)])
def test_activations_in_all_precisions(function: Callable[..., Any], dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, -1.0, nan, inf, -inf, 0.0], dtype=dtype)
    program = tintype.onnx.export(function, (x,), verify=False)
    torch.testing.assert_close(program(x), function(x), rtol=1e-2, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_largest_number_is_not_infinite(dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    x = torch.tensor([inf, most, nan, 1.0, -inf, -most, nan, inf, most], dtype=dtype)
    held(lambda x: (x.sort(stable=True), x.sort(descending=True, stable=True), x.topk(4).values), (x,))


@pytest.mark.parametrize("options", [{}, {"padding": 1}, {"ceil_mode": True}, {"stride": 3}, {"dilation": 2}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_pools_keep_nan(options: dict[str, Any], dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 9, 9, dtype=dtype)
    odd = x.clone()
    odd[0, 0, 3, 3] = odd[1, 1, 8, 8] = odd[1, 0, 0, 0] = nan
    odd[0, 1, 2, 2], odd[0, 2] = inf, -inf
    held(lambda x: F.max_pool2d(x, 3, **options), (x,), (odd,))
    held(lambda x: (F.max_pool1d(x[0], 2, **options), F.adaptive_max_pool2d(x, 1)), (x,), (odd,))


EMPTY = [(0, 3, 2, 5), (4, 0, 2, 5), (4, 3, 0, 5), (4, 3, 2, 0), (1, 1, 1, 1), (0, 0, 0, 0), (2, 7, 1, 3)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.flatten(), x.flatten(-2), x.flatten(0, 1), x.flatten(1, 2), x.flatten(1)),
        lambda x: (x.unflatten(0, (-1, 1)), x.unflatten(-1, (1, -1)), x.unflatten(1, (1, x.shape[1]))),
        lambda x: x.reshape(x.shape[0], x.shape[1], x.shape[2] * x.shape[3]),
        lambda x: ((x * 1j).half(), (x * 1j).bool(), torch.complex(x, x).double()),
    ],
)
def test_shapes_of_nothing(function: Callable[..., Any]) -> None:
    sizes = ({each: tintype.Dim(name) for each, name in enumerate("abcd")},)
    others = [(torch.randn(*each),) for each in EMPTY]
    held(function, (torch.randn(4, 3, 2, 5),), *others, dynamic_shapes=sizes)


def test_a_size_that_is_asserted_to_be_one_is_squeezed() -> None:
    held(lambda x: x[x.shape[0] // 2 :].squeeze(0), (torch.randn(2, 3),), dynamic_shapes=({0: tintype.Dim.AUTO},))


@pytest.mark.parametrize("function", [F.softplus, F.hardsigmoid, F.hardswish, F.mish, F.logsigmoid])
def test_double_precision(function: Callable[..., Any]) -> None:
    x = torch.tensor([1.0, -2.0, 30.0, -30.0, 700.0, -700.0, nan, inf, -inf], dtype=torch.float64)
    program = tintype.onnx.export(function, (x,), verify=False)
    torch.testing.assert_close(program(x), function(x), rtol=1e-9, atol=1e-12, equal_nan=True)


def test_nothing_is_searched_for() -> None:
    edges = torch.tensor([0.0, 1.0])
    x = torch.randn(3, 2)
    sizes = ({0: tintype.Dim("rows"), 1: tintype.Dim("columns")},)
    others = [(torch.randn(0, 2),), (torch.randn(5, 0),)]
    held(lambda x: (torch.bucketize(x, edges), torch.isin(x, edges)), (x,), *others, dynamic_shapes=sizes)


def test_complex_numbers_are_squeezed() -> None:
    x = torch.randn(3, 1, dtype=torch.complex64)
    held(lambda x: (x.squeeze(-1), x.squeeze(), x.squeeze(0), x[None].squeeze((0, 2))), (x,))


def test_results_of_64_bits_without_a_sign() -> None:
    x = torch.tensor([3, 2**63, 7], dtype=torch.uint64)
    program = tintype.onnx.export(lambda x: torch.cat([x, x]), (x,), verify=False)
    assert program(x).tolist() == [3, 2**63, 7] * 2 and program(x).dtype is torch.uint64


@pytest.mark.parametrize("kernel", [3, 2, 4])
@pytest.mark.parametrize("dilation", [1, 2])
def test_convolutions_that_keep_sizes_which_vary(kernel: int, dilation: int) -> None:
    weight, bias = torch.randn(4, 3, kernel, 3), torch.randn(4)
    model = lambda x: torch.nn.functional.conv2d(x, weight, bias, padding="same", dilation=dilation)  # noqa: E731
    height, width = tintype.Dim("height"), tintype.Dim("width")
    shapes = ({2: height, 3: width},)
    program = tintype.onnx.export(model, (torch.randn(2, 3, 9, 10),), dynamic_shapes=shapes, verify=False)
    for size in ((9, 10), (8, 31)):
        x = torch.randn(2, 3, *size)
        torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-4)


def test_arithmetic_stands_in_the_loop_that_it_is_done_in() -> None:
    """onnxscript's functions write ``x * beta``, which has to make a node beside those that it is used by."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        looped = tintype.while_loop(
            lambda i, a: i < 2, lambda i, a: (i + 1, F.softplus(a, 2.0) + F.softplus(y, 3.0)), (x.new_zeros(()), x)
        )
        scanned = tintype.scan(lambda total, row: (F.softplus(total, 2.0), F.softplus(row, 3.0) * y), x[0], x)
        return looped, scanned, tintype.map(lambda row: tintype.map(lambda number: F.softplus(number, 2.0), row), x)

    held(function, (torch.randn(3, 4), torch.randn(4)))
