"""Pooling, resizing and sampling of images: new sizes of space, the memory format of the input."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tintype.fake.info import TensorInfo
from tintype.fake.rules.memory_format import fresh_in_format_of, suggested_strides
from tintype.fake.rules.registry import rule
from tintype.symbolic import Size, ceil_div, ge, minimum
from tintype.symbolic.sizes import contiguous_strides, refuse_zero, require, require_same

Numbers = Size | Sequence[Size]


def _repeated(values: Numbers, count: int) -> Sequence[Size]:
    if isinstance(values, (list, tuple)):
        return values if len(values) == count else [values[0]] * count
    return [values] * count  # type: ignore[list-item]


def _require_rank(self: TensorInfo, space: int, operator: str, filled: int | None = None) -> None:
    """Fail for another number of dimensions, or if one of those from ``filled`` on (all but the batch's) is empty."""
    if len(self.sizes) not in (space + 1, space + 2):
        raise RuntimeError(
            f"{operator}: Expected {space + 1}D or {space + 2}D (batch mode) tensor, but got input of size "
            f"{list(self.sizes)}"
        )
    refuse_zero(
        self.sizes[-space - 1 if filled is None else filled :],
        lambda: f"{operator}: Expected tensor with optional 0 dim batch size, but got: {list(self.sizes)}",
    )


def _pooled_size(size: Size, kernel: Size, stride: Size, padding: Size, dilation: Size, ceil_mode: bool) -> Size:
    if type(stride) is int and stride == 0:
        raise RuntimeError("stride should not be zero")
    for number, name in ((kernel, "kernel size"), (stride, "stride")):
        if type(number) is not int:
            require(ge(number, 1), f"{name} should be greater than zero, but got {number}")
    reach = dilation * (kernel - 1) + 1
    if type(padding) is int and type(reach) is int:
        _refuse_padding(kernel, padding, dilation, 0 <= padding <= reach // 2)
    elif padding != 0:
        require(ge(padding, 0), f"pad must be non-negative, but got pad: {padding}")
        require(ge(reach // 2, padding), "pad should be at most half of effective kernel size")
    room = size + 2 * padding - reach
    result = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
    # a window may not start in the right-hand padding
    if ceil_mode:
        result = minimum(result, ceil_div(size + padding, stride))
    if type(result) is int:
        if result < 1:
            raise RuntimeError(f"Given input size {size}, calculated output size {result}. Output size is too small")
    elif type(stride) is int or ceil_mode:
        require(ge(result, 1), "Output size is too small")
    else:  # the same without a division by what varies
        require(ge(room, 0), "Output size is too small")
    return result


def _refuse_padding(kernel: Size, padding: int, dilation: Size, fits: bool) -> None:
    if padding < 0:
        raise RuntimeError(f"pad must be non-negative, but got pad: {padding}")
    if not fits:
        raise RuntimeError(
            f"pad should be at most half of effective kernel size, but got pad={padding}, "
            f"kernel_size={kernel} and dilation={dilation}"
        )


def _pooled_sizes(
    self: TensorInfo,
    kernel_size: Numbers,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    ceil_mode: bool,
    space: int,
    operator: str,
) -> tuple[Size, ...]:
    _require_rank(self, space, operator)
    kernels = _repeated(kernel_size, space)
    steps = kernels if stride in ([], ()) else _repeated(stride, space)
    margins, spread = _repeated(padding, space), _repeated(dilation, space)
    sizes = self.sizes
    return (
        *sizes[:-space],
        *[
            _pooled_size(sizes[i - space], kernels[i], steps[i], margins[i], spread[i], ceil_mode)
            for i in range(space)
        ],
    )


def _fresh(self: TensorInfo, sizes: tuple[Size, ...], dtype: torch.dtype | None = None) -> TensorInfo:
    return TensorInfo(sizes, contiguous_strides(sizes), dtype or self.dtype, self.device)


def _as_image(self: TensorInfo, sizes: tuple[Size, ...], dtype: torch.dtype | None = None) -> TensorInfo:
    """The result of an operator over one dimension of space that runs as one over two, of height one."""
    if len(sizes) != 3:
        return _fresh(self, sizes, dtype)
    image = self.view(
        (*self.sizes[:2], 1, self.sizes[2]),
        (*self.strides[:2], self.sizes[2] * self.strides[2], self.strides[2]),
    )
    strides = suggested_strides(image, (*sizes[:2], 1, sizes[2]))
    return TensorInfo(sizes, (*strides[:2], strides[3]), dtype or self.dtype, self.device)


# --- maximum ---------------------------------------------------------------------------------------------


@rule("max_pool1d")
def max_pool1d(
    self: TensorInfo,
    kernel_size: Numbers,
    stride: Numbers = (),
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
) -> TensorInfo:
    sizes = _pooled_sizes(self, kernel_size, stride, padding, dilation, ceil_mode, 1, "max_pool1d")
    if self.requires_grad and torch.is_grad_enabled():
        return _as_image(self, sizes)  # gradients need the indices, which only the kernel for images gives
    return _fresh(self, sizes)


@rule("max_pool1d_with_indices")
def max_pool1d_with_indices(
    self: TensorInfo,
    kernel_size: Numbers,
    stride: Numbers = (),
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
) -> tuple[TensorInfo, TensorInfo]:
    sizes = _pooled_sizes(self, kernel_size, stride, padding, dilation, ceil_mode, 1, "max_pool1d")
    return _as_image(self, sizes), _as_image(self, sizes, torch.int64)


def _max_pool(
    self: TensorInfo,
    kernel_size: Numbers,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    ceil_mode: bool,
    space: int,
) -> TensorInfo:
    sizes = _pooled_sizes(self, kernel_size, stride, padding, dilation, ceil_mode, space, f"max_pool{space}d")
    return fresh_in_format_of(self, sizes) if len(sizes) == space + 2 else _fresh(self, sizes)


@rule("max_pool2d")
def max_pool2d(
    self: TensorInfo,
    kernel_size: Numbers,
    stride: Numbers = (),
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
) -> TensorInfo:
    return _max_pool(self, kernel_size, stride, padding, dilation, ceil_mode, 2)


@rule("max_pool3d")
def max_pool3d(
    self: TensorInfo,
    kernel_size: Numbers,
    stride: Numbers = (),
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
) -> TensorInfo:
    return _max_pool(self, kernel_size, stride, padding, dilation, ceil_mode, 3)


def _with_indices(values: TensorInfo) -> tuple[TensorInfo, TensorInfo]:
    return values, TensorInfo(values.sizes, values.strides, torch.int64, values.device)


@rule("max_pool2d_with_indices")
def max_pool2d_with_indices(
    self: TensorInfo,
    kernel_size: Numbers,
    stride: Numbers = (),
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
) -> tuple[TensorInfo, TensorInfo]:
    return _with_indices(_max_pool(self, kernel_size, stride, padding, dilation, ceil_mode, 2))


@rule("max_pool3d_with_indices")
def max_pool3d_with_indices(
    self: TensorInfo,
    kernel_size: Numbers,
    stride: Numbers = (),
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
) -> tuple[TensorInfo, TensorInfo]:
    return _with_indices(_max_pool(self, kernel_size, stride, padding, dilation, ceil_mode, 3))


# --- average ---------------------------------------------------------------------------------------------


@rule("avg_pool1d")
def avg_pool1d(
    self: TensorInfo,
    kernel_size: Numbers,
    stride: Numbers = (),
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> TensorInfo:
    return _as_image(self, _pooled_sizes(self, kernel_size, stride, padding, 1, ceil_mode, 1, "avg_pool1d"))


@rule("avg_pool2d")
def avg_pool2d(
    self: TensorInfo,
    kernel_size: Numbers,
    stride: Numbers = (),
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> TensorInfo:
    sizes = _pooled_sizes(self, kernel_size, stride, padding, 1, ceil_mode, 2, "avg_pool2d")
    return fresh_in_format_of(self, sizes)


@rule("avg_pool3d")
def avg_pool3d(
    self: TensorInfo,
    kernel_size: Numbers,
    stride: Numbers = (),
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> TensorInfo:
    return _fresh(self, _pooled_sizes(self, kernel_size, stride, padding, 1, ceil_mode, 3, "avg_pool3d"))


# --- to a given size -------------------------------------------------------------------------------------


def _adapted_sizes(self: TensorInfo, output_size: Numbers, space: int, operator: str) -> tuple[Size, ...]:
    sizes = _repeated(output_size, space)
    # to a size of 1 an average is the mean, also of nothing
    average = operator.startswith("adaptive_avg")
    if average and all(type(size) is int and size == 1 for size in sizes):
        filled = self.dim
    else:  # the first dimension may be empty, be it a batch or channels; of an average without depth channels, too
        filled = self.dim - space if average and space < 3 else 1
    _require_rank(self, space, operator, filled)
    return (*self.sizes[:-space], *sizes)


@rule("adaptive_avg_pool1d")
def adaptive_avg_pool1d(self: TensorInfo, output_size: Numbers) -> TensorInfo:
    return _as_image(self, _adapted_sizes(self, output_size, 1, "adaptive_avg_pool1d"))


@rule("adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def adaptive_avg_pool2d(self: TensorInfo, output_size: Numbers) -> TensorInfo:
    return fresh_in_format_of(self, _adapted_sizes(self, output_size, 2, "adaptive_avg_pool2d"))


@rule("adaptive_avg_pool3d", "_adaptive_avg_pool3d")
def adaptive_avg_pool3d(self: TensorInfo, output_size: Numbers) -> TensorInfo:
    sizes = _adapted_sizes(self, output_size, 3, "adaptive_avg_pool3d")
    if sizes[-3:] == (1, 1, 1):
        return fresh_in_format_of(self, sizes)  # computed as a mean, which keeps the format
    return _fresh(self, sizes)


@rule("adaptive_max_pool1d")
def adaptive_max_pool1d(self: TensorInfo, output_size: Numbers) -> tuple[TensorInfo, TensorInfo]:
    sizes = _adapted_sizes(self, output_size, 1, "adaptive_max_pool1d")
    return _as_image(self, sizes), _as_image(self, sizes, torch.int64)


@rule("adaptive_max_pool2d")
def adaptive_max_pool2d(self: TensorInfo, output_size: Numbers) -> tuple[TensorInfo, TensorInfo]:
    return _with_indices(fresh_in_format_of(self, _adapted_sizes(self, output_size, 2, "adaptive_max_pool2d")))


@rule("adaptive_max_pool3d")
def adaptive_max_pool3d(self: TensorInfo, output_size: Numbers) -> tuple[TensorInfo, TensorInfo]:
    return _with_indices(_fresh(self, _adapted_sizes(self, output_size, 3, "adaptive_max_pool3d")))


# --- rearranging -----------------------------------------------------------------------------------------


@rule("pixel_shuffle")
def pixel_shuffle(self: TensorInfo, upscale_factor: int) -> TensorInfo:
    if self.dim < 3:
        raise RuntimeError(
            f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {self.dim}"
        )
    *batch, channels, height, width = self.sizes
    square = upscale_factor * upscale_factor
    require_same(
        channels % square,
        0,
        lambda: (
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
            f"upscale_factor, but input.size(-3)={channels} is not divisible by {square}"
        ),
    )
    sizes = (*batch, channels // square, height * upscale_factor, width * upscale_factor)
    return fresh_in_format_of(self, sizes) if len(sizes) == 4 else _fresh(self, sizes)


@rule("pixel_unshuffle")
def pixel_unshuffle(self: TensorInfo, downscale_factor: int) -> TensorInfo:
    if self.dim < 3:
        raise RuntimeError(f"pixel_unshuffle expects input to have at least 3 dimensions, but got {self.dim}")
    *batch, channels, height, width = self.sizes
    for size in (height, width):
        require_same(
            size % downscale_factor,
            0,
            lambda: (
                "pixel_unshuffle expects height and width to be divisible by downscale_factor, but "
                f"{height} or {width} is not divisible by {downscale_factor}"
            ),
        )
    square = downscale_factor * downscale_factor
    sizes = (*batch, channels * square, height // downscale_factor, width // downscale_factor)
    return fresh_in_format_of(self, sizes) if len(sizes) == 4 else _fresh(self, sizes)


@rule("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    input: TensorInfo, grid: TensorInfo, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> TensorInfo:
    require_same(
        input.sizes[0],
        grid.sizes[0],
        lambda: (
            "grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
            f"{list(input.sizes)} and grid with sizes {list(grid.sizes)}"
        ),
    )
    if grid.dim != input.dim:
        raise RuntimeError("grid_sampler(): expected grid and input to have the same number of dimensions")
    return _fresh(input, (*input.sizes[:2], *grid.sizes[1:-1]))


@rule("fractional_max_pool3d_backward")
def fractional_pooling_backward(
    grad_output: TensorInfo, self: TensorInfo, kernel_size: object, output_size: object, indices: TensorInfo
) -> TensorInfo:
    return self.fresh()
