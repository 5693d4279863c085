"""Pooling to sizes that are given, and padding round the edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.integers import integer_average
from tintype.onnx.lowerings.taps import means_of_windows
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64 = ir.DataType.INT64


def _adaptive_mean(dimensions: int) -> Any:
    def lower(op: Builder, tensor: Any, wanted: Sequence[Any]) -> Any:
        """A plain pool where all windows are alike, a mean where one number is wanted; else along one axis after the
        other."""
        rank = len(tensor.shape)
        axes = list(range(rank - dimensions, rank))
        if all(isinstance(size, int) and size == 1 for size in wanted):
            return op.ReduceMean(tensor, axes, keepdims=1)
        sizes = [op.size(tensor, axis) for axis in axes]
        kernel = [
            size // count if isinstance(size, int) and isinstance(count, int) and count and not size % count else 0
            for size, count in zip(sizes, wanted)
        ]
        if all(kernel) and rank == dimensions + 2:
            return op.AveragePool(tensor, kernel_shape=kernel, strides=kernel)
        for axis, size, count, step in zip(axes, sizes, wanted, kernel):
            if step == 1:
                continue
            shape = list(tensor.shape)
            shape[axis] = count if isinstance(count, int) else None
            tensor = means_of_windows(op, tensor, axis, size, count)
            tensor.shape = ir.Shape(shape)
        return tensor

    return lower


lowering(aten.adaptive_avg_pool1d.default)(_adaptive_mean(1))
lowering(aten.adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d.default)(_adaptive_mean(2))
lowering(aten.adaptive_avg_pool3d.default, aten._adaptive_avg_pool3d.default)(_adaptive_mean(3))


def _pair(value: Any, count: int) -> list[int]:
    items = [value] if isinstance(value, int) else list(value)
    return items * count if len(items) == 1 else items


def _average(dimensions: int) -> Any:
    def lower(
        op: Builder,
        tensor: Any,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        size = _pair(kernel, dimensions)
        steps = _pair(stride, dimensions) if stride not in ((), [], None) else size
        pads = _pair(padding, dimensions)
        if not tensor.dtype.is_floating_point():
            image = tensor if len(tensor.shape) == dimensions + 2 else op.Unsqueeze(tensor, [0])
            image.shape = ir.Shape([None] * (dimensions + 2 - len(tensor.shape)) + list(tensor.shape))
            mean = integer_average(
                op, image, size, steps, pads, ceiling=ceil_mode, include_pads=count_include_pad,
                divisor=divisor_override,
            )  # fmt: skip
            return mean if image is tensor else op.Squeeze(mean, [0])
        if ceil_mode:
            return _average_with_ceiling(op, tensor, size, steps, pads, count_include_pad, divisor_override)
        batched = len(tensor.shape) == dimensions + 2
        image = tensor if batched else op.Unsqueeze(tensor, [0])
        result = op.AveragePool(
            image, kernel_shape=size, strides=steps, pads=[*pads, *pads],
            count_include_pad=int(count_include_pad or divisor_override is not None),
        )  # fmt: skip
        if divisor_override is not None:
            result = op.Mul(result, op.constant(math.prod(size) / divisor_override, tensor.dtype))
        return result if batched else op.Squeeze(result, [0])

    return lower


def _average_with_ceiling(
    op: Builder,
    tensor: Any,
    kernel: list[int],
    steps: list[int],
    pads: list[int],
    count_pads: bool,
    divisor: int | None,
) -> Any:
    """Windows that reach beyond the image: sums over a padded one, divided by what torch counts of each window."""
    rank, dimensions = len(tensor.shape), len(kernel)
    sizes = [op.size(tensor, rank - dimensions + each) for each in range(dimensions)]
    if not all(isinstance(size, int) for size in sizes):
        if not any(pads) and divisor is None and all(step <= width for step, width in zip(steps, kernel)):
            # no padding to count, and no window that begins outside: what ONNX divides by is what torch does
            batched = rank == dimensions + 2
            image = tensor if batched else op.Unsqueeze(tensor, [0])
            result = op.AveragePool(image, kernel_shape=kernel, strides=steps, ceil_mode=1, count_include_pad=0)
            return result if batched else op.Squeeze(result, [0])
        raise LoweringError("its windows reach beyond an image whose size varies (ceil_mode)")
    extra, counts = [], np.ones([1] * rank, dtype=np.float64)
    for each, (size, width, step, pad) in enumerate(zip(sizes, kernel, steps, pads)):
        number = -(-(size + 2 * pad - width) // step) + 1
        if (number - 1) * step >= size + pad:
            number -= 1
        extra.append(max((number - 1) * step + width - size - 2 * pad, 0))
        starts = np.arange(number) * step - pad
        ends = np.minimum(starts + width, size + pad)
        if not count_pads:
            starts, ends = np.maximum(starts, 0), np.minimum(ends, size)
        shape = [1] * rank
        shape[rank - dimensions + each] = number
        counts = counts * (ends - starts).reshape(shape)
    lead = [0] * (rank - dimensions)
    amounts = [*lead, *pads, *lead, *(pad + more for pad, more in zip(pads, extra))]
    image = op.Pad(tensor, op.constant(amounts, _INT64), op.constant(0, tensor.dtype))
    batched = rank == dimensions + 2
    image = image if batched else op.Unsqueeze(image, [0])
    result = op.AveragePool(image, kernel_shape=kernel, strides=steps)
    result = result if batched else op.Squeeze(result, [0])
    factors = math.prod(kernel) / (counts if divisor is None else np.full_like(counts, divisor))
    return op.Mul(result, op.constant(factors, tensor.dtype))


lowering(aten.avg_pool1d.default)(_average(1))
lowering(aten.avg_pool2d.default)(_average(2))
lowering(aten.avg_pool3d.default)(_average(3))


@lowering(aten._pad_circular.default)
def pad_circular(op: Builder, tensor: Any, padding: Sequence[Any]) -> Any:
    return _circular(op, tensor, padding)


@lowering(aten.pad.default)
def pad(op: Builder, tensor: Any, padding: Sequence[Any], mode: str = "constant", value: Any = None) -> Any:
    if mode == "circular":
        return _circular(op, tensor, padding)
    rank = len(tensor.shape)
    before: list[Any] = [0] * rank
    after: list[Any] = [0] * rank
    for position in range(len(padding) // 2):
        before[rank - 1 - position] = padding[2 * position]
        after[rank - 1 - position] = padding[2 * position + 1]
    amounts = op.vector([*before, *after])
    names = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    if tensor.dtype is ir.DataType.BOOL:
        wide = op.cast(tensor, ir.DataType.INT32)
        return op.cast(
            op.Pad(wide, amounts, op.constant(int(value or 0), wide.dtype), mode=names[mode]), tensor.dtype
        )
    filler = op.like(0 if value is None else value, tensor) if mode == "constant" else None
    if any(not isinstance(amount, ir.Value) and amount < 0 for amount in padding) and mode != "constant":
        return _cut_then_padded(op, tensor, before, after, names[mode])
    return op.Pad(tensor, amounts, filler, mode=names[mode])


def _cut_then_padded(op: Builder, tensor: Any, before: list[Any], after: list[Any], mode: str) -> Any:
    """Amounts below 0 cut off; what is left is padded."""
    if any(isinstance(amount, ir.Value) for amount in (*before, *after)):
        raise LoweringError("amounts that vary beside amounts below 0")
    padded = op.Pad(
        tensor, op.constant([max(0, each) for each in (*before, *after)], _INT64), None, mode=mode
    ) if any(each > 0 for each in (*before, *after)) else tensor  # fmt: skip
    for axis, (left, right) in enumerate(zip(before, after)):
        if left < 0 or right < 0:
            end = right if right < 0 else 9223372036854775807
            padded = op.Slice(padded, [max(0, -left)], [end], [axis])
    return padded


def _circular(op: Builder, tensor: Any, padding: Sequence[Any]) -> Any:
    rank = len(tensor.shape)
    end = 9223372036854775807
    for position in range(len(padding) // 2):
        axis = rank - 1 - position
        left, right = padding[2 * position], padding[2 * position + 1]
        if isinstance(left, ir.Value) or isinstance(right, ir.Value):
            raise LoweringError("circular padding by amounts that vary")
        if left < 0 or right < 0:  # what is cut off is no part of the circle
            cut_end = right if right < 0 else end
            tensor = op.Slice(tensor, [max(0, -left)], [cut_end], [axis])
        parts = [tensor]
        if left > 0:
            parts.insert(0, op.Slice(tensor, [-left], [end], [axis]))
        if right > 0:
            parts.append(op.Slice(tensor, [0], [right], [axis]))
        tensor = op.Concat(*parts, axis=axis)
    return tensor
