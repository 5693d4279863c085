"""Shapes of operators that round as a quantized tensor would, and note where the result is in range."""

from __future__ import annotations

from typing import Any

import torch

from tintype.fake.info import TensorInfo, preserved_strides
from tintype.fake.rules.registry import rule


@rule(
    "fake_quantize_per_tensor_affine_cachemask",
    "fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
)
def fake_quantize(self: TensorInfo, *options: Any) -> tuple[TensorInfo, TensorInfo]:
    strides = preserved_strides(self.sizes, self.strides)
    return (
        TensorInfo(self.sizes, strides, self.dtype, self.device),
        TensorInfo(self.sizes, strides, torch.bool, self.device),
    )
