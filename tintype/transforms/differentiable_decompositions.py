"""Decompositions whose gradients are those of the operators that they replace.

Torch decomposes what autograd has done with already; here gradients are computed through a decomposition too. They
flow into both sides of a ``where``, and where the side that was not chosen has an infinite slope they are nan. So
what such a side computes with is chosen as well. At a corner (``hardswish`` at 3, ``std`` of equal numbers) the
operator says what the gradient is, and its decomposition must agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, get_computation_dtype
from torch._prims_common.wrappers import elementwise_type_promotion_wrapper

aten = torch.ops.aten

_KINDS = ELEMENTWISE_TYPE_PROMOTION_KIND


def _elementwise(*arguments: str, floating: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compute in the dtype in which the operator does: half precision in single, whole numbers as ``floating``."""
    kind = _KINDS.INT_TO_FLOAT if floating else _KINDS.DEFAULT
    return elementwise_type_promotion_wrapper(type_promoting_args=arguments, type_promotion_kind=kind)


# --- activations -----------------------------------------------------------------------------------------------


@_elementwise("tensor")
def _hardswish(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * _six_steps(tensor) / 6


@_elementwise("tensor")
def _hardsigmoid(tensor: torch.Tensor) -> torch.Tensor:
    return _six_steps(tensor) / 6


def _six_steps(tensor: torch.Tensor) -> torch.Tensor:
    """From 0 to 6; at both ends it is flat, other than ``clamp``."""
    return aten.hardtanh.default(tensor + 3, 0, 6)


def _celu(tensor: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    return aten.elu.default(tensor, alpha, 1, 1 / alpha)


@_elementwise("tensor")
def _softplus(tensor: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
    scaled = tensor * beta
    is_linear = scaled > threshold
    return torch.where(is_linear, tensor, torch.log1p(torch.exp(torch.where(is_linear, 0, scaled))) / beta)


@_elementwise("tensor")
def _mish(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * torch.tanh(_softplus(tensor))


def _safe_softmax(tensor: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A softmax that is 0 where everything is masked."""
    is_masked = torch.all(tensor == -math.inf, dim=dim, keepdim=True)
    result = torch.softmax(torch.where(is_masked, 0, tensor), dim=dim, dtype=dtype)
    return torch.where(is_masked, 0, result)


# --- functions -------------------------------------------------------------------------------------------------


@_elementwise("tensor", floating=True)
def _sinc(tensor: torch.Tensor) -> torch.Tensor:
    angle = math.pi * tensor
    is_zero = angle == 0
    return torch.where(is_zero, 1, torch.sin(angle) / torch.where(is_zero, 1, angle))


# --- statistics ------------------------------------------------------------------------------------------------


def _std(tensor: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> torch.Tensor:
    variance = torch.var(_widened(tensor), dim, correction=_or_one(correction), keepdim=keepdim)
    return _root(variance).to(_real(tensor.dtype))


def _std_mean(
    tensor: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = torch.var_mean(_widened(tensor), dim, correction=_or_one(correction), keepdim=keepdim)
    return _root(variance).to(_real(tensor.dtype)), mean.to(tensor.dtype)


def _or_one(correction: Any) -> Any:
    return 1 if correction is None else correction


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(get_computation_dtype(tensor.dtype))


def _real(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


def _root(variance: torch.Tensor) -> torch.Tensor:
    """A square root whose slope at 0 is 0."""
    is_zero = variance == 0
    return torch.where(is_zero, 0, torch.sqrt(torch.where(is_zero, 1, variance)))


def _renorm(tensor: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    dims = [d for d in range(tensor.dim()) if d != dim % tensor.dim()]
    norm = torch.linalg.vector_norm(tensor, p, dims, keepdim=True, dtype=get_computation_dtype(tensor.dtype))
    factor = torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)
    return (tensor * factor.to(tensor.dtype)).contiguous()


# --- indices ---------------------------------------------------------------------------------------------------


def _index_fill(tensor: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor:
    """A value at indices, which are counted from the end where they are negative, and may come twice."""
    if tensor.dim() == 0:
        return _index_fill(tensor.unsqueeze(0), 0, index, value).squeeze(0)
    dim = dim % tensor.dim()
    count = tensor.shape[dim]
    yes = torch.ones((), dtype=torch.bool, device=tensor.device)
    nowhere = torch.zeros((count,), dtype=torch.bool, device=tensor.device)
    is_filled = aten.index_put.default(nowhere, [index], yes)
    is_filled = is_filled.view([count if d == dim else 1 for d in range(tensor.dim())])
    if not isinstance(value, torch.Tensor):
        value = torch.full((), value, dtype=tensor.dtype, device=tensor.device)
    return torch.where(is_filled, value, tensor)


def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """The operator that has a gradient, whether or not the example's weight required one."""
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    indices, offsets = indices.contiguous(), offsets.contiguous()
    options = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding)
    return aten._embedding_bag.default(weight, indices, offsets, *options)


# --- losses ----------------------------------------------------------------------------------------------------


def _multi_margin_loss(
    tensor: torch.Tensor,
    target: torch.Tensor,
    p: Any = 1,
    margin: Any = 1,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> torch.Tensor:
    """Classes that are just as far off as the margin have no gradient."""
    scores = torch.atleast_2d(tensor)
    classes = torch.atleast_1d(target).unsqueeze(1)
    losses = torch.relu(margin - torch.gather(scores, 1, classes) + scores)
    losses = losses if p == 1 else losses * losses
    if weight is not None:
        losses = losses * torch.atleast_1d(weight)[classes]
    is_other = torch.arange(scores.shape[1], device=tensor.device) != classes
    losses = torch.where(is_other, losses, 0)
    mean = losses.mean(dim=1)
    if reduction == 0:
        return mean if tensor.dim() == 2 else mean.squeeze(0)
    return mean.mean() if reduction == 1 else mean.sum()


def _multilabel_margin_loss(
    tensor: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels from the first -1 on don't count; torch's own decomposition takes class 0 for each of them."""
    scores, labels = torch.atleast_2d(tensor), torch.atleast_2d(target)
    positions = torch.arange(scores.shape[1], device=target.device)
    first_end = torch.amin(torch.where(labels == -1, positions, scores.shape[1]), dim=-1, keepdim=True)
    counts = positions < first_end
    is_target = torch.any((labels.unsqueeze(-1) == positions) & counts.unsqueeze(-1), dim=1)
    of_labels = torch.gather(scores, -1, torch.where(counts, labels, 0))
    losses = torch.relu(1 - of_labels.unsqueeze(-1) + scores.unsqueeze(1))  # batch, label, class
    losses = torch.where(counts.unsqueeze(-1) & ~is_target.unsqueeze(1), losses, 0)
    loss = losses.sum(dim=(1, 2)) / scores.shape[1]
    if reduction == 0:
        loss = loss if tensor.dim() == 2 else loss.squeeze(0)
    else:
        loss = loss.mean() if reduction == 1 else loss.sum()
    return loss, is_target.to(tensor.dtype).reshape(target.shape)


# In place of torch's own.
DIFFERENTIABLE: dict[Any, Callable[..., Any]] = {
    aten.hardswish.default: _hardswish,
    aten.hardsigmoid.default: _hardsigmoid,
    aten.celu.default: _celu,
    aten.softplus.default: _softplus,
    aten.mish.default: _mish,
    aten._safe_softmax.default: _safe_softmax,
    aten.sinc.default: _sinc,
    aten.std.correction: _std,
    aten.std_mean.correction: _std_mean,
    aten.renorm.default: _renorm,
    aten.multi_margin_loss.default: _multi_margin_loss,
    aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
    aten.index_fill.int_Scalar: _index_fill,
    aten.index_fill.int_Tensor: _index_fill,
}

# What composite operators consist of.
DIFFERENTIABLE_COMPOSITES: dict[Any, Callable[..., Any]] = {
    aten.embedding_bag.default: _embedding_bag,
    aten.embedding_bag.padding_idx: _embedding_bag,
}
