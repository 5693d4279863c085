"""Views: another geometry over the same storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.fake.info import TensorInfo, strides_for_format
from tintype.fake.rules.memory_format import looks_channels_last
from tintype.fake.rules.registry import rule
from tintype.symbolic import Condition, Expr, Size, ceil_div, choose, eq, ge, lt, maximum, minimum
from tintype.symbolic.sizes import (
    Message,
    at_least,
    certainly_same,
    contiguous_strides,
    decided_one,
    decided_zero,
    generally_at_least,
    is_one,
    is_stretched,
    is_zero,
    product,
    require,
    require_equal_or_one,
    require_same,
    same,
    usually_at_least,
)


def wrap_dimension(dim: int, count: int) -> int:
    """A dimension counted from the end as one counted from the start."""
    limit = max(count, 1)
    if not -limit <= dim < limit:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})"
        )
    return dim + limit if dim < 0 else dim


def infer_size(shape: Sequence[Size], numel: Size) -> tuple[Size, ...]:
    """A shape in which one -1 is replaced by what the number of elements leaves for it."""
    missing = -1
    known: Any = 1
    for i, size in enumerate(shape):
        if type(size) is int and size < 0:
            if size < -1:
                raise RuntimeError(f"invalid shape dimension {size} at index {i} of shape {list(shape)}")
            if missing >= 0:
                raise RuntimeError("only one dimension can be inferred")
            missing = i
        else:
            known = known * size
    if missing < 0 and known == numel:
        return tuple(shape)

    def invalid() -> str:
        return f"shape '{[str(s) for s in shape]}' is invalid for input of size {numel}".replace("'", "")

    if missing < 0:
        require_same(known, numel, invalid)
        return tuple(shape)
    if is_zero(known):
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension "
            "size -1 can be any value and is ambiguous"
        )
    inferred = numel // known
    require_same(numel % known, 0, invalid)
    result = list(shape)
    result[missing] = inferred
    return tuple(result)


class Questions:
    """How a question of layout is answered where sizes vary: by what is certain, or else by a guard."""

    same = staticmethod(same)
    is_one = staticmethod(is_one)
    at_least = staticmethod(generally_at_least)


class ExamplesQuestions(Questions):
    """The same where a size that is 1 in the example is taken for 1, and strides accordingly, by guards."""

    @staticmethod
    def same(left: Size, right: Size) -> bool:
        condition = eq(left, right)
        if isinstance(condition, bool):
            return condition
        with condition.environment.following_hints():
            return condition.environment.guard_or(condition, False)

    @staticmethod
    def is_one(size: Size) -> bool:
        return ExamplesQuestions.same(size, 1)


class GeneralQuestions(Questions):
    """The same without guards: for operators that are right whatever the answer is."""

    same = staticmethod(certainly_same)
    at_least = staticmethod(usually_at_least)


def _filling(shape: Sequence[Size], numel: Size, last: bool) -> int | None:
    """How many dimensions, from the end, certainly hold so many elements; all of them for the ``last`` run of memory.
    A size that is 1 in the example must not be left to the next run because it does not seem to be needed."""
    if last and certainly_same(product(shape), numel):
        return len(shape)
    held: Size = 1
    for count, size in enumerate(reversed(shape)):
        if certainly_same(held, numel):
            return count
        held = held * size
    return len(shape) if certainly_same(held, numel) else None


def view_strides(
    sizes: Sequence[Size],
    strides: Sequence[Size],
    shape: Sequence[Size],
    ask: type[Questions] | Questions = Questions,
) -> tuple[Size, ...] | None:
    """The strides of a view with another shape, or None when only a copy can have it."""
    same, is_one, at_least = ask.same, ask.is_one, ask.at_least
    if tuple(strides) == contiguous_strides(sizes):
        return contiguous_strides(shape)
    if is_zero(product(sizes)):
        return tuple(strides) if tuple(sizes) == tuple(shape) else contiguous_strides(shape)
    if tuple(sizes) == tuple(shape) and not any(is_one(size) for size in sizes):
        return tuple(strides)
    new: list[Size] = [1] * len(shape)
    if not sizes:
        return tuple(new)
    position = len(shape) - 1
    chunk_stride: Size = strides[-1]
    chunk: Size = 1
    view_numel: Size = 1
    for dim in range(len(sizes) - 1, -1, -1):
        chunk = chunk * sizes[dim]
        at_end = dim == 0 or (not is_one(sizes[dim - 1]) and not same(strides[dim - 1], chunk * chunk_stride))
        if not at_end:
            continue
        # take dimensions of the new shape until they fill this run of memory-adjacent old ones
        count = _filling(shape[: position + 1], chunk, last=dim == 0)
        while position >= 0 and (count or is_one(shape[position]) or (count is None and not same(view_numel, chunk))):
            if count:
                count -= 1
            elif not is_one(shape[position]) and at_least(view_numel, chunk):
                break
            new[position] = view_numel * chunk_stride
            view_numel = view_numel * shape[position]
            position -= 1
        if not same(view_numel, chunk):
            return None
        if dim > 0:
            chunk_stride = strides[dim - 1]
            chunk = 1
            view_numel = 1
    return tuple(new) if position < 0 else None


def _strides_of_parts(self: TensorInfo, shape: Sequence[Size]) -> tuple[Size, ...] | None:
    """The strides of a view in which one dimension is taken apart and all others stay; None for any other.

    Its parts may be numbers that only data tells (``torch.div(size, 2)``): then it is required that they fill it."""
    before = _in_common(self.sizes, shape)
    after = _in_common(self.sizes[before:][::-1], shape[before:][::-1])
    parts = shape[before : len(shape) - after]
    if self.dim - before - after != 1 or len(parts) < 2:
        return None
    length, stride = self.sizes[before], self.strides[before]
    require_same(
        product(parts), length, lambda: f"shape {list(shape)} is invalid for input of size {list(self.sizes)}"
    )
    inside = [step * stride for step in contiguous_strides(parts)]
    return (*self.strides[:before], *inside, *self.strides[self.dim - after :])


def _in_common(sizes: Sequence[Size], shape: Sequence[Size]) -> int:
    """How many sizes two shapes begin with alike."""
    differing = (place for place, (one, other) in enumerate(zip(sizes, shape)) if one != other)
    return next(differing, min(len(sizes), len(shape)))


@rule("view", "_reshape_alias")
def view(self: TensorInfo, size: Sequence[Size], stride: Any = None) -> TensorInfo:
    if stride is not None:
        return self.view(size, stride)
    shape = infer_size(size, product(self.sizes))
    strides = view_strides(self.sizes, self.strides, shape)
    if strides is None:  # it may be one for the example alone
        strides = view_strides(self.sizes, self.strides, shape, ExamplesQuestions)
    if strides is None:
        strides = _strides_of_parts(self, shape)
    if strides is None and decided_zero(product(self.sizes)):
        strides = contiguous_strides(shape)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans "
            "across two contiguous subspaces). Use .reshape(...) instead."
        )
    return self.view(shape, strides)


@rule("unflatten.int")
def unflatten(self: TensorInfo, dim: int, sizes: Sequence[Size]) -> TensorInfo:
    if not sizes or not self.sizes:
        raise NotImplementedError  # eager mode says what is wrong
    where = wrap_dimension(dim, self.dim)
    length = self.sizes[where]
    if -1 not in sizes:
        require_same(
            product(sizes),
            length,
            lambda: (
                f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {where} ({length}) "
                "in the input tensor"
            ),
        )
    parts = infer_size(sizes, length)
    return view(self, [*self.sizes[:where], *parts, *self.sizes[where + 1 :]])


@rule("_unsafe_view")
def unsafe_view(self: TensorInfo, size: Sequence[Size]) -> TensorInfo:
    result = view(self, size)
    result.storage = None
    return result


# --- views where the layout allows them, copies elsewhere -------------------------------------------------


@rule("reshape")
def reshape(self: TensorInfo, shape: Sequence[Size]) -> TensorInfo:
    """Whether it is a view or a copy is for the layout to say, and nothing that a program must know."""
    sizes = infer_size(shape, product(self.sizes))
    strides = view_strides(self.sizes, self.strides, sizes, GeneralQuestions)
    return self.fresh(sizes) if strides is None else self.view(sizes, strides)


@rule("flatten.using_ints")
def flatten(self: TensorInfo, start_dim: int = 0, end_dim: int = -1) -> TensorInfo:
    first, last = wrap_dimension(start_dim, self.dim), wrap_dimension(end_dim, self.dim)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not self.sizes:
        return reshape(self, [1])
    if first == last:
        return self
    return reshape(self, [*self.sizes[:first], product(self.sizes[first : last + 1]), *self.sizes[last + 1 :]])


@rule("ravel")
def ravel(self: TensorInfo) -> TensorInfo:
    return reshape(contiguous(self), [-1])


@rule("contiguous")
def contiguous(self: TensorInfo, *, memory_format: torch.memory_format = torch.contiguous_format) -> TensorInfo:
    if memory_format is torch.preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    strides = strides_for_format(self, memory_format)
    if lies_in(self, strides):
        return self.view(self.sizes, self.strides)
    return TensorInfo(self.sizes, strides, self.dtype, self.device)


@rule("to.dtype")
def to_format(
    self: TensorInfo,
    dtype: torch.dtype,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: torch.memory_format | None = None,
) -> TensorInfo:
    """To a memory format alone; other conversions are recorded as what they do."""
    if copy or dtype is not self.dtype or memory_format is None:
        raise NotImplementedError
    channels_last = looks_channels_last(self.sizes, self.strides)
    if channels_last is (memory_format is not torch.contiguous_format):
        return self.view(self.sizes, self.strides)
    return TensorInfo(self.sizes, strides_for_format(self, memory_format), self.dtype, self.device)


def lies_in(self: TensorInfo, strides: tuple[Size, ...], ask: type[Questions] | Questions = GeneralQuestions) -> bool:
    """Whether a tensor has certain strides, where they mean something."""
    if self.strides == strides or any(is_zero(size) for size in self.sizes):
        return True
    pairs = zip(self.sizes, self.strides, strides, strict=True)
    return all(ask.is_one(size) or ask.same(stride, wanted) for size, stride, wanted in pairs)


@rule("view.dtype")
def view_as_dtype(self: TensorInfo, dtype: torch.dtype) -> TensorInfo:
    old, new = self.dtype.itemsize, dtype.itemsize
    sizes, strides, offset = list(self.sizes), list(self.strides), self.offset
    if new < old:
        ratio = old // new
        strides = [s * ratio for s in strides[:-1]] + [1] if sizes else strides
        offset = offset * ratio
        if not sizes:
            raise RuntimeError("self.dim() cannot be 0 to view a tensor as a dtype of another element size")
        sizes[-1] = sizes[-1] * ratio
    elif new > old:
        ratio = new // old
        if not sizes or not same(strides[-1], 1):
            raise RuntimeError("self.stride(-1) must be 1 to view a tensor as a dtype with a larger element size")
        require_same(sizes[-1] % ratio, 0, "self.size(-1) must be divisible by the ratio of element sizes")
        sizes[-1] = sizes[-1] // ratio
        strides = [s // ratio for s in strides[:-1]] + [1]
        offset = offset // ratio
    result = self.view(sizes, strides, offset)
    result.dtype = dtype
    result.requires_grad = self.requires_grad and (dtype.is_floating_point or dtype.is_complex)
    return result


@rule("expand")
def expand(self: TensorInfo, size: Sequence[Size], *, implicit: bool = False) -> TensorInfo:
    shift = len(size) - len(self.sizes)
    if shift < 0:
        raise RuntimeError(
            f"expand({self.dtype}{list(self.sizes)}, size={list(size)}): the number of sizes provided "
            f"({len(size)}) must be greater or equal to the number of dimensions in the tensor ({self.dim})"
        )
    sizes: list[Size] = list(size)
    strides: list[Size] = [0] * len(sizes)
    for i in range(len(sizes) - 1, -1, -1):
        if i < shift:
            if type(sizes[i]) is int and sizes[i] == -1:
                raise RuntimeError("The expanded size of the tensor (-1) isn't allowed in a leading dimension")
            # C++ gives a new leading dimension the stride of a contiguous one that is one element long
            strides[i] = sizes[i + 1] * strides[i + 1] if i + 1 < len(sizes) and is_one(sizes[i]) else 0
            continue
        old, old_stride = self.sizes[i - shift], self.strides[i - shift]
        if type(sizes[i]) is int and sizes[i] == -1:
            sizes[i] = old
        if sizes[i] is not old:
            if is_stretched(old, sizes[i]):
                continue
            require_equal_or_one(
                eq(sizes[i], old),
                lambda i=i, old=old: (  # type: ignore[misc]
                    f"The expanded size of the tensor ({sizes[i]}) must match the existing size ({old}) at "
                    f"non-singleton dimension {i}.  Target sizes: {list(size)}.  "
                    f"Tensor sizes: {list(self.sizes)}"
                ),
            )
        strides[i] = old_stride
    return self.view(sizes, strides)


def require_expandable(sizes: Sequence[Size], wanted: Sequence[Size], message: Message) -> None:
    """Fail unless a tensor can be expanded to a size: each of its own is that size, or 1."""
    if len(sizes) > len(wanted):
        require(False, message)
    for size, full in zip(reversed(sizes), reversed(wanted), strict=False):
        if size is not full and not is_stretched(size, full):
            require_equal_or_one(eq(size, full), message)


@rule("permute")
def permute(self: TensorInfo, dims: Sequence[int]) -> TensorInfo:
    if len(dims) != self.dim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
            f"desired ordering of dimensions i.e. input.dim() = {self.dim} is not equal to len(dims) = "
            f"{len(dims)}"
        )
    order = [wrap_dimension(d, self.dim) for d in dims]
    if len(set(order)) != len(order):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return self.view([self.sizes[d] for d in order], [self.strides[d] for d in order])


@rule("transpose.int")
def transpose(self: TensorInfo, dim0: int, dim1: int) -> TensorInfo:
    sizes, strides = list(self.sizes), list(self.strides)
    a, b = wrap_dimension(dim0, self.dim), wrap_dimension(dim1, self.dim)
    if sizes:
        sizes[a], sizes[b] = sizes[b], sizes[a]
        strides[a], strides[b] = strides[b], strides[a]
    return self.view(sizes, strides)


@rule("transpose_copy.int")
def transpose_copy(self: TensorInfo, dim0: int, dim1: int) -> TensorInfo:
    turned = transpose(self, dim0, dim1)
    return self.fresh(turned.sizes)


@rule("t")
def matrix_transpose(self: TensorInfo) -> TensorInfo:
    if self.dim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {self.dim}D")
    return self.view(self.sizes[::-1], self.strides[::-1])


@rule("unsqueeze")
def unsqueeze(self: TensorInfo, dim: int) -> TensorInfo:
    where = wrap_dimension(dim, self.dim + 1)
    stride = self.sizes[where] * self.strides[where] if where < self.dim else 1
    sizes, strides = list(self.sizes), list(self.strides)
    sizes.insert(where, 1)
    strides.insert(where, stride)
    return self.view(sizes, strides)


_LOST_DIMENSION = (
    "squeeze() keeps the dimensions whose size is not 1, and this program was captured for a size that is not 1"
)


def _squeezed(self: TensorInfo, candidates: Sequence[int]) -> TensorInfo:
    drop = {d for d in candidates if d < self.dim and decided_one(self.sizes[d], _LOST_DIMENSION)}
    keep = [d for d in range(self.dim) if d not in drop]
    return self.view([self.sizes[d] for d in keep], [self.strides[d] for d in keep])


@rule("squeeze")
def squeeze(self: TensorInfo) -> TensorInfo:
    return _squeezed(self, range(self.dim))


@rule("squeeze.dim")
def squeeze_dimension(self: TensorInfo, dim: int) -> TensorInfo:
    return _squeezed(self, [wrap_dimension(dim, self.dim)])


@rule("squeeze.dims")
def squeeze_dimensions(self: TensorInfo, dim: Sequence[int]) -> TensorInfo:
    return _squeezed(self, [wrap_dimension(d, self.dim) for d in dim])


@rule("select.int")
def select(self: TensorInfo, dim: int, index: Size) -> TensorInfo:
    if not self.sizes:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    where = wrap_dimension(dim, self.dim)
    size = self.sizes[where]

    def out_of_range() -> str:
        return f"select(): index {index} out of range for tensor of size {list(self.sizes)} at dimension {where}"

    if type(index) is int and type(size) is int:
        if not -size <= index < size:
            raise IndexError(out_of_range())
    else:
        require(lt(index, size), out_of_range)
        require(ge(index, -size), out_of_range)
    position = _from_start(index, size)
    keep = [d for d in range(self.dim) if d != where]
    return self.view(
        [self.sizes[d] for d in keep],
        [self.strides[d] for d in keep],
        self.offset + position * self.strides[where],
    )


def _from_start(position: Size, size: Size) -> Size:
    """A position counted from the end as one counted from the start."""
    if type(position) is int:
        return position if position >= 0 else position + size
    if _depends_on_data(ge(position, 0)):
        return choose(ge(position, 0), position, position + size)
    return position if at_least(position, 0) else position + size


def _depends_on_data(condition: Condition) -> bool:
    return (
        isinstance(condition, Expr)
        and condition.environment.known(condition) is None
        and condition.environment.hint(condition) is None
    )


def slice_bounds(size: Size, start: Size | None, end: Size | None) -> tuple[Size, Size]:
    """Start and end of a slice, clamped to the dimension as Python does."""
    if type(size) is int and not isinstance(start, Expr) and not isinstance(end, Expr):
        first = 0 if start is None else start
        last = size if end is None else end
        first = max(first + size, 0) if first < 0 else min(first, size)
        last = max(last + size, 0) if last < 0 else min(last, size)
        return first, max(first, last)
    low = _clamp_bound(0 if start is None else start, size)
    if end is None or (type(end) is int and end >= _LARGEST):
        return low, size
    high = _clamp_bound(end, size)
    ordered = ge(high, low)
    if isinstance(ordered, Expr) and ordered.environment.known(ordered) is True:
        return low, high
    return low, maximum(low, high)


_LARGEST = 2**63 - 1


def _clamp_bound(bound: Size, size: Size) -> Size:
    if type(bound) is int and bound == 0:
        return 0
    if _depends_on_data(ge(bound, 0)):
        return choose(ge(bound, 0), minimum(bound, size), maximum(bound + size, 0))
    if not at_least(bound, 0):
        return maximum(bound + size, 0)
    fits = ge(size, bound)
    if isinstance(fits, Expr) and _is_general(fits, bound, size):
        return minimum(bound, size)
    return bound if at_least(size, bound) else minimum(bound, size)


def _is_general(fits: Expr, bound: Size, size: Size) -> bool:
    """Whether a slice is better left as the minimum that it is than tied to what the example does: where the end is
    beyond the example's size, and between numbers that have nothing to do with each other."""
    if fits.environment.hint(fits) is False:
        return True
    return isinstance(bound, Expr) and isinstance(size, Expr) and bound.symbols.isdisjoint(size.symbols)


@rule("slice.Tensor")
def slice_tensor(
    self: TensorInfo, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> TensorInfo:
    if not self.sizes:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    if type(step) is int and step <= 0:
        raise RuntimeError("slice step must be positive")
    where = wrap_dimension(dim, self.dim)
    first, last = slice_bounds(self.sizes[where], start, end)
    sizes, strides = list(self.sizes), list(self.strides)
    offset = self.offset + first * strides[where]
    sizes[where] = last - first if type(step) is int and step == 1 else ceil_div(last - first, step)
    strides[where] = strides[where] * step
    return self.view(sizes, strides, offset)


@rule("alias", "lift_fresh")
def alias(self: TensorInfo) -> TensorInfo:
    return self.view(self.sizes, self.strides)


@rule("detach")
def detach(self: TensorInfo) -> TensorInfo:
    result = self.view(self.sizes, self.strides)
    result.requires_grad = False
    return result


@rule("view_as_real")
def view_as_real(self: TensorInfo) -> TensorInfo:
    if not self.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    result = self.view([*self.sizes, 2], [*(s * 2 for s in self.strides), 1], self.offset * 2)
    result.dtype = self.dtype.to_real()
    return result


@rule("view_as_complex")
def view_as_complex(self: TensorInfo) -> TensorInfo:
    if not self.sizes or not same(self.sizes[-1], 2):
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if not same(self.strides[-1], 1):
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    result = self.view(self.sizes[:-1], [s // 2 for s in self.strides[:-1]], self.offset // 2)
    result.dtype = self.dtype.to_complex()
    return result


@rule("_conj")
def conjugate(self: TensorInfo) -> TensorInfo:
    result = self.view(self.sizes, self.strides)
    result.conjugate = not self.conjugate
    return result


@rule("_neg_view")
def negative_view(self: TensorInfo) -> TensorInfo:
    result = self.view(self.sizes, self.strides)
    result.negative = not self.negative
    return result


# --- copies ----------------------------------------------------------------------------------------------
