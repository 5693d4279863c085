"""Normalizations and softmax: the size of the input, and statistics where the operator returns them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tintype.fake.info import TensorInfo
from tintype.fake.rules.memory_format import fresh_in_format_of
from tintype.fake.rules.registry import rule
from tintype.fake.rules.views import wrap_dimension
from tintype.symbolic import Size
from tintype.symbolic.sizes import contiguous_strides, is_zero, product, require_same

_HALF = (torch.bfloat16, torch.float16)


def _fresh(sizes: tuple[Size, ...], dtype: torch.dtype, device: torch.device) -> TensorInfo:
    return TensorInfo(sizes, contiguous_strides(sizes), dtype, device)


def _statistics_dtype(input: TensorInfo, weight: TensorInfo | None) -> torch.dtype:
    """Statistics of a half-precision input are kept in the precision of its weight."""
    if weight is not None and input.dtype in _HALF and weight.dtype is torch.float32:
        return torch.float32
    return input.dtype


# --- over the last dimensions ----------------------------------------------------------------------------


def _check_normalized_shape(
    input: TensorInfo, normalized_shape: Sequence[Size], weight: TensorInfo | None, bias: TensorInfo | None
) -> None:
    count = len(normalized_shape)
    shape = tuple(normalized_shape)
    if count == 0:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, "
            "but got normalized_shape = []"
        )
    for parameter in (weight, bias):
        if parameter is not None and parameter.sizes != shape:
            if parameter.dim != count:
                raise RuntimeError(
                    f"Expected weight and bias to be of the same shape as normalized_shape, but got "
                    f"{list(parameter.sizes)} and normalized_shape = {list(shape)}"
                )
            for size, wanted in zip(parameter.sizes, shape, strict=True):
                require_same(size, wanted, "Expected weight and bias to be of the same shape as normalized_shape")
    if input.sizes[-count:] != shape:

        def message() -> str:
            wanted = ", ".join(str(size) for size in shape)
            return (
                f"Given normalized_shape={list(shape)}, expected input with shape [*, {wanted}], but got "
                f"input of size{list(input.sizes)}"
            )

        if input.dim < count:
            raise RuntimeError(message())
        for size, wanted in zip(input.sizes[-count:], shape, strict=True):
            require_same(size, wanted, message)


@rule("layer_norm")
def layer_norm(
    input: TensorInfo,
    normalized_shape: Sequence[Size],
    weight: TensorInfo | None = None,
    bias: TensorInfo | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> TensorInfo:
    _check_normalized_shape(input, normalized_shape, weight, bias)
    return _fresh(input.sizes, input.dtype, input.device)


@rule("native_layer_norm")
def native_layer_norm(
    input: TensorInfo,
    normalized_shape: Sequence[Size],
    weight: TensorInfo | None,
    bias: TensorInfo | None,
    eps: float,
) -> tuple[TensorInfo, ...]:
    _check_normalized_shape(input, normalized_shape, weight, bias)
    kept = input.dim - len(normalized_shape)
    sizes = (*input.sizes[:kept], *(1,) * len(normalized_shape))
    dtype = _statistics_dtype(input, weight)
    return (
        _fresh(input.sizes, input.dtype, input.device),
        _fresh(sizes, dtype, input.device),
        _fresh(sizes, dtype, input.device),
    )


@rule("rms_norm")
def rms_norm(
    input: TensorInfo,
    normalized_shape: Sequence[Size],
    weight: TensorInfo | None = None,
    eps: float | None = None,
) -> TensorInfo:
    _check_normalized_shape(input, normalized_shape, weight, None)
    return fresh_in_format_of(input, input.sizes)


# --- over groups of channels -----------------------------------------------------------------------------


@rule("group_norm")
def group_norm(
    input: TensorInfo,
    num_groups: int,
    weight: TensorInfo | None = None,
    bias: TensorInfo | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> TensorInfo:
    if input.dim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim}")
    channels = input.sizes[1]
    require_same(
        channels % num_groups,
        0,
        lambda: (
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(input.sizes)} and num_groups={num_groups}"
        ),
    )
    _check_channels(channels, weight, bias)
    return fresh_in_format_of(input, input.sizes)


@rule("native_group_norm")
def native_group_norm(
    input: TensorInfo,
    weight: TensorInfo | None,
    bias: TensorInfo | None,
    N: Size,
    C: Size,
    HxW: Size,
    group: int,
    eps: float,
) -> tuple[TensorInfo, ...]:
    dtype = _statistics_dtype(input, weight)
    return (
        fresh_in_format_of(input, input.sizes),
        _fresh((N, group), dtype, input.device),
        _fresh((N, group), dtype, input.device),
    )


def _check_channels(channels: Size, *parameters: TensorInfo | None) -> None:
    for parameter in parameters:
        if parameter is not None and (parameter.dim != 1 or parameter.sizes[0] is not channels):
            require_same(
                parameter.sizes[0] if parameter.sizes else 1,
                channels,
                lambda parameter=parameter: (  # type: ignore[misc]
                    f"weight, bias and running statistics should contain {channels} elements not "
                    f"{list(parameter.sizes)}"
                ),
            )


# --- over the batch --------------------------------------------------------------------------------------


@rule("batch_norm")
def batch_norm(
    input: TensorInfo,
    weight: TensorInfo | None,
    bias: TensorInfo | None,
    running_mean: TensorInfo | None,
    running_var: TensorInfo | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> TensorInfo:
    if input.dim < 2:
        if not is_zero(product(input.sizes)):
            raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got 1)")
        return input.fresh()
    if not training and (running_mean is None or running_var is None):
        raise RuntimeError("running_mean must be defined in evaluation mode")
    if 0 not in input.sizes:  # of nothing, eager mode does not look at them
        _check_channels(input.sizes[1], weight, bias, running_mean, running_var)
    return fresh_in_format_of(input, input.sizes)


@rule("native_batch_norm", "_native_batch_norm_legit")
def native_batch_norm(
    input: TensorInfo,
    weight: TensorInfo | None,
    bias: TensorInfo | None,
    running_mean: TensorInfo | None,
    running_var: TensorInfo | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorInfo, ...]:
    channels = input.sizes[1]
    _check_channels(channels, weight, bias, running_mean, running_var)
    parameter = weight or running_mean
    dtype = _statistics_dtype(input, parameter)
    # on a GPU they are there in any case, and are not looked at
    saved: tuple[Size, ...] = (channels,) if training or input.device.type == "cuda" else (0,)
    return (
        fresh_in_format_of(input, input.sizes),
        _fresh(saved, dtype, input.device),
        _fresh(saved, dtype, input.device),
    )


@rule("_native_batch_norm_legit_functional")
def native_batch_norm_functional(
    input: TensorInfo,
    weight: TensorInfo | None,
    bias: TensorInfo | None,
    running_mean: TensorInfo,
    running_var: TensorInfo,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorInfo, ...]:
    """Besides what batch norm returns: the new running statistics."""
    results = native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    return (*results, running_mean.fresh(), running_var.fresh())


@rule("_native_batch_norm_legit_no_training")
def native_batch_norm_without_training(
    input: TensorInfo,
    weight: TensorInfo | None,
    bias: TensorInfo | None,
    running_mean: TensorInfo,
    running_var: TensorInfo,
    momentum: float,
    eps: float,
) -> tuple[TensorInfo, ...]:
    return native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)


@rule("_native_batch_norm_legit.no_stats")
def native_batch_norm_without_statistics(
    input: TensorInfo,
    weight: TensorInfo | None,
    bias: TensorInfo | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorInfo, ...]:
    return native_batch_norm(input, weight, bias, None, None, True, momentum, eps)


@rule("_batch_norm_with_update")
def batch_norm_with_update(
    input: TensorInfo,
    weight: TensorInfo | None,
    bias: TensorInfo | None,
    running_mean: TensorInfo,
    running_var: TensorInfo,
    momentum: float,
    eps: float,
) -> tuple[TensorInfo, ...]:
    """Besides what batch norm returns: memory that a GPU reserves for the gradient."""
    results = native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*results, _fresh((0,), torch.uint8, input.device))


@rule("_batch_norm_with_update_functional")
def batch_norm_with_update_functional(
    input: TensorInfo,
    weight: TensorInfo | None,
    bias: TensorInfo | None,
    running_mean: TensorInfo,
    running_var: TensorInfo,
    momentum: float,
    eps: float,
) -> tuple[TensorInfo, ...]:
    results = batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps)
    return (*results, running_mean.fresh(), running_var.fresh())


# --- softmax ---------------------------------------------------------------------------------------------


@rule("softmax.int", "log_softmax.int")
def softmax(self: TensorInfo, dim: int, dtype: torch.dtype | None = None) -> TensorInfo:
    wrap_dimension(dim, self.dim)
    return _fresh(self.sizes, dtype or self.dtype, self.device)


@rule("_softmax", "_log_softmax")
def softmax_kernel(self: TensorInfo, dim: int, half_to_float: bool) -> TensorInfo:
    wrap_dimension(dim, self.dim)
    return _fresh(self.sizes, torch.float32 if half_to_float else self.dtype, self.device)


# --- weights ---------------------------------------------------------------------------------------------


@rule("_weight_norm")
def weight_norm(v: TensorInfo, g: TensorInfo, dim: int = 0) -> TensorInfo:
    return v.fresh()


@rule("_weight_norm_interface")
def weight_norm_interface(v: TensorInfo, g: TensorInfo, dim: int = 0) -> tuple[TensorInfo, TensorInfo]:
    dtype = torch.float32 if g.dtype is torch.bfloat16 else g.dtype
    return v.fresh(), TensorInfo(g.sizes, g.strides, dtype, g.device)
