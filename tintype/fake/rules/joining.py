"""Putting tensors together: concatenation, repetition, padding, rolling."""

from __future__ import annotations

from collections.abc import Sequence

from tintype.fake.info import CHANNELS_LAST_ORDER, TensorInfo, preserved_strides, strides_in_order
from tintype.fake.promotion import result_type
from tintype.fake.rules.elementwise import common_device
from tintype.fake.rules.factories import repeat
from tintype.fake.rules.memory_format import fresh_in_format_of, looks_channels_last
from tintype.fake.rules.registry import rule
from tintype.fake.rules.views import unsqueeze, wrap_dimension
from tintype.symbolic import Expr, Size, eq, ge, gt, maximum
from tintype.symbolic.sizes import as_known, contiguous_strides, decided_zero, product, require, require_same


def _is_legacy_empty(info: TensorInfo) -> bool:
    """A tensor of size (0,) fits everywhere, for the sake of old programs."""
    sizes = info.sizes
    return len(sizes) == 1 and type(sizes[0]) is int and sizes[0] == 0


def _without_legacy_empty(tensors: Sequence[TensorInfo]) -> list[TensorInfo]:
    """The tensors that are joined. Beside one of more dimensions, one of a size that varies fits only if it is 0."""
    parts = [part for part in tensors if not _is_legacy_empty(part)]
    if len({len(part.sizes) for part in parts}) > 1:
        parts = [
            part
            for part in parts
            if len(part.sizes) != 1 or not isinstance(part.sizes[0], Expr) or not _is_left_out(part.sizes[0])
        ]
    return parts


def _is_left_out(size: Expr) -> bool:
    """Whether one dimension beside more is empty; if the data decide about its size, it has to be."""
    if size.has_unbacked:
        require(eq(size, 0), "Tensors must have same number of dimensions, unless they are empty")
        return True
    return decided_zero(size)


@rule("cat", "concat", "concatenate")
def cat(tensors: Sequence[TensorInfo], dim: int = 0) -> TensorInfo:
    if not tensors:
        raise RuntimeError("torch.cat(): expected a non-empty list of Tensors")
    parts = _without_legacy_empty(tensors)
    first = tensors[0]
    dtype = first.dtype
    device = first.device
    if any(part.dtype is not dtype or part.device != device for part in tensors):
        dtype = result_type(*tensors)
        device = common_device(tensors)
    if not parts:
        return TensorInfo((0,), (1,), dtype, device)
    model = parts[0].sizes
    if not model:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    where = wrap_dimension(dim, len(model))
    total = model[where]
    is_settled = True
    rest = model[:where] + model[where + 1 :]
    for part in parts[1:]:
        sizes = part.sizes
        if len(sizes) != len(model):
            raise RuntimeError(f"Tensors must have same number of dimensions: got {len(model)} and {len(sizes)}")
        if sizes[:where] + sizes[where + 1 :] != rest:
            _require_alike(model, sizes, where)
            is_settled = False
        total = total + sizes[where]
    result = (*model[:where], total, *model[where + 1 :])
    if not is_settled:  # strides of sizes that gave way to others are work for nothing
        result = as_known(result)
    if len(model) in CHANNELS_LAST_ORDER and all(looks_channels_last(part.sizes, part.strides) for part in tensors):
        strides = strides_in_order(result, CHANNELS_LAST_ORDER[len(model)])
    else:
        strides = contiguous_strides(result)
    return TensorInfo(result, strides, dtype, device)


def _require_alike(model: tuple[Size, ...], sizes: tuple[Size, ...], where: int) -> None:
    for i, (size, wanted) in enumerate(zip(sizes, model, strict=True)):
        if i != where and size is not wanted:

            def message(size: Size = size, wanted: Size = wanted) -> str:
                return (
                    f"Sizes of tensors must match except in dimension {where}. Expected size {wanted} but got "
                    f"size {size} for tensor in the list."
                )

            require_same(wanted, size, message)


@rule("stack")
def stack(tensors: Sequence[TensorInfo], dim: int = 0) -> TensorInfo:
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = tensors[0]
    where = wrap_dimension(dim, first.dim + 1)
    for part in tensors[1:]:
        if part.sizes != first.sizes:

            def message(part: TensorInfo = part) -> str:
                return (
                    f"stack expects each tensor to be equal size, but got {list(first.sizes)} at entry 0 and "
                    f"{list(part.sizes)} at a later one"
                )

            if part.dim != first.dim:
                raise RuntimeError(message())
            for size, wanted in zip(part.sizes, first.sizes, strict=True):
                require_same(size, wanted, message)
    sizes = (*first.sizes[:where], len(tensors), *first.sizes[where:])
    strides = contiguous_strides(sizes)
    if first.dim in CHANNELS_LAST_ORDER and first.strides != contiguous_strides(first.sizes):
        # images are joined along that dimension, which is then split
        if where < first.dim:
            joined = cat(tensors, where).strides
            strides = (*joined[:where], first.sizes[where] * joined[where], *joined[where:])
    dtype = first.dtype if all(part.dtype is first.dtype for part in tensors) else result_type(*tensors)
    return TensorInfo(sizes, strides, dtype, common_device(tensors))


def _at_least_1d(info: TensorInfo) -> TensorInfo:
    return info if info.sizes else info.view((1,), (1,))


def _at_least_2d(info: TensorInfo) -> TensorInfo:
    return info if info.dim >= 2 else unsqueeze(_at_least_1d(info), 0)


@rule("hstack")
def hstack(tensors: Sequence[TensorInfo]) -> TensorInfo:
    parts = [_at_least_1d(part) for part in tensors]
    return cat(parts, 0 if parts and parts[0].dim == 1 else 1)


@rule("vstack")
def vstack(tensors: Sequence[TensorInfo]) -> TensorInfo:
    return cat([_at_least_2d(part) for part in tensors], 0)


@rule("dstack")
def dstack(tensors: Sequence[TensorInfo]) -> TensorInfo:
    return cat([part if part.dim >= 3 else unsqueeze(_at_least_2d(part), 2) for part in tensors], 2)


@rule("column_stack")
def column_stack(tensors: Sequence[TensorInfo]) -> TensorInfo:
    columns = [part if part.dim > 1 else part.fresh((product(part.sizes), 1)) for part in tensors]
    return cat(columns, 1)


# --- repetition ------------------------------------------------------------------------------------------


@rule("repeat_interleave.self_int")
def repeat_interleave(
    self: TensorInfo, repeats: Size, dim: int | None = None, *, output_size: Size | None = None
) -> TensorInfo:
    if dim is None:
        return self.fresh((product(self.sizes) * repeats,))
    where = wrap_dimension(dim, self.dim)
    sizes = list(self.sizes)
    if sizes:
        sizes[where] = sizes[where] * repeats
    return self.fresh(sizes)


@rule("repeat_interleave.self_Tensor")
def repeat_interleave_by(
    self: TensorInfo, repeats: TensorInfo, dim: int | None = None, *, output_size: Size | None = None
) -> TensorInfo:
    if output_size is None:
        raise NotImplementedError("the size of the result depends on data")
    if dim is None:
        return self.fresh((output_size,))
    where = wrap_dimension(dim, self.dim)
    return self.fresh((*self.sizes[:where], output_size, *self.sizes[where + 1 :]))


@rule("tile")
def tile(self: TensorInfo, dims: Sequence[Size]) -> TensorInfo:
    return repeat(self, [1] * (self.dim - len(dims)) + list(dims))


# --- padding ---------------------------------------------------------------------------------------------


def _padded_sizes(self: TensorInfo, pad: Sequence[Size]) -> tuple[Size, ...]:
    if len(pad) % 2:
        raise RuntimeError("Length of pad must be even")
    if len(pad) > 2 * self.dim:
        raise RuntimeError(
            "Length of pad should be no more than twice the number of dimensions of the input. Pad length is "
            f"{len(pad)} while the input has {self.dim} dimensions."
        )
    sizes = list(self.sizes)
    for i in range(len(pad) // 2):
        where = self.dim - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        sizes[where] = new = sizes[where] + before + after
        if type(new) is int:
            if new < 0:
                raise RuntimeError(
                    f"The input size {self.sizes[where]}, plus negative padding {before} and {after} "
                    "resulted in a negative output size, which is invalid."
                )
        else:
            require(ge(new, 0), "negative padding resulted in a negative output size, which is invalid")
    return tuple(sizes)


@rule("constant_pad_nd")
def constant_pad_nd(self: TensorInfo, pad: Sequence[Size], value: float = 0) -> TensorInfo:
    sizes = _padded_sizes(self, pad)
    if all(type(margin) is int and margin <= 0 for margin in pad):
        # only crops: a copy of the part that stays, in its own order of dimensions
        return TensorInfo(sizes, preserved_strides(sizes, self.strides), self.dtype, self.device)
    return fresh_in_format_of(self, sizes)


@rule("pad")
def pad(self: TensorInfo, pad: Sequence[Size], mode: str = "constant", value: float | None = None) -> TensorInfo:
    if mode == "constant":
        return constant_pad_nd(self, pad, 0)
    if mode == "circular":
        for i, margin in enumerate(pad):
            size = self.sizes[self.dim - 1 - i // 2] if i // 2 < self.dim else 0
            require(ge(size, margin), "Padding value causes wrapping around more than once.")
        return self.fresh(_padded_sizes(self, pad))
    return _pad_by_content(self, pad, mode)


def _pad_by_content(self: TensorInfo, padding: Sequence[Size], mode: str) -> TensorInfo:
    space = len(padding) // 2
    if space not in (1, 2, 3) or self.dim not in (space + 1, space + 2):
        raise NotImplementedError(
            f"Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now, not {self.dim}D"
        )
    if mode == "reflect":
        for i in range(space):
            for margin in padding[2 * i : 2 * i + 2]:
                require(
                    gt(self.sizes[self.dim - 1 - i], margin),
                    lambda i=i: (  # type: ignore[misc]
                        "Padding size should be less than the corresponding input dimension, but got: "
                        f"padding {list(padding)} at dimension {self.dim - 1 - i} of input {list(self.sizes)}"
                    ),
                )
    sizes = _padded_sizes(self, padding)
    return fresh_in_format_of(self, sizes)


@rule("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(self: TensorInfo, padding: Sequence[Size]) -> TensorInfo:
    return _pad_by_content(self, padding, "reflect")


@rule("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(self: TensorInfo, padding: Sequence[Size]) -> TensorInfo:
    return _pad_by_content(self, padding, "replicate")


# --- rolling ---------------------------------------------------------------------------------------------


@rule("roll")
def roll(self: TensorInfo, shifts: Sequence[Size], dims: Sequence[int] = ()) -> TensorInfo:
    if dims and len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    for dim in dims:
        wrap_dimension(dim, self.dim)
    return fresh_in_format_of(self, self.sizes) if dims else self.fresh()


@rule("diff")
def diff(
    self: TensorInfo,
    n: int = 1,
    dim: int = -1,
    prepend: TensorInfo | None = None,
    append: TensorInfo | None = None,
) -> TensorInfo:
    if not self.sizes:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n == 0:
        raise NotImplementedError("nothing to subtract")
    where = wrap_dimension(dim, self.dim)
    whole = self
    parts = [part for part in (prepend, self, append) if part is not None]
    if len(parts) > 1:
        whole = cat(parts, where)
    length = whole.sizes[where] - n
    if isinstance(length, Expr):
        if (length.environment.hint(length) or 0) >= 0:
            raise NotImplementedError("whether anything is left depends on the size")
        length = maximum(length, 0)  # nothing is, in the example
    else:
        length = max(length, 0)
    sizes = (*whole.sizes[:where], length, *whole.sizes[where + 1 :])
    strides = preserved_strides(sizes, whole.strides)
    return TensorInfo(sizes, strides, whole.dtype, whole.device)
