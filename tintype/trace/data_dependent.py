"""Operators whose results have sizes that only the data decide: ``nonzero``, boolean masks, ``unique``, ...

Such a size is a new symbol without a value; it is read off the result when the program needs it. Where the data are
constants of the program, the operator is run for real and its result has the size that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tintype.fake.info import TensorInfo, fresh, strides_in_order
from tintype.fake.rules.elementwise import broadcast
from tintype.fake.tensor import FakeTensor, describe
from tintype.symbolic import Expr, Size
from tintype.symbolic.bridge import to_torch
from tintype.symbolic.sizes import certainly_at_least, product
from tintype.trace.calls import NOT_HANDLED
from tintype.trace.intercepts import intercept
from tintype.trace.known_values import computing_for_real, known_value
from tintype.trace.recorder import Recorder

aten = torch.ops.aten


def sized_by_data(*operators: Any) -> Callable[[Any], Any]:
    """Register a function that records operators whose data are only known when the program runs."""

    def register(function: Any) -> Any:
        def record(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
            known = _known_results(recorder, func, args, kwargs)
            if known is None:
                return function(recorder, func, args, kwargs)
            return recorder.record_as(func, args, kwargs, known)

        intercept(*operators)(record)
        return function

    return register


def _known_results(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """What the results of an operator look like if it is given nothing but constants; None for any other."""
    values = []
    for argument in (*args, *kwargs.values()):
        if isinstance(argument, torch.Tensor):
            argument = known_value(recorder.constant_of, recorder.as_fake(argument))
            if argument is None:
                return None
        values.append(argument)
    with computing_for_real():
        results = func(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))
    return describe(results) if isinstance(results, torch.Tensor) else [describe(result) for result in results]


def _new_size(recorder: Recorder, limit: Size | None, least: int = 0) -> Size:
    upper = limit if type(limit) is int else None
    return upper if upper == least else recorder.context.environment.unbacked_int(lower=least, upper=upper)


def _new_count(recorder: Recorder, limit: Size) -> Size:
    """How many different ones there are among so many, which is at least one where there are any."""
    any_at_all = certainly_at_least(limit, 1)
    return _new_size(recorder, limit, 1 if any_at_all else 0)


@sized_by_data(aten.nonzero.default)
def _nonzero(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (info,), _ = recorder.convert(args)
    count = _new_size(recorder, product(info.sizes))
    # positions lie in memory dimension by dimension
    result = fresh((count, info.dim), torch.int64, info.device, strides=(1, count))
    return recorder.record_as(func, args, kwargs, result)


@sized_by_data(aten.masked_select.default)
def _masked_select(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (info, mask), _ = recorder.convert(args)
    count = _new_size(recorder, product(broadcast([info.sizes, mask.sizes])))
    return recorder.record_as(func, args, kwargs, fresh((count,), info.dtype, info.device))


@intercept(aten.index.Tensor)
def _index(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Indexing with a mask is indexing with the positions at which it is true."""
    tensor, indices = args
    if not any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
        return NOT_HANDLED
    positions: list[Any] = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            positions.append(index)
        else:
            positions += _positions(recorder, index)
    return recorder.inside(lambda: aten.index.Tensor(tensor, positions))


def _positions(recorder: Recorder, mask: Any) -> list[Any]:
    """The positions at which a mask is true, one tensor per dimension."""
    return recorder.inside(lambda: aten.unbind.int(aten.nonzero.default(mask), 1))


@intercept(aten.broadcast_tensors.default)
def _broadcast_tensors(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """torch takes a size that data decide for none that is stretched, also where it fits only by being 1."""
    (tensors,) = args
    sizes = [recorder.as_fake(tensor).info.sizes for tensor in tensors]
    if not any(isinstance(size, Expr) and size.has_unbacked for shape in sizes for size in shape):
        return NOT_HANDLED
    common = [to_torch(size) for size in broadcast(sizes)]
    return recorder.inside(lambda: [aten.expand.default(tensor, common) for tensor in tensors])


@sized_by_data(aten.repeat_interleave.Tensor)
def _repeat_interleave(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (info, *_), _ = recorder.convert(args)
    size = kwargs.get("output_size")
    if size is not None:
        return NOT_HANDLED
    result = fresh((_new_size(recorder, None),), torch.int64, info.device)
    return recorder.record_as(func, args, kwargs, result)


@sized_by_data(aten.bincount.default)
def _bincount(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    infos, _ = recorder.convert(args)
    weights = infos[1] if len(infos) > 1 else kwargs.get("weights")
    if isinstance(weights, FakeTensor):
        weights = weights.info
    dtype = torch.int64
    if isinstance(weights, TensorInfo):
        dtype = weights.dtype if weights.dtype is torch.float32 else torch.float64
    least = infos[2] if len(infos) > 2 else kwargs.get("minlength", 0)
    count = _new_size(recorder, None, least if type(least) is int else 0)
    return recorder.record_as(func, args, kwargs, fresh((count,), dtype, infos[0].device))


@intercept(aten.one_hot.default)
def _one_hot(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Without a number of classes, that is the largest one plus one, which the data decide."""
    tensor, *rest = args
    if (rest[0] if rest else kwargs.get("num_classes", -1)) != -1:
        return NOT_HANDLED

    def spread() -> Any:
        classes = aten.max.default(tensor).item() + 1
        zeros = torch.zeros([*tensor.shape, classes], dtype=torch.int64, device=tensor.device)
        return aten.scatter.value(zeros, -1, tensor.unsqueeze(-1), 1)

    return recorder.inside(spread)


@intercept(aten._ctc_loss.Tensor)
def _ctc_loss(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Besides the losses, what the backward pass needs: as wide as the longest target, of which lengths are data."""
    (info, *_), _ = recorder.convert(args)
    frames, batch = info.sizes[0], info.sizes[1]
    width = _new_size(recorder, None)
    results = [fresh((batch,), info.dtype, info.device), fresh((batch, frames, width), info.dtype, info.device)]
    return recorder.record_as(func, args, kwargs, results)


@sized_by_data(aten._unique2.default, aten._unique.default)
def _unique(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (info, *options), _ = recorder.convert(args)
    names = ("sorted", "return_inverse", "return_counts")
    chosen = {**dict(zip(names, options, strict=False)), **kwargs}
    count = _new_count(recorder, product(info.sizes))
    inverse = info.sizes if chosen.get("return_inverse") else (0,)
    results = [
        fresh((count,), info.dtype, info.device),
        fresh(inverse, torch.int64, info.device),
        fresh((count,) if chosen.get("return_counts") else (0,), torch.int64, info.device),
    ]
    return recorder.record_as(func, args, kwargs, results[: len(func._schema.returns)])


@sized_by_data(aten.unique_consecutive.default)
def _unique_consecutive(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (info, *options), _ = recorder.convert(args)
    names = ("return_inverse", "return_counts", "dim")
    chosen = {**dict(zip(names, options, strict=False)), **kwargs}
    if chosen.get("dim") is not None:
        return _unique_rows(recorder, func, args, kwargs, info, chosen["dim"], chosen)
    count = _new_count(recorder, product(info.sizes))
    results = [
        fresh((count,), info.dtype, info.device),
        fresh(info.sizes if chosen.get("return_inverse") else (0,), torch.int64, info.device),
        fresh((count,) if chosen.get("return_counts") else (0,), torch.int64, info.device),
    ]
    return recorder.record_as(func, args, kwargs, results)


@sized_by_data(aten.unique_dim.default)
def _unique_dim(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (info, dim, *options), _ = recorder.convert(args)
    names = ("sorted", "return_inverse", "return_counts")
    chosen = {**dict(zip(names, options, strict=False)), **kwargs}
    return _unique_rows(recorder, func, args, kwargs, info, dim, chosen)


def _unique_rows(
    recorder: Recorder, func: Any, args: Any, kwargs: Any, info: TensorInfo, dim: int, chosen: dict[str, Any]
) -> Any:
    where = dim % info.dim
    length = info.sizes[where]
    count = _new_count(recorder, length)
    sizes = (*info.sizes[:where], count, *info.sizes[where + 1 :])
    order = [where, *(d for d in range(info.dim) if d != where)]  # the kernel works on rows
    on_gpu = info.device.type == "cuda"
    inverse = (length,) if not on_gpu or chosen.get("return_inverse") else (0,)
    counts = (count,) if not on_gpu or chosen.get("return_counts") else (0,)
    results = [
        fresh(sizes, info.dtype, info.device, strides=None if on_gpu else strides_in_order(sizes, order)),
        fresh(inverse, torch.int64, info.device),
        fresh(counts, torch.int64, info.device),
    ]
    return recorder.record_as(func, args, kwargs, results)
