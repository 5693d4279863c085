"""Decompositions that hold for all sizes, of operators whose usual ones don't.

torch's kernels for composite operators choose ways by sizes: whether one is 1, which of two is larger. While sizes
vary that would rule some of them out. These are tried where the usual decomposition had to decide something; they
ask nothing of sizes but what the operator itself requires.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import get_computation_dtype

from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.sizes import broadcast_dim
from tintype.transforms.attention import plain_attention

aten = torch.ops.aten


def _broadcast(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """The sizes of a broadcast result, as shape rules find them."""
    shapes = [[from_torch(size) for size in shape] for shape in (left, right)]
    rank = max(len(left), len(right))
    padded = ([1] * (rank - len(shape)) + shape for shape in shapes)
    message = f"the sizes {list(left)} and {list(right)} can't be broadcast"
    return [to_torch(broadcast_dim(a, b, message)) for a, b in zip(*padded, strict=True)]


def _matmul(left: torch.Tensor, right: torch.Tensor) -> Any:
    """Products of matrices: one ``mm`` where the right side is one matrix, otherwise a batch of them."""
    if left.dim() == 1 and right.dim() == 1:
        return aten.dot.default(left, right)
    if left.dim() == 1:
        return aten.squeeze.dim(_matmul(left.unsqueeze(0), right), -2)
    if right.dim() == 1:
        return aten.squeeze.dim(_matmul(left, right.unsqueeze(-1)), -1)
    if left.dim() == 2 and right.dim() == 2:
        return aten.mm.default(left, right)
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    if right.dim() == 2:
        flat = aten.reshape.default(left, [-1, inner])
        return aten.view.default(aten.mm.default(flat, right), [*left.shape[:-1], columns])
    batch = _broadcast(left.shape[:-2], right.shape[:-2])
    sides = []
    for side, shape in ((left, (rows, inner)), (right, (inner, columns))):
        if list(side.shape[:-2]) != batch:
            side = aten.expand.default(side, [*batch, *shape])
        sides.append(aten.reshape.default(side, [_product(batch), *shape]))
    return aten.view.default(aten.bmm.default(*sides), [*batch, rows, columns])


def _product(sizes: Sequence[Any]) -> Any:
    result: Any = 1
    for size in sizes:
        result = result * size
    return result


def _tensordot(
    left: torch.Tensor, right: torch.Tensor, left_dims: Sequence[int], right_dims: Sequence[int]
) -> torch.Tensor:
    summed = [[dim % tensor.dim() for dim in dims] for tensor, dims in ((left, left_dims), (right, right_dims))]
    kept = [[d for d in range(t.dim()) if d not in dims] for t, dims in zip((left, right), summed, strict=True)]
    sizes = [[t.shape[d] for d in dims] for t, dims in zip((left, right), kept, strict=True)]
    inner = _product([left.shape[d] for d in summed[0]])
    first = aten.reshape.default(aten.permute.default(left, [*kept[0], *summed[0]]), [_product(sizes[0]), inner])
    second = aten.reshape.default(aten.permute.default(right, [*summed[1], *kept[1]]), [inner, _product(sizes[1])])
    return aten.view.default(aten.mm.default(first, second), [*sizes[0], *sizes[1]])


def general_kron(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The Kronecker product of tensors in any layout."""
    rank = max(left.dim(), right.dim())
    sizes = [[1] * (rank - tensor.dim()) + list(tensor.shape) for tensor in (left, right)]
    pairs = list(zip(*sizes, strict=True))
    left = aten.reshape.default(left, [size for one, _ in pairs for size in (one, 1)])
    right = aten.reshape.default(right, [size for _, one in pairs for size in (1, one)])
    return aten.reshape.default(aten.mul.Tensor(left, right), [one * two for one, two in pairs])


def _cdist(left: torch.Tensor, right: torch.Tensor, p: float = 2, compute_mode: int | None = None) -> torch.Tensor:
    return aten._cdist_forward.default(left, right, p, compute_mode)


def _cosine_similarity(left: torch.Tensor, right: torch.Tensor, dim: int = 1, eps: float = 1e-08) -> torch.Tensor:
    """Norms are not less than ``eps``, which gradients don't see."""
    dtype = torch.promote_types(left.dtype, right.dtype)

    def normalized(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.to(dtype)
        norm = aten.linalg_vector_norm.default(tensor, 2, [dim], True)
        norm = norm + (aten.clamp_min.default(norm, eps) - norm).detach()
        return tensor / norm

    # the dimension is counted in the broadcast tensors
    rank = max(left.dim(), right.dim())
    left, right = (side.reshape([1] * (rank - side.dim()) + list(side.shape)) for side in (left, right))
    shape = _broadcast(left.shape, right.shape)
    left, right = (aten.expand.default(side, shape) for side in (left, right))
    return aten.sum.dim_IntList(normalized(left) * normalized(right), [dim])


def _instance_norm(
    image: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """By the mean and the variance of each channel; running statistics, and mixed dtypes, are for the operator."""
    factors = [factor for factor in (weight, bias) if factor is not None]
    if running_mean is not None or not use_input_stats or any(factor.dtype is not image.dtype for factor in factors):
        return NotImplemented
    space, dtype = list(range(2, image.dim())), image.dtype
    image = image.to(get_computation_dtype(dtype))  # as the kernel computes it
    weight, bias = (None if factor is None else factor.to(image.dtype) for factor in (weight, bias))
    mean = aten.mean.dim(image, space, True)
    variance = aten.var.correction(image, space, correction=0, keepdim=True)
    result = (image - mean) * aten.rsqrt.default(variance + eps)
    weight, bias = (
        None if factor is None else aten.view.default(factor, [-1] + [1] * len(space)) for factor in (weight, bias)
    )
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias).to(dtype)


# --- pooling ---------------------------------------------------------------------------------------------------


def _max_pool1d(
    tensor: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> torch.Tensor:
    result = aten.max_pool2d_with_indices.default(
        aten.unsqueeze.default(tensor, -2),
        [1, *kernel_size],
        [1, *(stride or kernel_size)],
        [0, *padding],
        [1, *dilation],
        ceil_mode,
    )[0]
    return aten.squeeze.dim(result, -2)


def _adaptive_max_pool1d(tensor: torch.Tensor, output_size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = aten.adaptive_max_pool2d.default(aten.unsqueeze.default(tensor, -2), [1, *output_size])
    return aten.squeeze.dim(values, -2), aten.squeeze.dim(indices, -2)


# --- convolution -----------------------------------------------------------------------------------------------


def _convolution_mode(
    tensor: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: str,
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """A convolution whose padding is "same" or "valid"; what can't be halved is padded on the right."""
    count = weight.dim() - 2
    dilations = [dilation[0]] * count if len(dilation) == 1 else list(dilation)
    totals = [dilations[d] * (weight.shape[2 + d] - 1) if padding == "same" else 0 for d in range(count)]
    extra = [total - 2 * (total // 2) for total in totals]
    if any(isinstance(part, torch.SymInt) or part for part in extra):
        tensor = aten.constant_pad_nd.default(tensor, [p for part in reversed(extra) for p in (0, part)])
    return aten.convolution.default(
        tensor,
        weight,
        bias,
        [stride[0]] * count if len(stride) == 1 else list(stride),
        [total // 2 for total in totals],
        dilations,
        False,
        [0] * count,
        groups,
    )


# --- resizing --------------------------------------------------------------------------------------------------


def _upsampled(target: Any) -> Callable[..., torch.Tensor]:
    """An operator that resizes to sizes or by factors, in terms of the one that takes both."""

    def decomposition(tensor: torch.Tensor, output_size: Sequence[Any] | None, *options: Any) -> torch.Tensor:
        *rest, factors = options
        if output_size is None:
            sizes = tensor.shape[2:]
            output_size = [torch.sym_int(size * factor) for size, factor in zip(sizes, factors, strict=True)]
        return target(tensor, list(output_size), *rest, *(factors or [None] * len(output_size)))

    return decomposition


GENERAL_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.matmul.default: _matmul,
    aten.tensordot.default: _tensordot,
    aten.kron.default: general_kron,
    aten.instance_norm.default: _instance_norm,
    aten.cdist.default: _cdist,
    aten.scaled_dot_product_attention.default: plain_attention,
    aten.cosine_similarity.default: _cosine_similarity,
    aten.max_pool1d.default: _max_pool1d,
    aten.adaptive_avg_pool2d.default: aten._adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default: aten._adaptive_avg_pool3d.default,
    aten.adaptive_max_pool1d.default: _adaptive_max_pool1d,
    aten._convolution_mode.default: _convolution_mode,
    **{
        getattr(aten, name).vec: _upsampled(getattr(aten, name).default)
        for name in (
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
    },
}
