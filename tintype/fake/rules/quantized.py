"""Quantized models: shapes of torch's quantized operators on packed weights.

The operators stay as they are, so that a program computes what the model computes, with the same kernels; packed
weights are objects among the program's constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tintype.errors import UnsupportedOperatorError
from tintype.fake.info import TensorInfo, fresh, strides_in_order
from tintype.fake.rules.memory_format import fresh_in_format_of
from tintype.fake.rules.registry import RULES
from tintype.symbolic.location import user_location

aten = torch.ops.aten


def _overloads(*names: str) -> list[Any]:
    """Operators of the quantized namespace, those that this torch has."""
    found = []
    for name in names:
        packet, _, variant = name.partition(".")
        operator = getattr(torch.ops.quantized, packet, None)
        if operator is not None and (variant or "default") in operator.overloads():
            found.append(getattr(operator, variant or "default"))
    return found


def _rule(*names: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        for operator in _overloads(*names):
            RULES.setdefault(operator, function)
        return function

    return register


def _as_float(info: TensorInfo) -> TensorInfo:
    return fresh(info.sizes, torch.float32, info.device)


def _weight(packed: Any, device: torch.device) -> TensorInfo:
    return fresh(tuple(packed.unpack()[0].shape), torch.float32, device)


def _linear(x: TensorInfo, packed: Any) -> Any:
    return RULES[aten.linear.default](_as_float(x), _weight(packed, x.device), None).sizes


def _convolution(x: TensorInfo, packed: Any, dimensions: int) -> Any:
    options = [list(value())[-dimensions:] for value in (packed.stride, packed.padding, packed.dilation)]
    weight = _weight(packed, x.device)
    if dimensions == 1:  # kept as one of two dimensions, of which the first is 1
        weight = fresh((*weight.sizes[:2], weight.sizes[-1]), torch.float32, x.device)
    rule = RULES[aten.convolution.default]
    return rule(_as_float(x), weight, None, *options, False, [0] * dimensions, packed.groups()).sizes


def _channels_last(x: TensorInfo, sizes: Any) -> TensorInfo:
    """A result of x's kind whose channels lie next to each other."""
    return fresh(sizes, x.dtype, x.device, strides_in_order(sizes, (0, *range(2, len(sizes)), 1)))


@_rule("linear", "linear_relu")
def _quantized_linear(x: TensorInfo, packed: Any, scale: Any, zero_point: Any) -> TensorInfo:
    return fresh(_linear(x, packed), x.dtype, x.device)


@_rule("linear_dynamic", "linear_relu_dynamic")
def _dynamic_linear(x: TensorInfo, packed: Any, reduce_range: bool = False) -> TensorInfo:
    return fresh(_linear(x, packed), torch.float32, x.device)


@_rule("linear_dynamic_fp16", "linear_relu_dynamic_fp16")
def _half_linear(x: TensorInfo, packed: Any) -> TensorInfo:
    return fresh(_linear(x, packed), torch.float32, x.device)


@_rule("conv1d", "conv1d_relu")
def _conv1d(x: TensorInfo, packed: Any, scale: Any, zero_point: Any) -> TensorInfo:
    return _channels_last(x, _convolution(x, packed, 1))


@_rule("conv2d.new", "conv2d_relu.new")
def _conv2d(x: TensorInfo, packed: Any, scale: Any, zero_point: Any) -> TensorInfo:
    return _channels_last(x, _convolution(x, packed, 2))


@_rule("conv3d.new", "conv3d_relu.new")
def _conv3d(x: TensorInfo, packed: Any, scale: Any, zero_point: Any) -> TensorInfo:
    return _channels_last(x, _convolution(x, packed, 3))


@_rule("add", "add_relu", "mul", "mul_relu")
def _binary(one: TensorInfo, other: TensorInfo, scale: Any, zero_point: Any) -> TensorInfo:
    sizes = RULES[aten.add.Tensor](_as_float(one), _as_float(other)).sizes
    return fresh_in_format_of(one, sizes)


@_rule("add.Scalar", "add_relu.Scalar", "mul.Scalar", "mul_relu.Scalar")
def _with_number(one: TensorInfo, number: Any) -> TensorInfo:
    return fresh_in_format_of(one, one.sizes)


@_rule("hardswish", "sigmoid")
def _in_its_format(x: TensorInfo, *rest: Any, **options: Any) -> TensorInfo:
    return fresh_in_format_of(x, x.sizes)


@_rule("leaky_relu")
def _leaky_relu(x: TensorInfo, slope: Any, inplace: bool, scale: Any, zero_point: Any) -> TensorInfo:
    return _written(x) if inplace else fresh_in_format_of(x, x.sizes)


@_rule("relu6")
def _relu6(x: TensorInfo, inplace: bool = False) -> TensorInfo:
    return _written(x) if inplace else fresh_in_format_of(x, x.sizes)


def _written(x: TensorInfo) -> Any:
    raise UnsupportedOperatorError(
        "a quantized tensor is changed in place, by an operator that does not say so in its schema",
        location=user_location(),
        remedy="use the layer without inplace=True",
    )


@_rule("batch_norm1d", "elu", "layer_norm", "softmax")
def _contiguous(x: TensorInfo, *rest: Any, **options: Any) -> TensorInfo:
    return fresh(x.sizes, x.dtype, x.device)


@_rule("batch_norm2d", "batch_norm2d_relu", "batch_norm3d")
def _batch_norm(x: TensorInfo, *rest: Any, **options: Any) -> TensorInfo:
    return _channels_last(x, x.sizes)


@_rule("group_norm", "instance_norm")
def _group_norm(x: TensorInfo, *rest: Any, **options: Any) -> TensorInfo:
    return fresh_in_format_of(x, x.sizes) if len(x.sizes) == 4 else fresh(x.sizes, x.dtype, x.device)


@_rule("cat", "cat_relu")
def _cat(tensors: list[TensorInfo], dim: Any, scale: Any = None, zero_point: Any = None) -> TensorInfo:
    sizes = RULES[aten.cat.default]([_as_float(info) for info in tensors], dim).sizes
    return fresh_in_format_of(tensors[0], sizes)


def _rows_of(packed: Any) -> Any:
    """How many numbers a row of a packed table has."""
    return torch.ops.quantized.embedding_bag_unpack(packed).shape[1]


@_rule("embedding_byte", "embedding_4bit")
def _embedding(packed: Any, indices: TensorInfo, pruned_weights: bool = False) -> TensorInfo:
    return fresh((*indices.sizes, _rows_of(packed)), torch.float32, indices.device)


@_rule("embedding_bag_byte", "embedding_bag_4bit")
def _embedding_bag(
    packed: Any,
    indices: TensorInfo,
    offsets: TensorInfo | None = None,
    frequency: bool = False,
    mode: int = 0,
    pruned: bool = False,
    per_sample_weights: Any = None,
    mapping: Any = None,
    include_last_offset: bool = False,
) -> TensorInfo:
    bags = indices.sizes[0] if offsets is None or len(indices.sizes) == 2 else offsets.sizes[0] - include_last_offset
    return fresh((bags, _rows_of(packed)), torch.float32, indices.device)


def _dequantized(x: TensorInfo) -> TensorInfo:
    return fresh_in_format_of(x, x.sizes, torch.float32)


def _quantized(x: TensorInfo, scale: Any, zero_point: Any, dtype: torch.dtype) -> TensorInfo:
    return fresh_in_format_of(x, x.sizes, dtype)


def _quantized_by_channel(x: TensorInfo, scales: Any, zero_points: Any, axis: int, dtype: torch.dtype) -> TensorInfo:
    return fresh_in_format_of(x, x.sizes, dtype)


def _each_quantized(tensors: Any, scales: Any, zero_points: Any, dtype: torch.dtype) -> list[TensorInfo]:
    return [_quantized(x, None, None, dtype) for x in tensors]


def _by_its_range(x: TensorInfo, dtype: torch.dtype, reduce_range: bool) -> TensorInfo:
    return fresh_in_format_of(x, x.sizes, dtype)


_INTEGERS = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}
_QUANTIZED = {integer: quantized for quantized, integer in _INTEGERS.items()}


def _made_of_integers(x: TensorInfo, scale: float, zero_point: int) -> TensorInfo:
    return fresh_in_format_of(x, x.sizes, _QUANTIZED[x.dtype])


def _made_of_integers_by_channel(x: TensorInfo, scales: Any, zero_points: Any, axis: int) -> TensorInfo:
    return fresh(x.sizes, _QUANTIZED[x.dtype], x.device)


def _rounded(x: TensorInfo, *how: Any) -> TensorInfo:
    return fresh_in_format_of(x, x.sizes)


def _integers(x: TensorInfo) -> TensorInfo:
    return fresh_in_format_of(x, x.sizes, _INTEGERS[x.dtype])


# torch's meta kernels say that what is quantized is float32, or are not there
RULES.setdefault(aten.dequantize.self, _dequantized)
RULES.setdefault(aten.quantize_per_tensor.default, _quantized)
RULES.setdefault(aten.quantize_per_tensor.tensor_qparams, _quantized)
RULES.setdefault(aten.quantize_per_channel.default, _quantized_by_channel)
RULES.setdefault(aten.int_repr.default, _integers)
RULES.setdefault(aten.dequantize.tensors, lambda tensors: [_dequantized(x) for x in tensors])
RULES.setdefault(aten.quantize_per_tensor.tensors, _each_quantized)
RULES.setdefault(aten.quantize_per_tensor_dynamic.default, _by_its_range)
RULES.setdefault(aten._make_per_tensor_quantized_tensor.default, _made_of_integers)
RULES.setdefault(aten._make_per_channel_quantized_tensor.default, _made_of_integers_by_channel)
RULES.setdefault(aten._fake_quantize_learnable_per_tensor_affine.default, _rounded)
RULES.setdefault(aten._fake_quantize_learnable_per_channel_affine.default, _rounded)


def _unknown(operator: Any) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        raise UnsupportedOperatorError(
            f"{operator} asks how a tensor is quantized, which is only known when the program runs",
            location=user_location(),
            remedy="keep scale and zero point in variables or buffers of their own",
        )

    return refuse


for _operator in (aten.q_scale, aten.q_zero_point, aten.q_per_channel_scales, aten.q_per_channel_zero_points):
    RULES[_operator.default] = _unknown(_operator.default)
for _operator in (aten.q_per_channel_axis, aten.qscheme):
    RULES[_operator.default] = _unknown(_operator.default)
