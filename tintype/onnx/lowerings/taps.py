"""Images of other sizes as weighted sums of their pixels, taken by their places: for dtypes, factors and sizes with
which ONNX Runtime's own Resize does not do what torch does."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.formulas import INT64, Formula

_FLOAT, _DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE
_SHARPNESS = -0.75  # of torch's bicubic interpolation


def _step(op: Builder, axis: Any, align_corners: bool, dtype: ir.DataType) -> Any:
    """How many pixels of the image one of the result is: a number, or a formula where sizes vary."""
    if align_corners:
        if axis.is_fixed:
            return 0.0 if axis.wanted == 1 else (axis.size - 1) / (axis.wanted - 1)
        size, wanted = (Formula(op, op.cast(each, INT64)) - 1 for each in (axis.size, axis.wanted))
        step = size.cast(dtype) / wanted.Max(op.constant(1, INT64)).cast(dtype)
        return step.else_where(wanted < 1, 0.0)
    factor = axis.factor
    if factor is None:
        if axis.is_fixed:
            return axis.size / axis.wanted
        return Formula(op, op.cast(axis.size, INT64), dtype) / Formula(op, op.cast(axis.wanted, INT64), dtype)
    step = 1.0 / Formula(op, op.cast(factor, _DOUBLE)) if isinstance(factor, ir.Value) else 1.0 / factor
    if axis.stays is not None:
        step = Formula(op, op.constant(step, _DOUBLE)) if isinstance(step, float) else step
        step = step.else_where(Formula(op, axis.stays), 1.0)
    return step.cast(dtype) if isinstance(step, Formula) else step


def _positions(op: Builder, axis: Any, align_corners: bool, dtype: ir.DataType) -> Formula:
    """Where each pixel of the result lies between those of the image."""
    zero, one = op.constant(0, INT64), op.constant(1, INT64)
    numbers = Formula(op, op.Range(zero, op.cast(axis.wanted, INT64), one), dtype)
    step = _step(op, axis, align_corners, dtype)
    return numbers * step if align_corners else (numbers + 0.5) * step - 0.5


def _taken(op: Builder, tensor: Any, axis: Any, places: Formula, weights: Formula) -> Formula:
    """Pixels by their places, each with its weight."""
    last = (Formula(op, op.cast(axis.size, INT64)) - 1).value
    within = places.Min(last).Max(op.constant(0, INT64))
    behind = list(range(1, len(tensor.shape) - axis.number))
    shaped = weights.Unsqueeze(behind) if behind else weights
    return Formula(op, op.Gather(tensor, within.value, axis=axis.number)) * shaped


def linear(op: Builder, tensor: Any, axis: Any, align_corners: bool) -> Any:
    """Means of two neighbours along one dimension."""
    at = _positions(op, axis, align_corners, tensor.dtype).Max(op.constant(0.0, tensor.dtype))
    left = at.Floor().cast(INT64).Min((Formula(op, op.cast(axis.size, INT64)) - 1).value)
    share = (at - left.cast(tensor.dtype)).Min(op.constant(1.0, tensor.dtype)).Max(op.constant(0.0, tensor.dtype))
    low = _taken(op, tensor, axis, left, 1.0 - share)
    right = left + 1
    if axis.stays is not None:  # then nothing of a neighbour is taken, nan neither
        right = right.else_where(Formula(op, axis.stays), left)
    return (low + _taken(op, tensor, axis, right, share)).value


def _near(x: Formula, sharpness: float = _SHARPNESS) -> Formula:
    """The weight of a pixel that is at most one away."""
    return (x * (sharpness + 2) - (sharpness + 3)) * x * x + 1.0


def _far(x: Formula, sharpness: float = _SHARPNESS) -> Formula:
    """The weight of a pixel that is one to two away."""
    return ((x * sharpness - 5 * sharpness) * x + 8 * sharpness) * x - 4 * sharpness


def cubic(op: Builder, tensor: Any, axis: Any, align_corners: bool) -> Any:
    """Means of four neighbours along one dimension."""
    at = _positions(op, axis, align_corners, tensor.dtype)
    floor = at.Floor()
    share, left = at - floor, floor.cast(INT64)
    weights = [_far(share + 1.0), _near(share), _near(1.0 - share), _far(2.0 - share)]
    total = _taken(op, tensor, axis, left - 1, weights[0])
    for number, weight in enumerate(weights[1:]):
        total = total + _taken(op, tensor, axis, left + number, weight)
    return total.value


def antialiased(op: Builder, tensor: Any, axis: Any, align_corners: bool, mode: str) -> Any:
    """Means of as many neighbours as a pixel of the result covers, with torch's weights for these sizes."""
    if not axis.is_fixed or isinstance(axis.factor, ir.Value):
        return _antialiased_by_formula(op, tensor, axis, align_corners, mode)
    wide = tensor.dtype is _DOUBLE
    image = torch.eye(axis.size, dtype=torch.float64 if wide else torch.float32, device="cpu")
    function = {
        "linear": torch.ops.aten._upsample_bilinear2d_aa.default,
        "cubic": torch.ops.aten._upsample_bicubic2d_aa.default,
    }[mode]
    size = [axis.size, axis.wanted]
    shares = (
        function(image.reshape(1, 1, axis.size, axis.size), size, align_corners, None, axis.factor)[0, 0].numpy().T
    )
    used = shares != 0
    first = used.argmax(1)
    count = int((axis.size - used[:, ::-1].argmax(1) - first).max())
    places = first[:, None] + np.arange(count)
    inside = places < axis.size
    places = np.minimum(places, axis.size - 1)
    weights = np.where(inside, np.take_along_axis(shares, places, 1), 0)
    behind = [1] * (len(tensor.shape) - axis.number - 1)
    taken = op.Gather(tensor, op.constant(places, INT64), axis=axis.number)
    weighed = op.Mul(taken, op.constant(weights.reshape(*weights.shape, *behind), tensor.dtype))
    return _sum(op, weighed, op.constant((weights != 0).reshape(*weights.shape, *behind)), axis.number + 1)


def _antialiased_by_formula(op: Builder, tensor: Any, axis: Any, align_corners: bool, mode: str) -> Any:
    """The same, where only a call can tell the sizes: each window as long as the longest may be."""
    dtype, zero, one = tensor.dtype, op.constant(0, INT64), op.constant(1, INT64)
    size = Formula(op, op.cast(axis.size, INT64))
    step = _step(op, axis, align_corners, dtype)
    step = step if isinstance(step, Formula) else Formula(op, op.constant(step, dtype))
    wide = step.Max(op.constant(1.0, dtype))  # an image that grows has the filter of one that stays
    reach = wide * (1.0 if mode == "linear" else 2.0)
    numbers = Formula(op, op.Unsqueeze(op.Range(zero, op.cast(axis.wanted, INT64), one), [1]), dtype)
    centre = (numbers + 0.5) * step
    begin = (centre - reach + 0.5).cast(INT64).Max(zero)
    end = (centre + reach + 0.5).cast(INT64).Min(size.value)
    longest = reach.Ceil().cast(INT64) * 2 + 1
    inside = op.Unsqueeze(op.Range(zero, longest.value, one), [0])
    places = begin + inside
    away = ((places.cast(dtype) - centre + 0.5) / wide).Abs()
    nothing = op.constant(0.0, dtype)
    if mode == "linear":
        weights = (1.0 - away).Max(nothing)
    else:
        near, far = _near(away, -0.5), _far(away, -0.5)
        weights = near.else_where(away >= 1.0, far).else_where(away >= 2.0, 0.0)
    weights = weights.else_where(places >= end.value, 0.0)
    weights = weights / weights.sum(1)
    behind = list(range(2, len(tensor.shape) + 1 - axis.number))
    shaped = weights.Unsqueeze(behind) if behind else weights
    taken = op.Gather(tensor, places.Min((size - 1).value).value, axis=axis.number)
    return _sum(op, op.Mul(taken, shaped.value), op.Not(shaped.equals(0.0).value), axis.number + 1)


def _sum(op: Builder, numbers: Any, counted: Any, axis: int) -> Any:
    """The sum along an axis of those numbers that count; nan is no number to multiply by 0."""
    return op.ReduceSum(op.Where(counted, numbers, op.constant(0.0, numbers.dtype)), [axis], keepdims=0)


def windows_of(size: int, wanted: int) -> list[tuple[int, int]]:
    """Where each of the windows that an adaptive pool has along an axis begins and ends."""
    return [(number * size // wanted, -(-(number + 1) * size // wanted)) for number in range(wanted)]


def means_of_windows(op: Builder, tensor: Any, number: int, size: Any, wanted: Any) -> Any:
    """The mean of each window of an adaptive pool along an axis, whose sizes are numbers or values."""
    behind = list(range(2, len(tensor.shape) + 1 - number))
    if isinstance(size, int) and isinstance(wanted, int):
        bounds = np.array(windows_of(size, wanted))
        longest = int((bounds[:, 1] - bounds[:, 0]).max())
        begin, end = (Formula(op, op.constant(bounds[:, [side]], INT64)) for side in (0, 1))
        inside = op.constant(np.arange(longest).reshape(1, -1), INT64)
    else:
        zero, one = op.constant(0, INT64), op.constant(1, INT64)
        all_of, parts = (Formula(op, op.cast(each, INT64)) for each in (size, wanted))
        numbers = Formula(op, op.Unsqueeze(op.Range(zero, parts.value, one), [1]))
        divisor = parts.Max(one)
        begin = numbers * all_of / divisor
        end = ((numbers + 1) * all_of + parts - 1) / divisor
        longest = (all_of + divisor - 1) / divisor + 1
        inside = op.Unsqueeze(op.Range(zero, longest.value, one), [0])
    places = begin + inside
    counted, last = places < end.value, (Formula(op, op.cast(size, INT64)) - 1).value
    taken = op.Gather(tensor, places.Min(last).value, axis=number)
    lengths = (end - begin).cast(tensor.dtype).value
    if behind:
        counted, lengths = counted.Unsqueeze(behind), op.Unsqueeze(lengths, [each - 1 for each in behind])
    return op.Div(_sum(op, taken, counted.value, number + 1), op.Squeeze(lengths, [1]))
