"""How a new value of a view becomes a new value of what it is a view of.

One function per view operator, called with the base's current value, the view's new value and the arguments
that the view was made with. Values are pure: nothing is written anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from tintype.fake.info import TensorInfo, is_dense
from tintype.fake.rules.views import view_strides, wrap_dimension
from tintype.symbolic.sizes import is_one
from tintype.transforms.emit import Emitter, info_of

aten = torch.ops.aten

# (emitter, base value, new value of the view, arguments after the base) -> new value of the base
Scatter = Callable[[Emitter, Node, Node, tuple[Any, ...]], Node]

SCATTER: dict[Any, Scatter] = {}


def scatter(*operators: Any) -> Callable[[Scatter], Scatter]:
    """Register the inverse of view operators."""

    def register(function: Scatter) -> Scatter:
        for operator in operators:
            SCATTER[operator] = function
        return function

    return register


def reshape(emit: Emitter, value: Node, sizes: Any) -> Node:
    """A value in another shape: a view where its memory allows that, a copy otherwise."""
    info = info_of(value)
    assert info is not None
    if info.sizes == tuple(sizes):
        return value
    if view_strides(info.sizes, info.strides, tuple(sizes)) is not None:
        return emit.call(aten.view.default, value, list(sizes))
    copy = emit.call(aten.clone.default, value, memory_format=torch.contiguous_format)
    return emit.call(aten._unsafe_view.default, copy, list(sizes))


def with_geometry(emit: Emitter, value: Node, wanted: TensorInfo, template: Node) -> Node:
    """A value laid out in memory as the program had it; ``template`` is an older value that is."""
    info = info_of(value)
    assert info is not None
    if info.strides == wanted.strides:
        return value
    if is_dense(wanted.sizes, wanted.strides):
        return emit.call(aten.copy.default, template, value)
    return emit.call(
        aten.as_strided_scatter.default,
        template,
        value,
        list(wanted.sizes),
        list(wanted.strides),
        wanted.offset,
    )


def _sizes(node: Node) -> tuple[Any, ...]:
    info = info_of(node)
    assert info is not None
    return info.sizes


@scatter(
    aten.view.default,
    aten._reshape_alias.default,
    aten.expand.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
)
def _same_elements(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    # expand: writing through a dimension that was really expanded is refused when it is recorded
    return reshape(emit, value, _sizes(base))


@scatter(aten.alias.default, aten.detach.default, aten.lift_fresh.default)
def _identity(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return value


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
    return emit.call(aten.select_scatter.default, base, value, *args)


@scatter(aten.slice.Tensor)
def _slice(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return emit.call(aten.slice_scatter.default, base, value, *args)


@scatter(aten.diagonal.default)
def _diagonal(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return emit.call(aten.diagonal_scatter.default, base, value, *args)


@scatter(aten.as_strided.default)
def _as_strided(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return emit.call(aten.as_strided_scatter.default, base, value, *args)


@scatter(aten.unfold.default)
def _unfold(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    dimension, size, step = args
    info = info_of(base)
    assert info is not None
    sizes = list(_sizes(value))
    strides = list(info.strides)
    where = wrap_dimension(dimension, info.dim)
    stride = strides[where]
    strides[where] = stride * step
    return emit.call(
        aten.as_strided_scatter.default, base, value, sizes, [*strides, stride], info.offset
    )


@scatter(aten.view_as_real.default)
def _view_as_real(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return emit.call(aten.view_as_complex.default, _last_adjacent(emit, value))


@scatter(aten.view_as_complex.default)
def _view_as_complex(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return emit.call(aten.view_as_real.default, value)


@scatter(aten.view.dtype)
def _view_dtype(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    info = info_of(base)
    assert info is not None
    return emit.call(aten.view.dtype, _last_adjacent(emit, value), info.dtype)


def _last_adjacent(emit: Emitter, value: Node) -> Node:
    """A value whose last dimension is adjacent in memory, as reinterpreting its bits needs."""
    info = info_of(value)
    assert info is not None
    if not info.sizes or is_one(info.strides[-1]):
        return value
    return emit.call(aten.clone.default, value, memory_format=torch.contiguous_format)


@scatter(aten._conj.default)
def _conjugate(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return emit.call(aten._conj.default, value)


@scatter(aten._neg_view.default)
def _negative(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...]) -> Node:
    return emit.call(aten._neg_view.default, value)


# Views that come several at once: the inverse also gets the position of the one that was written to.
SEVERAL: dict[Any, Callable[[Emitter, Node, Node, tuple[Any, ...], int], Node]] = {}


def _unbind(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...], index: int) -> Node:
    return emit.call(aten.select_scatter.default, base, value, args[0] if args else 0, index)


def _split(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...], index: int) -> Node:
    step, dim = args[0], args[1] if len(args) > 1 else 0
    start = index * step
    return emit.call(aten.slice_scatter.default, base, value, dim, start, start + _sizes(value)[dim])


def _split_with_sizes(emit: Emitter, base: Node, value: Node, args: tuple[Any, ...], index: int) -> Node:
    sizes, dim = args[0], args[1] if len(args) > 1 else 0
    start = sum(sizes[:index])
    return emit.call(aten.slice_scatter.default, base, value, dim, start, start + sizes[index])


SEVERAL[aten.unbind.int] = _unbind
SEVERAL[aten.split.Tensor] = _split
SEVERAL[aten.split_with_sizes.default] = _split_with_sizes
