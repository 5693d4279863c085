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


IMAGE = torch.linspace(-3, 3, 2 * 4 * 7 * 8, dtype=torch.float64).reshape(2, 4, 7, 8).cos()


def convolve(**options: Any) -> Callable[[torch.Tensor], Any]:
    return lambda x: F.conv2d(x, x[:, : 4 // options.get("groups", 1), :3, :2], x[0, 0, 0, :2], **options)


def transposed(**options: Any) -> Callable[[torch.Tensor], Any]:
    return lambda x: F.conv_transpose2d(x, x[:, :, :3, :2].transpose(0, 1), x[0, 0, 0, :2], **options)


@pytest.mark.parametrize("opset", [18, 24])
@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        convolve(),
        convolve(stride=(2, 3), padding=(1, 2), dilation=(1, 2)),
        convolve(groups=2),
        convolve(padding="same"),
        transposed(),
        transposed(stride=3, padding=1, output_padding=2, dilation=2),
        transposed(stride=2, output_padding=(0, 1)),
        lambda x: F.conv1d(x[:, 0], x[:, :1, 0, :3].expand(2, 7, 3), padding=1, stride=2),
        lambda x: F.conv3d(x[None], x[:1, :, :2, :2].reshape(2, 2, 1, 2, 2), padding=1),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: F.avg_pool2d(x, (3, 2), ceil_mode=True),
        lambda x: F.avg_pool2d(x, 3, 2, divisor_override=5),
        lambda x: F.lp_pool2d(x.abs(), 2, 2),
        lambda x: F.local_response_norm(x, 3),
        lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
        lambda x: F.interpolate(x, scale_factor=(2.0, 1.3)),
        lambda x: F.interpolate(x[0], scale_factor=1.7),
        lambda x: F.interpolate(x[0], scale_factor=0.7, mode="nearest-exact"),
        lambda x: F.interpolate(x, scale_factor=(1.5, 2.0), mode="bilinear"),
        lambda x: F.interpolate(x, size=(5, 11), mode="bilinear", align_corners=True),
        lambda x: F.interpolate(x, scale_factor=(1.5, 0.7), mode="bicubic"),
        lambda x: F.interpolate(x, size=(5, 11), mode="bicubic", align_corners=True),
        lambda x: F.interpolate(x, size=(5, 3), mode="area"),
    ],
)
def test_images(function: Callable[..., Any], varying: bool, opset: int) -> None:
    sizes = ({2: tintype.Dim("height"), 3: tintype.Dim("width")},) if varying else None
    try:
        program = tintype.onnx.export(function, (IMAGE,), dynamic_shapes=sizes, verify=False, opset=opset)
    except tintype.errors.ConstraintViolationError:
        assert varying  # torch's own arithmetic fixes the size
        return
    for image in (IMAGE, IMAGE[:, :, :5, :6].exp(), IMAGE[:, :, 1:].tan()) if varying else (IMAGE,):
        torch.testing.assert_close(program(image), function(image), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{"mode": "bilinear"}, {"mode": "bicubic"}, {"mode": "bilinear", "align_corners": True}]
)
@pytest.mark.parametrize("size", [(3, 5), (9, 12)])
def test_antialias(options: dict[str, Any], size: tuple[int, int]) -> None:
    held(lambda x: F.interpolate(x, size=size, antialias=True, **options), IMAGE, 1e-11, 20)


@pytest.mark.parametrize("opset", [18, 24])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers(layer: Any, bidirectional: bool, opset: int) -> None:
    torch.manual_seed(0)
    for bias in (True, False):
        module = layer(4, 3, 2, bidirectional=bidirectional, batch_first=True, bias=bias).double().eval()
        sizes = ({0: tintype.Dim("batch"), 1: tintype.Dim("length", min=1)},)
        x = SMALL.mT.contiguous()
        program = tintype.onnx.export(module, (x,), dynamic_shapes=sizes, verify=False, opset=opset)
        for each in (x, x[:1], x[:, :1], x[:0]):
            torch.testing.assert_close(program(each), module(each), rtol=1e-12, atol=1e-13)


def test_determinant() -> None:
    held(lambda x: (torch.det(x[:, :, :4]), torch.linalg.det(x[0, :, 1:])), SMALL.sin(), 1e-11, 20)


def test_sampling_where_there_is_no_kernel() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, x[:, 0, :, :2, None].expand(2, 7, 2, 2), align_corners=False)

    with pytest.raises(tintype.onnx.OnnxExportError, match="opset 20 has"):
        tintype.onnx.export(function, (IMAGE,), opset=18)
    held(function, IMAGE, 1e-11, 20)
