"""Convolutions: without a bias they have none, where torchlib makes one of zeros."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten


def _all(value: Any, count: int) -> list[Any]:
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    return items * count if len(items) == 1 else items


class _Around(NamedTuple):
    """How much is added before and after each dimension of an image."""

    before: list[Any]
    after: list[Any]


def _convolved(
    op: Builder, dimensions: int, tensor: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    groups: Any,
) -> Any:  # fmt: skip
    batched = len(tensor.shape) == dimensions + 2
    image = tensor if batched else op.Unsqueeze(tensor, [0])
    pads = padding if isinstance(padding, _Around) else _Around(*[_all(padding, dimensions)] * 2)
    kernel = [size for size in list(weight.shape)[2:] if isinstance(size, int)]
    result = op.Conv(
        image, weight, bias, strides=_all(stride, dimensions), pads=[*pads.before, *pads.after],
        dilations=_all(dilation, dimensions), group=groups,
        kernel_shape=kernel if len(kernel) == dimensions else None,
    )  # fmt: skip
    return result if batched else op.Squeeze(result, [0])


def _register(target: Any, dimensions: int) -> None:
    @lowering(target)
    def lower(
        op: Builder, tensor: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1,
    ) -> Any:  # fmt: skip
        return _convolved(op, dimensions, tensor, weight, bias, stride, padding, dilation, groups)


_register(aten.conv1d.default, 1)
_register(aten.conv2d.default, 2)
_register(aten.conv3d.default, 3)


@lowering(
    aten._convolution_mode.default, aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding
)  # fmt: skip
def convolution_of_a_mode(
    op: Builder, tensor: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: str = "valid",
    dilation: Any = 1, groups: int = 1,
) -> Any:  # fmt: skip
    """Paddings that are called "same" depend on the kernel only; what is odd of them is added at the end."""
    dimensions = len(weight.shape) - 2
    kernel = list(weight.shape)[2:]
    if padding == "valid":
        return _convolved(op, dimensions, tensor, weight, bias, stride, 0, dilation, groups)
    if not all(isinstance(size, int) for size in kernel):
        raise LoweringError("the size of its kernel varies, on which its padding depends")
    both = [step * (size - 1) for step, size in zip(_all(dilation, dimensions), kernel)]
    around = _Around([each // 2 for each in both], [each - each // 2 for each in both])
    return _convolved(op, dimensions, tensor, weight, bias, stride, around, dilation, groups)


@lowering(aten.convolution.default)
def convolution(
    op: Builder, tensor: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    dimensions = len(weight.shape) - 2
    fixed = not any(isinstance(each, ir.Value) for each in (*stride, *padding, *dilation))
    if transposed and fixed and len(tensor.shape) == dimensions + 2:
        return _transposed(op, tensor, weight, bias, stride, padding, dilation, output_padding, groups)
    if transposed or not fixed:
        args = (tensor, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        return op.program.call_operator(aten.convolution.default, args)
    return _convolved(op, dimensions, tensor, weight, bias, stride, padding, dilation, groups)


def _transposed(
    op: Builder, tensor: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, output_padding: Any,
    groups: int,
) -> Any:  # fmt: skip
    """More at the end is padded less there: ONNX Runtime takes no ``output_padding`` as large as the stride. What is
    beyond the reach of the kernel is 0."""
    dimensions = len(weight.shape) - 2
    pads, more = _all(padding, dimensions), _all(output_padding, dimensions)
    strides = _all(stride, dimensions)
    attributes = {"strides": strides, "dilations": _all(dilation, dimensions), "group": groups}
    if all(extra < step for extra, step in zip(more, strides)):
        return op.ConvTranspose(tensor, weight, bias, pads=[*pads, *pads], output_padding=more, **attributes)
    ends = [max(pad - extra, 0) for pad, extra in zip(pads, more)]
    beyond = [max(extra - pad, 0) for pad, extra in zip(pads, more)]
    result = op.ConvTranspose(tensor, weight, None, pads=[*pads, *ends], **attributes)
    if any(beyond):
        result = op.Pad(result, op.constant([0] * (2 + dimensions) + [0, 0, *beyond], ir.DataType.INT64))
    return result if bias is None else op.Add(result, op.Unsqueeze(bias, list(range(1, 1 + dimensions))))
