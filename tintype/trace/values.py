"""Questions about data: ``item()``, ``bool()``, ``tolist()``, ``numpy()`` on a tensor without data.

A value is known where it follows from constants alone: tensors written down in the program and what is
computed from them. It is worked out when somebody asks, by running that part of the graph for real.
Parameters and buffers are not constants: their values change, and a program must not be specialised on them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import is_pure
from tintype.symbolic.raising import needed_answer
from tintype.symbolic.sizes import decided_same, product, require_same
from tintype.trace.intercepts import intercept
from tintype.trace.recorder import Recorder

aten = torch.ops.aten


def known_value(recorder: Recorder, fake: FakeTensor) -> torch.Tensor | None:
    """The data of a fake, or None where it depends on inputs, state or chance."""
    if fake.node is None or fake.info.storage.written:
        return None
    values: dict[Node, Any] = {}
    if not _compute(recorder, fake.node, values):
        return None
    result = values[fake.node]
    return result if isinstance(result, torch.Tensor) else None


def _compute(recorder: Recorder, goal: Node, values: dict[Node, Any]) -> bool:
    """Compute a node and all it needs, without recursion; False as soon as something is not constant."""
    pending = [goal]
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        while pending:
            node = pending[-1]
            if node in values:
                pending.pop()
                continue
            if node.op == "placeholder":
                constant = recorder.constant_of(node)
                if constant is None:
                    return False
                values[node] = constant
                continue
            if node.op != "call_function" or not is_pure(node) or _was_written(node):
                return False
            missing = [n for n in node.all_input_nodes if n not in values]
            if missing:
                pending += missing
                continue
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
    return True


def _was_written(node: Node) -> bool:
    value = node.meta.get("val")
    return type(value) is FakeTensor and value.info.storage.written


@intercept(aten.item.default, aten._local_scalar_dense.default)
def _item(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (tensor,) = args
    fake = tensor if type(tensor) is FakeTensor else recorder.fake_of(tensor)
    count = product(fake.info.sizes)
    require_same(count, 1, lambda: f"a Tensor with {count} elements cannot be converted to Scalar")
    value = known_value(recorder, fake)
    return recorder.record_number(func, fake) if value is None else value.item()


@intercept(aten.is_nonzero.default)
def _is_nonzero(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (tensor,) = args
    fake = tensor if type(tensor) is FakeTensor else recorder.fake_of(tensor)
    require_same(product(fake.info.sizes), 1, "Boolean value of Tensor with more than one value is ambiguous")
    value = known_value(recorder, fake)
    if value is not None:
        return bool(value.item())
    needed = needed_answer() if recorder.is_recording else None
    if needed is not None:
        condition = fake if needed.answer else recorder.record(aten.logical_not.default, fake)
        recorder.record(aten._assert_async.msg, condition, needed.message)
        return needed.answer
    return recorder.data_dependent(
        "the program branches on the value of a tensor (if, while, bool(), assert)",
        "choose between values with torch.where, or move the branch out of the program",
    )


@intercept(aten.equal.default)
def _equal(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    fakes = [a if type(a) is FakeTensor else recorder.fake_of(a) for a in args]
    if not decided_same(fakes[0].info.sizes, fakes[1].info.sizes):
        return False
    first, second = (known_value(recorder, fake) for fake in fakes)
    if first is not None and second is not None:
        return torch.equal(first, second)
    return recorder.data_dependent(
        "the program asks whether two tensors are equal (torch.equal)",
        "compare with (a == b).all() and use torch.where on the result",
    )


@intercept(aten.allclose.default)
def _allclose(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    fakes = [a if type(a) is FakeTensor else recorder.fake_of(a) for a in args[:2]]
    first, second = (known_value(recorder, fake) for fake in fakes)
    if first is not None and second is not None:
        return torch.allclose(first, second, *args[2:], **kwargs)
    return recorder.data_dependent(
        "the program asks whether two tensors are close (torch.allclose)",
        "compare with torch.isclose(a, b).all() and use torch.where on the result",
    )
