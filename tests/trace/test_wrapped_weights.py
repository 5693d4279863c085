"""Weights that are objects of a class of tensors, made of plain ones: as quantized weights are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import tintype
from tintype.errors import UnsupportedInputError


class Quantized(torch.Tensor):
    """Whole numbers and a scale per row; a linear layer multiplies before it scales."""

    @staticmethod
    def __new__(cls, numbers: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scale.dtype, device=scale.device)

    def __init__(self, numbers: torch.Tensor, scale: torch.Tensor) -> None:
        self.numbers, self.scale = numbers, scale

    def __tensor_flatten__(self) -> Any:
        return ["numbers", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any = None, stride: Any = None) -> Any:
        return cls(inner["numbers"], inner["scale"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            x, weight, bias = (*args, None)[:3]
            result = nn.functional.linear(x, weight.numbers.to(x.dtype)) * weight.scale
            return result if bias is None else result + bias
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].numbers, args[0].scale)
        raise NotImplementedError(func)


class Together(nn.Module):
    """Makes the weight from the tensors that it consists of."""

    def forward(self, numbers: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return Quantized(numbers, scale)

    def right_inverse(self, weight: Any) -> Any:
        return weight.numbers, weight.scale


def layer() -> nn.Linear:
    torch.manual_seed(0)
    linear = nn.Linear(3, 2)
    numbers = torch.randint(-8, 8, (2, 3), dtype=torch.int8)
    linear.weight = nn.Parameter(Quantized(numbers, torch.tensor([0.5, 0.25])), requires_grad=False)
    return linear


def test_such_a_weight_is_refused_with_what_to_do() -> None:
    with pytest.raises(UnsupportedInputError, match="Quantized can't be captured") as caught:
        tintype.export(layer(), (torch.ones(4, 3),))
    assert "unwrap_tensor_subclass" in str(caught.value)


@pytest.mark.parametrize("stage", ["exported", "saved", "decomposed"])
def test_a_module_that_makes_its_weight_is_captured(stage: str, tmp_path: Any) -> None:
    model, x = layer(), torch.randn(5, 3)
    expected = model(x)
    parametrize.register_parametrization(model, "weight", Together())
    program = tintype.export(model, (torch.ones(4, 3),), dynamic_shapes="auto")
    assert {value.dtype for value in program.state_dict.values()} == {torch.int8, torch.float32}
    if stage == "saved":
        tintype.save(program, tmp_path / "program.tt")
        program = tintype.load(tmp_path / "program.tt")
    elif stage == "decomposed":
        program = program.run_decompositions()
    torch.testing.assert_close(program.module()(x), expected)
