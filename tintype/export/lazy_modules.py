"""Models with lazy layers (``nn.LazyLinear``, ...), whose parameters are made at the first call."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

_UNINITIALIZED = (UninitializedParameter, UninitializedBuffer)


def has_uninitialized_state(module: torch.nn.Module) -> bool:
    """Whether some parameter or buffer of a model has no size yet."""
    pending, seen, kinds = [module], {id(module)}, set[type]()
    while pending:
        child = pending.pop()
        for tensors in (child._parameters, child._buffers):
            if tensors:
                kinds.update(map(type, tensors.values()))
        for inner in child._modules.values():
            if inner is not None and id(inner) not in seen:
                seen.add(id(inner))
                pending.append(inner)
    return any(issubclass(kind, _UNINITIALIZED) for kind in kinds)


def _uninitialized_copies(module: torch.nn.Module) -> dict[int, Any]:
    """Copies of the tensors without a size, which torch itself does not copy."""
    copies: dict[int, Any] = {}
    for child in module.modules():
        for table in (child._parameters, child._buffers):
            for tensor in table.values():
                if tensor is not None and is_lazy(tensor):
                    kind: Any = type(tensor)
                    copies[id(tensor)] = kind(
                        requires_grad=tensor.requires_grad, device=tensor.device, dtype=tensor.dtype
                    )
    return copies


def initialized_copy(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A copy of a lazy model after its first call; the model itself stays uninitialized.

    The random numbers drawn are given back, so the model's own first call draws the same parameters.
    """
    copied = copy.deepcopy(module, _uninitialized_copies(module))
    with torch.random.fork_rng(), torch.no_grad():
        copied(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    return copied
