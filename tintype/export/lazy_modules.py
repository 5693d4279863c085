"""Models with lazy layers (``nn.LazyLinear``, ...), whose parameters are made at the first call."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.nn.parameter import is_lazy


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
