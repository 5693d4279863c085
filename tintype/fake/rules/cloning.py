"""Tensors with the elements of another one, or with its sizes alone."""

from __future__ import annotations

from typing import Any

import torch

from tintype.fake.info import TensorInfo, strides_for_format
from tintype.fake.rules.registry import rule


@rule("clone")
def clone(self: TensorInfo, *, memory_format: torch.memory_format | None = None) -> TensorInfo:
    return TensorInfo(self.sizes, strides_for_format(self, memory_format), self.dtype, self.device)


@rule("fill.Tensor", "zero")
def fill(self: TensorInfo, value: TensorInfo | None = None) -> TensorInfo:
    if value is not None and value.dim > 0:
        raise RuntimeError(f"fill only supports 0-dimension value tensor but got tensor with {value.dim} dimensions.")
    return clone(self)


@rule("lift_fresh_copy")
def lift_fresh_copy(self: TensorInfo) -> TensorInfo:
    return self.fresh()


@rule("_to_copy")
def to_copy(
    self: TensorInfo,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> TensorInfo:
    return TensorInfo(
        self.sizes,
        strides_for_format(self, memory_format),
        dtype or self.dtype,
        torch.device(device) if device is not None else self.device,
    )
