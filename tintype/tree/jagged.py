"""Nested tensors of the jagged layout: at the border of a program, the values of all rows and where each row begins.

Two of them go together (``a + b``) only if they have the same tensor of offsets. So of those that share one among the
arguments or results of a program, the first has it as a part, and the others refer to the first.
"""

from __future__ import annotations

from typing import Any

import torch

from tintype.tree.registration import register_container


def is_jagged(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a nested one of the jagged layout."""
    return tensor.is_nested and tensor.layout is torch.jagged


# What a nested tensor may know of its rows. One that does not know the longest is padded to that of all together.
EXTREMES = ("min_seqlen", "max_seqlen")


def known_lengths(tensor: Any) -> dict[str, Any]:
    """The lengths of the shortest and the longest row, as far as a nested tensor knows them."""
    known = {name: getattr(tensor, f"_{name}_tensor") for name in EXTREMES}
    return {name: shape.shape[0] for name, shape in known.items() if shape is not None}


class JaggedParts:
    """The parts of a nested tensor: values, offsets unless another one has them, lengths if rows have gaps, and what
    it knows of these.

    ``structure`` is the dimension that rows differ in, and the number of the offsets among those of the whole tree.
    """

    def __init__(self, parts: dict[str, Any], structure: Any) -> None:
        self.parts = parts
        self.structure = structure

    @staticmethod
    def of(tensor: Any, known: list[Any]) -> JaggedParts:
        """A nested tensor taken apart; ``known`` are the offsets that others have."""
        # gradients come back through the method alone
        parts = {"values": tensor.values() if tensor.requires_grad and torch.is_grad_enabled() else tensor._values}
        number = next((n for n, offsets in enumerate(known) if offsets is tensor._offsets), len(known))
        if number == len(known):
            known.append(tensor._offsets)
            parts["offsets"] = tensor._offsets
        if tensor._lengths is not None:
            parts["lengths"] = tensor._lengths
        parts.update(known_lengths(tensor))
        return JaggedParts(parts, (tensor._ragged_idx, number))

    def tensor(self, known: dict[int, Any]) -> Any:
        """The tensor; ``known`` are the offsets by their numbers."""
        dimension, number = self.structure
        offsets = known.setdefault(number, self.parts.get("offsets"))
        from torch.nested._internal.nested_tensor import nested_view_from_values_offsets_lengths as make

        lengths = {name: self.parts[name] for name in EXTREMES if name in self.parts}
        return make(self.parts["values"], offsets, self.parts.get("lengths"), ragged_idx=dimension, **lengths)


register_container(JaggedParts, lambda parts: (parts.parts, parts.structure), JaggedParts, name="tintype.JaggedParts")
