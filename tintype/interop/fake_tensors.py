"""Tensors of torch's own fake mode, as inputs and as the state of a model.

A model that was built under ``FakeTensorMode`` needs no memory for its weights. It is captured like any other: its
tensors describe themselves, and stay in the program as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from tintype.errors import UnsupportedInputError


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A fake tensor as something that can be described: its sizes are numbers.

    Sizes that vary in the shape environment of the user's fake mode are taken at the values they have there as
    examples: what may vary in a program is said by ``dynamic_shapes``.
    """
    if not isinstance(tensor, FakeTensor):
        raise UnsupportedInputError(f"a {type(tensor).__name__} of torch's fake mode can't be captured")
    if not _symbolic(tensor):
        return tensor
    with tensor.fake_mode:
        example = torch.empty_strided(
            [_example(size) for size in tensor.size()],
            [_example(stride) for stride in tensor.stride()],
            dtype=tensor.dtype,
            device=tensor.fake_device,
        )
    return example.requires_grad_(tensor.requires_grad)


def _symbolic(tensor: torch.Tensor) -> bool:
    numbers = (*tensor.size(), *tensor.stride(), tensor.storage_offset())
    return any(isinstance(number, torch.SymInt) for number in numbers)


def _example(number: Any) -> int:
    if not isinstance(number, torch.SymInt):
        return int(number)
    hint = number.node.hint
    if hint is None:
        raise UnsupportedInputError(
            f"a tensor of torch's fake mode has the size {number}, of which no example is known",
            remedy="pass a tensor whose sizes are numbers, and say with dynamic_shapes which of them vary",
        )
    return int(hint)


__all__ = ["plain"]
