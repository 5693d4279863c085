"""Images read at places between their pixels, numbers at equal distances, and windows over signals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tintype.fake.tensor import FakeTensor
from tintype.ir.operator_facts import overloads_of
from tintype.onnx import dtypes
from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64 = ir.DataType.INT64


@lowering(aten.grid_sampler.default, aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(op: Builder, image: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:
    if mode == 1 and image.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        raise LoweringError("which pixel is the nearest depends on how coordinates in half precision are rounded")
    if len(image.shape) == 5 and op.opset < 20:
        raise LoweringError(f"opset {op.opset} samples images with two dimensions only; opset 20 has three")
    if image.dtype is ir.DataType.DOUBLE and op.opset < 20:
        raise LoweringError(
            f"ONNX Runtime has no kernel for it in double precision in opset {op.opset}; opset 20 has"
        )
    if len(image.shape) == 5 and mode == 2:
        raise LoweringError("there is no bicubic sampling of volumes")
    names = ("bilinear", "nearest", "bicubic")
    paddings = ("zeros", "border", "reflection")
    in_plane = len(image.shape) == 4
    spreads = in_plane and (mode == 2 or (mode == 0 and padding == 0))  # whether what is at no place is nan
    result = op.GridSample(
        image, _places(op, grid, padding, in_plane, spreads), mode=names[mode], padding_mode=paddings[padding],
        align_corners=int(align_corners),
    )  # fmt: skip
    if not spreads:
        return result
    nowhere = op.ReduceSum(op.Mul(grid, op.constant(0.0, grid.dtype)), [-1], keepdims=0)  # 0, or else nan
    return op.Add(result, op.like(op.Unsqueeze(nowhere, [1]), result))


def _places(op: Builder, grid: Any, padding: int, in_plane: bool, spreads: bool) -> Any:
    """Where an image is read. Of places that are nan, infinite or too far away, ONNX Runtime makes some place inside
    of it; torch makes the first one of a plane, the last one of a volume, or one outside."""

    def number(value: float) -> Any:
        return op.constant(value, grid.dtype)

    if padding == 2:
        farthest = 6e4 if grid.dtype is ir.DataType.FLOAT16 else 5e7
        edge = number(-1.0 if in_plane else 1.0)
        return op.Where(op.LessOrEqual(op.Abs(grid), number(farthest)), grid, edge)
    near = op.Clip(grid, number(-1e4), number(1e4))
    if spreads:
        return near
    return op.Where(op.IsNaN(grid), number(-1e4 if in_plane else 1e4), near)


@lowering(aten.arange.start_step, aten.arange.start, aten.arange.default)
def arange(op: Builder, *args: Any, **kwargs: Any) -> Any:
    """As many numbers as torch counts, in double precision; a runtime that counts by itself may have one more."""
    start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    example = op.node.meta["val"]
    assert type(example) is FakeTensor
    dtype = dtypes.to_onnx(example.info.dtype)
    assert dtype is not None
    count = example.info.sizes[0]
    fixed = not any(isinstance(each, ir.Value) for each in (start, end, step))
    whole = all(isinstance(each, ir.Value) or float(each).is_integer() for each in (start, end, step))
    if not whole and fixed and isinstance(count, int):
        if dtype.is_floating_point():
            return op.constant(np.array([start + number * step for number in range(count)]), dtype)
        start, end, step = (math.trunc(each) for each in (start, end, step))  # as torch does before it counts
    if dtype in (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return op.Range(*(op.cast(each, dtype) for each in (start, end, step)))
    between = ir.DataType.DOUBLE if dtype.is_floating_point() else _INT64
    return op.cast(op.Range(*(op.cast(each, between) for each in (start, end, step))), dtype)


@lowering(
    *overloads_of(
        aten.hann_window, aten.hamming_window, aten.blackman_window, aten.bartlett_window, aten.kaiser_window
    )
)
def window(op: Builder, length: Any, *shape: Any, **options: Any) -> Any:
    """Torch's own numbers: ONNX's windows of the same names have other weights. The length is fixed; where it varies,
    the program has a formula."""
    if any(isinstance(each, ir.Value) for each in (length, *shape)):
        raise LoweringError("the length of the window is only known when the program runs")
    example = op.node.meta["val"]
    dtype = dtypes.to_onnx(example.info.dtype)
    made = op.node.target(length, *shape, dtype=example.info.dtype)
    return op.constant(made.double().numpy(), dtype)
