"""Fused attention in simpler operators, with the statistics that its backward operator needs.

Torch's own decomposition of the fused kernel for the CPU returns the attention weights where the kernel returns the
logarithm of the sum of exponentials. That is of no consequence in a program without gradients; in a joint graph the
backward operator takes that result, and gradients would be silently wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

aten = torch.ops.aten


def flash_attention_for_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output and the logsumexp of the scores, as the kernel returns them."""
    grouped = query.size(1) != key.size(1)
    output = plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=grouped)
    output = output.permute(2, 0, 1, 3).contiguous(memory_format=torch.contiguous_format).permute(1, 2, 0, 3)
    if grouped:
        key = key.repeat_interleave(query.size(1) // key.size(1), 1)
    return output, _log_sum_of_scores(query, key, is_causal, attn_mask, scale)


def plain_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention in the plain way, which takes sequences and features without elements too."""
    if attn_mask is not None and attn_mask.dtype is torch.bool:  # the operator adds its mask
        numbers: dict[str, Any] = {"dtype": query.dtype, "device": query.device}
        attn_mask = torch.where(
            attn_mask, torch.scalar_tensor(0.0, **numbers), torch.scalar_tensor(-math.inf, **numbers)
        )
    dtype = query.dtype
    if scale is None and isinstance(query.size(-1), torch.SymInt):  # the operator takes no scale that varies
        if dtype in (torch.bfloat16, torch.float16):  # it computes in single precision
            query, key, value = query.float(), key.float(), value.float()
        query, scale = query * default_scale(query), 1.0
    output: torch.Tensor = aten._scaled_dot_product_attention_math.default(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]
    return output.to(dtype)


def attention(query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """What torch makes of attention; in the plain way where the number of features varies, which it divides by."""
    if isinstance(query.size(-1), torch.SymInt):
        return plain_attention(query, *args, **kwargs)
    return aten.scaled_dot_product_attention.default.decompose(query, *args, **kwargs)


def default_scale(query: torch.Tensor) -> Any:
    """One over the root of the number of features; of none, which scores don't depend on, it is 1."""
    features = query.size(-1)
    return 1.0 / torch.sym_sqrt(torch.sym_max(features, 1))


def _log_sum_of_scores(
    query: torch.Tensor, key: torch.Tensor, is_causal: bool, mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    if query.dtype in (torch.bfloat16, torch.float16):
        query, key = query.float(), key.float()
    factor = default_scale(query) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if is_causal:
        mask = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()
    if mask is not None and mask.dtype is torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores = scores + mask
    return torch.logsumexp(scores, -1)


def with_right_statistics(table: Mapping[Any, Callable[..., Any]]) -> Mapping[Any, Callable[..., Any]]:
    """A table of decompositions in which torch's own one of the fused kernel is replaced by the one here."""
    operator = aten._scaled_dot_product_flash_attention_for_cpu.default
    if table.get(operator) is not torch._decomp.decomposition_table[operator]:
        return table
    return {**table, operator: flash_attention_for_cpu}
