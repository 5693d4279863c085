"""Attention of one query for each head, as a step that decodes a token has it, in kernels that are quick at that.

What torch chooses where there is a mask (memory-efficient attention) works on 64 queries at a time, and on all keys
of a head one after the other. Of one query that is 64 times the work, on as many processors of a GPU as there are
heads. Two products of matrices and a softmax read the keys and values once, on all processors: a third of the time
for 256 keys in float32, a twentieth for thousands. They add up in another order, so results may differ in the last
bits, as those of torch's own kernels for attention do from each other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

EFFICIENT = torch.ops.aten._scaled_dot_product_efficient_attention.default
# with fewer keys than these there is nothing to gain
FEWEST_KEYS = {torch.float32: 128, torch.float16: 512, torch.bfloat16: 512}


def quicker(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Callable[..., Any] | None:
    """What gives the result of a call of an operator in less time, for other numbers, too; None if there is no such
    thing."""
    if operator is not EFFICIENT:
        return None
    given: list[Any] = [*args, *_DEFAULTS[len(args) :]]
    query, key, value, _, for_gradients, dropout, is_causal = given
    if for_gradients or dropout or is_causal or query.shape[2] != 1:
        return None
    fewest = FEWEST_KEYS.get(query.dtype)
    if fewest is None or key.shape[2] < fewest or not all(map(_is_batch_of_matrices, (query, key, value))):
        return None
    if not result[0].is_contiguous():  # but for the strides of dimensions of size 1
        return None
    scale = kwargs.get("scale")
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return functools.partial(_called, scale=scale, strides=result[0].stride())


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None, scale: float, rows: Rows
) -> torch.Tensor:
    """The attention of one query for each head (batch, heads, 1, ...); weights are in float32 until they are used."""
    batch, heads, keys = key.shape[:3]
    query, key, value = (part.flatten(0, 1) for part in (query, key, value))
    is_half = query.dtype is not torch.float32
    transposed = key.transpose(1, 2)
    products = torch.bmm(query, transposed, out_dtype=torch.float32) if is_half else torch.bmm(query, transposed)
    scores = products.view(batch, heads, 1, keys)
    scores = scores * scale if bias is None else torch.add(bias, scores, alpha=scale)
    weights = scores.softmax(-1).to(value.dtype)
    found = torch.bmm(weights.view(batch * heads, 1, keys), value).view(batch, heads, 1, value.shape[-1])
    return found if bias is None else found.masked_fill_(rows.without_keys(bias), 0)


class Rows:
    """Which queries of a run see no key at all: of those the operator gives zeros. Layers have one mask."""

    def __init__(self) -> None:
        # by the memory of a mask, how it lies there, and how often that was written to
        self._known: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}

    def without_keys(self, bias: torch.Tensor) -> torch.Tensor:
        """Where all of a mask is minus infinity; computed once, as long as nobody writes to the mask."""
        if bias.is_inference():  # nobody counts the writes to it
            return _are_minus_infinity(bias)
        key = (bias.data_ptr(), bias.shape, bias.stride(), bias.dtype, bias._version)
        if key not in self._known:
            # the mask is kept, so that no other one gets its memory
            self._known[key] = (bias, _are_minus_infinity(bias))
        return self._known[key][1]


def _are_minus_infinity(bias: torch.Tensor) -> torch.Tensor:
    return (bias == -torch.inf).all(-1, keepdim=True)


# compute_log_sumexp has no default
_DEFAULTS: tuple[Any, ...] = (None, None, None, None, True, 0.0, False)


def _called(
    rows: Rows,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    *_: Any,
    scale: float,
    strides: Sequence[int],
) -> tuple[torch.Tensor, ...]:
    """In place of the operator: its result as it lies in memory, and nothing of what a backward would need."""
    found = attention(query, key, value, bias, scale, rows)
    none = found.new_empty(0)
    return found.as_strided(found.shape, strides), none, none, none


def _is_batch_of_matrices(tensor: torch.Tensor) -> bool:
    """Whether batch and heads are one dimension without a copy."""
    return tensor.shape[0] == 1 or tensor.stride(0) == tensor.shape[1] * tensor.stride(1)
