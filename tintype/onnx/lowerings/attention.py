"""Attention: one node where the opset has it, else the products and the softmax that it is."""

from __future__ import annotations

import math
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64, _BOOL = ir.DataType.INT64, ir.DataType.BOOL
_ATTENTION = aten.scaled_dot_product_attention.default


@lowering(_ATTENTION)
def attention(
    op: Builder,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p:
        raise LoweringError("its dropout draws random numbers as ONNX does not; export the model in eval mode")
    rank, key_rank = len(query.shape), len(key.shape)
    length = op.size(key, key_rank - 2)
    if enable_gqa:
        key, value = _repeated(op, query, key), _repeated(op, query, value)
    order = [*range(key_rank - 2), key_rank - 1, key_rank - 2]
    factor = _scale(op, query, scale)
    scores = op.MatMul(op.Mul(query, factor), op.Transpose(key, perm=order))
    if is_causal:
        mask = _causal(op, op.size(query, rank - 2), length)
    weights = None
    if mask is not None:
        if mask.dtype is _BOOL:
            scores = op.Where(mask, scores, op.constant(-math.inf, query.dtype))
        else:
            scores = op.Add(scores, op.like(mask, query))
        weights = op.Softmax(scores, axis=-1)
        if not is_causal:
            # a row of which nothing may be seen is 0 in torch, and not 0 / 0
            weights = op.Where(op.IsNaN(weights), op.constant(0.0, query.dtype), weights)
    else:
        weights = op.Softmax(scores, axis=-1)
    return op.MatMul(weights, value)


def _scale(op: Builder, query: Any, scale: float | None) -> Any:
    if scale is not None:
        return op.constant(float(scale), query.dtype) if not isinstance(scale, ir.Value) else op.like(scale, query)
    width = op.size(query, len(query.shape) - 1)
    if isinstance(width, int):
        return op.constant(1 / math.sqrt(width) if width else 0.0, query.dtype)
    return op.Reciprocal(op.Sqrt(op.cast(width, query.dtype)))


def _causal(op: Builder, length: Any, other: Any) -> Any:
    """What each position may see: itself and what is before it."""
    rows = op.Unsqueeze(op.Range(0, op.cast(length, _INT64), 1), [1])
    columns = op.Unsqueeze(op.Range(0, op.cast(other, _INT64), 1), [0])
    return op.LessOrEqual(columns, rows)


def _repeated(op: Builder, query: Any, tensor: Any) -> Any:
    """Heads that several of the query's share, once for each of them."""
    heads, shared = op.size(query, -3), op.size(tensor, -3)
    if not isinstance(heads, int) or not isinstance(shared, int):
        raise LoweringError("the number of heads varies")
    if heads == shared:
        return tensor
    rank = len(tensor.shape)
    wide = op.Unsqueeze(tensor, [rank - 2])
    sizes = [1] * (rank + 1)
    sizes[rank - 2] = heads // shared
    wide = op.Expand(wide, sizes)
    shape = [0] * (rank - 3) + [heads]
    return op.Reshape(wide, op.vector([*shape, op.size(tensor, -2), op.size(tensor, -1)]))


@lowering(_ATTENTION, since=23)
def attention_23(op: Builder, query: Any, key: Any, value: Any, mask: Any = None, *args: Any, **kwargs: Any) -> Any:
    """One Attention node, where that means the same: four dimensions, no mask that may hide a whole row."""
    dropout = args[0] if args else kwargs.get("dropout_p", 0.0)
    is_causal = args[1] if len(args) > 1 else kwargs.get("is_causal", False)
    is_plain = all(len(each.shape) == 4 for each in (query, key, value)) and mask is None and not dropout
    if not is_plain or (is_causal and op.size(query, 2) != op.size(key, 2)):
        return attention(op, query, key, value, mask, *args, **kwargs)
    scale = kwargs.get("scale")
    return op.Attention(query, key, value, scale=scale, is_causal=int(is_causal))[0]
