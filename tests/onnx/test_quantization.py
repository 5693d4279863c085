"""Numbers of 4, 8 and 16 bits and float8: as ONNX's own types, and as torch computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed

import tintype
from tests.onnx.comparing import operators
from tintype.onnx.errors import OnnxExportError

quantized = torch.ops.quantized_decomposed
BOTH = ["QuantizeLinear", "DequantizeLinear"]
RANGES = {
    "int4": (torch.int8, -8, 7, 21, BOTH),
    "uint4": (torch.uint8, 0, 15, 21, BOTH),
    "int4 before there was one": (torch.int8, -8, 7, 20, [BOTH[0], "Clip", BOTH[1]]),
    "int8": (torch.int8, -128, 127, 18, BOTH),
    "uint8": (torch.uint8, 0, 255, 20, BOTH),
    "narrow int8": (torch.int8, -127, 127, 20, [BOTH[0], "Clip", BOTH[1]]),
    "int16": (torch.int16, -32768, 32767, 21, BOTH),
}


def held(model: Any, *inputs: Any, **options: Any) -> Any:
    """Hold an unverified program against eager mode."""
    program = tintype.onnx.export(model, inputs, verify=False, **options)
    torch.testing.assert_close(program(*inputs), model(*inputs), equal_nan=True)
    return program


@pytest.mark.parametrize("name", RANGES)
def test_there_and_back(name: str) -> None:
    dtype, least, greatest, opset, expected = RANGES[name]
    x, zero = torch.randn(4, 6) * 5, (least + greatest) // 2

    def per_tensor(x: torch.Tensor) -> torch.Tensor:
        small = quantized.quantize_per_tensor(x, 0.25, zero, least, greatest, dtype)
        return quantized.dequantize_per_tensor(small, 0.25, zero, least, greatest, dtype)

    assert operators(held(per_tensor, x, opset=opset)) == expected
    fake = held(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.25, zero, least, greatest), x, opset=opset)
    assert operators(fake) == expected
    held(lambda x: quantized.quantize_per_tensor(x, 0.25, zero, least, greatest, dtype), x, opset=opset)
    scales, zeros = torch.rand(6) + 0.1, torch.full((6,), zero, dtype=torch.int32)
    held(lambda x: torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, least, greatest), x, opset=opset)

    def per_channel(x: torch.Tensor) -> torch.Tensor:
        small = quantized.quantize_per_channel(x, scales, zeros, 1, least, greatest, dtype)
        return quantized.dequantize_per_channel(small, scales, zeros, 1, least, greatest, dtype)

    held(per_channel, x, opset=opset)


class Packed(torch.nn.Module):
    """Weights of 4 bits in bytes, with scales for blocks of each row."""

    def __init__(self, greatest: int = 7) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-8, greatest + 1, (6, 8), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(6, 2) + 0.1)
        self.register_buffer("zeros", torch.randint(-8, 8, (6, 2), dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> Any:
        blocks = [
            quantized.dequantize_per_channel_group(self.weight, self.scales, zeros, -8, 7, torch.int8, 4, x.dtype)
            for zeros in (self.zeros, None)
        ]
        rows = quantized.dequantize_per_channel(self.weight, self.scales[:, 0], None, 0, -8, 7, torch.int8)
        return [x @ weight.T for weight in (*blocks, rows)]


@pytest.mark.parametrize("opset", [20, 21, 24])
def test_weights_of_4_bits(opset: int, tmp_path: Path) -> None:
    model, x = Packed(), torch.randn(3, 8)
    program = held(model, x, opset=opset)
    kinds = {value.dtype.name for value in program.model.graph.initializers.values()}
    assert ("INT4" in kinds) == (opset >= 21)
    for options in ({}, {"external_data": True}):
        program.save(tmp_path / "model.onnx", **options)
        torch.testing.assert_close(tintype.onnx.load(tmp_path / "model.onnx")(x), model(x))
    held(model, x, opset=opset, optimize="full")


def test_weights_that_do_not_fit_into_4_bits_stay_bytes() -> None:
    model = Packed()
    model.weight[0, 0] = 100
    program = held(model, torch.randn(3, 8), opset=21)
    assert "INT4" not in {value.dtype.name for value in program.model.graph.initializers.values()}


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
)
def test_float8(dtype: torch.dtype) -> None:
    inf = float("inf")
    x = torch.tensor([1.0, 3.3, 500.0, 1e6, -1e6, inf, -inf, float("nan"), 448.0, 465.0, 1e-9, 57344.0])
    for source in (torch.float32, torch.float16):
        held(lambda x: x.to(dtype).float(), x.to(source), opset=19)
    weight = torch.randn(4, 3).to(dtype)
    held(lambda x: x @ (weight.float() * 0.5), torch.randn(2, 4), opset=23)
    with pytest.raises(OnnxExportError, match="opset 18 has no"):
        tintype.onnx.export(lambda x: x.to(dtype).float(), (x,), opset=18)
    with pytest.raises(OnnxExportError, match="input x can't be said"):
        tintype.onnx.export(lambda x: x.float(), (x.to(dtype),), opset=18)
