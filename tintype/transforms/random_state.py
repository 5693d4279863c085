"""Random operators that run twice and draw the same numbers: once in a forward graph, once in a backward graph."""

from __future__ import annotations

from typing import Any

import torch

# the state of the CPU's generator, in bytes
STATE_BYTES = 5056


def run_and_save_state(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, Any]:
    """Run a random operator; returns the state that its generator had before, and the result."""
    state = _generator(args, kwargs).get_state()
    return state, target(*args, **kwargs)


def run_with_state(state: torch.Tensor, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a random operator with a given state of its generator, which afterwards has the state it had before."""
    generator = _generator(args, kwargs)
    current = generator.get_state()
    generator.set_state(state)
    try:
        return target(*args, **kwargs)
    finally:
        generator.set_state(current)


def _generator(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Generator:
    device = next((value.device for value in args if isinstance(value, torch.Tensor)), None)
    if device is None:
        device = torch.device(kwargs.get("device") or "cpu")
    if device.type == "cuda":
        return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    return torch.default_generator
