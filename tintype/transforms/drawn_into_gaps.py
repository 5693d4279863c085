"""Normal numbers that are drawn into a tensor with gaps in memory.

The kernel of ``normal_`` on a processor has two ways to draw: for 16 elements and more that are contiguous it
computes several at once, else it draws one after the other in the order in which elements lie in memory, in double
precision. A new value has no gaps; so the second way is taken by an operator that knows no other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from tintype.fake.info import TensorInfo, is_dense, memory_order
from tintype.symbolic.sizes import certainly_same, product
from tintype.transforms.emit import Emitter
from tintype.transforms.handles import Handle

aten = torch.ops.aten

_DRAWN_AT_ONCE = 16


def may_have_gaps(handle: Handle) -> bool:
    """Whether it is up to a caller if there are gaps: a tensor that was given, or a view of one, of 16 elements or
    more."""
    elements = product(handle.info.sizes)
    if handle.info.device.type != "cpu" or (type(elements) is int and elements < _DRAWN_AT_ONCE):
        return False
    while handle.parent is not None:
        handle = handle.parent
    return handle.source.op == "placeholder"


def has_gaps(info: TensorInfo) -> bool:
    """Whether ``normal_`` draws into a tensor like this one in another way than into a new one."""
    elements = product(info.sizes)
    if info.device.type != "cpu" or info.dtype.is_complex or (type(elements) is int and elements < _DRAWN_AT_ONCE):
        return False
    return not is_dense(info.sizes, info.strides, certainly_same)


def normal_with_gaps(
    emit: Emitter, info: TensorInfo, mean: Any = 0.0, std: Any = 1.0, *, generator: Any = None
) -> Node:
    """The numbers that ``normal_`` draws into a tensor, one by one. The logarithm of ``log_normal`` is normal, and
    what is computed in double precision and rounded to single is the same."""
    order = memory_order(info.sizes, [info.strides])
    sizes = [info.sizes[dim] for dim in order]
    options = {} if generator is None else {"generator": generator}
    start = emit.call(aten.empty.memory_format, sizes, dtype=torch.float64, device=info.device)
    drawn = emit.call(aten.log.default, emit.call(aten.log_normal.default, start, 0.0, 1.0, **options))
    value = emit.call(aten.add.Tensor, emit.call(aten.mul.Tensor, drawn, std), mean)
    value = emit.call(aten._to_copy.default, value, dtype=info.dtype)
    return emit.call(aten.permute.default, value, [order.index(dim) for dim in range(len(order))])
