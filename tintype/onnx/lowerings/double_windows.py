"""Convolutions and mean pools in double precision, for which ONNX Runtime's processor has no kernels: every window of
the image is taken out by the places of its elements; what is done with windows is a product of matrices, or a sum."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tintype.onnx.builder import Builder, form_of
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.formulas import DOUBLE, INT64, Formula


class _Axis(NamedTuple):
    """A dimension of an image, and the windows along it: sizes are numbers, or values where they vary."""

    size: Any
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    more: int = 0  # at the end of what a transposed convolution gives

    @property
    def reach(self) -> int:
        """How far a window goes."""
        return self.dilation * (self.kernel - 1) + 1


def _axes(op: Builder, tensor: Any, kernel: Sequence[int], attributes: dict[str, Any]) -> list[_Axis]:
    rank = len(kernel)
    if tensor.shape is None:
        tensor.shape = ir.Shape([None] * (2 + rank))
    sizes = [op.size(tensor, 2 + place) for place in range(rank)]
    ones, zeros = [1] * rank, [0] * rank
    strides, dilations = attributes.get("strides", ones), attributes.get("dilations", ones)
    pads, more = attributes.get("pads", zeros * 2), attributes.get("output_padding", zeros)
    rows = zip(sizes, kernel, strides, dilations, pads[:rank], pads[rank:], more)
    return [_Axis(row[0], *(int(number) for number in row[1:])) for row in rows]


def _number(op: Builder, value: Any) -> Formula:
    return Formula(op, op.cast(value, INT64))


def _count(op: Builder, axis: _Axis, ceiling: bool = False) -> Any:
    """How many windows there are."""
    rest = axis.before + axis.after - axis.reach + (axis.stride - 1 if ceiling else 0)
    if isinstance(axis.size, int):
        return (axis.size + rest) // axis.stride + 1
    count = (_number(op, axis.size) + rest) / axis.stride + 1
    return count.value


def _spread_count(op: Builder, axis: _Axis) -> Any:
    """How many elements a transposed convolution gives."""
    rest = axis.reach + axis.more - axis.before - axis.after - axis.stride
    if isinstance(axis.size, int):
        return axis.size * axis.stride + rest
    return (_number(op, axis.size) * axis.stride + rest).value


def _rows_and_columns(op: Builder, axis: _Axis, count: Any) -> tuple[Formula, Formula]:
    """The places in a window, below each other, and the numbers of windows, beside each other."""
    inside = op.constant(np.arange(axis.kernel).reshape(-1, 1) * axis.dilation, INT64)
    if isinstance(count, int):
        return Formula(op, inside), Formula(op, op.constant(np.arange(count), INT64))
    zero, one = op.constant(0, INT64), op.constant(1, INT64)
    return Formula(op, inside), Formula(op, op.Range(zero, op.cast(count, INT64), one))


def _within(op: Builder, axis: _Axis, place: Formula, also: Formula | None = None) -> Any:
    """Places in the image; those outside of it are the one behind its last element, where a zero is put."""
    size = _number(op, axis.size)
    outside = (place < 0) | (place >= size.value)
    if also is not None:
        outside = outside | also
    return place.else_where(outside, size).value


def _places(op: Builder, axis: _Axis, count: Any) -> Any:
    """Where the elements of the windows are."""
    rows, columns = _rows_and_columns(op, axis, count)
    return _within(op, axis, columns * axis.stride + rows - axis.before)


def _sources(op: Builder, axis: _Axis, count: Any) -> Any:
    """Which elements come into each result of a transposed convolution, by place in the kernel."""
    rows, columns = _rows_and_columns(op, axis, count)
    reached = columns - rows + axis.before
    place = reached / axis.stride
    return _within(op, axis, place, (reached < 0) | ~(place * axis.stride).equals(reached))


def _padded(op: Builder, tensor: Any, rank: int) -> Any:
    """With a zero behind each row."""
    amounts = op.constant([0] * (2 + rank) + [0, 0] + [1] * rank, INT64)
    return op.Pad(tensor, amounts, op.constant(0.0, DOUBLE))


def _product(op: Builder, numbers: Sequence[Any]) -> Any:
    def times(left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            return left * right
        return op.Mul(op.cast(left, INT64), op.cast(right, INT64))

    return functools.reduce(times, numbers, 1)


def _convolved(
    op: Builder, tensor: Any, matrix: Any, bias: Any, places: Sequence[Any], counts: Sequence[Any], groups: int,
    width: Any,
) -> Any:  # fmt: skip
    """The product of a group's weights with all windows: ``matrix`` has a row for each of its results."""
    rank = len(places)
    batch = op.size(tensor, 0)
    windows = _padded(op, tensor, rank)
    for number in reversed(range(rank)):
        windows = op.Gather(windows, places[number], axis=2 + number)
    inside, across = [2 + 2 * number for number in range(rank)], [3 + 2 * number for number in range(rank)]
    windows = op.Transpose(windows, perm=[0, 1, *inside, *across])
    columns = op.Reshape(windows, op.vector([batch, groups, width, _product(op, counts)]), allowzero=1)
    result = op.MatMul(matrix, columns)
    channels = op.size(matrix, 1)
    shape = [batch, _product(op, [groups, channels]), *counts]
    result = op.Reshape(result, op.vector(shape), allowzero=1)
    result.shape = ir.Shape([size if isinstance(size, int) else None for size in shape])
    return result if bias is None else op.Add(result, op.Unsqueeze(bias, list(range(1, 1 + rank))))


@form_of("Conv", "ConvTranspose")
def convolution(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    tensor, weight, bias = (*values, None)[:3]
    kernel = [size for size in list(weight.shape or ())[2:] if isinstance(size, int)]
    if tensor.dtype is not DOUBLE or weight.shape is None or len(kernel) != len(weight.shape) - 2:
        return None
    rank, groups = len(kernel), int(attributes.get("group", 1))
    axes = _axes(op, tensor, kernel, attributes)
    first, second = op.size(weight, 0), op.size(weight, 1)
    of_group = first // groups if isinstance(first, int) else op.Div(first, op.constant(groups, INT64))
    if operation == "Conv":
        counts = [_count(op, axis) for axis in axes]
        places = [_places(op, axis, count) for axis, count in zip(axes, counts)]
        width, results, by_result = _product(op, [second, *kernel]), of_group, weight
    else:
        counts = [_spread_count(op, axis) for axis in axes]
        places = [_sources(op, axis, count) for axis, count in zip(axes, counts)]
        width, results = _product(op, [of_group, *kernel]), second
        by_group = op.Reshape(weight, op.vector([groups, of_group, second, *kernel]), allowzero=1)
        by_result = op.Transpose(by_group, perm=[0, 2, 1, *range(3, 3 + rank)])
    matrix = op.Reshape(by_result, op.vector([groups, results, width]), allowzero=1)
    matrix.shape = ir.Shape([groups, *(size if isinstance(size, int) else None for size in (results, width))])
    return _convolved(op, tensor, matrix, bias, places, counts, groups, width)


@form_of("AveragePool")
def average_pool(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """Sums along each dimension, divided by how many elements of it a window has."""
    (tensor,) = values
    if tensor.dtype is not DOUBLE:
        return None
    kernel = attributes["kernel_shape"]
    axes = _axes(op, tensor, kernel, attributes)
    result = _padded(op, tensor, len(kernel))
    shape = list(tensor.shape)
    for number, axis in enumerate(axes):
        count = _count(op, axis, ceiling=bool(attributes.get("ceil_mode")))
        places = _places(op, axis, count)
        result = op.ReduceSum(op.Gather(result, places, axis=2 + number), [2 + number], keepdims=0)
        divisor: Any = op.constant(float(axis.kernel), DOUBLE)
        if not attributes.get("count_include_pad"):
            inside = Formula(op, places) < _number(op, axis.size)
            divisor = op.ReduceSum(op.cast(inside.value, DOUBLE), [0], keepdims=0)
            if number + 1 < len(axes):
                divisor = op.Unsqueeze(divisor, list(range(1, len(axes) - number)))
        result = op.Div(result, divisor)
        shape[2 + number] = count if isinstance(count, int) else None
    result.shape = ir.Shape(shape)
    return result
