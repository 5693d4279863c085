"""Sequences of different lengths packed into one tensor, for recurrent layers.

How many elements and time steps there are follows from the lengths, which are data. Packing and unpacking stay whole
operators, as do the layers on packed sequences: what they consist of is a loop over time steps.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from tintype.fake.info import fresh
from tintype.fake.tensor import FakeTensor
from tintype.symbolic import Size, ge
from tintype.symbolic.sizes import product, require
from tintype.trace.intercepts import intercept
from tintype.trace.recorder import Recorder

aten = torch.ops.aten


def _count(recorder: Recorder, limit: Size, least: int = 1) -> Size:
    upper = limit if type(limit) is int else None
    return recorder.context.environment.unbacked_int(lower=least, upper=upper)


@intercept(aten._pack_padded_sequence.default)
def _pack_padded_sequence(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (info, _, batch_first), _ = recorder.convert(args)
    steps = info.sizes[1 if batch_first else 0]
    elements = _count(recorder, product(info.sizes[:2]))
    results = [
        fresh((elements, *info.sizes[2:]), info.dtype, info.device),
        fresh((_count(recorder, steps),), torch.int64, torch.device("cpu")),
    ]
    return recorder.record_as(func, args, kwargs, results)


def number_of_sequences(fake: FakeTensor) -> Size | None:
    """What a number is that is read from packed sequences: all of them have a first step. None for any other."""
    node = fake.node
    if node is None or node.target is not aten.select.int or tuple(node.args[1:]) != (0, 0):
        return None
    sizes: Any = node.args[0]
    if sizes.target is not operator.getitem or sizes.args[1] != 1:
        return None
    packing = sizes.args[0]
    if packing.target is not aten._pack_padded_sequence.default or fake.info.storage.written:
        return None
    padded, _, batch_first = packing.args
    return padded.meta["val"].info.sizes[0 if batch_first else 1]


@intercept(aten._pad_packed_sequence.default)
def _pad_packed_sequence(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (info, batch_sizes, batch_first, _, total_length), _ = recorder.convert(args)
    if type(total_length) is not int:  # 0 would stand for as many steps as there are
        require(ge(total_length, 1), "pad_packed_sequence: expected a total_length of at least 1")
        steps = total_length
    else:
        steps = total_length if total_length > 0 else batch_sizes.sizes[0]
    batch = _count(recorder, info.sizes[0])
    features = info.sizes[1:]
    sizes = (batch, steps, *features) if batch_first else (steps, batch, *features)
    width = product(features)
    strides = list(fresh((steps, batch, *features), info.dtype, info.device).strides)
    if batch_first:  # the kernel puts time first and returns a view
        strides[:2] = [width, batch * width]
    results = [
        fresh(sizes, info.dtype, info.device, strides=tuple(strides)),
        fresh((batch,), torch.int64, torch.device("cpu")),
    ]
    return recorder.record_as(func, args, kwargs, results)
