"""Data that are known before a program runs.

A value is known where it follows from constants alone: tensors written down in the program and what is
computed from them. It is worked out when somebody asks, by running that part of the graph for real.
Parameters and buffers are not constants: their values change, and a program must not be specialised on them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Node

from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import is_pure


def known_value(constant_of: Callable[[Node], torch.Tensor | None], fake: FakeTensor) -> torch.Tensor | None:
    """The data of a fake, or None where it depends on inputs, state or chance; ``constant_of`` has the data of those
    inputs that are constants."""
    if fake.node is None or fake.info.storage.written:
        return None
    values: dict[Node, Any] = {}
    if not _compute(constant_of, fake.node, values):
        return None
    result = values[fake.node]
    if not isinstance(result, torch.Tensor):
        return None
    with computing_for_real():  # whoever reads it may do so where bits of conjugates are passed over
        return result.resolve_conj().resolve_neg()


@contextlib.contextmanager
def computing_for_real() -> Iterator[None]:
    """Within it operators are computed in the middle of a recording: nobody sees them, conjugates are resolved."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        included = torch._C._dispatch_tls_local_include_set()
        excluded = torch._C._dispatch_tls_local_exclude_set()
        for key in (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative):
            excluded = excluded.remove(key)
        with torch._C._ForceDispatchKeyGuard(included, excluded):
            yield


def _compute(constant_of: Callable[[Node], torch.Tensor | None], goal: Node, values: dict[Node, Any]) -> bool:
    """Compute a node and all it needs, without recursion; False as soon as something is not constant."""
    pending = [goal]
    with computing_for_real():
        while pending:
            node = pending[-1]
            if node in values:
                pending.pop()
                continue
            if node.op == "placeholder":
                constant = constant_of(node)
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
