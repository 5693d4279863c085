"""Gradients. Most are like the input whose gradient they are; the rest name its size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.errors import UnsupportedInputError
from tintype.fake.info import TensorInfo, preserved_strides, strides_in_order
from tintype.fake.promotion import result_type
from tintype.fake.rules.convolution import gradient_strides
from tintype.fake.rules.elementwise import elementwise
from tintype.fake.rules.memory_format import fresh_in_format_of
from tintype.fake.rules.registry import rule
from tintype.symbolic import Size
from tintype.symbolic.sizes import at_least, contiguous_strides


def _fresh(sizes: Sequence[Size], like: TensorInfo) -> TensorInfo:
    sizes = tuple(sizes)
    return TensorInfo(sizes, contiguous_strides(sizes), like.dtype, like.device)


def _like(info: TensorInfo) -> TensorInfo:
    return TensorInfo(info.sizes, preserved_strides(info.sizes, info.strides), info.dtype, info.device)


# --- of activations --------------------------------------------------------------------------------------


@rule(
    "gelu_backward",
    "silu_backward",
    "mish_backward",
    "hardswish_backward",
    "hardsigmoid_backward",
    "hardtanh_backward",
    "hardshrink_backward",
    "softshrink_backward",
    "softplus_backward",
    "tanh_backward",
    "sigmoid_backward",
    "logit_backward",
)
def of_activation(grad_output: TensorInfo, self: TensorInfo, *options: Any, **named: Any) -> TensorInfo:
    return elementwise([grad_output, self], result_type(grad_output, self))


@rule("threshold_backward", "leaky_relu_backward")
def of_threshold(grad_output: TensorInfo, self: TensorInfo, *options: Any) -> TensorInfo:
    return elementwise([self, grad_output], result_type(grad_output, self))


@rule("elu_backward")
def of_elu(
    grad_output: TensorInfo,
    alpha: Any,
    scale: Any,
    input_scale: Any,
    is_result: bool,
    self_or_result: TensorInfo,
) -> TensorInfo:
    return elementwise([grad_output, self_or_result], grad_output.dtype)


@rule("native_dropout_backward")
def of_dropout(grad_output: TensorInfo, mask: TensorInfo, scale: float) -> TensorInfo:
    return elementwise([grad_output, mask], result_type(grad_output, scale))


@rule("glu_backward")
def of_glu(grad_output: TensorInfo, self: TensorInfo, dim: int) -> TensorInfo:
    return _fresh(self.sizes, self)


@rule("glu_jvp")
def of_glu_tangent(glu: TensorInfo, x: TensorInfo, dx: TensorInfo, dim: int) -> TensorInfo:
    return TensorInfo(glu.sizes, preserved_strides(glu.sizes, glu.strides), glu.dtype, glu.device)


# --- of normalizations -----------------------------------------------------------------------------------


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def of_softmax(grad_output: TensorInfo, output: TensorInfo, dim: int, input_dtype: torch.dtype) -> TensorInfo:
    result = _fresh(grad_output.sizes, grad_output)
    result.dtype = input_dtype
    return result


def _chosen(mask: Sequence[bool], results: Sequence[TensorInfo | None]) -> tuple[TensorInfo | None, ...]:
    return tuple(result if wanted else None for wanted, result in zip(mask, results, strict=True))


@rule("native_layer_norm_backward")
def of_layer_norm(
    grad_out: TensorInfo,
    input: TensorInfo,
    normalized_shape: Sequence[Size],
    mean: TensorInfo,
    rstd: TensorInfo,
    weight: TensorInfo | None,
    bias: TensorInfo | None,
    output_mask: Sequence[bool],
) -> tuple[TensorInfo | None, ...]:
    return _chosen(
        output_mask,
        (
            _fresh(input.sizes, input),
            _fresh(weight.sizes, weight) if weight is not None else None,
            _fresh(bias.sizes, bias) if bias is not None else None,
        ),
    )


@rule("native_group_norm_backward")
def of_group_norm(
    grad_out: TensorInfo,
    input: TensorInfo,
    mean: TensorInfo,
    rstd: TensorInfo,
    weight: TensorInfo | None,
    N: Size,
    C: Size,
    HxW: Size,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[TensorInfo | None, ...]:
    like = weight if weight is not None else mean
    return _chosen(
        output_mask,
        (fresh_in_format_of(input, input.sizes), _fresh((C,), like), _fresh((C,), like)),
    )


@rule("native_batch_norm_backward")
def of_batch_norm(
    grad_out: TensorInfo,
    input: TensorInfo,
    weight: TensorInfo | None,
    running_mean: TensorInfo | None,
    running_var: TensorInfo | None,
    save_mean: TensorInfo | None,
    save_invstd: TensorInfo | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[TensorInfo | None, ...]:
    if train and not all(at_least(size, 1) for size in input.sizes):  # the kernel divides by how many there are
        raise UnsupportedInputError(
            "the gradient of a batch norm in training mode takes at least one element",
            remedy="use an example with at least one",
        )
    like = weight if weight is not None else input
    channels = (input.sizes[1],)
    return _chosen(
        output_mask,
        (fresh_in_format_of(input, input.sizes), _fresh(channels, like), _fresh(channels, like)),
    )


# --- of convolutions and pools ---------------------------------------------------------------------------


@rule("convolution_backward")
def of_convolution(
    grad_output: TensorInfo,
    input: TensorInfo,
    weight: TensorInfo,
    bias_sizes: Sequence[Size] | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[TensorInfo | None, ...]:
    strides, weight_strides = gradient_strides(input, weight, stride, dilation, output_padding, groups)
    return _chosen(
        output_mask,
        (
            TensorInfo(input.sizes, strides, input.dtype, input.device),
            TensorInfo(weight.sizes, weight_strides, weight.dtype, weight.device),
            _fresh(bias_sizes if bias_sizes is not None else (grad_output.sizes[1],), grad_output),
        ),
    )


@rule("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", "avg_pool2d_backward")
def of_pool(grad_output: TensorInfo, self: TensorInfo, *options: Any) -> TensorInfo:
    return fresh_in_format_of(self, self.sizes)


@rule("_adaptive_avg_pool2d_backward", "adaptive_max_pool2d_backward")
def of_adaptive_pool(grad_output: TensorInfo, self: TensorInfo, *indices: TensorInfo) -> TensorInfo:
    return fresh_in_format_of(self, self.sizes)


@rule("avg_pool3d_backward", "_adaptive_avg_pool3d_backward", "adaptive_max_pool3d_backward")
def of_volume_pool(grad_output: TensorInfo, self: TensorInfo, *options: Any) -> TensorInfo:
    return _fresh(self.sizes, self)


@rule(
    "upsample_nearest1d_backward",
    "upsample_nearest2d_backward",
    "upsample_linear1d_backward",
    "upsample_bilinear2d_backward",
    "upsample_trilinear3d_backward",
)
def of_resizing(
    grad_output: TensorInfo, output_size: Sequence[Size], input_size: Sequence[Size], *options: Any
) -> TensorInfo:
    return fresh_in_format_of(grad_output, tuple(input_size))


@rule("upsample_bicubic2d_backward", "upsample_nearest3d_backward")
def of_plain_resizing(
    grad_output: TensorInfo, output_size: Sequence[Size], input_size: Sequence[Size], *options: Any
) -> TensorInfo:
    return _fresh(input_size, grad_output)


@rule(
    "reflection_pad1d_backward",
    "reflection_pad2d_backward",
    "replication_pad1d_backward",
    "replication_pad2d_backward",
)
def of_padding(grad_output: TensorInfo, self: TensorInfo, padding: Sequence[Size]) -> TensorInfo:
    return fresh_in_format_of(self, self.sizes)


# --- of views and indexing -------------------------------------------------------------------------------


@rule("select_backward", "slice_backward", "diagonal_backward", "unfold_backward")
def of_view(grad_output: TensorInfo, input_sizes: Sequence[Size], *options: Any) -> TensorInfo:
    return _fresh(input_sizes, grad_output)


@rule("embedding_dense_backward")
def of_embedding(
    grad_output: TensorInfo,
    indices: TensorInfo,
    num_weights: Size,
    padding_idx: Size,
    scale_grad_by_freq: bool,
) -> TensorInfo:
    return _fresh((num_weights, grad_output.sizes[-1]), grad_output)


# --- of attention ----------------------------------------------------------------------------------------


@rule("_scaled_dot_product_flash_attention_for_cpu_backward")
def of_attention(
    grad_out: TensorInfo, query: TensorInfo, key: TensorInfo, value: TensorInfo, *options: Any, **named: Any
) -> tuple[TensorInfo, ...]:
    return tuple(
        TensorInfo(info.sizes, strides_in_order(info.sizes, (0, 2, 1, 3)), info.dtype, info.device)
        for info in (query, key, value)
    )


@rule("_weight_norm_interface_backward")
def of_weight_norm(
    grad_w: TensorInfo, saved_v: TensorInfo, saved_g: TensorInfo, saved_norms: TensorInfo, dim: int
) -> tuple[TensorInfo, TensorInfo]:
    return saved_v.fresh(), saved_g.fresh()


# --- of losses -------------------------------------------------------------------------------------------


@rule("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "soft_margin_loss_backward")
def of_difference_loss(grad_output: TensorInfo, self: TensorInfo, target: TensorInfo, *options: Any) -> TensorInfo:
    return _like(self)


@rule(
    "nll_loss_backward",
    "nll_loss2d_backward",
    "multi_margin_loss_backward",
    "multilabel_margin_loss_backward",
    "_ctc_loss_backward",
    "_ctc_loss_backward.Tensor",
)
def of_nll_loss(grad_output: TensorInfo, self: TensorInfo, *options: Any) -> TensorInfo:
    return _fresh(self.sizes, self)


@rule("binary_cross_entropy_backward")
def of_binary_cross_entropy(
    grad_output: TensorInfo, self: TensorInfo, target: TensorInfo, *options: Any
) -> TensorInfo:
    return _like(self)
