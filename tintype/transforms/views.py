"""Views of new values: how a view is made again, and how its new value becomes one of what it is a view of.

One function per view operator and direction. Values are pure: nothing is written anywhere. A value may lie in
memory otherwise than the tensor it stands for did in the program; only views that depend on it care.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from tintype.fake.info import TensorInfo, is_dense, memory_order, preserved_strides
from tintype.fake.rules.views import GeneralQuestions, view_strides, wrap_dimension
from tintype.ir.operator_facts import facts_of
from tintype.symbolic import Expr, Size, maximum
from tintype.symbolic.sizes import (
    at_least,
    certainly_at_least,
    certainly_same,
    contiguous_strides,
    is_one,
    is_zero,
    less,
    only_splits,
    product,
    total,
    unguarded,
)
from tintype.transforms.emit import Emitter, as_infos, info_of

aten = torch.ops.aten

# (emitter, base value, new value of the view, arguments after the base) -> new value of the base, None if there is
# no expression for it
Scatter = Callable[[Emitter, Node, Node, tuple[Any, ...]], Node | None]

SCATTER: dict[Any, Scatter] = {}

# Views without the history of what they are views of: a write to one goes unnoticed by autograd.
CUTS = frozenset({aten.detach.default, aten.view.dtype})


def scatter(*operators: Any) -> Callable[[Scatter], Scatter]:
    """Register the inverse of view operators."""

    def register(function: Scatter) -> Scatter:
        for view in operators:
            SCATTER[view] = function
        return function

    return register


class View:
    """How one tensor of the program is a view of another: the operator, its other arguments, both geometries."""

    __slots__ = ("args", "base", "has_history", "info", "is_cut", "target")

    def __init__(self, source: Node, info: TensorInfo, base: TensorInfo) -> None:
        call = source
        if source.target is operator.getitem:  # one of several views: as if it had been made alone
            call = source.args[0]  # type: ignore[assignment]
        self.target: Any = call.target
        self.args = arguments_after_base(call)
        self.info = info
        self.base = base
        # whether what it is a view of may have a history in autograd's eyes, and whether it goes without that
        self.has_history = base.requires_grad
        self.is_cut = self.target in CUTS
        if call is not source:
            self.target, self.args = ONE_OF_SEVERAL[call.target](source.args[1], as_infos(self.args), info)

    def again(self, emit: Emitter, base: Node) -> Node:
        """The same view of another value of its base."""
        remake = RECOMPUTE_VIEW.get(self.target)
        return emit.call(self.target, base, *self.args) if remake is None else remake(emit, base, self)

    def scatter(self, emit: Emitter, base: Node, value: Node) -> Node | None:
        """The new value of the base after the view was given one; None if that can't be expressed."""
        inverse = SCATTER.get(self.target)
        new = None
        if self.target is aten.as_strided.default:
            new = scatter_strided(emit, base, value, self.info, self.base)
        elif inverse is not None:
            new = inverse(emit, base, value, self.args)
        if new is None or not self.is_cut or not self.has_history:
            return new
        return with_history(emit, base, new)


def arguments_after_base(node: Node) -> tuple[Any, ...]:
    """The arguments of a view operator besides the tensor, those with defaults included, in order."""
    if not node.kwargs:
        return node.args[1:]
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    given = list(node.args)
    given += [node.kwargs.get(argument.name, argument.default_value) for argument in arguments[len(given) :]]
    return tuple(given[1:])


def base_of(node: Node) -> Node | None:
    """What a node is a view of; for one of several views, the call that makes them."""
    base = node.args[0] if node.op == "call_function" and node.args else None
    if not isinstance(base, Node):
        return None
    if node.target is operator.getitem:
        return base if base_of(base) is not None else None
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    facts = facts_of(node.target)
    return base if facts.aliases and not facts.writes else None


def is_view_of_several(target: Any) -> bool:
    """Whether an operator returns several views at once."""
    return target in ONE_OF_SEVERAL


# --- geometry --------------------------------------------------------------------------------------------


def reshape(emit: Emitter, value: Node, sizes: Any) -> Node:
    """A value in another shape: a view where its memory allows that, a copy otherwise."""
    info = _info(value)
    return value if info.sizes == tuple(sizes) else _view(emit, value, tuple(sizes))


def _view(emit: Emitter, value: Node, sizes: tuple[Size, ...]) -> Node:
    info = _info(value)
    certain = only_splits(info.sizes, sizes) or emit.layouts.is_certain(value)
    if not certain or view_strides(info.sizes, info.strides, sizes, GeneralQuestions) is None:
        return emit.call(aten.reshape.default, value, list(sizes))
    return emit.call(aten.view.default, value, list(sizes))


def laid_out(emit: Emitter, value: Node, wanted: TensorInfo) -> Node:
    """A value that lies in memory as a tensor of the program did, but for gaps: every view of that tensor is a
    view of the result too."""
    info = _info(value)
    strides = preserved_strides(wanted.sizes, wanted.strides)
    if lies_alike(info.sizes, info.strides, strides) or lies_alike(info.sizes, info.strides, wanted.strides):
        return value
    order = memory_order(wanted.sizes, [strides])
    if order == list(range(len(order))):
        return emit.call(aten.clone.default, value, memory_format=torch.contiguous_format)
    packed = emit.call(aten.permute.default, value, order)
    packed = emit.call(aten.clone.default, packed, memory_format=torch.contiguous_format)
    return emit.call(aten.permute.default, packed, [order.index(d) for d in range(len(order))])


def lies_alike(sizes: tuple[Size, ...], first: tuple[Size, ...], second: tuple[Size, ...]) -> bool:
    """Whether two strides mean the same for a size."""
    return first == second or all(
        is_one(size) or certainly_same(a, b) for size, a, b in zip(sizes, first, second, strict=True)
    )


def overlaps(info: TensorInfo) -> bool:
    """Whether elements of a tensor may share memory with each other, as after expand() or unfold(); of sizes that
    vary that is so unless it is certain that they don't."""
    pairs: list[tuple[Any, Any]] = [
        (size, stride) for size, stride in zip(info.sizes, info.strides, strict=True) if not is_one(size)
    ]
    if info.strides == contiguous_strides(info.sizes) or any(is_zero(size) for size, _ in pairs):
        return False
    if any(is_zero(stride) for _, stride in pairs):
        return True
    if any(isinstance(number, Expr) for pair in pairs for number in pair):
        return not _are_apart(pairs, 0)
    reach = 0  # of all dimensions so far, from the innermost outwards
    for size, stride in sorted(pairs, key=lambda pair: pair[1]):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _are_apart(pairs: list[tuple[Any, Any]], reach: Any) -> bool:
    """Whether there is an order of dimensions, the innermost first, in which the step of each is certainly longer
    than what those before it reach."""
    for position, (size, stride) in enumerate(pairs):
        if certainly_at_least(stride, reach + 1):
            others = pairs[:position] + pairs[position + 1 :]
            if not others or _are_apart(others, reach + (size - 1) * stride):
                return True
    return not pairs


def _contiguous(emit: Emitter, value: Node) -> Node:
    """A value whose bits can be reinterpreted."""
    info = _info(value)
    if info.strides == contiguous_strides(info.sizes) and info.offset == 0:
        return value
    return emit.call(aten.clone.default, value, memory_format=torch.contiguous_format)


def _info(node: Node) -> TensorInfo:
    info = info_of(node)
    assert info is not None
    return info


def _sizes(node: Node) -> tuple[Any, ...]:
    return _info(node).sizes


# --- views that are not simply made again ----------------------------------------------------------------

RECOMPUTE_VIEW: dict[Any, Callable[[Emitter, Node, View], Node]] = {}


def _view_again(emit: Emitter, base: Node, view: View) -> Node:
    return _view(emit, base, view.info.sizes)


def _reinterpret_again(emit: Emitter, base: Node, view: View) -> Node:
    if not _can_reinterpret(_info(base), view):
        base = _contiguous(emit, base)
    return emit.call(view.target, base, *view.args)


def _can_reinterpret(base: TensorInfo, view: View) -> bool:
    """Whether a tensor's bits can be seen as elements of another size where they are."""
    ratio = view.info.dtype.itemsize // base.dtype.itemsize
    if ratio == 1:
        return True
    if not base.sizes or not certainly_same(base.strides[-1], 1):
        return False
    return ratio == 0 or all(certainly_same(step % ratio, 0) for step in (*base.strides[:-1], base.offset))


def _as_strided_again(emit: Emitter, base: Node, view: View) -> Node:
    base = _at_its_start(emit, laid_out(emit, base, view.base))
    if view.is_cut:  # it was called on a view without the history of the memory
        base = emit.call(aten.detach.default, base)
    info = view.info
    start = info.offset - view.base.offset + _info(base).offset
    return emit.call(aten.as_strided.default, base, list(info.sizes), list(info.strides), start)


def _contiguous_again(emit: Emitter, base: Node, view: View) -> Node:
    memory_format = view.args[0] if view.args else torch.contiguous_format
    return emit.call(aten.contiguous.default, base, memory_format=memory_format)


RECOMPUTE_VIEW[aten.view.default] = _view_again
RECOMPUTE_VIEW[aten.contiguous.default] = _contiguous_again
RECOMPUTE_VIEW[aten._reshape_alias.default] = _view_again
RECOMPUTE_VIEW[aten._unsafe_view.default] = _view_again
RECOMPUTE_VIEW[aten.view.dtype] = _reinterpret_again
RECOMPUTE_VIEW[aten.view_as_complex.default] = _reinterpret_again
RECOMPUTE_VIEW[aten.as_strided.default] = _as_strided_again


def _at_its_start(emit: Emitter, value: Node) -> Node:
    """A tensor that begins where its memory does. An input may begin elsewhere when the program runs, and so may what
    a branch returns; and operators that put something into a copy of a tensor copy what lies in front of it, too."""
    base: Any = value
    while base.target in _COPIES_OF_MEMORY or base_of(base) is not None:
        base = base.args[0]
    elsewhere = base.op == "placeholder" or base.target is operator.getitem
    if not elsewhere or not is_dense(_info(value).sizes, _info(value).strides):
        return value
    return emit.call(aten.clone.default, value)


_COPIES_OF_MEMORY = frozenset(
    {
        aten.as_strided_scatter.default,
        aten.diagonal_scatter.default,
        aten.select_scatter.default,
        aten.slice_scatter.default,
    }
)


def lies_within(info: TensorInfo, memory: TensorInfo) -> bool:
    """Whether something over a tensor's memory lies within it and that has no gaps, so that it can be found in a
    copy of the tensor too."""
    if not is_dense(memory.sizes, memory.strides):
        return False
    last = sum(
        ((size - 1) * stride for size, stride in zip(info.sizes, info.strides, strict=True)), start=info.offset
    )
    return at_least(info.offset, memory.offset) and less(last, memory.offset + maximum(product(memory.sizes), 1))


def scatter_strided(emit: Emitter, base: Node, value: Node, info: TensorInfo, memory: TensorInfo) -> Node | None:
    """The new value of a tensor after something over its memory was given one; None if that can't be expressed.

    ``info`` is how what was written to lies in memory, ``memory`` how the tensor itself does.
    """
    if not lies_within(info, memory):
        return None
    sizes, strides = list(info.sizes), list(info.strides)
    for dimension, (size, stride) in enumerate(zip(info.sizes, info.strides, strict=True)):
        if is_zero(stride) and not is_one(size):  # expanded: all copies were given the same value
            if not certainly_at_least(size, 1):
                return None
            value = emit.call(aten.slice.Tensor, value, dimension, 0, 1)
            sizes[dimension] = 1
    if overlaps(info.view(sizes, strides)):
        return None
    base = laid_out(emit, base, memory)
    target = _at_its_start(emit, base)
    start = info.offset - memory.offset
    place = (sizes, strides, start + _info(target).offset)
    dtype = _info(base).dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        return emit.call(aten.as_strided_scatter.default, target, value, *place)
    # torch's derivative of this operator gives the tensor the gradient of the part that was written to, and none of
    # the rest: so the tensor goes in without its history, and what was not written to is taken from the tensor itself
    written = emit.call(aten.as_strided_scatter.default, emit.call(aten.detach.default, target), value, *place)
    everywhere = emit.call(aten.full_like.default, target, True, dtype=torch.bool)
    nowhere = emit.call(aten.full_like.default, value, False, dtype=torch.bool)
    kept = emit.call(aten.as_strided_scatter.default, everywhere, nowhere, sizes, strides, start)
    return emit.call(aten.where.self, kept, base, written)


# --- inverses --------------------------------------------------------------------------------------------


@scatter(
    aten.view.default,
    aten.reshape.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.ravel.default,
    aten._reshape_alias.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
)
def _same_elements(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return reshape(emit, value, _sizes(base))


@scatter(aten.expand.default)
def _expand(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    """Eager mode lets a program write through expanded dimensions where all copies get the same value."""
    own = _sizes(base)
    shift = len(_sizes(value)) - len(own)
    for _ in range(shift):
        base = emit.call(aten.unsqueeze.default, base, 0)
    for dimension, (old, new) in enumerate(zip(_sizes(base), _sizes(value), strict=True)):
        if is_one(old) and not is_one(new):
            with unguarded((new,)):
                value = emit.call(aten.slice.Tensor, value, dimension, 0, 1)
    for dimension, (old, new) in enumerate(zip(_sizes(base), _sizes(value), strict=True)):
        if is_one(old) and not is_one(new):  # none or one copy: it may have been expanded to no elements
            value = _scattered(emit, aten.slice_scatter.default, base, value, (dimension, 0, new))
    return reshape(emit, value, own)


@scatter(aten.alias.default, aten.contiguous.default, aten.to.dtype, aten.detach.default, aten.lift_fresh.default)
def _identity(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return value


def with_history(emit: Emitter, base: Node, value: Node) -> Node:
    """The new value of a tensor that was written to behind autograd's back: its gradient goes on to what it was.

    The difference of the tensor and itself is zero, and has its gradient; where it is infinite minus infinite too.
    It is subtracted: -0.0 stays -0.0 then.
    """
    nothing = emit.call(aten.sub.Tensor, emit.call(aten.detach.default, base), base)
    info = info_of(nothing)
    if info is not None and not info.dtype.is_complex:
        nothing = emit.call(aten.nan_to_num.default, nothing)
    result = emit.call(aten.sub.Tensor, emit.call(aten.detach.default, value), nothing)
    return _with_bits(emit, value, result) if emit.looks_at_bits else result


def _with_bits(emit: Emitter, value: Node, computed: Node) -> Node:
    """A value that was computed anew where that has its bits, else the value: a computation changes bits that are no
    number, if they stand for a signalling one."""
    info = info_of(value)
    integer = None if info is None else _INTEGERS.get(info.dtype.itemsize)
    if integer is None:
        return emit.call(aten.where.self, emit.call(aten.isnan.default, value), value, computed)
    bits = [emit.call(aten.view.dtype, node, integer) for node in (emit.call(aten.detach.default, computed), value)]
    return emit.call(aten.where.self, emit.call(aten.eq.Tensor, *bits), computed, value)


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@scatter(aten.permute.default)
def _permute(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    order = [wrap_dimension(d, len(args[0])) for d in args[0]]
    inverse = [order.index(d) for d in range(len(order))]
    return emit.call(aten.permute.default, value, inverse)


@scatter(aten.transpose.int)
def _transpose(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return emit.call(aten.transpose.int, value, *args)


@scatter(aten.t.default)
def _matrix_transpose(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return emit.call(aten.t.default, value)


@scatter(aten.select.int)
def _select(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return _scattered(emit, aten.select_scatter.default, base, value, args)


@scatter(aten.slice.Tensor)
def _slice(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return _scattered(emit, aten.slice_scatter.default, base, value, args)


@scatter(aten.diagonal.default)
def _diagonal(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return _scattered(emit, aten.diagonal_scatter.default, base, value, args)


def _scattered(emit: Emitter, target: Any, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    """A tensor with a part of it put in. torch knows no gradients for complex ones here, so their numbers are put in
    as pairs of real ones."""
    if not _info(base).dtype.is_complex:
        return emit.call(target, base, value, *args)
    rank = len(_sizes(base))
    part = _pairs(emit, value)
    if target is aten.diagonal_scatter.default:
        args = (*args, *(0, 0, 1)[len(args) :])
        args = (args[0], wrap_dimension(args[1], rank), wrap_dimension(args[2], rank))
        part = emit.call(aten.transpose.int, part, -1, -2)  # a diagonal is the last dimension of its part
    else:
        args = (wrap_dimension(args[0] if args else 0, rank), *args[1:])
    new = emit.call(target, _pairs(emit, base), part, *args)
    return emit.call(aten.view_as_complex.default, _contiguous(emit, new))


def _pairs(emit: Emitter, value: Node) -> Node:
    """Complex numbers as pairs of real ones."""
    info = _info(value)
    if info.conjugate:
        value = emit.call(aten.resolve_conj.default, value)
    if info.negative:
        value = emit.call(aten.resolve_neg.default, value)
    return emit.call(aten.view_as_real.default, value)


@scatter(aten.unfold.default)
def _unfold(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node | None:
    """Position by position of the window: each is a slice of the base. Windows may overlap."""
    dimension, size, step = as_infos(args)
    if type(size) is not int:
        return None  # as many slices as the size, which varies
    where = wrap_dimension(dimension, max(len(_sizes(base)), 1))
    if not _sizes(base):
        return reshape(emit, value, ())
    windows = _sizes(value)[where]
    for position in range(size):
        part = emit.call(aten.select.int, value, -1, position)
        end = position + (windows - 1) * step + 1
        base = _scattered(emit, aten.slice_scatter.default, base, part, (where, position, end, step))
    return base


@scatter(aten.view_as_real.default)
def _view_as_real(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return emit.call(aten.view_as_complex.default, _contiguous(emit, value))


@scatter(aten.view_as_complex.default)
def _view_as_complex(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return emit.call(aten.view_as_real.default, value)


@scatter(aten.view.dtype)
def _view_dtype(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    info, value = _info(base), _contiguous(emit, value)
    sizes = _info(value).sizes
    if info.dtype.itemsize <= _info(value).dtype.itemsize or certainly_at_least(sizes[-1], 1):
        return emit.call(aten.view.dtype, value, info.dtype)
    # without elements a matrix has strides of 1, which the operator does not take for wider elements
    flat = emit.call(aten.view.dtype, reshape(emit, value, (product(sizes),)), info.dtype)
    return reshape(emit, flat, info.sizes)


@scatter(aten._conj.default)
def _conjugate(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    value = emit.call(aten._conj.default, value)
    lies = _info(value).conjugate, _info(base).conjugate
    # the memory that was written to has numbers, not their conjugates
    return emit.call(aten.resolve_conj.default, value) if lies == (True, False) else value


@scatter(aten._neg_view.default)
def _negative(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    value = emit.call(aten._neg_view.default, value)
    lies = _info(value).negative, _info(base).negative
    return emit.call(aten.resolve_neg.default, value) if lies == (True, False) else value


# --- several views at once -------------------------------------------------------------------------------

# (which one, arguments after the base, the view's geometry) -> the operator that makes it alone, its arguments
Alone = Callable[[Any, Any, TensorInfo], tuple[Any, tuple[Any, ...]]]


def _unbind(index: Any, args: Any, info: TensorInfo) -> tuple[Any, tuple[Any, ...]]:
    return aten.select.int, (args[0] if args else 0, index)


def _split(index: Any, args: Any, info: TensorInfo) -> tuple[Any, tuple[Any, ...]]:
    step, dimension = args[0], args[1] if len(args) > 1 else 0
    start = index * step
    return aten.slice.Tensor, (dimension, start, start + info.sizes[dimension])


def _split_with_sizes(index: Any, args: Any, info: TensorInfo) -> tuple[Any, tuple[Any, ...]]:
    sizes, dimension = args[0], args[1] if len(args) > 1 else 0
    start = total(sizes[:index])
    return aten.slice.Tensor, (dimension, start, start + sizes[index])


ONE_OF_SEVERAL: dict[Any, Alone] = {
    aten.unbind.int: _unbind,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
}
