"""Images of other sizes (``interpolate``): the pixel that is nearest, or a mean of several.

ONNX's Resize divides by a scale where torch multiplies by its inverse, which now and then is another pixel; and it
counts the pixels of its result in single precision. It is taken where that is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings import taps
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64, _FLOAT, _DOUBLE = ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE
# How many pixels a side is looked at, where its size varies.
_LONGEST_SIDE = 1 << 15


class _Axis:
    """One dimension that gets another size: the sizes, numbers or values, and the factor if the user gave one."""

    def __init__(self, op: Builder, number: int, tensor: Any, wanted: Any, factor: Any) -> None:
        self.number = number
        self.size = op.size(tensor, number)
        self.factor: Any = factor if factor is None or isinstance(factor, ir.Value) or factor > 0 else None
        self.wanted = _count(op, self.size, factor) if wanted is None else wanted
        self.stays: Any = None  # a truth value: whether the image stays as it is here, whatever the factor is

    @property
    def is_fixed(self) -> bool:
        return isinstance(self.size, int) and isinstance(self.wanted, int)

    def step(self, op: Builder) -> Any:
        """How many pixels of the image one of the result is: a number in single precision, or a value."""
        if self.factor is not None and not isinstance(self.factor, ir.Value):
            return np.float32(1.0 / self.factor)
        if self.factor is not None:
            return op.cast(op.Reciprocal(op.cast(self.factor, _DOUBLE)), _FLOAT)
        if self.is_fixed:
            return np.float32(self.size) / np.float32(self.wanted)
        return op.Div(op.cast(self.size, _FLOAT), op.cast(self.wanted, _FLOAT))


def _count(op: Builder, size: Any, factor: Any) -> Any:
    """The size of a result, in double precision as torch computes it."""
    if isinstance(size, int) and not isinstance(factor, ir.Value):
        return int(size * factor)
    return op.cast(op.Floor(op.Mul(op.cast(size, _DOUBLE), op.cast(factor, _DOUBLE))), _INT64)


def _axes(op: Builder, tensor: Any, sizes: Any, factors: Sequence[Any] | None) -> list[_Axis]:
    dimensions = len(tensor.shape) - 2
    wanted = [None] * dimensions if sizes is None else list(sizes)
    given = [None] * dimensions if not factors else list(factors)
    return [_Axis(op, 2 + place, tensor, wanted[place], given[place]) for place in range(dimensions)]


# --- the nearest pixel ------------------------------------------------------------------------------------------


def _nearest_places(step: np.float32, count: int, exact: bool, in_plane: bool) -> np.ndarray[Any, Any]:
    """The pixel of the image for each of the result, rounded wherever torch rounds."""
    numbers = np.arange(count)
    if not exact:
        at = numbers.astype(np.float32) * step
    elif in_plane:
        at = (numbers.astype(np.float32) + np.float32(0.5)) * step
    else:
        at = ((numbers + 0.5) * np.float64(step) - 0.5).astype(np.float32) + np.float32(0.5)
    return np.floor(at).astype(np.int64)


def _divides_alike(op: Builder, axis: _Axis, exact: bool, in_plane: bool) -> bool:
    """Whether Resize finds the same pixels."""
    if axis.is_fixed:
        count, scale = axis.wanted, np.float32(axis.wanted) / np.float32(axis.size)
        last = axis.size - 1
    elif axis.factor is not None and not isinstance(axis.factor, ir.Value) and float(axis.factor).is_integer():
        count, scale, last = _LONGEST_SIDE, np.float32(axis.factor), _LONGEST_SIDE
    else:
        return False
    theirs = np.floor(np.arange(count, dtype=np.float32) / scale).astype(np.int64)
    ours = _nearest_places(_nearest_step(op, axis, exact, in_plane), count, exact, in_plane)
    return bool((np.minimum(theirs, last) == np.minimum(ours, last)).all())


def _nearest_step(op: Builder, axis: _Axis, exact: bool, in_plane: bool) -> Any:
    """In a plane, results of the same and of twice the size are that to torch, whatever the factor is."""
    step = axis.step(op)
    if exact or not in_plane or axis.factor is None:
        return step
    if axis.is_fixed:
        is_even = axis.wanted in (axis.size, 2 * axis.size)
        return np.float32(axis.size) / np.float32(axis.wanted) if is_even else step
    if not isinstance(step, ir.Value) and float(axis.factor).is_integer():
        return step
    size, wanted = op.cast(axis.size, _INT64), op.cast(axis.wanted, _INT64)
    is_even = op.Or(op.Equal(wanted, size), op.Equal(wanted, op.Mul(size, op.constant(2, _INT64))))
    return op.Where(is_even, op.Div(op.cast(size, _FLOAT), op.cast(wanted, _FLOAT)), op.cast(step, _FLOAT))


def _gathered_in_double(op: Builder, tensor: Any, axis: _Axis, exact: bool) -> Any:
    """As torch finds places in images in double precision that are no planes: in that, until it rounds them."""
    factor, half = axis.factor, 0.5 if exact else 0.0
    if axis.is_fixed and not isinstance(factor, ir.Value):
        step = axis.size / axis.wanted if factor is None else 1.0 / factor
        at = ((np.arange(axis.wanted) + half) * step).astype(np.float32)
        places = np.minimum(np.floor(at).astype(np.int64), axis.size - 1)
        return op.Gather(tensor, op.constant(places, _INT64), axis=axis.number)
    size, wanted = op.cast(axis.size, _INT64), op.cast(axis.wanted, _INT64)
    numbers = op.cast(op.Range(op.constant(0, _INT64), wanted, op.constant(1, _INT64)), _DOUBLE)
    if factor is None:
        step = op.Div(op.cast(size, _DOUBLE), op.cast(wanted, _DOUBLE))
    else:
        step = op.Reciprocal(op.cast(factor, _DOUBLE))
    wide = op.Mul(op.Add(numbers, op.constant(half, _DOUBLE)), step)
    places = op.Min(op.cast(op.Floor(op.cast(wide, _FLOAT)), _INT64), op.Sub(size, op.constant(1, _INT64)))
    return op.Gather(tensor, places, axis=axis.number)


def _gathered(op: Builder, tensor: Any, axis: _Axis, exact: bool, in_plane: bool) -> Any:
    """The pixels of one dimension by their places."""
    if tensor.dtype is _DOUBLE and not in_plane:
        return _gathered_in_double(op, tensor, axis, exact)
    step = _nearest_step(op, axis, exact, in_plane)
    if axis.is_fixed:
        places = np.minimum(_nearest_places(step, axis.wanted, exact, in_plane), axis.size - 1)
        return op.Gather(tensor, op.constant(places, _INT64), axis=axis.number)
    size, wanted = op.cast(axis.size, _INT64), op.cast(axis.wanted, _INT64)
    numbers = op.Range(op.constant(0, _INT64), wanted, op.constant(1, _INT64))
    half = op.constant(0.5, _FLOAT)
    if not exact:
        at = op.Mul(op.cast(numbers, _FLOAT), op.cast(step, _FLOAT))
    elif in_plane:
        at = op.Mul(op.Add(op.cast(numbers, _FLOAT), half), op.cast(step, _FLOAT))
    else:
        wide = op.Mul(op.Add(op.cast(numbers, _DOUBLE), op.constant(0.5, _DOUBLE)), op.cast(step, _DOUBLE))
        at = op.Add(op.cast(op.Sub(wide, op.constant(0.5, _DOUBLE)), _FLOAT), half)
    places = op.Min(op.cast(op.Floor(at), _INT64), op.Sub(size, op.constant(1, _INT64)))
    return op.Gather(tensor, places, axis=axis.number)


def _nearest(op: Builder, tensor: Any, sizes: Any, factors: Any, exact: bool) -> Any:
    axes = _axes(op, tensor, sizes, factors)
    in_plane = len(axes) == 2
    if tensor.dtype is not _DOUBLE and all(_divides_alike(op, axis, exact, in_plane) for axis in axes):
        attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return _resized(op, tensor, axes, all(axis.is_fixed for axis in axes), attributes)
    for axis in axes:
        if not (axis.is_fixed and axis.factor is None and axis.size == axis.wanted):
            tensor = _along(tensor, axis, _gathered(op, tensor, axis, exact, in_plane))
    return tensor


def _along(tensor: Any, axis: _Axis, result: Any) -> Any:
    """A result that differs from a tensor in the size of one dimension."""
    shape = list(tensor.shape)
    shape[axis.number] = axis.wanted if isinstance(axis.wanted, int) else None
    result.shape = ir.Shape(shape)
    return result


# --- means ------------------------------------------------------------------------------------------------------


def _resized(op: Builder, tensor: Any, axes: list[_Axis], by_size: bool, attributes: dict[str, Any]) -> Any:
    if by_size:
        lead = [op.size(tensor, 0), op.size(tensor, 1)]
        return op.Resize(tensor, None, None, op.vector([*lead, *(axis.wanted for axis in axes)]), **attributes)
    parts = [op.constant([1.0, 1.0], _FLOAT), *(_scale(op, axis) for axis in axes)]
    if all(part.array is not None for part in parts):
        scales = op.constant(np.concatenate([part.array for part in parts]), _FLOAT)
    else:
        scales = op.Concat(*parts, axis=0)
    return op.Resize(tensor, None, scales, None, **attributes)


def _scale(op: Builder, axis: _Axis) -> Any:
    """A factor with which Resize counts as many pixels as torch does: a vector of one number."""
    factor = axis.factor
    if not isinstance(factor, ir.Value) and float(np.float32(factor)) == factor and axis.stays is None:
        return op.constant([factor], _FLOAT)  # every product with it is exact
    if axis.is_fixed:
        least, most = axis.wanted / axis.size, (axis.wanted + 1) / axis.size
        return op.constant([min(max(factor, least * (1 + 2e-7)), most * (1 - 2e-7))], _FLOAT)
    size, wanted = op.cast(axis.size, _DOUBLE), op.cast(axis.wanted, _DOUBLE)
    least = op.Mul(op.Div(wanted, size), op.constant(1 + 2e-7, _DOUBLE))
    most = op.Mul(op.Div(op.Add(wanted, op.constant(1.0, _DOUBLE)), size), op.constant(1 - 2e-7, _DOUBLE))
    found = op.Min(op.Max(op.cast(factor, _DOUBLE), least), most)
    if axis.stays is not None:
        found = op.Where(axis.stays, op.constant(1.0, _DOUBLE), found)
    return op.Reshape(op.cast(found, _FLOAT), [1])


def _mean(op: Builder, tensor: Any, sizes: Any, align_corners: bool, factors: Any, mode: str, antialias: bool) -> Any:
    if not tensor.dtype.is_floating_point():
        raise LoweringError(
            "how torch rounds means of integers depends on the processor and on the memory layout; convert the image "
            "to floating point first"
        )
    axes = _axes(op, tensor, sizes, factors)
    if align_corners:  # the corners say what the factors are
        for axis in axes:
            axis.factor = None
    elif mode == "linear" or antialias:
        for axis in axes:
            _keep_same_size(op, axis)
    if antialias:
        _refuse_one_pixel(op, *(axis.wanted for axis in axes))
    by_size = all(axis.factor is None or _is_ratio(axis) for axis in axes)
    if tensor.dtype is _DOUBLE or not _is_a_resize(op, axes, by_size, align_corners, mode, antialias):
        return _by_taps(op, tensor, axes, align_corners, mode, antialias)
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel",
        "cubic_coeff_a": -0.5 if antialias else -0.75,
    }
    if antialias:
        attributes.update(antialias=1, exclude_outside=1)
    return _resized(op, tensor, axes, by_size, attributes)


def _refuse_one_pixel(op: Builder, height: Any, width: Any) -> None:
    text = "of images that become one pixel wide, torch's own antialias repeats the first row"
    if isinstance(height, int) and isinstance(width, int):
        if width == 1 and height != 1:
            raise LoweringError(text)
        return
    high, wide = (op.Equal(op.cast(size, _INT64), op.constant(1, _INT64)) for size in (height, width))
    op.program.assert_that(op.Or(op.Not(wide), high), text)


def _is_a_resize(
    op: Builder, axes: list[_Axis], by_size: bool, align_corners: bool, mode: str, antialias: bool
) -> bool:
    """Whether ONNX Runtime's operator does what torch does."""
    if antialias and align_corners and not all(axis.is_fixed and axis.size == axis.wanted for axis in axes):
        return False
    if by_size:
        return True
    if len(axes) == 3 or any(axis.factor is None for axis in axes):  # it takes a volume's factors from its sizes
        return False
    if any(axis.is_fixed and _count(op, axis.size, axis.factor) != axis.wanted for axis in axes):
        return False
    if mode == "linear" and not antialias:
        return True
    # of cubic means, an image whose size a factor leaves as it is is another one, which ONNX Runtime copies
    same = [_same_size(op, axis) for axis in axes if axis.factor != 1]
    return not same or False in same


def _by_taps(op: Builder, tensor: Any, axes: list[_Axis], align_corners: bool, mode: str, antialias: bool) -> Any:
    """Along one dimension after the other."""
    dtype = tensor.dtype
    tensor = tensor if dtype is _DOUBLE else op.cast(tensor, _FLOAT)
    for axis in axes:
        if (mode == "linear" or antialias) and (axis.factor == 1 or (axis.is_fixed and axis.size == axis.wanted)):
            continue
        if antialias:
            made = taps.antialiased(op, tensor, axis, align_corners, mode)
        else:
            made = (taps.linear if mode == "linear" else taps.cubic)(op, tensor, axis, align_corners)
        tensor = _along(tensor, axis, made)
    return op.cast(tensor, dtype)


def _same_size(op: Builder, axis: _Axis) -> Any:
    """Whether a factor leaves the size of a dimension as it is: a truth value, if only a call can tell."""
    if axis.is_fixed:
        return axis.size == axis.wanted
    if isinstance(axis.factor, ir.Value) or 1 < axis.factor < 2:
        return op.Equal(op.cast(axis.size, _INT64), op.cast(axis.wanted, _INT64))
    return False


def _keep_same_size(op: Builder, axis: _Axis) -> None:
    """Of linear means and with antialias, an image of the same size is the same image, whatever the factor is."""
    if axis.factor is not None:
        stays = _same_size(op, axis)
        if isinstance(stays, ir.Value):
            axis.stays = stays
        elif stays:
            axis.factor = None


def _is_ratio(axis: _Axis) -> bool:
    """Whether the sizes say the same as the factor."""
    return axis.is_fixed and not isinstance(axis.factor, ir.Value) and axis.size * axis.factor == axis.wanted


def _register(name: str, dimensions: int, mode: str, aligns: bool, antialias: bool = False) -> None:
    def lower(op: Builder, tensor: Any, sizes: Any, *rest: Any, **named: Any) -> Any:
        """Of sizes, whether corners are aligned, and factors: all in one list, or each by itself."""
        align_corners = bool(rest[0] if rest else named["align_corners"]) if aligns else False
        factors = rest[1:] if aligns else rest
        if "scale_factors" in named or (factors and isinstance(factors[0], (list, tuple))):
            given = named["scale_factors"] if "scale_factors" in named else factors[0]
        else:
            names = ("scales",) if dimensions == 1 else ("scales_d", "scales_h", "scales_w")[3 - dimensions :]
            given = [*factors, *(named.get(each) for each in names[len(factors) :])]
        given = None if given is None or all(each is None for each in given) else given
        if mode.startswith("nearest"):
            return _nearest(op, tensor, sizes, given, exact=mode == "nearest-exact")
        return _mean(op, tensor, sizes, align_corners, given, mode, antialias)

    packet = getattr(aten, name)
    lowering(packet.default, packet.vec)(lower)


for _dimensions in (1, 2, 3):
    _register(f"upsample_nearest{_dimensions}d", _dimensions, "nearest", aligns=False)
    _register(f"_upsample_nearest_exact{_dimensions}d", _dimensions, "nearest-exact", aligns=False)
_register("upsample_linear1d", 1, "linear", aligns=True)
_register("upsample_bilinear2d", 2, "linear", aligns=True)
_register("upsample_trilinear3d", 3, "linear", aligns=True)
_register("upsample_bicubic2d", 2, "cubic", aligns=True)
_register("_upsample_bilinear2d_aa", 2, "linear", aligns=True, antialias=True)
_register("_upsample_bicubic2d_aa", 2, "cubic", aligns=True, antialias=True)
