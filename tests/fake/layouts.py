"""The same tensors in other memory layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def unchanged(tensor: torch.Tensor) -> torch.Tensor:
    """As it comes."""
    return tensor


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """Images and volumes in channels-last order."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor.dim() not in formats:
        return tensor
    return tensor.contiguous(memory_format=formats[tensor.dim()])


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """The first and the last dimension change places in memory."""
    if tensor.dim() < 2:
        return tensor
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def rotated(tensor: torch.Tensor) -> torch.Tensor:
    """The second dimension outermost in memory, as after swapping batch and time."""
    if tensor.dim() < 2:
        return tensor
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """Every second element of a wider tensor, from the second on."""
    if tensor.dim() == 0 or tensor.numel() == 0:
        return tensor
    wide = tensor.repeat_interleave(2, -1)
    return wide[..., 1::2]


def cropped_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """A part of a channels-last image."""
    if tensor.dim() != 4 or tensor.numel() == 0:
        return tensor
    wide = channels_last(torch.cat([tensor, tensor], -1))
    return wide[..., : tensor.size(-1)]


def repeated(tensor: torch.Tensor) -> torch.Tensor:
    """A first dimension without extent in memory."""
    if tensor.dim() < 2 or tensor.size(0) == 0:
        return tensor
    return tensor[:1].expand(tensor.shape)


Layout = Callable[[torch.Tensor], torch.Tensor]
LAYOUTS: tuple[Layout, ...] = (
    unchanged,
    channels_last,
    turned,
    rotated,
    with_gaps,
    cropped_channels_last,
    repeated,
)


def applied(layout: Layout, value: Any) -> Any:
    """Arguments with every strided tensor in another layout."""
    if isinstance(value, torch.Tensor):
        if type(value) is not torch.Tensor or value.layout is not torch.strided or value.is_quantized:
            return value
        with torch.no_grad():
            return layout(value.detach()).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(applied(layout, item) for item in value)
    if type(value) is dict:
        return {name: applied(layout, item) for name, item in value.items()}
    return value
