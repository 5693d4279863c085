"""Models that are being quantized: observers, rounding in training, and operators on quantized numbers."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization as quantization
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (defines quantized_decomposed)

import tintype
from tests.export.modes import targets


def saved(program: tintype.ExportedProgram) -> tintype.ExportedProgram:
    file = io.BytesIO()
    tintype.save(program, file)
    return tintype.load(file)


FORMS: dict[str, Any] = {
    "exported": lambda program: program,
    "saved": saved,
    "decomposed": lambda program: program.run_decompositions(),
}


def per_tensor(x: torch.Tensor) -> torch.Tensor:
    return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)


def per_channel(x: torch.Tensor) -> torch.Tensor:
    scales, zeros = torch.full((4,), 0.1), torch.zeros(4, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -128, 127)


def quantized_and_back(x: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()


def decomposed_and_back(x: torch.Tensor) -> torch.Tensor:
    operators = torch.ops.quantized_decomposed
    rounded = operators.quantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8)
    return operators.dequantize_per_tensor(rounded, 0.1, 0, -128, 127, torch.int8)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("function", [per_tensor, per_channel, quantized_and_back, decomposed_and_back])
def test_operators(function: Callable[..., Any], form: str) -> None:
    program = FORMS[form](tintype.export(function, (torch.randn(3, 4),)))
    x = torch.randn(3, 4) * 4
    torch.testing.assert_close(program.module()(x), function(x))


def test_decomposed_operators_are_kept_whole() -> None:
    program = tintype.export(decomposed_and_back, (torch.randn(3, 4),)).run_decompositions()
    assert targets(program) == [
        "quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.dequantize_per_tensor.default",
    ]  # fmt: skip


def after_a_call(module: nn.Module) -> nn.Module:
    module(torch.randn(3, 4))
    return module


def trained() -> nn.Module:
    """A model whose weights and activations are rounded in training."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).train()
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    return after_a_call(quantization.prepare_qat(model))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "minimum and maximum": quantization.MinMaxObserver,
    "moving average": quantization.MovingAverageMinMaxObserver,
    "histogram": quantization.HistogramObserver,
    "histogram after a call": lambda: after_a_call(quantization.HistogramObserver()),
    "per channel, after a call": lambda: after_a_call(quantization.PerChannelMinMaxObserver()),
    "in training": trained,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODULES)
def test_modules_that_observe(name: str, form: str) -> None:
    """Results, and what was observed afterwards, are eager mode's; also where histograms branch on what they have."""
    model = MODULES[name]()
    module = FORMS[form](tintype.export(model, (torch.randn(3, 4),))).module()
    eager = copy.deepcopy(model)
    for scale in (1, 2, 3):
        x = torch.randn(3, 4) * scale
        torch.testing.assert_close(module(x), eager(x))
    found = module.state_dict()
    for path, value in eager.state_dict().items():
        torch.testing.assert_close(found[path], value)


def test_gradients_of_rounded_training() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = trained()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x).square().mean()

    x = torch.randn(3, 4)
    model = Loss()
    joint = tintype.export_joint(model, (x,))
    _, found, *_ = joint.module()(x)
    model(x).backward()
    torch.testing.assert_close(found, {name: parameter.grad for name, parameter in model.named_parameters()})


def test_observers_without_a_size_say_what_to_do() -> None:
    model = nn.Sequential(nn.Linear(4, 2)).train()
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    with pytest.raises(tintype.TintypeError, match="call the model once before it is exported"):
        tintype.export(quantization.prepare_qat(model), (torch.randn(3, 4),))
