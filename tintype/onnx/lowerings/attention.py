"""Attention: one node where the opset has it, else the products and the softmax that it is."""

from __future__ import annotations

import math
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering, own_lowering

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
    seen = None
    if is_causal:
        mask = _causal(op, op.size(query, rank - 2), length)
    elif mask is not None:
        mask, seen = _visible(op, mask, query)
    if mask is not None:
        scores = op.Add(scores, _bias(op, mask, query))
    result = op.MatMul(op.Softmax(scores, axis=-1), value)
    return result if seen is None else op.Mul(result, seen)


def _visible(op: Builder, mask: Any, query: Any) -> tuple[Any, Any]:
    """A mask that hides no row as a whole, and 0 where the given one does, 1 elsewhere: torch's result is 0 there,
    and not 0 / 0. Layers with one mask share this."""
    floats = ir.DataType.FLOAT
    if mask.dtype is not _BOOL:
        mask = op.like(mask, query)
        is_seen = op.Not(op.Equal(mask, op.constant(-math.inf, mask.dtype)))
    else:
        is_seen = mask
    count = op.ReduceSum(op.cast(is_seen, floats), [-1], keepdims=1)
    seen = op.Greater(count, op.constant(0.0, floats))
    if mask.dtype is _BOOL:
        return op.Or(mask, op.Not(seen)), op.cast(seen, query.dtype)
    return op.Where(seen, mask, op.constant(0.0, mask.dtype)), op.cast(seen, query.dtype)


def _bias(op: Builder, mask: Any, query: Any) -> Any:
    """What is added to scores for a mask: nothing, or an infinite number."""
    if mask.dtype is not _BOOL:
        return mask
    return op.Where(mask, op.constant(0.0, query.dtype), op.constant(-math.inf, query.dtype))


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
def attention_23(
    op: Builder, query: Any, key: Any, value: Any, mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """One Attention node, where tensors have four dimensions and heads are shared as it shares them."""
    heads = [each.shape[1] for each in (query, key, value) if len(each.shape) == 4]
    is_plain = len(heads) == 3 and heads[1] == heads[2] and (enable_gqa or heads[0] == heads[1])
    batches = {each.shape[0] for each in (query, key, value)}
    is_double = query.dtype is ir.DataType.DOUBLE  # of which the node's scale is in float32
    if not is_plain or len(batches) > 1 or dropout_p or isinstance(scale, ir.Value) or is_double:
        return attention(op, query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if mask is None:
        return op.Attention(query, key, value, scale=scale, is_causal=int(is_causal))[0]
    rows, columns = ([None, *list(mask.shape)])[-2:]
    mask, seen = _visible(op, mask, query)
    if rows in (None, 1) or columns == 1:  # the node wants rows and columns in full
        mask = op.Expand(mask, op.vector([op.size(query, 2), op.size(key, 2)]))
    return op.Mul(op.Attention(query, key, value, mask, scale=scale)[0], seen)


@lowering(
    aten._scaled_dot_product_flash_attention_for_cpu.default, aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default, aten._scaled_dot_product_cudnn_attention.default,
)  # fmt: skip
def fused_attention(op: Builder, *args: Any, **kwargs: Any) -> Any:
    """What attention becomes on a device. Besides its result it gives what its gradient needs."""
    schema = op.node.target._schema
    if any(user.args[1] != 0 and user.users for user in op.node.users):
        raise LoweringError("only the result itself has a form in ONNX")
    given = {argument.name: value for argument, value in zip(schema.arguments, args)} | kwargs
    whole = own_lowering(_ATTENTION, op.opset)
    assert whole is not None
    result = whole(
        op, given["query"], given["key"], given["value"], given.get("attn_mask", given.get("attn_bias")),
        given.get("dropout_p", 0.0), given.get("is_causal", False), scale=given.get("scale"),
    )  # fmt: skip
    return (result, *[None] * (len(schema.returns) - 1))
