"""Sums, means and maxima over bags of embeddings. The auxiliary results serve the gradient, and what they
hold depends on the kernel."""

from __future__ import annotations

import torch

from tintype.fake.info import TensorInfo
from tintype.fake.rules.registry import rule
from tintype.symbolic import Size
from tintype.symbolic.sizes import is_one

_SUM, _MAXIMUM = 0, 2
_FAST_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def _is_fast(weight: TensorInfo, mode: int, per_sample_weights: TensorInfo | None, padding_idx: int | None) -> bool:
    """Whether the kernel sums without noting which index belongs to which bag."""
    return (
        mode == _SUM
        and (padding_idx is None or padding_idx < 0)
        and weight.dtype in _FAST_DTYPES
        and is_one(weight.strides[1])
        and (per_sample_weights is None or is_one(per_sample_weights.strides[0]))
    )


def _bags(
    weight: TensorInfo,
    indices: TensorInfo,
    offsets: TensorInfo,
    mode: int,
    per_sample_weights: TensorInfo | None,
    include_last_offset: bool,
    padding_idx: int | None,
    for_gradient: bool,
) -> tuple[TensorInfo, ...]:
    if weight.dim != 2 or indices.dim != 1 or offsets.dim != 1:
        raise RuntimeError("embedding_bag: weight has to be a matrix, indices and offsets have to be 1D tensors")
    count = offsets.sizes[0]
    bags = count - 1 if include_last_offset else count
    if weight.device.type == "cuda":
        width = weight.sizes[1]
        largest: tuple[Size, ...] = (bags, width) if mode == _MAXIMUM else (0,)
        shapes = (indices.sizes, offsets.sizes, largest)
        return (weight.fresh((bags, width)), *(indices.fresh(shape) for shape in shapes))
    fast = _is_fast(weight, mode, per_sample_weights, padding_idx)
    # without a gradient to compute, sums keep a counter for every offset
    counted = bags if for_gradient or mode != _SUM else count
    largest = (bags, weight.sizes[1]) if mode == _MAXIMUM else (counted,)
    dtype = offsets.dtype
    return (
        weight.fresh((bags, weight.sizes[1])),
        indices.fresh((0,) if fast else indices.sizes, dtype),
        offsets.fresh((counted,)),
        offsets.fresh(largest),
    )


@rule("_embedding_bag")
def embedding_bag(
    weight: TensorInfo,
    indices: TensorInfo,
    offsets: TensorInfo,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: TensorInfo | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[TensorInfo, ...]:
    return _bags(weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx, True)


@rule("_embedding_bag_forward_only")
def embedding_bag_without_gradient(
    weight: TensorInfo,
    indices: TensorInfo,
    offsets: TensorInfo,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: TensorInfo | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[TensorInfo, ...]:
    return _bags(weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx, False)


@rule("embedding_bag", "embedding_bag.padding_idx")
def embedding_bag_composite(
    weight: TensorInfo,
    indices: TensorInfo,
    offsets: TensorInfo,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: TensorInfo | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[TensorInfo, ...]:
    if padding_idx is not None and padding_idx < 0:
        if type(weight.sizes[0]) is not int:
            raise NotImplementedError("a row counted from the end of a table of unknown length")
        padding_idx = padding_idx + weight.sizes[0]
    gradient = weight.requires_grad
    return _bags(weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx, gradient)
