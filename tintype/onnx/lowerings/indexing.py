"""Reading from and writing to places that tensors of indices name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64, _BOOL = ir.DataType.INT64, ir.DataType.BOOL


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


def _wide(op: Builder, indices: Sequence[Any]) -> list[Any]:
    """Indices in one dtype, and masks: torch takes several, and ONNX wants them in one tensor."""
    return [index if index is None or index.dtype is _BOOL else op.cast(index, _INT64) for index in indices]


@lowering(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(op: Builder, tensor: Any, indices: Any) -> Any:
    return op.program.call_operator(aten.index.Tensor, [tensor, _wide(op, indices)])


@lowering(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(op: Builder, tensor: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    return op.program.call_operator(aten.index_put.default, [tensor, _wide(op, indices), values, accumulate])


@lowering(aten.take_along_dim.default)
def take_along_dim(op: Builder, tensor: Any, index: Any, dimension: int | None = None) -> Any:
    """Both are as large as the other in all dimensions but one."""
    index = op.cast(index, _INT64)
    if dimension is None:
        return op.GatherElements(op.Reshape(tensor, [-1]), op.Reshape(index, [-1]), axis=0)
    rank = len(tensor.shape)
    dimension %= rank
    sizes = [[op.size(each, axis) for axis in range(rank)] for each in (tensor, index)]
    shapes = [[1 if axis == dimension else size for axis, size in enumerate(own)] for own in sizes]
    source = op.Expand(tensor, op.vector(shapes[1]))
    return op.GatherElements(source, op.Expand(index, op.vector(shapes[0])), axis=dimension)


@lowering(aten.take.default)
def take(op: Builder, tensor: Any, index: Any) -> Any:
    return op.Gather(op.Reshape(tensor, [-1]), op.cast(index, _INT64), axis=0)


def _summed(op: Builder, rows: Any, inside: Any, width: Any, offsets: Any) -> Any:
    """Each row added to its bag. Rows that belong to none are added to one behind them: what they are times 0 need
    not be 0."""
    count = op.Size(offsets)
    belongs = op.cast(inside, _INT64)
    bag = op.ReduceSum(op.Mul(belongs, op.Unsqueeze(op.Range(0, count, 1), [1])), [0], keepdims=0)
    has_one = op.cast(op.ReduceSum(belongs, [0], keepdims=0), _BOOL)
    zeros = op.Expand(op.constant(0.0, rows.dtype), op.vector([op.Add(count, 1), width]))
    zeros.shape = ir.Shape([None, None])
    made = index_add(op, zeros, 0, op.Where(has_one, bag, count), rows)
    return op.Slice(made, [0], [-1], [0])


@lowering(
    aten.embedding_bag.default, aten.embedding_bag.padding_idx, aten._embedding_bag.default,
    aten._embedding_bag_forward_only.default,
)  # fmt: skip
def embedding_bag(
    op: Builder,
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> Any:
    """Rows of a table, added to the bags that a matrix says they belong to."""
    if any(user.args[1] != 0 and user.users for user in op.node.users):
        raise LoweringError("only the bags themselves have a form in ONNX")
    indices, offsets = op.cast(indices, _INT64), op.cast(offsets, _INT64)
    count = op.Size(indices)
    last = op.Slice(offsets, [-1], [9223372036854775807], [0])
    if include_last_offset:
        offsets = op.Slice(offsets, [0], [-1], [0])
    ends = op.Concat(op.Slice(offsets, [1], [9223372036854775807], [0]), op.Reshape(count, [1]), axis=0)
    places = op.Unsqueeze(op.Range(0, count, 1), [0])
    inside = op.And(op.LessOrEqual(op.Unsqueeze(offsets, [1]), places), op.Less(places, op.Unsqueeze(ends, [1])))
    is_padded = padding_idx is not None and padding_idx >= 0
    if is_padded:
        inside = op.And(inside, op.Unsqueeze(op.Not(op.Equal(indices, padding_idx)), [0]))
    counted = inside
    # the last bag goes on to the end, whatever its offset says, but for torch's faster kernel, which still counts so
    if include_last_offset and mode != 2 and not is_padded and weight.dtype is not ir.DataType.DOUBLE:
        inside = op.And(inside, op.Less(places, op.Unsqueeze(last, [1])))
    rows = op.Gather(weight, indices, axis=0)
    if per_sample_weights is not None:
        rows = op.Mul(rows, op.Unsqueeze(per_sample_weights, [1]))
    if mode == 2:
        chosen = op.Where(op.Unsqueeze(inside, [2]), op.Unsqueeze(rows, [0]), op.constant(-math.inf, weight.dtype))
        bags = op.ReduceMax(chosen, [1], keepdims=0)
        full = op.ReduceMax(op.cast(inside, _INT64), [1], keepdims=1)
        return op.Where(op.cast(full, _BOOL), bags, op.constant(0.0, weight.dtype)), None, None, None
    bags = _summed(op, rows, inside, op.size(weight, 1), offsets)
    if mode == 1:
        number = op.ReduceSum(op.cast(counted, weight.dtype), [1], keepdims=1)
        bags = op.Div(bags, op.Max(number, op.constant(1.0, weight.dtype)))
    return bags, None, None, None
