"""Flags that are drawn into a tensor: in the order in which its elements lie in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from tintype.fake.info import memory_order
from tintype.transforms.emit import Emitter, info_of
from tintype.transforms.layouts import Layouts

aten = torch.ops.aten


def drawn_as_it_lies(emit: Emitter, layouts: Layouts, tensor: Any, p: Any, **options: Any) -> Node:
    """``bernoulli_`` draws in the order in which elements lie in memory, ``bernoulli`` in that of the indices."""
    info = info_of(tensor)
    assert info is not None
    if type(p) is float and info.device.type == "cpu" and not options and not layouts.is_certain(tensor):
        return _mask_of_dropout(emit, tensor, p)
    order = memory_order(info.sizes, [info.strides])
    if order == sorted(order):
        return emit.call(aten.bernoulli.p, tensor, p, **options)
    drawn = emit.call(aten.bernoulli.p, emit.call(aten.permute.default, tensor, order), p, **options)
    return emit.call(aten.permute.default, drawn, [order.index(dim) for dim in range(len(order))])


def _mask_of_dropout(emit: Emitter, tensor: Any, p: float) -> Node:
    """The numbers of ``bernoulli_`` for a tensor whose layout only a call tells: the mask of a dropout."""
    dtype = info_of(tensor).dtype  # type: ignore[union-attr]
    if not dtype.is_floating_point:  # dropout multiplies, though nobody wants the product
        tensor = emit.call(aten.empty_like.default, tensor, dtype=torch.float32)
    mask = emit.item(emit.call(aten.native_dropout.default, tensor, 1 - p, True), 1)
    return mask if dtype is torch.bool else emit.call(aten._to_copy.default, mask, dtype=dtype)
