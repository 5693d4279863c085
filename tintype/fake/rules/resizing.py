"""Resizing of images by interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tintype.fake.info import TensorInfo
from tintype.fake.rules.memory_format import fresh_in_format_of
from tintype.fake.rules.registry import rule
from tintype.symbolic import Expr, Size, ge
from tintype.symbolic.sizes import require, require_same

# A scale of which the denominator is larger is no fraction that somebody wrote down.
_LARGEST_DENOMINATOR = 1 << 20


def scaled(size: Size, scale: float) -> Size:
    """A size times a scale, rounded down."""
    if type(size) is int:
        return int(size * scale)
    if isinstance(scale, Expr):
        raise NotImplementedError("a symbolic scale")
    numerator, denominator = scale.as_integer_ratio()
    if denominator > _LARGEST_DENOMINATOR:
        raise NotImplementedError(f"a symbolic size scaled by {scale}")
    return size * numerator // denominator


def _resized(input: TensorInfo, spatial: Sequence[Size]) -> TensorInfo:
    if len(input.sizes) != len(spatial) + 2:
        raise RuntimeError(f"It is expected input_size equals to {len(spatial) + 2}, but got size {len(input.sizes)}")
    for size in (*input.sizes[1:], *spatial):
        require(
            ge(size, 1),
            lambda: (
                f"Input and output sizes should be greater than 0, but got input {list(input.sizes)} and "
                f"output {list(spatial)}"
            ),
        )
    return fresh_in_format_of(input, (*input.sizes[:2], *spatial))


def _by_size_or_scale(
    input: TensorInfo, output_size: Sequence[Size] | None, scale_factors: Sequence[float] | None
) -> TensorInfo:
    if output_size is not None:
        if scale_factors is not None:
            raise RuntimeError("Must specify exactly one of output_size and scale_factors")
        return _resized(input, output_size)
    if scale_factors is None:
        raise RuntimeError("Must specify exactly one of output_size and scale_factors")
    return _resized(input, [scaled(size, scale) for size, scale in zip(input.sizes[2:], scale_factors, strict=True)])


@rule(
    "upsample_nearest1d.vec",
    "upsample_nearest2d.vec",
    "upsample_nearest3d.vec",
    "_upsample_nearest_exact1d.vec",
    "_upsample_nearest_exact2d.vec",
    "_upsample_nearest_exact3d.vec",
)
def resize_to_nearest(
    input: TensorInfo, output_size: Sequence[Size] | None, scale_factors: Sequence[float] | None
) -> TensorInfo:
    return _by_size_or_scale(input, output_size, scale_factors)


@rule(
    "upsample_linear1d.vec",
    "upsample_bilinear2d.vec",
    "upsample_trilinear3d.vec",
    "upsample_bicubic2d.vec",
    "_upsample_bilinear2d_aa.vec",
    "_upsample_bicubic2d_aa.vec",
)
def resize_by_interpolation(
    input: TensorInfo,
    output_size: Sequence[Size] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> TensorInfo:
    return _by_size_or_scale(input, output_size, scale_factors)


@rule(
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)
def resize(self: TensorInfo, output_size: Sequence[Size], *options: Any, **named: Any) -> TensorInfo:
    return _resized(self, output_size)


@rule("affine_grid_generator")
def affine_grid(theta: TensorInfo, size: Sequence[Size], align_corners: bool) -> TensorInfo:
    """For every position of images, where it comes from."""
    count, _, *space = size
    if len(space) not in (2, 3):
        raise RuntimeError("AffineGridGenerator needs 4d (spatial) or 5d (volumetric) inputs.")
    rows, columns = len(space), len(space) + 1
    shape = f"Expected a batch of {rows}D affine matrices of shape Nx{rows}x{columns}"
    if theta.dim != 3:
        raise RuntimeError(shape)
    require_same(theta.sizes[1], rows, shape)
    require_same(theta.sizes[2], columns, shape)
    require_same(theta.sizes[0], count, "Expected as many affine matrices as images")
    return theta.fresh((count, *space, rows))
