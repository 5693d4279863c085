"""The arguments of a call as inputs of a graph: each tensor once, those that share written memory as views of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype import tree
from tintype.errors import MutationError, UnsupportedInputError
from tintype.fake.tensor import FakeTensor
from tintype.ir.call_description import attached_to


class SharedMemoryError(Exception):
    """Inputs share memory that the function writes to: they have to be captured as views of one tensor.

    ``groups`` are the positions of such inputs."""

    def __init__(self, groups: list[list[int]]) -> None:
        super().__init__(groups)
        self.groups = groups


class Arguments:
    """The flat arguments of a call, as the function gets them: tensors that are inputs of the graph, views of such
    tensors, and constants.

    A tensor that is given twice is one input. Tensors that share memory which the function writes to are views of one
    input (see :class:`SharedMemoryError`).
    """

    def __init__(self, leaves: Sequence[Any], merged: Sequence[Sequence[int]] = ()) -> None:
        self.leaves = list(leaves)
        self.inputs: list[torch.Tensor] = []
        # for each leaf: the input that it is or is a view of; None for constants
        self.sources: list[int | None] = [None] * len(self.leaves)
        self.members: set[int] = set()
        # tensors whose version counter does not tell of writes to the input that they are views of
        self.unaware: list[torch.Tensor] = []
        # whether the function changes containers among the arguments; then it returns all of them besides its result
        self.are_changed = False
        # the numbers of those that are among what it returns, by their places
        self.returned: dict[tree.Path, int] = {}
        # which fake stands for which leaf; filled while the function runs
        self.positions: dict[int, int] = {}
        self.fakes: list[Any] = []
        seen: dict[int, int] = {}
        for group in merged:
            tensors = [self.leaves[position] for position in group]
            base = common_base(tensors)
            if base is not tensors[0] and base is not tensors[0]._base:
                self.unaware += {id(tensor): tensor for tensor in tensors}.values()
            for position in group:
                self.sources[position] = len(self.inputs)
                self.members.add(position)
                seen.setdefault(id(self.leaves[position]), position)
            self.inputs.append(base)
        for position, leaf in enumerate(self.leaves):
            if not isinstance(leaf, torch.Tensor) or self.sources[position] is not None:
                continue
            first = seen.setdefault(id(leaf), position)
            if first == position:
                self.sources[position] = len(self.inputs)
                self.inputs.append(leaf)
            else:
                self.sources[position] = self.sources[first]
                if first in self.members:
                    self.members.add(position)

    def let_go(self) -> None:
        """Keep no tensor of the call alive: graphs that were recorded with it need it no more."""
        self.leaves, self.inputs, self.unaware = [], [], []

    def rebuild(self, inputs: Sequence[torch.Tensor]) -> list[Any]:
        """The leaves for other tensors in the place of the inputs."""
        rebuilt: list[Any] = []
        made: dict[int, Any] = {}
        for position, leaf in enumerate(self.leaves):
            source = self.sources[position]
            if source is None:
                rebuilt.append(leaf)
                continue
            if id(leaf) not in made:
                value = inputs[source]
                if position in self.members:
                    value = value.as_strided(leaf.size(), leaf.stride(), leaf.storage_offset())
                attach(value, attached_to(leaf))
                made[id(leaf)] = value
                self.positions[id(value)] = position
            rebuilt.append(made[id(leaf)])
        self.fakes = list(made.values())  # their identities count
        return rebuilt


def common_base(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """One tensor that all of the given ones, which share memory, are views of."""
    bases = [tensor if tensor._base is None else tensor._base for tensor in tensors]
    if all(base is bases[0] for base in bases):
        return bases[0]
    first = tensors[0]
    if any(tensor.requires_grad for tensor in tensors) or any(tensor.dtype is not first.dtype for tensor in tensors):
        raise MutationError(
            "inputs share memory without being views of each other, the function writes to it, and they require "
            "gradients or have several dtypes",
            remedy="pass copies (clone()), or views of one tensor",
        )
    # a tensor of our own over the same memory: nobody's version counter tells of writes to it
    whole = torch.empty(0, dtype=first.dtype, device=first.device)
    count = first.untyped_storage().nbytes() // first.dtype.itemsize
    return whole.set_(first.untyped_storage(), 0, (count,), (1,))


def attach(fake: Any, attributes: dict[str, Any]) -> None:
    """Attach to the fake of a tensor what the tensor has."""
    taken = FakeTensor.names_of_fakes.intersection(attributes)
    if taken:
        raise UnsupportedInputError(
            f"a tensor has an attribute {min(taken)!r}, a name that tensors without data need themselves",
            remedy="give the attribute another name",
        )
    vars(fake).update(attributes)
