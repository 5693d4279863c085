"""Convolutions and means of integers, exactly. ONNX's operators for these take floating-point numbers only, which
hold no large integers; here every place of the kernel is a product of matrices, and they are added."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tintype.onnx.builder import Builder, integer_form
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir

_INT64 = ir.DataType.INT64


def _sizes(op: Builder, image: Any) -> list[int]:
    sizes = [op.size(image, each) for each in range(2, len(image.shape))]
    if not all(isinstance(size, int) for size in sizes):
        raise LoweringError("of integers in images whose sizes vary it has no form")
    return sizes


def _padded(op: Builder, image: Any, before: Sequence[int], after: Sequence[int]) -> Any:
    amounts = [0, 0, *before, 0, 0, *after]
    return op.Pad(image, op.constant(amounts, _INT64)) if any(amounts) else image


def _seen(op: Builder, image: Any, offsets: Sequence[int], counts: Sequence[int], strides: Sequence[int]) -> Any:
    """The elements that one place of the kernel sees, for all windows."""
    axes = list(range(2, 2 + len(offsets)))
    ends = [offset + (count - 1) * stride + 1 for offset, count, stride in zip(offsets, counts, strides)]
    return op.Slice(image, list(offsets), ends, axes, list(strides))


def _convolved(
    op: Builder,
    image: Any,
    weight: Any,
    channels: int,
    sizes: Sequence[int],
    shape: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Any:
    """An image that is padded already, by a kernel of (results, channels of a group, places)."""
    made, kernel = shape[0], shape[2:]
    counts = [
        (size - step * (width - 1) - 1) // stride + 1
        for size, width, stride, step in zip(sizes, kernel, strides, dilations)
    ]
    total: Any = None
    for place in itertools.product(*(range(width) for width in kernel)):
        seen = _seen(op, image, [each * step for each, step in zip(place, dilations)], counts, strides)
        columns = op.Reshape(seen, op.constant([-1, groups, channels // groups, math.prod(counts)], _INT64))
        part = weight
        for each in place:
            part = op.Gather(part, op.constant(each, _INT64), axis=2)
        matrix = op.Reshape(part, op.constant([1, groups, made // groups, channels // groups], _INT64))
        product = op.MatMul(matrix, columns)
        total = product if total is None else op.Add(total, product)
    return op.Reshape(total, op.constant([-1, made, *counts], _INT64))


def _with_bias(op: Builder, result: Any, bias: Any, dimensions: int) -> Any:
    return result if bias is None else op.Add(result, op.Unsqueeze(bias, list(range(1, 1 + dimensions))))


def _attributes(attributes: dict[str, Any], count: int) -> tuple[list[int], list[int], list[int], int]:
    return (
        list(attributes.get("strides") or [1] * count),
        list(attributes.get("dilations") or [1] * count),
        list(attributes.get("pads") or [0] * 2 * count),
        int(attributes.get("group", 1)),
    )


@integer_form("Conv")
def conv(op: Builder, values: Sequence[Any], attributes: dict[str, Any]) -> Any:
    image, weight, bias = (*values, None)[:3]
    sizes = _sizes(op, image)
    count = len(sizes)
    strides, dilations, pads, groups = _attributes(attributes, count)
    before, after = pads[:count], pads[count:]
    padded = [size + left + right for size, left, right in zip(sizes, before, after)]
    image = _padded(op, image, before, after)
    shape = [op.size(weight, each) for each in range(count + 2)]
    result = _convolved(op, image, weight, shape[1] * groups, padded, shape, strides, dilations, groups)
    return _with_bias(op, result, bias, count)


@integer_form("ConvTranspose")
def conv_transpose(op: Builder, values: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Zeros between the elements, and a convolution with the kernel turned round."""
    image, weight, bias = (*values, None)[:3]
    sizes = _sizes(op, image)
    count = len(sizes)
    strides, dilations, pads, groups = _attributes(attributes, count)
    extra = list(attributes.get("output_padding") or [0] * count)
    channels, per_group, *kernel = (op.size(weight, each) for each in range(count + 2))
    wide, now = image, [channels, *sizes]
    for place, stride in enumerate(strides, 1):
        if stride > 1:
            wide, now = _spread(op, wide, now, place, stride)
    reach = [step * (width - 1) for step, width in zip(dilations, kernel)]
    before = [far - left for far, left in zip(reach, pads[:count])]
    after = [far - right + more for far, right, more in zip(reach, pads[count:], extra)]
    padded = [size + left + right for size, left, right in zip(now[1:], before, after)]
    wide = _padded(op, wide, before, after)
    grouped = op.Reshape(weight, op.constant([groups, channels // groups, per_group, *kernel], _INT64))
    swapped = op.Transpose(grouped, perm=[0, 2, 1, *range(3, 3 + count)])
    made = [per_group * groups, channels // groups, *kernel]
    turned = op.Reshape(swapped, op.constant(made, _INT64))
    for axis in range(2, 2 + count):
        turned = op.Slice(turned, [-1], [-9223372036854775807], [axis], [-1])
    result = _convolved(op, wide, turned, channels, padded, made, [1] * count, dilations, groups)
    return _with_bias(op, result, bias, count)


def _spread(op: Builder, image: Any, sizes: list[int], place: int, stride: int) -> tuple[Any, list[int]]:
    """Zeros between the elements along a dimension. ``sizes`` are those behind the batch."""
    rank = len(sizes) + 1
    amounts = [0] * (2 * (rank + 1))
    amounts[-1 - (rank - 2 - place)] = stride - 1
    wide = op.Pad(op.Unsqueeze(image, [place + 2]), op.constant(amounts, _INT64))
    sizes = [*sizes[:place], sizes[place] * stride, *sizes[place + 1 :]]
    wide = op.Reshape(wide, op.constant([-1, *sizes], _INT64))
    sizes[place] -= stride - 1
    return op.Slice(wide, [0], [sizes[place]], [place + 1]), sizes


def integer_average(
    op: Builder,
    image: Any,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    *,
    ceiling: bool,
    include_pads: bool,
    divisor: int | None,
) -> Any:
    """Means of windows, rounded to 0 as torch does."""
    sizes = _sizes(op, image)
    shares = np.ones([1] * len(sizes), dtype=np.int64)
    counts, after = [], []
    for position, (size, width, stride, pad) in enumerate(zip(sizes, kernel, strides, pads)):
        reach = size + 2 * pad - width
        count = (-(-reach // stride) if ceiling else reach // stride) + 1
        if ceiling and (count - 1) * stride >= size + pad:  # a window that would begin behind the image
            count -= 1
        starts = [number * stride - pad for number in range(count)]
        ends = [min(start + width, size + pad) for start in starts]
        inside = [min(end, size) - max(start, 0) for start, end in zip(starts, ends)]
        widths = [end - start for start, end in zip(starts, ends)] if include_pads else inside
        along = [1] * len(sizes)
        along[position] = count
        shares = shares * np.array(widths, dtype=np.int64).reshape(along)
        counts.append(count)
        after.append(max(0, (count - 1) * stride + width - size - pad))
    image = _padded(op, image, pads, after)
    total: Any = None
    for place in itertools.product(*(range(width) for width in kernel)):
        seen = _seen(op, image, place, counts, strides)
        total = seen if total is None else op.Add(total, seen)
    return op.Div(total, op.constant(divisor if divisor is not None else shares, image.dtype))
