"""Which memory format a result takes over from an argument, as kernels for images decide it.

Convolutions, pools, norms and resizing ask whether an argument's strides look like channels-last and lay
their result out alike. The question is looser than "is it channels-last": a slice of a channels-last tensor
has gaps, yet its result comes out channels-last.
"""

from __future__ import annotations

import torch

from tintype.fake.info import CHANNELS_LAST_ORDER, TensorInfo, strides_in_order
from tintype.symbolic import Size
from tintype.symbolic.sizes import certainly_same, contiguous_strides, is_one, is_zero, usually_less


def looks_channels_last(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> bool:
    """Whether the strides of an image (or volume) grow in channels-last order."""
    order = CHANNELS_LAST_ORDER.get(len(sizes))
    if order is None or strides == contiguous_strides(sizes):
        return False
    channel_stride = strides[1]
    if is_zero(channel_stride):
        return False
    least: Size = 0
    for dimension in reversed(order):
        size, stride = sizes[dimension], strides[dimension]
        if is_zero(size) or usually_less(stride, least):
            return False
        if dimension == 0 and certainly_same(least, channel_stride):
            return False  # every other dimension is trivial: ambiguous, and taken as contiguous
        least = stride if is_one(size) else stride * size
    return True


def suggested_strides(info: TensorInfo, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    """The strides of a fresh tensor in the memory format that an argument suggests."""
    if looks_channels_last(info.sizes, info.strides):
        return strides_in_order(sizes, CHANNELS_LAST_ORDER[len(sizes)])
    return contiguous_strides(sizes)


def fresh_in_format_of(info: TensorInfo, sizes: tuple[Size, ...], dtype: torch.dtype | None = None) -> TensorInfo:
    """A fresh tensor on the device and in the memory format of an argument."""
    return TensorInfo(sizes, suggested_strides(info, sizes), dtype or info.dtype, info.device)
