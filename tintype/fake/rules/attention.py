"""Scaled dot product attention. Which kernel eager mode picks shows in the strides of the result."""

from __future__ import annotations

import torch

from tintype.errors import UnsupportedInputError
from tintype.fake.info import TensorInfo, preserved_strides, strides_in_order
from tintype.fake.promotion import real_of
from tintype.fake.rules.elementwise import broadcast
from tintype.fake.rules.registry import rule
from tintype.symbolic import Size
from tintype.symbolic.sizes import at_least, contiguous_strides, is_one, is_zero, require_same, same

_FUSED_DTYPES = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})
_FUSED_ON_GPU = frozenset({torch.float32, torch.bfloat16, torch.float16})


def _has_kernel_on_gpu() -> bool:
    return torch._C._get_flash_sdp_enabled() or torch._C._get_mem_efficient_sdp_enabled()


@rule("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: TensorInfo,
    key: TensorInfo,
    value: TensorInfo,
    attn_mask: TensorInfo | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> TensorInfo:
    _check(query, key, value, attn_mask)
    first, second, third = query.sizes, key.sizes, value.sizes
    if first[:-2] == second[:-2] == third[:-2]:
        batch = first[:-2]
    elif enable_gqa:
        batch = first[:-2]
        _check_grouped_heads(first, second, third)
    else:
        batch = broadcast([first[:-2], second[:-2], third[:-2]])
    if first[-1] is not second[-1]:
        require_same(
            first[-1],
            second[-1],
            lambda: f"query and key must have the same last dimension, but have {first[-1]} and {second[-1]}",
        )
    if second[-2] is not third[-2]:
        require_same(
            second[-2],
            third[-2],
            lambda: f"key and value must have the same sequence length, but have {second[-2]} and {third[-2]}",
        )
    sizes = (*batch, first[-2], third[-1])
    strides = contiguous_strides(sizes)
    if query.device.type == "cuda":
        four = len(first) == len(second) == len(third) == 4
        if four and query.dtype in _FUSED_ON_GPU and _has_kernel_on_gpu():
            strides = strides_in_order(sizes, (0, 2, 1, 3))  # heads lie inside of the sequence
        return TensorInfo(sizes, strides, query.dtype, query.device)
    # the fused kernel lays its result out like the query, the plain one makes a contiguous result
    if query.strides != strides and _is_fused(query, key, value, attn_mask, dropout_p, enable_gqa):
        strides = preserved_strides(first, query.strides)
    return TensorInfo(sizes, strides, query.dtype, query.device)


def _check(query: TensorInfo, key: TensorInfo, value: TensorInfo, mask: TensorInfo | None) -> None:
    if query.dtype is not key.dtype or query.dtype is not value.dtype:
        raise RuntimeError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype} "
            f"key.dtype: {key.dtype} and value.dtype: {value.dtype} instead."
        )
    if query.device != key.device or query.device != value.device:
        raise RuntimeError(
            "Expected query, key, and value to have the same device type, but got query.device: "
            f"{query.device} key.device: {key.device} and value.device: {value.device} instead."
        )
    if len(query.sizes) < 2 or len(key.sizes) < 2 or len(value.sizes) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{query.dim}, key.dim: {key.dim} and value.dim: {value.dim} instead."
        )
    if mask is not None and mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
            f"{mask.dtype} and  query.dtype: {query.dtype} instead."
        )


def _check_grouped_heads(query: tuple[Size, ...], key: tuple[Size, ...], value: tuple[Size, ...]) -> None:
    for heads in (key[-3], value[-3]):
        require_same(
            query[-3] % heads,
            0,
            "Number of heads in key and value must divide the number of heads in query",
        )


def _is_fused(
    query: TensorInfo,
    key: TensorInfo,
    value: TensorInfo,
    mask: TensorInfo | None,
    dropout: float,
    grouped: bool,
) -> bool:
    """Whether eager mode takes the fused kernel."""
    first, second, third = query.sizes, key.sizes, value.sizes
    if dropout > 0.0 or len(first) != 4 or len(second) != 4 or len(third) != 4:
        return False
    if query.dtype not in _FUSED_DTYPES or not torch._C._get_flash_sdp_enabled():
        return False
    if first != second or first != third:
        if not same(first[0], second[0]) or not same(first[0], third[0]):
            return False
        if not grouped and not (same(first[1], second[1]) and same(first[1], third[1])):
            return False
    if not same(first[3], third[3]) or is_zero(first[2]) or is_zero(second[2]):
        return False
    for info in (query, key, value):
        if info.strides[-1] != 1 and not is_one(info.strides[-1]) and not is_one(info.sizes[-1]):
            return False
    if mask is not None:
        if mask.requires_grad or len(mask.sizes) not in (2, 4):
            return False
        full = (first[0], first[1], first[2], second[2])
        wanted = full[-len(mask.sizes) :]
        return all(is_one(size) or same(size, want) for size, want in zip(mask.sizes, wanted, strict=True))
    return True


@rule("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention_for_cpu(
    query: TensorInfo,
    key: TensorInfo,
    value: TensorInfo,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: TensorInfo | None = None,
    scale: float | None = None,
) -> tuple[TensorInfo, TensorInfo]:
    _check(query, key, value, attn_mask)
    batch, heads, length, _ = query.sizes
    for size in (heads, length, key.sizes[2]):
        if not at_least(size, 1):  # the kernel divides by them, and takes the process with it
            raise UnsupportedInputError(
                "the fused attention kernel takes at least one head and sequences of at least one element",
                remedy="use an example with at least one of each",
            )
    statistics = real_of(torch.float32 if query.dtype in (torch.bfloat16, torch.float16) else query.dtype)
    return (
        TensorInfo(query.sizes, preserved_strides(query.sizes, query.strides), query.dtype, query.device),
        TensorInfo((batch, heads, length), (length * heads, 1, heads), statistics, query.device),
    )


@rule("_safe_softmax")
def safe_softmax(self: TensorInfo, dim: int, dtype: torch.dtype | None = None) -> TensorInfo:
    return self.fresh(dtype=dtype)
