"""Tensors of a program while it is made functional: what each is a view of, and its latest value."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node

from tintype.fake.context import FakeContext
from tintype.fake.info import Storage, TensorInfo
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.transforms.doubts import Doubt
from tintype.transforms.emit import info_of
from tintype.transforms.views import (
    View,
    overlaps,
)

aten = torch.ops.aten


class Handle:
    """One tensor of the program: the node that made it, what it is a view of, and its latest value.

    ``info`` is the tensor's geometry in the program. ``viewed`` is the value of the parent that the latest value
    is a view of; None for a value that was written. ``overlapping`` says whether elements share memory with each
    other, in this tensor or in one that it is a view of. ``doubt`` is there if it may be a copy of its parent in
    another layout; ``doubts`` are those that its latest value rests on.
    """

    __slots__ = (
        "_view",
        "doubt",
        "doubts",
        "info",
        "overlapping",
        "parent",
        "source",
        "storage",
        "value",
        "version",
        "viewed",
    )  # fmt: skip

    def __init__(self, source: Node, info: TensorInfo, storage: Storage, parent: Handle | None) -> None:
        self.source = source
        self.info = info
        self.storage = storage
        self.parent = parent
        self.value = source
        self.viewed: Node | None = None
        self.version = 0
        self.overlapping: bool = _may_overlap(source, info, parent)
        self.doubt: Doubt | None = None
        self.doubts: dict[Doubt, None] = {}
        self._view: View | None = None

    @property
    def view(self) -> View:
        """How this tensor is a view of its parent."""
        if self._view is None:
            assert self.parent is not None
            self._view = View(self.source, self.info, self.parent.info)
        return self._view


# Views in which every element of a tensor is there once at most, whatever sizes and strides are.
_ONCE_AT_MOST = frozenset(
    {
        aten.slice, aten.select, aten.narrow, aten.diagonal, aten.split, aten.split_with_sizes, aten.chunk,
        aten.tensor_split, aten.unbind, aten.hsplit, aten.vsplit, aten.dsplit, aten.transpose, aten.permute, aten.t,
        aten.movedim, aten.swapaxes, aten.swapdims, aten.squeeze, aten.unsqueeze, aten.view, aten.reshape,
        aten.flatten, aten.unflatten, aten.alias, aten.detach,
    }
)  # fmt: skip


def _may_overlap(source: Node, info: TensorInfo, parent: Handle | None) -> bool:
    if parent is not None and parent.overlapping:
        return True
    if not overlaps(info):
        return False
    if parent is None:
        return True
    call = source.args[0] if source.target is operator.getitem else source
    return getattr(getattr(call, "target", None), "overloadpacket", None) not in _ONCE_AT_MOST


def differs(old: Node, new: Node) -> bool:
    """Whether operators would treat the values of two nodes in different ways."""
    a, b = info_of(old), info_of(new)
    return a is not None and b is not None and not alike(a, b)


def alike(a: TensorInfo, b: TensorInfo) -> bool:
    """Whether operators treat two tensors alike; where in its memory a tensor begins matters to none."""
    return (
        a.strides == b.strides
        and a.sizes == b.sizes
        and (a.dtype, a.device, a.conjugate, a.negative) == (b.dtype, b.device, b.conjugate, b.negative)
    )


def with_storage(node: Node, storage: Storage | None, context: FakeContext) -> FakeTensor:
    """The value of a node in other memory."""
    info = info_of(node)
    assert info is not None
    return make_fake(info.with_storage(storage), context)


def moved_fake(new: TensorInfo, old: FakeTensor, context: FakeContext) -> FakeTensor:
    """A value with another layout, for what is the same tensor to the program."""
    info = new.with_storage(old.info.storage)
    info.requires_grad = old.info.requires_grad
    return make_fake(info, context)


def root_of(handle: Handle) -> Handle:
    """The tensor that is no view of another one."""
    while handle.parent is not None:
        handle = handle.parent
    return handle


def is_cut_between(handle: Handle, memory: Handle) -> bool:
    """Whether there is a view without the history of the memory on the way to it."""
    while handle is not memory and handle.parent is not None:
        if handle.view.is_cut:
            return True
        handle = handle.parent
    return False


def memory_of(handle: Handle, info: TensorInfo) -> Handle:
    """What as_strided of a tensor is really a view of: it looks at the memory below, whatever view it is called
    on, so the first tensor with elements of that kind."""
    while handle.parent is not None:
        above = handle.parent.info
        if (above.dtype, above.conjugate, above.negative) != (info.dtype, info.conjugate, info.negative):
            break
        handle = handle.parent
    return handle
