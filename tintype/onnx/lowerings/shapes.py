"""Views and copies: other shapes, parts and arrangements of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tintype.fake.tensor import FakeTensor
from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_INT64 = ir.DataType.INT64
_END = 9223372036854775807


def _sizes_of(argument: Any) -> tuple[Any, ...]:
    value = argument.meta["val"]
    assert type(value) is FakeTensor
    return value.info.sizes


@lowering(
    aten.alias.default, aten.detach.default, aten.clone.default, aten.contiguous.default,
    aten.lift_fresh_copy.default, aten.lift_fresh.default, aten.lift.default, aten.resolve_conj.default,
    aten.resolve_neg.default, aten.positive.default, aten.detach_copy.default, aten.alias_copy.default,
)  # fmt: skip
def same(op: Builder, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    return tensor


for _each in (same,):
    _each.takes_complex = True  # type: ignore[attr-defined]


@lowering(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten._reshape_copy.default,
    aten.view_copy.default,
)
def reshape(op: Builder, tensor: Any, sizes: Sequence[Any]) -> Any:
    """Sizes that an operand has at the same place are copied, so that most shapes are constants."""
    old, new = _sizes_of(op.node.args[0]), _sizes_of(op.node)
    if old == new:
        return tensor
    wanted: list[Any] = []
    copies = True
    for position, size in enumerate(sizes):
        is_copy = copies and position < len(old) and position < len(new) and old[position] == new[position]
        if is_copy and isinstance(size, ir.Value):
            wanted.append(0)
        else:
            wanted.append(size)
    plain = [size for size in wanted if not isinstance(size, ir.Value)]
    if 0 in [size for size in sizes if not isinstance(size, ir.Value)]:
        # a size that is 0 itself: nothing can be copied, and nothing left open
        return op.Reshape(tensor, op.vector([_plain(size, each) for size, each in zip(sizes, new)]), allowzero=1)
    if -1 not in plain and len(plain) < len(wanted):
        # copies would let ONNX Runtime's optimizer leave the rest open, which it can't be where something is 0
        return op.Reshape(tensor, op.vector(sizes), allowzero=1)
    return op.Reshape(tensor, op.vector(wanted))


def _plain(size: Any, known: Any) -> Any:
    return known if isinstance(known, int) else size


@lowering(aten.flatten.using_ints, aten.ravel.default)
def flatten(op: Builder, tensor: Any, start: int = 0, end: int = -1) -> Any:
    return _to_known_shape(op, tensor)


@lowering(aten.unflatten.int)
def unflatten(op: Builder, tensor: Any, dimension: int, sizes: Sequence[Any]) -> Any:
    rank = len(tensor.shape)
    dimension %= rank
    if 0 in _sizes_of(op.node):
        return _to_known_shape(op, tensor)
    around = [op.size(tensor, each) for each in range(rank) if each != dimension]
    inside = list(sizes)
    others = [size for size in inside if isinstance(size, ir.Value) or size != -1]
    if len(others) < len(inside) and not any(isinstance(size, ir.Value) for size in (*others, *around)):
        return op.Reshape(tensor, op.vector([*around[:dimension], *inside, *around[dimension:]]))
    if len(others) < len(inside):  # what is left open follows from this dimension alone: others may be 0
        left = op.cast(op.size(tensor, dimension), _INT64)
        for size in others:
            left = op.Div(left, op.cast(size, _INT64))
        inside = [size if isinstance(size, ir.Value) or size != -1 else left for size in inside]
    return op.Reshape(tensor, op.vector([*around[:dimension], *inside, *around[dimension:]]), allowzero=1)


def _to_known_shape(op: Builder, tensor: Any) -> Any:
    """A reshape to the shape that the program knows: one size may be left open."""
    old, new = _sizes_of(op.node.args[0]), _sizes_of(op.node)
    if old == new:
        return tensor
    if all(isinstance(size, int) for size in new):
        return op.Reshape(tensor, op.constant(list(new), _INT64), allowzero=1 if 0 in new else None)
    wanted: list[Any] = []
    leading = 0
    while leading < min(len(old), len(new)) and old[leading] == new[leading]:
        wanted.append(0 if not isinstance(new[leading], int) else new[leading])
        leading += 1
    rest = new[leading:]
    open_sizes = [size for size in rest if not isinstance(size, int)]
    may_be_empty = any(not isinstance(size, int) for size in new[:leading])  # then nothing can be left open
    if 0 not in new and len(open_sizes) <= (0 if may_be_empty else 1):
        wanted += [size if isinstance(size, int) else -1 for size in rest]
        return op.Reshape(tensor, op.vector(wanted))
    shape = op.Shape(tensor)
    trailing = len(old) - (len(new) - leading - 1)
    parts = [op.Slice(shape, [0], [leading], [0])] if leading else []
    merged = op.ReduceProd(op.Slice(shape, [leading], [trailing], [0]), keepdims=1)
    parts.append(merged)
    if trailing < len(old):
        parts.append(op.Slice(shape, [trailing], [len(old)], [0]))
    return op.Reshape(tensor, op.Concat(*parts, axis=0), allowzero=1)


@lowering(aten.expand.default, aten.expand_copy.default)
def expand(op: Builder, tensor: Any, sizes: Sequence[Any], *, implicit: bool = False) -> Any:
    old, new = _sizes_of(op.node.args[0]), _sizes_of(op.node)
    if old == new:
        return tensor
    lead = len(new) - len(old)
    wanted: list[Any] = []
    for position, size in enumerate(sizes):
        if (position >= lead and old[position - lead] == new[position]) or (
            not isinstance(size, ir.Value) and size == -1
        ):
            wanted.append(1)
        else:
            wanted.append(size)
    return op.Expand(tensor, op.vector(wanted))


@lowering(aten.expand_as.default, aten.broadcast_to.default)
def expand_as(op: Builder, tensor: Any, other: Any) -> Any:
    if isinstance(other, list):
        return expand(op, tensor, other)
    return op.Expand(tensor, op.Shape(other))


@lowering(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice_(op: Builder, tensor: Any, dimension: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    if (start is None or _is(start, 0)) and (end is None or _is(end, _END)) and step == 1:
        return tensor
    return op.Slice(
        tensor,
        op.as_vector(0 if start is None else start),
        op.as_vector(_END if end is None else end),
        op.constant([dimension % _rank(op)], _INT64),
        *([] if step == 1 else [op.constant([step], _INT64)]),
    )


slice_.takes_complex = True  # type: ignore[attr-defined]


def _is(number: Any, value: int) -> bool:
    return not isinstance(number, ir.Value) and number == value


def _rank(op: Builder) -> int:
    return len(_sizes_of(op.node.args[0]))


@lowering(aten.narrow.default, aten.narrow_copy.default)
def narrow(op: Builder, tensor: Any, dimension: int, start: Any, length: Any) -> Any:
    if isinstance(start, ir.Value) or isinstance(length, ir.Value):
        start = op.cast(start, _INT64)
        end = op.Add(op.Reshape(start, [1]), op.Reshape(op.cast(length, _INT64), [1]))
    else:
        start %= max(_known(op, dimension), 1)
        end = start + length
    return op.Slice(tensor, op.as_vector(start), op.as_vector(end), [dimension % _rank(op)])


def _known(op: Builder, dimension: int) -> int:
    size = _sizes_of(op.node.args[0])[dimension]
    return size if isinstance(size, int) else _END


@lowering(aten.select.int, aten.select_copy.int)
def select(op: Builder, tensor: Any, dimension: int, index: Any) -> Any:
    index = op.cast(index, _INT64)
    return op.Gather(tensor, index, axis=dimension % _rank(op))


select.takes_complex = True  # type: ignore[attr-defined]


@lowering(aten.squeeze.dims)
def squeeze_dims(op: Builder, tensor: Any, dimensions: Sequence[int]) -> Any:
    """Only sizes of 1 go; what is 1 the program knows, or asserts."""
    sizes = _sizes_of(op.node.args[0])
    asked = sorted({each % len(sizes) for each in dimensions if sizes}) if sizes else []
    gone = [each for each in asked if isinstance(sizes[each], int) and sizes[each] == 1]
    missing = len(sizes) - len(_sizes_of(op.node)) - len(gone)
    if missing:
        varying = [each for each in asked if not isinstance(sizes[each], int)]
        if len(varying) != missing:
            raise LoweringError("which of its sizes are 1 is known by an assertion only")
        gone = sorted([*gone, *varying])
    return op.Squeeze(tensor, gone) if gone else tensor


@lowering(aten.squeeze.dim, aten.squeeze_copy.dim)
def squeeze_dim(op: Builder, tensor: Any, dimension: int) -> Any:
    return squeeze_dims(op, tensor, [dimension])


@lowering(aten.squeeze.default, aten.squeeze_copy.default)
def squeeze(op: Builder, tensor: Any) -> Any:
    return squeeze_dims(op, tensor, range(len(_sizes_of(op.node.args[0]))))


for _each in (squeeze_dims, squeeze_dim, squeeze):  # which count dimensions as the program does
    _each.takes_complex = True  # type: ignore[attr-defined]


# --- parts ----------------------------------------------------------------------------------------------------------


def _parts(op: Builder, tensor: Any, dimension: int) -> list[Any]:
    """A tensor divided into the sizes that the program knows its parts have."""
    results = op.node.meta["val"]
    dimension %= len(_sizes_of(op.node.args[0]))
    sizes = [value.info.sizes[dimension] for value in results]
    if len(results) == 1:
        return [tensor]
    if all(isinstance(size, int) for size in sizes):
        lengths: Any = op.constant(sizes, _INT64)
        return list(op.Split(tensor, lengths, axis=dimension, _outputs=len(results)))
    return []


def _split(op: Builder, tensor: Any, dimension: int, starts: list[Any]) -> list[Any]:
    """Parts that begin at these numbers, each until the next one begins."""
    ends = [*starts[1:], _END]
    axis = [dimension % len(_sizes_of(op.node.args[0]))]
    return [op.Slice(tensor, op.as_vector(start), op.as_vector(end), axis) for start, end in zip(starts, ends)]


@lowering(aten.split.Tensor, aten.split_copy.Tensor, aten.unsafe_split.Tensor)
def split(op: Builder, tensor: Any, size: Any, dimension: int = 0) -> Any:
    found = _parts(op, tensor, dimension)
    if found:
        return found
    count = len(op.node.meta["val"])
    starts = [op.Mul(op.cast(size, _INT64), number) for number in range(1, count)]
    return _split(op, tensor, dimension, [0, *starts])


@lowering(
    aten.split_with_sizes.default,
    aten.split.sizes,
    aten.split_with_sizes_copy.default,
    aten.unsafe_split_with_sizes.default,
)
def split_with_sizes(op: Builder, tensor: Any, sizes: Sequence[Any], dimension: int = 0) -> Any:
    found = _parts(op, tensor, dimension)
    if found:
        return found
    return list(op.Split(tensor, op.vector(sizes), axis=dimension % _rank(op), _outputs=len(sizes)))


@lowering(aten.chunk.default, aten.tensor_split.sections, aten.unsafe_chunk.default)
def chunk(op: Builder, tensor: Any, count: int, dimension: int = 0) -> Any:
    found = _parts(op, tensor, dimension)
    if found:
        return found
    number = len(op.node.meta["val"])
    size = op.size(tensor, dimension)
    if op.node.target is not aten.tensor_split.sections:
        length = op.Div(op.Add(op.cast(size, _INT64), count - 1), count)
        return _split(op, tensor, dimension, [0] + [op.Mul(length, each) for each in range(1, number)])
    size = op.cast(size, _INT64)
    base, extra = op.Div(size, count), op.Mod(size, count)
    starts = [op.Add(op.Mul(base, each), op.Min(extra, op.constant(each, _INT64))) for each in range(1, number)]
    return _split(op, tensor, dimension, [0, *starts])


@lowering(aten.unbind.int, aten.unbind_copy.int)
def unbind(op: Builder, tensor: Any, dimension: int = 0) -> Any:
    count = len(op.node.meta["val"])
    dimension %= _rank(op)
    if count == 1:
        return [op.Squeeze(tensor, [dimension])]
    return [op.Gather(tensor, op.constant(number, _INT64), axis=dimension) for number in range(count)]


for _each in (split, split_with_sizes, chunk, unbind, narrow):
    _each.takes_complex = True  # type: ignore[attr-defined]


@lowering(aten.as_strided.default)
def as_strided(op: Builder, tensor: Any, sizes: Sequence[Any], strides: Sequence[Any], offset: Any = None) -> Any:
    """Elements of a tensor by their places in memory: for one that fills its memory in order, and is no input, these
    are known."""
    source = op.node.args[0].meta["val"].info
    fixed = [*source.sizes, *sizes, *strides, offset or 0]
    if not all(isinstance(each, int) for each in fixed) or source.offset != 0:
        raise LoweringError("where its elements lie in memory depends on sizes that vary")
    expected: list[int] = []
    count = 1
    for size in reversed(source.sizes):
        expected.insert(0, count)
        count *= max(size, 1)
    dense = all(size == 1 or stride == step for size, stride, step in zip(source.sizes, source.strides, expected))
    places = np.full([], offset or 0, dtype=np.int64)
    for size, stride in zip(sizes, strides):
        places = places[..., None] + np.arange(size) * stride
    if not dense or (places.size and places.max() >= count) or op.node.args[0].op == "placeholder":
        raise LoweringError("ONNX has no memory: which elements these are depends on how the tensor lies in it")
    return op.Gather(op.Reshape(tensor, [-1]), op.constant(places, _INT64), axis=0)


@lowering(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal(op: Builder, tensor: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Picked by their places: what a mask leaves of nan and infinite numbers beside a diagonal would be nan."""
    rank = len(tensor.shape)
    first, second = dim1 % rank, dim2 % rank
    others = [each for each in range(rank) if each not in (first, second)]
    rows, columns = op.size(tensor, first), op.size(tensor, second)
    sizes = [op.size(tensor, each) for each in others]
    below, beside = max(-offset, 0), max(offset, 0)

    def less(size: Any, number: int) -> Any:
        return max(size - number, 0) if isinstance(size, int) else op.Sub(size, op.constant(number, _INT64))

    left = [op.cast(less(rows, below), _INT64), op.cast(less(columns, beside), _INT64)]
    count = op.Max(op.Min(*left), op.constant(0, _INT64))
    width = op.cast(columns, _INT64)
    begin = op.Add(op.Mul(width, op.constant(below, _INT64)), op.constant(beside, _INT64))
    step = op.Add(width, op.constant(1, _INT64))
    places = op.Add(op.Mul(op.Range(op.constant(0, _INT64), count, op.constant(1, _INT64)), step), begin)
    fixed = isinstance(rows, int) and isinstance(columns, int)
    area = rows * columns if fixed else op.Mul(op.cast(rows, _INT64), width)
    flat = op.Reshape(op.Transpose(tensor, perm=[*others, first, second]), op.vector([*sizes, area]), allowzero=1)
    return op.Gather(flat, places, axis=len(others))


@lowering(aten.repeat_interleave.self_int)
def repeat_interleave(
    op: Builder, tensor: Any, repeats: Any, dim: int | None = None, *, output_size: Any = None
) -> Any:
    if dim is None:
        number = op.Size(tensor)
        tensor, axis, sizes = op.Reshape(tensor, [-1]), 0, [number]
    else:
        axis = dim % len(tensor.shape)
        sizes = [op.size(tensor, each) for each in range(len(tensor.shape))]
    wide = op.Unsqueeze(tensor, [axis + 1])
    tiled = op.Expand(wide, op.vector([*([1] * (axis + 1)), repeats, *([1] * (len(sizes) - axis - 1))]))
    if isinstance(sizes[axis], ir.Value) or isinstance(repeats, ir.Value):
        sizes[axis] = op.Mul(op.cast(sizes[axis], _INT64), op.cast(repeats, _INT64))
    else:
        sizes[axis] *= repeats
    return op.Reshape(tiled, op.vector(sizes), allowzero=1)
