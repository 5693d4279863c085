"""The shape rules of quantized operators against eager mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.fake.eager_comparison import Arguments, differences
from tests.fake.operators import QUANTIZED
from tintype.errors import UnsupportedOperatorError
from tintype.fake.info import Storage, TensorInfo, fresh
from tintype.fake.rules import RULES

aten, quantized = torch.ops.aten, torch.ops.quantized
Call = tuple[Any, tuple[Any, ...]]

# what is asked about a quantized tensor is not known before the program runs
UNKNOWN = {
    aten.q_scale.default, aten.q_zero_point.default, aten.q_per_channel_scales.default,
    aten.q_per_channel_zero_points.default, aten.q_per_channel_axis.default, aten.qscheme.default,
}  # fmt: skip


def rounded(*sizes: int, dtype: torch.dtype = torch.quint8, last: bool = False) -> torch.Tensor:
    value = torch.randn(*sizes)
    if last:
        value = value.contiguous(memory_format=torch.channels_last if len(sizes) == 4 else torch.channels_last_3d)
    return torch.quantize_per_tensor(value, 0.1, 3, dtype)


def packed_calls() -> Iterator[Call]:
    """Layers on packed weights."""
    packed = quantized.linear_prepack(rounded(5, 4, dtype=torch.qint8), torch.randn(5))
    half = quantized.linear_prepack_fp16(torch.randn(5, 4), None)
    for sizes in ((3, 4), (2, 3, 4)):
        for kind in (quantized.linear, quantized.linear_relu):
            yield kind.default, (rounded(*sizes), packed, 0.2, 1)
        for kind in (quantized.linear_dynamic, quantized.linear_relu_dynamic):
            yield kind.default, (torch.randn(*sizes), packed)
        for kind in (quantized.linear_dynamic_fp16, quantized.linear_relu_dynamic_fp16):
            yield kind.default, (torch.randn(*sizes), half)
    for dimensions in (1, 2, 3):
        prepack = getattr(quantized, f"conv{dimensions}d_prepack")
        weight = rounded(6, 2, *[3] * dimensions, dtype=torch.qint8)
        ones = [1] * dimensions
        packed = prepack(weight, torch.randn(6), [2] * dimensions, ones, ones, 2)
        for name in (f"conv{dimensions}d", f"conv{dimensions}d_relu"):
            kind = getattr(quantized, name)
            operator = kind.default if dimensions == 1 else kind.new
            for last in (False, True) if dimensions > 1 else (False,):
                yield operator, (rounded(2, 4, *[7] * dimensions, last=last), packed, 0.2, 1)


def embedding_calls() -> Iterator[Call]:
    """Tables of rows on packed weights."""
    scales, zeros = torch.full((10,), 0.1), torch.zeros(10)
    indices, offsets = torch.tensor([1, 2, 4, 5, 4]), torch.tensor([0, 3])
    for bits, dtype in (("byte", torch.quint8), ("4bit", torch.quint4x2)):
        table = torch.quantize_per_channel(torch.randn(10, 12), scales, zeros, 0, dtype)
        packed = quantized.embedding_bag_prepack(table)
        for rows in (indices, indices[:0]):
            yield getattr(quantized, f"embedding_{bits}").default, (packed, rows)
            yield getattr(quantized, f"embedding_bag_{bits}").default, (packed, rows, offsets[: 1 + (len(rows) > 0)])
        yield getattr(quantized, f"embedding_bag_{bits}").default, (packed, indices[:4].reshape(2, 2))


def rounding_calls(value: torch.Tensor) -> Iterator[Call]:
    """Tensors that are rounded, and those that are made of whole numbers."""
    two = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    yield aten.quantize_per_tensor.tensors, ([value, value[:1]], *two, torch.quint8)
    yield aten.dequantize.tensors, ([rounded(3, 4), rounded(2, 4, 5)],)
    yield aten.quantize_per_tensor_dynamic.default, (value, torch.quint8, False)
    whole, scales, zeros = value.to(torch.int8), torch.ones(4), torch.zeros(4, dtype=torch.int64)
    yield aten._make_per_tensor_quantized_tensor.default, (whole, 0.1, 3)
    yield aten._make_per_channel_quantized_tensor.default, (whole, scales, zeros, 1)
    one = torch.tensor([0.1]), torch.tensor([0.0])
    yield aten._fake_quantize_learnable_per_tensor_affine.default, (value, *one, 0, 255, 1.0)
    yield aten._fake_quantize_learnable_per_channel_affine.default, (value, scales, torch.zeros(4), 1, 0, 255, 1.0)


def elementwise_calls(x: torch.Tensor, other: torch.Tensor) -> Iterator[Call]:
    for kind in (quantized.add, quantized.add_relu, quantized.mul, quantized.mul_relu):
        yield kind.default, (x, other, 0.2, 1)
        yield kind.Scalar, (x, 0.5)
    yield quantized.leaky_relu.default, (x, 0.1, False, 0.2, 1)
    yield quantized.relu6.default, (x, False)
    for kind in (quantized.sigmoid, quantized.hardswish, quantized.elu):
        yield kind.default, (x, 0.2, 1)
    yield quantized.softmax.default, (x, 1, 0.2, 1)
    for kind in (quantized.cat, quantized.cat_relu):
        yield kind.default, ([x, x], 1, 0.2, 1)
    yield aten.dequantize.self, (x,)
    yield aten.int_repr.default, (x,)


def normalizing_calls(x: torch.Tensor) -> Iterator[Call]:
    weight, bias = torch.randn(4), torch.randn(4)
    statistics = (weight, bias, torch.randn(4), torch.rand(4), 1e-5, 0.2, 1)
    kinds = {2: ["batch_norm1d"], 3: ["batch_norm1d"], 4: ["batch_norm2d", "batch_norm2d_relu"], 5: ["batch_norm3d"]}
    for name in kinds[x.dim()]:
        yield getattr(quantized, name).default, (x, *statistics)
    yield quantized.layer_norm.default, (x, list(x.shape[1:]), None, None, 1e-5, 0.2, 1)
    if x.dim() > 2:
        yield quantized.group_norm.default, (x, 2, weight, bias, 1e-5, 0.2, 1)
        yield quantized.instance_norm.default, (x, weight, bias, 1e-5, 0.2, 1)


def calls() -> Iterator[Call]:
    yield from packed_calls()
    yield from embedding_calls()
    tensors = [
        rounded(3, 4), rounded(4, 3).t(), rounded(2, 4, 5), rounded(2, 4, 3, 5), rounded(2, 4, 3, 5, last=True),
        rounded(2, 4, 3, 2, 5), rounded(2, 4, 3, 2, 5, last=True),
    ]  # fmt: skip
    for x in tensors:
        yield from elementwise_calls(x, x)
        yield from normalizing_calls(x)
        value = x.dequantize()
        yield aten.quantize_per_tensor.default, (value, 0.1, 3, torch.qint8)
        yield aten.quantize_per_tensor.tensor_qparams, (value, torch.tensor(0.1), torch.tensor(3), torch.quint8)
        zeros = torch.zeros(4, dtype=torch.int64)
        yield aten.quantize_per_channel.default, (value, torch.ones(4), zeros, 1, torch.qint8)
        yield from rounding_calls(value)


CALLS = list(calls())


class QuantizedArguments(Arguments):
    """Descriptions of quantized tensors, too, as captured programs have them."""

    def _info(self, tensor: torch.Tensor) -> TensorInfo:
        if not tensor.is_quantized:
            return super()._info(tensor)
        storage = self.storages.setdefault(tensor.untyped_storage()._cdata, Storage())
        info = fresh(tuple(tensor.shape), tensor.dtype, tensor.device)
        info.strides, info.storage = tensor.stride(), storage
        return info


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operator", [kind for kind in QUANTIZED if kind not in UNKNOWN], ids=str)
def test_the_rule_of_a_quantized_operator_agrees_with_eager_mode(operator: Any) -> None:
    driven = [arguments for called, arguments in CALLS if called is operator]
    assert driven, f"nothing drives the rule of {operator}"
    for arguments in driven:
        described = QuantizedArguments()
        predicted = RULES[operator](*described.convert(arguments))
        assert not list(differences(described, predicted, operator(*arguments))), arguments


@pytest.mark.parametrize("operator", sorted(UNKNOWN, key=str), ids=str)
def test_how_a_tensor_is_quantized_is_not_known(operator: Any) -> None:
    with pytest.raises(UnsupportedOperatorError, match="asks how a tensor is quantized"):
        RULES[operator](fresh((2, 3), torch.quint8, torch.device("cpu")))


@pytest.mark.parametrize("call", [("leaky_relu", 0.1, True, 0.2, 1), ("relu6", True)], ids=str)
def test_quantized_operators_that_are_told_to_write_are_refused(call: Any) -> None:
    name, *rest = call
    with pytest.raises(UnsupportedOperatorError, match="in place"):
        RULES[getattr(quantized, name).default](fresh((2, 3), torch.quint8, torch.device("cpu")), *rest)
