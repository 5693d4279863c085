"""Tensors that are not strided: at the border of a program, the strided tensors that they consist of, and their size.

The size is among the parts, as integers, since none of the parts has it: that of a COO tensor can vary while its
indices keep their number. The layout is structure, and so is whether the indices of a COO tensor are known to be in
order and without repetition (``is_coalesced``).
"""

from __future__ import annotations

from typing import Any

import torch

from tintype.tree.registration import register_container

aten = torch.ops.aten

LAYOUTS = {
    "sparse_coo": torch.sparse_coo,
    "sparse_csr": torch.sparse_csr,
    "sparse_csc": torch.sparse_csc,
    "sparse_bsr": torch.sparse_bsr,
    "sparse_bsc": torch.sparse_bsc,
}
# the names of what a tensor's indices are, as its methods have them
_BY_ROWS = ("crow_indices", "col_indices")
_BY_COLUMNS = ("ccol_indices", "row_indices")
INDICES = {
    torch.sparse_coo: ("indices",),
    torch.sparse_csr: _BY_ROWS,
    torch.sparse_csc: _BY_COLUMNS,
    torch.sparse_bsr: _BY_ROWS,
    torch.sparse_bsc: _BY_COLUMNS,
}
_NAMES = {layout: name for name, layout in LAYOUTS.items()}


def is_sparse(tensor: torch.Tensor) -> bool:
    """Whether a tensor with data consists of indices and values."""
    return tensor.layout in INDICES


class SparseParts:
    """The parts of a sparse tensor: one or two tensors of indices, the values, and the size."""

    def __init__(self, parts: dict[str, Any], structure: Any) -> None:
        self.parts = parts
        self.structure = structure

    @staticmethod
    def made_of(
        layout: torch.layout, indices: tuple[Any, ...], values: Any, size: Any, coalesced: bool = False
    ) -> SparseParts:
        """The parts of a tensor that is yet to be made."""
        parts = dict(zip(INDICES[layout], indices, strict=True))
        return SparseParts({**parts, "values": values, "size": tuple(size)}, (_NAMES[layout], coalesced))

    @staticmethod
    def of(tensor: torch.Tensor) -> SparseParts:
        """A tensor with data taken apart; gradients of its values are gradients of the tensor."""
        layout = tensor.layout
        if layout is torch.sparse_coo:
            found, coalesced = (tensor._indices(),), tensor.is_coalesced()
        else:
            found, coalesced = tuple(getattr(tensor, name)() for name in INDICES[layout]), False
        if tensor.requires_grad and torch.is_grad_enabled():
            values = _ValuesOf.apply(tensor)
        else:
            values = _values_of(tensor)
        return SparseParts.made_of(layout, found, values, tensor.shape, coalesced)

    @property
    def layout(self) -> torch.layout:
        """The layout of the tensor."""
        return LAYOUTS[self.structure[0]]

    @property
    def coalesced(self) -> bool:
        """Whether the indices are known to be in order, each of them once."""
        return self.structure[1]

    @property
    def indices(self) -> tuple[Any, ...]:
        """Its indices: one tensor, or the compressed ones and the plain ones."""
        return tuple(self.parts[name] for name in INDICES[self.layout])

    @property
    def values(self) -> Any:
        """Its values."""
        return self.parts["values"]

    @property
    def size(self) -> tuple[Any, ...]:
        """Its size, as the tensor itself would say."""
        return self.parts["size"]

    @property
    def sparse_dim(self) -> int:
        """How many dimensions have indices."""
        return self.indices[0].shape[0] if self.layout is torch.sparse_coo else 2

    @property
    def batch_dim(self) -> int:
        """How many dimensions of a compressed tensor come before those."""
        return 0 if self.layout is torch.sparse_coo else self.indices[0].dim() - 1

    def tensors(self) -> dict[str, Any]:
        """The parts that are tensors."""
        return {name: part for name, part in self.parts.items() if name != "size"}

    def tensor(self) -> Any:
        """The tensor. While a program is captured, it is one that the capture knows."""
        # not by torch's own functions, whose arguments are plain numbers, and who look at the data
        if self.layout is torch.sparse_coo:
            return aten._sparse_coo_tensor_unsafe(*self.indices, self.values, self.size, is_coalesced=self.coalesced)
        return aten._sparse_compressed_tensor_unsafe(
            *self.indices, self.values, self.size, dtype=self.values.dtype, layout=self.layout
        )


register_container(SparseParts, lambda parts: (parts.parts, parts.structure), SparseParts, name="tintype.SparseParts")


def _values_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._values() if tensor.layout is torch.sparse_coo else tensor.detach().values()


class _ValuesOf(torch.autograd.Function):
    """The values of a sparse tensor, whatever its layout, so that gradients come back to it."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor.detach()
        context.parts = SparseParts.of(plain)
        return _values_of(plain)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        parts, (gradient,) = context.parts, gradients
        if parts.layout is torch.sparse_coo and not parts.coalesced:
            # a place that comes several times has one gradient
            _, which, counts = torch.unique(parts.indices[0], dim=1, return_inverse=True, return_counts=True)
            gradient = gradient / counts[which].view(-1, *[1] * (gradient.dim() - 1))
        return SparseParts.made_of(parts.layout, parts.indices, gradient, parts.size, parts.coalesced).tensor()
