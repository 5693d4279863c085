"""Questions about data: ``item()``, ``bool()``, ``tolist()``, ``numpy()`` on a tensor without data."""

from __future__ import annotations

from typing import Any

import torch

from tintype.symbolic.bridge import to_torch
from tintype.symbolic.raising import needed_answer
from tintype.symbolic.sizes import decided_same, product, require_same
from tintype.trace.intercepts import intercept
from tintype.trace.known_values import known_value
from tintype.trace.packed_sequences import number_of_sequences
from tintype.trace.recorder import Recorder

aten = torch.ops.aten


@intercept(aten.item.default, aten._local_scalar_dense.default)
def _item(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (tensor,) = args
    fake = recorder.as_fake(tensor)
    count = product(fake.info.sizes)
    require_same(count, 1, lambda: f"a Tensor with {count} elements cannot be converted to Scalar")
    value = known_value(recorder.constant_of, fake)
    if value is not None:
        return value.item()
    batch = number_of_sequences(fake)
    return recorder.record_number(func, fake) if batch is None else to_torch(batch)


@intercept(aten.is_nonzero.default)
def _is_nonzero(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (tensor,) = args
    fake = recorder.as_fake(tensor)
    require_same(product(fake.info.sizes), 1, "Boolean value of Tensor with more than one value is ambiguous")
    value = known_value(recorder.constant_of, fake)
    if value is not None:
        return bool(value.item())
    needed = needed_answer() if recorder.is_recording else None
    if needed is not None:
        condition = fake if needed.answer else recorder.record(aten.logical_not.default, fake)
        recorder.record(aten._assert_async.msg, condition, needed.message)
        return needed.answer
    if recorder.example is not None:
        return recorder.example.truth("the program branches on the value of a tensor", fake)
    return recorder.data_dependent(
        "the program branches on the value of a tensor (if, while, bool(), assert)",
        "write it with tintype.cond or torch.where, and max(), min(), sorted() of tensors with torch.maximum, "
        "torch.minimum, torch.sort; control_flow='auto', the default, takes an if or a while of the program's own",
    )


@intercept(aten.equal.default)
def _equal(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    fakes = [recorder.as_fake(a) for a in args]
    if not decided_same(fakes[0].info.sizes, fakes[1].info.sizes):
        return False
    first, second = (known_value(recorder.constant_of, fake) for fake in fakes)
    if first is not None and second is not None:
        return torch.equal(first, second)
    if recorder.example is not None:
        same = recorder.inside(lambda: torch.all(torch.eq(*fakes)))
        return recorder.example.truth("the program asks whether two tensors are equal", same)
    return recorder.data_dependent(
        "the program asks whether two tensors are equal (torch.equal)",
        "compare with (a == b).all() and use torch.where on the result",
    )


@intercept(aten.allclose.default)
def _allclose(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    fakes = [recorder.as_fake(a) for a in args[:2]]
    first, second = (known_value(recorder.constant_of, fake) for fake in fakes)
    if first is not None and second is not None:
        return torch.allclose(first, second, *args[2:], **kwargs)
    if recorder.example is not None:
        close = recorder.inside(lambda: torch.all(torch.isclose(fakes[0], fakes[1], *args[2:], **kwargs)))
        return recorder.example.truth("the program asks whether two tensors are close", close)
    return recorder.data_dependent(
        "the program asks whether two tensors are close (torch.allclose)",
        "compare with torch.isclose(a, b).all() and use torch.where on the result",
    )
