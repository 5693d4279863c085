"""Conversions, joining, scattering and making tensors, where torchlib has none or leaves cases out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.fake.tensor import FakeTensor
from tintype.onnx import dtypes
from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64, _BOOL = ir.DataType.INT64, ir.DataType.BOOL
# What is too large for these becomes infinite or nan, and not the largest number.
_NOT_SATURATED = (ir.DataType.FLOAT8E5M2, ir.DataType.FLOAT8E4M3FNUZ, ir.DataType.FLOAT8E5M2FNUZ)


@lowering(
    aten.to.dtype, aten.to.device, aten.to.dtype_layout, aten.to.other, aten._to_copy.default, aten.type_as.default
)
def convert(op: Builder, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """To the dtype of the result; where a tensor lies is nothing that ONNX says."""
    result = op.node.meta["val"]
    source = op.node.args[0].meta["val"]
    if result.dtype.is_complex:
        stored = dtypes.stored_as(result.dtype)
        assert stored is not None
        if source.dtype.is_complex:
            return op.cast(tensor, stored)
        real = op.Unsqueeze(op.cast(tensor, stored), [-1])
        return op.Concat(real, op.Expand(op.constant(0.0, stored), op.Shape(real)), axis=-1)
    wanted = dtypes.to_onnx(result.dtype)
    if wanted is None:
        raise LoweringError(f"ONNX has no dtype {result.dtype}")
    if source.dtype.is_complex:  # what is not real is left out, but makes something true
        if wanted is _BOOL:
            return op.Or(*(op.cast(op.Gather(tensor, op.constant(each, _INT64), axis=-1), _BOOL) for each in (0, 1)))
        tensor = op.Gather(tensor, op.constant(0, _INT64), axis=-1)
    if wanted in _NOT_SATURATED and tensor.dtype is not wanted and op.opset >= 19:  # which has them first
        return op.Cast(tensor, to=wanted, saturate=0)
    return op.cast(tensor, wanted)


convert.takes_complex = True  # type: ignore[attr-defined]


@lowering(aten.copy.default)
def copy(op: Builder, tensor: Any, source: Any, non_blocking: bool = False) -> Any:
    """The elements of another tensor, which may stand for several each."""
    converted = op.like(source, tensor)
    same = list(source.shape) == list(tensor.shape)
    return converted if same else op.Expand(converted, op.Shape(tensor))


@lowering(aten.pixel_shuffle.default)
def pixel_shuffle(op: Builder, tensor: Any, factor: int) -> Any:
    """Blocks of channels become blocks of pixels."""
    rank = len(tensor.shape)
    if rank == 4 and tensor.dtype.is_floating_point():
        return op.DepthToSpace(tensor, blocksize=factor, mode="CRD")
    lead = [op.size(tensor, each) for each in range(rank - 3)]
    channels, height, width = (op.size(tensor, each) for each in range(rank - 3, rank))
    if not all(isinstance(size, int) for size in (channels, height, width)):
        raise LoweringError("of images whose sizes vary it has a form for batches of floating-point numbers only")
    first = len(lead)
    made = channels // factor**2
    blocks = op.Reshape(tensor, op.vector([*lead, made, factor, factor, height, width]))
    order = [*range(first), first, first + 3, first + 1, first + 4, first + 2]
    return op.Reshape(op.Transpose(blocks, perm=order), op.vector([*lead, made, height * factor, width * factor]))


@lowering(aten.cat.default, aten.concat.default, aten.concatenate.default)
def cat(op: Builder, tensors: Sequence[Any], dim: int = 0) -> Any:
    """Tensors without elements and with one dimension are passed over, as torch does."""
    kept = [each for each in tensors if not (len(each.shape) == 1 and each.shape[0] == 0)]
    if not kept:
        return tensors[0]
    return op.Concat(*kept, axis=dim % len(kept[0].shape))


@lowering(aten.nonzero.default, aten.argwhere.default)
def nonzero(op: Builder, tensor: Any) -> Any:
    if len(tensor.shape) == 0:
        count = op.Reshape(op.cast(op.cast(tensor, _BOOL), _INT64), [1])
        return op.Expand(op.constant(0, _INT64), op.Concat(count, op.constant([0], _INT64), axis=0))
    return op.Transpose(op.NonZero(tensor), perm=[1, 0])


@lowering(aten.put.default)
def put(op: Builder, tensor: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    flat = op.Reshape(tensor, [-1])
    places = op.Reshape(op.cast(index, _INT64), [-1])
    values = op.Reshape(source, [-1])
    placed = op.ScatterElements(flat, places, values, axis=0, reduction="add" if accumulate else None)
    return op.Reshape(placed, op.Shape(tensor))


_REDUCTIONS = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scattered(op: Any, tensor: Any, dim: int, index: Any, source: Any, reduction: str | None) -> Any:
    """Elements of ``source`` at the places of ``index``, of which there may be fewer than of ``source``."""
    dtype = tensor.dtype
    rank = len(tensor.shape)
    if rank == 0:
        tensor = op.Reshape(tensor, [1])
    if len(index.shape) == 0:
        index = op.Reshape(index, [1])
    index = op.cast(index, _INT64)
    shape: Any = source.shape if isinstance(source, ir.Value) else ()
    if len(shape) == 0:
        source = op.Expand(op.like(source, tensor), op.Shape(index))
    elif list(shape) != list(index.shape):
        axes = list(range(len(index.shape)))
        source = op.Slice(source, op.constant([0] * len(axes), _INT64), op.Shape(index), axes)
    if reduction is not None and dtype is _BOOL:
        tensor, source = op.cast(tensor, ir.DataType.INT32), op.cast(source, ir.DataType.INT32)
    axis = dim % max(rank, 1)
    placed = op.cast(op.ScatterElements(tensor, index, source, axis=axis, reduction=reduction), dtype)
    return op.Reshape(placed, op.constant([], _INT64)) if rank == 0 else placed


def _is_empty(index: Any) -> bool:
    return any(isinstance(size, int) and size == 0 for size in index.shape)


@lowering(aten.scatter.src, aten.scatter.value)
def scatter(op: Builder, tensor: Any, dim: int, index: Any, source: Any) -> Any:
    return tensor if _is_empty(index) else _scattered(op, tensor, dim, index, source, None)


@lowering(aten.scatter.reduce, aten.scatter.value_reduce)
def scatter_reducing(op: Builder, tensor: Any, dim: int, index: Any, source: Any, *, reduce: str) -> Any:
    return tensor if _is_empty(index) else _scattered(op, tensor, dim, index, source, _REDUCTIONS[reduce])


@lowering(aten.scatter_add.default)
def scatter_add(op: Builder, tensor: Any, dim: int, index: Any, source: Any) -> Any:
    return tensor if _is_empty(index) else _scattered(op, tensor, dim, index, source, "add")


@lowering(aten.gather.default)
def gather(op: Builder, tensor: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    index = op.cast(index, _INT64)
    if len(tensor.shape) == 0:
        return tensor if len(index.shape) == 0 else op.Expand(tensor, op.Shape(index))
    if len(index.shape) == 0:
        found = op.GatherElements(op.Reshape(tensor, [-1]), op.Reshape(index, [1]), axis=0)
        return op.Reshape(found, op.constant([], _INT64))
    return op.GatherElements(tensor, index, axis=dim % len(tensor.shape))


@lowering(aten.nonzero_static.default)
def nonzero_static(op: Builder, tensor: Any, *, size: Any, fill_value: int = -1) -> Any:
    found = nonzero(op, tensor)
    if len(tensor.shape) == 0:
        raise LoweringError("of a tensor without dimensions it has no form")
    room = op.Expand(op.constant(fill_value, _INT64), op.vector([size, len(tensor.shape)]))
    return op.Slice(op.Concat(found, room, axis=0), op.constant([0], _INT64), op.as_vector(size), [0])


@lowering(aten.empty_permuted.default)
def empty_permuted(op: Builder, sizes: Sequence[Any], order: Any, **kwargs: Any) -> Any:
    example = op.node.meta["val"]
    assert type(example) is FakeTensor
    dtype = dtypes.to_onnx(example.info.dtype)
    return op.Expand(op.constant(0, dtype), op.vector(sizes))


@lowering(aten.max_unpool2d.default)
def max_unpool2d(op: Builder, tensor: Any, places: Any, size: Sequence[Any]) -> Any:
    return _unpooled(op, tensor, places, size, 2)


@lowering(aten.max_unpool3d.default)
def max_unpool3d(op: Builder, tensor: Any, places: Any, size: Sequence[Any], stride: Any, padding: Any) -> Any:
    return _unpooled(op, tensor, places, size, 3)


def _unpooled(op: Builder, tensor: Any, places: Any, size: Sequence[Any], dimensions: int) -> Any:
    """Each element where it came from, in an image of zeros."""
    rank = len(tensor.shape)
    lead = [op.size(tensor, each) for each in range(rank - dimensions)]
    whole = [op.cast(each, _INT64) if isinstance(each, ir.Value) else each for each in size]
    count: Any = 1
    for each in whole:
        count = (
            count * each if isinstance(count, int) and isinstance(each, int) else op.Mul(op.cast(count, _INT64), each)
        )
    room = op.Expand(op.constant(0, tensor.dtype), op.vector([*lead, count]))
    flat = op.vector([*lead, -1])
    placed = op.ScatterElements(room, op.Reshape(places, flat), op.Reshape(tensor, flat), axis=rank - dimensions)
    return op.Reshape(placed, op.vector([*lead, *whole]))
