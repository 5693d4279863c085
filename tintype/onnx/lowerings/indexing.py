"""Reading from and writing to places that tensors of indices name."""

from __future__ import annotations

from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64 = ir.DataType.INT64


def _index_like(op: Builder, index: Any, source: Any, dimension: int, rank: int) -> Any:
    """One index for each element of ``source``, by the one for its place along a dimension."""
    shape = [1] * rank
    shape[dimension] = -1
    return op.Expand(op.Reshape(op.cast(index, _INT64), shape), op.Shape(source))


def _placed(op: Builder, tensor: Any, dimension: int, index: Any, source: Any, reduction: str | None) -> Any:
    rank = len(tensor.shape)
    if rank == 0:
        tensor, source = op.Reshape(tensor, [1]), op.Reshape(source, [-1])
        placed = _elements(op, tensor, op.Reshape(op.cast(index, _INT64), [-1]), source, 0, reduction)
        return op.Reshape(placed, op.constant([], _INT64))
    dimension %= rank
    return _elements(op, tensor, _index_like(op, index, source, dimension, rank), source, dimension, reduction)


def _elements(op: Builder, tensor: Any, index: Any, source: Any, axis: int, reduction: str | None) -> Any:
    dtype = tensor.dtype
    if reduction is not None and dtype is ir.DataType.BOOL:
        tensor, source = op.cast(tensor, ir.DataType.INT32), op.cast(source, ir.DataType.INT32)
    return op.cast(op.ScatterElements(tensor, index, op.like(source, tensor), axis=axis, reduction=reduction), dtype)


@lowering(aten.index_copy.default)
def index_copy(op: Builder, tensor: Any, dimension: int, index: Any, source: Any) -> Any:
    return _placed(op, tensor, dimension, index, source, None)


@lowering(aten.index_add.default)
def index_add(op: Builder, tensor: Any, dimension: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    source = op.like(source, tensor)
    if isinstance(alpha, ir.Value) or alpha != 1:
        source = op.Mul(source, op.like(alpha, tensor))
    return _placed(op, tensor, dimension, index, source, "add")


@lowering(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(op: Builder, tensor: Any, dimension: int, index: Any, value: Any) -> Any:
    rank = len(tensor.shape)
    value = op.like(value, tensor)
    index = op.Reshape(op.cast(index, _INT64), [-1])
    if rank == 0:
        return _placed(op, tensor, 0, index, op.Expand(value, op.Shape(index)), None)
    dimension %= rank
    sizes = [op.size(tensor, each) for each in range(rank)]
    sizes[dimension] = op.Squeeze(op.Shape(index), [0])
    return _placed(op, tensor, dimension, index, op.Expand(value, op.vector(sizes)), None)


_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@lowering(aten.index_reduce.default)
def index_reduce(
    op: Builder, tensor: Any, dimension: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    if reduce not in _REDUCTIONS or not include_self:
        raise LoweringError(f"ONNX has no scattering that reduces with {reduce}, include_self={include_self}")
    return _placed(op, tensor, dimension, index, source, _REDUCTIONS[reduce])


@lowering(aten.take.default)
def take(op: Builder, tensor: Any, index: Any) -> Any:
    return op.Gather(op.Reshape(tensor, [-1]), op.cast(index, _INT64), axis=0)
