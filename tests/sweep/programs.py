"""Programs of one operator: what the database calls a sample, as a module whose inputs are its tensors."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

SEED = 20
# The database is asked for float32; operators that have none (bitwise, complex only) are taken in another.
DTYPES = (
    torch.float32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.float64,
    torch.float16,
    torch.bfloat16,
)


class OperatorCall(torch.nn.Module):
    """One call of an operator. Its tensors are the inputs, everything else is part of the program."""

    def __init__(self, function: Callable[..., Any], leaves: Sequence[Any], spec: pytree.TreeSpec) -> None:
        super().__init__()
        self.function = function
        self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.spec = spec

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


@dataclass
class Case:
    """A program and the inputs to export it with."""

    name: str
    module: OperatorCall
    inputs: tuple[torch.Tensor, ...]
    in_place: bool = False

    def fresh_inputs(self) -> tuple[torch.Tensor, ...]:
        """Copies of the inputs with the same strides and the same sharing of memory."""
        memo: dict[int, Any] = {}
        return tuple(
            copy.deepcopy(tensor, memo) if tensor.layout is torch.strided else tensor.clone()
            for tensor in self.inputs
        )

    def with_other_values(self) -> Case:
        """The same program with the elements of each input turned round: a value must not have become part of it.

        Turned along all dimensions, matrices stay symmetric or positive, and indices stay in range.
        """
        turned = self.fresh_inputs()
        for tensor, original in zip(turned, self.inputs, strict=True):
            if not has_overlap(tensor):
                tensor.copy_(original.flip(list(range(original.dim()))))
        return Case(f"{self.name}, other values", self.module, turned, self.in_place)


def has_overlap(tensor: torch.Tensor) -> bool:
    """Whether elements share memory (a stride of 0), so that they can't be written one by one."""
    return tensor.layout is not torch.strided or torch._debug_has_internal_overlap(tensor) == 1


def seed() -> None:
    """Put every source of random numbers into one state."""
    torch.manual_seed(SEED)
    numpy.random.seed(SEED)
    random.seed(SEED)


def dtype_for(operator: Any, device: str = "cpu") -> torch.dtype | None:
    """The dtype to ask for samples in; None where the operator has no kernel for the device."""
    return next((dtype for dtype in DTYPES if operator.supports_dtype(dtype, device)), None)


def cases_of(operator: Any, limit: int, device: str = "cpu") -> list[Case]:
    """The programs of an operator: its samples, and its in-place variant on those that fit."""
    seed()
    dtype = dtype_for(operator, device)
    if dtype is None:
        return []
    samples = list(operator.sample_inputs(device=device, dtype=dtype, requires_grad=False))
    cases = []
    for number in spread(len(samples), limit):
        sample = samples[number]
        arguments = ((sample.input, *sample.args), sample.kwargs)
        cases.append(make_case(f"sample {number}", operator.op, arguments))
        in_place = operator.inplace_variant
        if in_place is not None and isinstance(sample.input, torch.Tensor) and not sample.broadcasts_input:
            cases.append(make_case(f"sample {number} in place", in_place, arguments, in_place=True))
            on_a_copy = writing_to_a_copy(in_place)
            cases.append(make_case(f"sample {number} in place on a copy", on_a_copy, arguments, in_place=True))
    return cases


def make_case(name: str, function: Callable[..., Any], arguments: Any, in_place: bool = False) -> Case:
    """A call as a program."""
    leaves, spec = pytree.tree_flatten(arguments)
    tensors = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
    described = ", ".join(describe(leaf) for leaf in leaves)
    return Case(f"{name} ({described})", OperatorCall(function, leaves, spec), tensors, in_place)


def writing_to_a_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """An in-place operator called on a tensor that the program made itself; returns that tensor as well."""

    def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        copied = tensor.clone()
        result = function(copied, *args, **kwargs)
        return result, copied

    return call


def describe(leaf: Any) -> str:
    """An argument in a few characters."""
    if isinstance(leaf, torch.Tensor):
        kind = str(leaf.dtype).removeprefix("torch.")
        return f"{kind}{list(leaf.shape)}"
    return repr(leaf)[:40]


def spread(count: int, limit: int) -> list[int]:
    """At most ``limit`` numbers below ``count``, evenly apart, the first and the last among them."""
    if limit <= 0 or count <= limit:
        return list(range(count))
    if limit == 1:
        return [0]
    return sorted({round(step * (count - 1) / (limit - 1)) for step in range(limit)})
