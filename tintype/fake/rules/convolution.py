"""Convolutions, direct and transposed, over one to three dimensions of space."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tintype.fake.info import CHANNELS_LAST_ORDER, TensorInfo, strides_in_order
from tintype.fake.rules.elementwise import common_device
from tintype.fake.rules.memory_format import looks_channels_last
from tintype.fake.rules.registry import rule
from tintype.symbolic import Size, ge
from tintype.symbolic.sizes import (
    at_least,
    contiguous_strides,
    decided_zero,
    is_one,
    product,
    require,
    require_same,
    usually_less,
)

Numbers = int | Sequence[Size]
# stride, output padding, dilation, groups
_Options = tuple[Sequence[Size], Sequence[Size], Sequence[Size], int]


def _repeated(values: Numbers, count: int, name: str) -> Sequence[Size]:
    if isinstance(values, (list, tuple)):
        if len(values) == count:
            return values
        if len(values) == 1:
            return [values[0]] * count
        raise RuntimeError(f"expected {name} to be a single integer value or a list of {count} values")
    return [values] * count  # type: ignore[list-item]


def _check(input: TensorInfo, weight: TensorInfo, bias: TensorInfo | None) -> None:
    if input.dtype is not weight.dtype:
        raise RuntimeError(f"Input type ({input.dtype}) and weight type ({weight.dtype}) should be the same")
    if bias is not None and bias.dtype is not input.dtype:
        raise RuntimeError(f"Input type ({input.dtype}) and bias type ({bias.dtype}) should be the same")
    if input.device != weight.device:
        common_device((input, weight))


def _wrong_rank(input: TensorInfo, space: int) -> RuntimeError:
    return RuntimeError(
        f"Expected {space + 1}D (unbatched) or {space + 2}D (batched) input to conv{space}d, but got "
        f"input of size: {list(input.sizes)}"
    )


def _spatial_size(size: Size, kernel: Size, stride: Size, padding: Size, dilation: Size) -> Size:
    """How many positions a kernel takes along one dimension."""
    reach = dilation * (kernel - 1) + 1
    padded = size + 2 * padding
    if type(padded) is int and type(reach) is int and type(stride) is int:
        if padded < reach:
            raise RuntimeError(
                f"Calculated padded input size per channel: ({padded}). Kernel size: ({reach}). Kernel size "
                "can't be greater than actual input size"
            )
        return (padded - reach) // stride + 1
    require(ge(padded, reach), "Kernel size can't be greater than actual input size")
    return (padded - reach) // stride + 1


def _result(
    input: TensorInfo, weight: TensorInfo, sizes: tuple[Size, ...], space: int, options: _Options
) -> TensorInfo:
    """The result for batched sizes: channels-last when the input or the weight is and the kernel cares."""
    batched = len(input.sizes) == space + 2
    if space > 1:
        if batched:
            last = looks_channels_last(input.sizes, input.strides)
        else:
            # an unbatched input is looked at with the batch dimension that it is given
            first = input.sizes[0] * input.strides[0]
            last = looks_channels_last((1, *input.sizes), (first, *input.strides))
        last = last or looks_channels_last(weight.sizes, weight.strides)
        # asked last, since it asks about sizes
        last = last and (space == 2 or _takes_fast_kernel(input, sizes[0], weight.sizes, *options))
        strides = strides_in_order(sizes, CHANNELS_LAST_ORDER[space + 2]) if last else contiguous_strides(sizes)
    else:
        strides = contiguous_strides(sizes)
    if not batched:
        sizes, strides = sizes[1:], strides[1:]
    return TensorInfo(sizes, strides, input.dtype, input.device)


def _direct(
    input: TensorInfo,
    weight: TensorInfo,
    bias: TensorInfo | None,
    stride: Numbers,
    padding: Numbers | str,
    dilation: Numbers,
    groups: int,
    space: int,
) -> TensorInfo:
    _check(input, weight, bias)
    dims = len(input.sizes)
    if dims not in (space + 1, space + 2):
        raise _wrong_rank(input, space)
    full = input.sizes if dims == space + 2 else (1, *input.sizes)
    weight_sizes = weight.sizes
    if len(weight_sizes) != space + 2:
        raise RuntimeError(f"expected a {space + 2}-dimensional weight, but got weight of size {list(weight_sizes)}")
    if full[1] is not weight_sizes[1] or groups != 1:
        require_same(
            full[1],
            weight_sizes[1] * groups,
            lambda: (
                f"Given groups={groups}, weight of size {list(weight_sizes)}, expected input"
                f"{list(input.sizes)} to have {weight_sizes[1] * groups} channels, but got {full[1]} "
                "channels instead"
            ),
        )
    steps = _repeated(stride, space, "stride")
    spread = _repeated(dilation, space, "dilation")
    if padding == "same":
        if any(type(step) is not int or step != 1 for step in steps):
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        spatial: Sequence[Size] = full[2:]
    else:
        margins = _repeated(0 if isinstance(padding, str) else padding, space, "padding")
        spatial = [
            _spatial_size(full[i + 2], weight_sizes[i + 2], steps[i], margins[i], spread[i]) for i in range(space)
        ]
    options = (steps, (0,) * space, spread, groups)
    channels = 0 if decided_zero(full[1]) else weight_sizes[0]  # of nothing the kernel makes nothing
    return _result(input, weight, (full[0], channels, *spatial), space, options)


def _transposed(
    input: TensorInfo,
    weight: TensorInfo,
    bias: TensorInfo | None,
    stride: Numbers,
    padding: Numbers,
    output_padding: Numbers,
    groups: int,
    dilation: Numbers,
    space: int,
) -> TensorInfo:
    _check(input, weight, bias)
    dims = len(input.sizes)
    if dims not in (space + 1, space + 2):
        raise _wrong_rank(input, space)
    full = input.sizes if dims == space + 2 else (1, *input.sizes)
    weight_sizes = weight.sizes
    require_same(
        full[1],
        weight_sizes[0],
        lambda: (
            f"Given transposed=1, weight of size {list(weight_sizes)}, expected input{list(input.sizes)} to "
            f"have {weight_sizes[0]} channels, but got {full[1]} channels instead"
        ),
    )
    steps, margins, extra, spread = (
        _repeated(values, space, name)
        for values, name in (
            (stride, "stride"),
            (padding, "padding"),
            (output_padding, "output_padding"),
            (dilation, "dilation"),
        )
    )
    spatial = [
        (full[i + 2] - 1) * steps[i] - 2 * margins[i] + spread[i] * (weight_sizes[i + 2] - 1) + extra[i] + 1
        for i in range(space)
    ]
    options = (steps, extra, spread, groups)
    return _result(input, weight, (full[0], weight_sizes[1] * groups, *spatial), space, options)


# Below that many elements eager mode prefers its plain kernels for one image.
_SMALL_IMAGE = 20480


def _takes_fast_kernel(
    input: TensorInfo,
    batch: Size,
    weight_sizes: tuple[Size, ...],
    stride: Sequence[Size],
    output_padding: Sequence[Size],
    dilation: Sequence[Size],
    groups: int,
) -> bool:
    """Whether a convolution of volumes runs on oneDNN, whose result is channels-last where the input is: the
    plain kernel's never is."""
    if any(at_least(extra, step) for extra, step in zip(output_padding, stride, strict=True)):
        return False
    if input.dtype is not torch.float32:
        return input.dtype in (torch.bfloat16, torch.float16)
    pointwise = is_one(weight_sizes[-1]) and is_one(weight_sizes[-2])
    plain = all(is_one(step) for step in (*stride, *dilation)) and usually_less(batch, 16)
    if pointwise and plain and torch.get_num_threads() == 1:
        return False
    return (
        groups > 1
        or (usually_less(3, weight_sizes[-1]) and usually_less(3, weight_sizes[-2]))
        or usually_less(1, batch)
        or usually_less(_SMALL_IMAGE, batch * product(input.sizes[-4:-1]))
    )


def gradient_strides(
    input: TensorInfo,
    weight: TensorInfo,
    stride: Sequence[Size],
    dilation: Sequence[Size],
    output_padding: Sequence[Size],
    groups: int,
) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """The strides of the gradients of the input and of the weight."""
    count = len(input.sizes)
    if (
        count > 3
        and (looks_channels_last(input.sizes, input.strides) or looks_channels_last(weight.sizes, weight.strides))
        and (
            count == 4
            or _takes_fast_kernel(input, input.sizes[0], weight.sizes, stride, output_padding, dilation, groups)
        )
    ):
        order = CHANNELS_LAST_ORDER[count]
        return strides_in_order(input.sizes, order), strides_in_order(weight.sizes, order)
    return contiguous_strides(input.sizes), contiguous_strides(weight.sizes)


@rule("conv1d", "conv1d.padding")
def conv1d(
    input: TensorInfo,
    weight: TensorInfo,
    bias: TensorInfo | None = None,
    stride: Numbers = 1,
    padding: Numbers | str = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> TensorInfo:
    return _direct(input, weight, bias, stride, padding, dilation, groups, 1)


@rule("conv2d", "conv2d.padding")
def conv2d(
    input: TensorInfo,
    weight: TensorInfo,
    bias: TensorInfo | None = None,
    stride: Numbers = 1,
    padding: Numbers | str = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> TensorInfo:
    return _direct(input, weight, bias, stride, padding, dilation, groups, 2)


@rule("conv3d", "conv3d.padding")
def conv3d(
    input: TensorInfo,
    weight: TensorInfo,
    bias: TensorInfo | None = None,
    stride: Numbers = 1,
    padding: Numbers | str = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> TensorInfo:
    return _direct(input, weight, bias, stride, padding, dilation, groups, 3)


@rule("conv_transpose1d")
def conv_transpose1d(
    input: TensorInfo,
    weight: TensorInfo,
    bias: TensorInfo | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> TensorInfo:
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 1)


@rule("conv_transpose2d.input")
def conv_transpose2d(
    input: TensorInfo,
    weight: TensorInfo,
    bias: TensorInfo | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> TensorInfo:
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 2)


@rule("conv_transpose3d.input")
def conv_transpose3d(
    input: TensorInfo,
    weight: TensorInfo,
    bias: TensorInfo | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> TensorInfo:
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 3)


@rule("convolution", "_convolution", "_convolution.deprecated")
def convolution(
    input: TensorInfo,
    weight: TensorInfo,
    bias: TensorInfo | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: int,
    *backend_options: bool,
) -> TensorInfo:
    space = len(weight.sizes) - 2
    if transposed:
        return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, space)
    return _direct(input, weight, bias, stride, padding, dilation, groups, space)


@rule("_convolution_mode")
def convolution_mode(
    input: TensorInfo,
    weight: TensorInfo,
    bias: TensorInfo | None,
    stride: Sequence[Size],
    padding: str,
    dilation: Sequence[Size],
    groups: int,
) -> TensorInfo:
    return _direct(input, weight, bias, stride, padding, dilation, groups, len(weight.sizes) - 2)


@rule("conv_tbc")
def conv_time_batch_channels(self: TensorInfo, weight: TensorInfo, bias: TensorInfo, pad: int = 0) -> TensorInfo:
    time, batch, channels = self.sizes
    require_same(channels, weight.sizes[1], "Input channels must equal those of the weight")
    sizes = (time + 2 * pad - weight.sizes[0] + 1, batch, weight.sizes[2])
    return TensorInfo(sizes, contiguous_strides(sizes), self.dtype, self.device)
