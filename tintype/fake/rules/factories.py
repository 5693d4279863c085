"""Operators that make tensors: from sizes, from numbers, or like another tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.fake.info import TensorInfo, fresh, strides_for_format, strides_in_order
from tintype.fake.rules.registry import rule
from tintype.symbolic import Expr, Size, ceil_div, ge
from tintype.symbolic.sizes import product, require, require_same


def target_device(device: Any) -> torch.device:
    """The device a factory function makes its result on, with its index."""
    if device is None:
        return torch.get_default_device()
    device = torch.device(device)
    if device.index is None and device.type == "cuda" and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _sized(size: Sequence[Size], dtype: torch.dtype | None, device: Any) -> TensorInfo:
    for entry in size:
        if type(entry) is int:
            if entry < 0:
                raise RuntimeError(f"Trying to create tensor with negative dimension {entry}: {list(size)}")
        else:
            require(ge(entry, 0), "Trying to create tensor with negative dimension")
    return fresh(size, dtype or torch.get_default_dtype(), target_device(device))


@rule("zeros", "ones", "empty.memory_format", "rand", "randn", "rand.generator", "randn.generator")
def by_size(
    size: Sequence[Size],
    *,
    generator: Any = None,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorInfo:
    info = _sized(size, dtype, device)
    if memory_format is not None:
        info.strides = strides_for_format(info, memory_format)
    return info


@rule("full")
def full(
    size: Sequence[Size],
    fill_value: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> TensorInfo:
    return _sized(size, dtype or _dtype_of_number(fill_value), device)


def _dtype_of_number(value: Any) -> torch.dtype:
    if isinstance(value, Expr):
        kind = value.kind
        return {"int": torch.int64, "float": torch.get_default_dtype(), "bool": torch.bool}[kind]
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, int):
        return torch.int64
    if isinstance(value, float):
        return torch.get_default_dtype()
    return torch.get_default_dtype().to_complex()


@rule("empty_strided")
def empty_strided(
    size: Sequence[Size],
    stride: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> TensorInfo:
    info = _sized(size, dtype, device)
    info.strides = tuple(stride)
    return info


@rule("empty_permuted")
def empty_permuted(
    size: Sequence[Size],
    physical_layout: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> TensorInfo:
    info = _sized(size, dtype, device)
    info.strides = strides_in_order(info.sizes, physical_layout)
    return info


@rule("scalar_tensor")
def scalar_tensor(
    s: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> TensorInfo:
    return _sized((), dtype or torch.get_default_dtype(), device)


@rule("randint", "randint.generator")
def randint(
    high: Any,
    size: Sequence[Size],
    *,
    generator: Any = None,
    dtype: torch.dtype | None = torch.int64,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> TensorInfo:
    return _sized(size, dtype or torch.int64, device)


@rule("randint.low", "randint.low_generator")
def randint_between(
    low: Any,
    high: Any,
    size: Sequence[Size],
    *,
    generator: Any = None,
    dtype: torch.dtype | None = torch.int64,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> TensorInfo:
    return _sized(size, dtype or torch.int64, device)


@rule("randperm")
def randperm(
    n: Size,
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> TensorInfo:
    return _sized((n,), dtype or torch.int64, device)


@rule("arange")
def arange(end: Any, **options: Any) -> TensorInfo:
    return arange_between(0, end, 1, **options)


@rule("arange.start", "arange.start_step")
def arange_between(
    start: Any,
    end: Any,
    step: Any = 1,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> TensorInfo:
    start, end, step = (int(value) if type(value) is bool else value for value in (start, end, step))
    floating = any(_is_float(value) for value in (start, end, step))
    if floating and dtype is torch.int64 and not any(isinstance(value, Expr) for value in (start, end, step)):
        # numbers of this dtype only are rounded to 0 before they are counted
        start, end, step = int(start), int(end), int(step)
        floating = False
    if type(step) is int and step == 0:
        raise RuntimeError("step must be nonzero")
    if floating:
        length = _float_length(start, end, step)
    elif type(start) is int and type(end) is int and type(step) is int:
        length = max(-((start - end) // step), 0)
        if (end - start) * step < 0:
            raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    else:
        length = ceil_div(end - start, step)
    return _sized((length,), dtype or (torch.get_default_dtype() if floating else torch.int64), device)


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, Expr) and value.kind == "float")


def _float_length(start: Any, end: Any, step: Any) -> Size:
    if any(isinstance(value, Expr) for value in (start, end, step)):
        raise NotImplementedError("arange over symbolic floats")
    import math

    return math.ceil((end - start) / step)


@rule("linspace", "logspace")
def linspace(
    start: Any,
    end: Any,
    steps: Size,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> TensorInfo:
    kind = torch.get_default_dtype()
    if isinstance(start, complex) or isinstance(end, complex):
        kind = kind.to_complex()
    return _sized((steps,), dtype or kind, device)


@rule("eye", "eye.m")
def eye(
    n: Size,
    m: Size | None = None,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> TensorInfo:
    return _sized((n, n if m is None else m), dtype, device)


# --- like another tensor ---------------------------------------------------------------------------------


def _like(
    self: TensorInfo,
    dtype: torch.dtype | None,
    device: Any,
    memory_format: torch.memory_format | None,
) -> TensorInfo:
    return TensorInfo(
        self.sizes,
        strides_for_format(self, memory_format),
        dtype or self.dtype,
        self.device if device is None else target_device(device),
    )


@rule("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like")
def like(
    self: TensorInfo,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorInfo:
    return _like(self, dtype, device, memory_format)


@rule("full_like", "randint_like", "randint_like.low_dtype")
def filled_like(
    self: TensorInfo,
    *values: Any,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorInfo:
    return _like(self, dtype, device, memory_format)


@rule("new_zeros", "new_ones", "new_empty")
def new_by_size(
    self: TensorInfo,
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> TensorInfo:
    return fresh(size, dtype or self.dtype, self.device if device is None else target_device(device))


@rule("new_full")
def new_full(self: TensorInfo, size: Sequence[Size], fill_value: Any, **options: Any) -> TensorInfo:
    return new_by_size(self, size, **options)


@rule("new_empty_strided")
def new_empty_strided(self: TensorInfo, size: Sequence[Size], stride: Sequence[Size], **options: Any) -> TensorInfo:
    info = new_by_size(self, size, **options)
    info.strides = tuple(stride)
    return info


@rule("_new_zeros_with_same_feature_meta")
def tangent_like(self: TensorInfo, other: TensorInfo, *, self_num_batch_dims: int = 0) -> TensorInfo:
    """A tangent that lies in memory as the tensor does that it is of, where its storage begins and all."""
    if self_num_batch_dims:
        raise NotImplementedError("tangents of several directions at once")
    return TensorInfo(other.sizes, other.strides, self.dtype, self.device, other.offset)


@rule("tril", "triu")
def triangle(self: TensorInfo, diagonal: int = 0) -> TensorInfo:
    if self.dim < 2:
        raise RuntimeError("tril: input tensor must have at least 2 dimensions")
    return self.fresh()


@rule("repeat")
def repeat(self: TensorInfo, repeats: Sequence[Size]) -> TensorInfo:
    shift = len(repeats) - self.dim
    if shift < 0:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
        )
    sizes = (1,) * shift + self.sizes
    return self.fresh([size * times for size, times in zip(sizes, repeats, strict=True)])


@rule("_assert_tensor_metadata")
def assert_tensor_metadata(
    a: TensorInfo, size: Any = None, stride: Any = None, dtype: Any = None, **options: Any
) -> None:
    if size is not None:
        require_same(product(a.sizes), product(size), "tensor size mismatch")
    if dtype is not None and dtype is not a.dtype:
        raise RuntimeError(f"Tensor dtype mismatch: expected {dtype}, got {a.dtype}")
