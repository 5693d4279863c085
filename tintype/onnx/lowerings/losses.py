"""Losses where torchlib leaves cases out: targets that are shares of classes, inputs without a batch."""

from __future__ import annotations

from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64 = ir.DataType.INT64


def _reduced(op: Builder, loss: Any, total: Any, reduction: int) -> Any:
    """As they are, their mean (by what they weigh), or their sum."""
    if reduction == 0:
        return loss
    added = op.ReduceSum(loss, keepdims=0)
    return added if reduction == 2 else op.Div(added, total)


def _count(op: Builder, tensor: Any, dtype: ir.DataType) -> Any:
    return op.cast(op.Size(tensor), dtype)


@lowering(aten.cross_entropy_loss.default)
def cross_entropy_loss(
    op: Builder,
    tensor: Any,
    target: Any,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    rank = len(tensor.shape)
    axis = 1 if rank > 1 else 0
    dtype = tensor.dtype
    computed = op.cast(tensor, ir.DataType.FLOAT) if dtype is ir.DataType.FLOAT16 else tensor
    logs = op.LogSoftmax(computed, axis=axis)
    classes = op.cast(op.size(tensor, axis), logs.dtype)
    shaped = None
    if weight is not None:
        weight = op.like(weight, logs)
        shaped = op.Reshape(weight, [1] * axis + [-1] + [1] * (rank - axis - 1))
    if target.dtype.is_floating_point():
        return op.cast(_of_shares(op, logs, op.like(target, logs), shaped, axis, classes, reduction,
                                  label_smoothing), dtype)  # fmt: skip
    index = op.Unsqueeze(op.cast(target, _INT64), [axis])
    used = op.Not(op.Equal(index, ignore_index))
    places = op.Where(used, index, op.constant(0, _INT64))
    shares = op.cast(used, logs.dtype)
    if weight is not None:
        shares = op.Mul(shares, op.Gather(weight, places, axis=0))
    zero = op.constant(0.0, logs.dtype)
    chosen = op.Where(used, op.Neg(op.GatherElements(logs, places, axis=axis)), zero)
    loss = op.Mul(chosen, shares) if weight is not None else chosen
    total = op.ReduceSum(shares, keepdims=0)
    result = _reduced(op, op.Squeeze(loss, [axis]), total, reduction)
    if label_smoothing:
        spread = op.Neg(logs if shaped is None else op.Mul(logs, shaped))
        smooth = op.Where(used, op.ReduceSum(spread, [axis], keepdims=1), zero)
        smooth = _reduced(op, op.Squeeze(smooth, [axis]), total, reduction)
        part = op.Div(op.constant(label_smoothing, logs.dtype), classes)
        result = op.Add(op.Mul(result, op.constant(1 - label_smoothing, logs.dtype)), op.Mul(smooth, part))
    return op.cast(result, dtype)


def _of_shares(
    op: Builder, logs: Any, target: Any, weight: Any, axis: int, classes: Any, reduction: int, smoothing: float
) -> Any:
    """Where the target says how much of each class there is."""
    if smoothing:
        spread = op.Div(op.constant(smoothing, logs.dtype), classes)
        target = op.Add(op.Mul(target, op.constant(1 - smoothing, logs.dtype)), spread)
    product = op.Mul(logs, target)
    if weight is not None:
        product = op.Mul(product, weight)
    loss = op.Neg(op.ReduceSum(product, [axis], keepdims=0))
    return _reduced(op, loss, op.Div(_count(op, logs, logs.dtype), classes), reduction)


@lowering(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss_forward(op: Builder, logs: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    """The loss, and what its targets weigh together, which gradients are divided by."""
    axis = 1 if len(logs.shape) > 1 else 0
    index = op.Unsqueeze(op.cast(target, _INT64), [axis])
    used = op.Not(op.Equal(index, ignore_index))
    places = op.Where(used, index, op.constant(0, _INT64))
    shares = op.cast(used, logs.dtype)
    if weight is not None:
        shares = op.Mul(shares, op.Gather(weight, places, axis=0))
    loss = op.Neg(op.GatherElements(logs, places, axis=axis))
    loss = op.Where(used, loss if weight is None else op.Mul(loss, shares), op.constant(0, logs.dtype))
    total = op.ReduceSum(shares, keepdims=0)
    # torch leaves it at 0 where nothing is reduced
    weighed = op.constant(0, logs.dtype) if reduction == 0 else total
    return _reduced(op, op.Squeeze(loss, [axis]), total, reduction), weighed
