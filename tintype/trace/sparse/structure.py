"""Operators on sparse tensors that compute nothing: their parts, copies, and other orders of dimensions."""

from __future__ import annotations

from typing import Any

import torch

from tintype.trace.sparse.tensor import (
    SparseTensor,
    coo,
    made,
    sparse,
    with_values,
)

aten = torch.ops.aten

_OTHER_WAY = {
    torch.sparse_csr: torch.sparse_csc,
    torch.sparse_csc: torch.sparse_csr,
    torch.sparse_bsr: torch.sparse_bsc,
    torch.sparse_bsc: torch.sparse_bsr,
}


# --- parts -----------------------------------------------------------------------------------------------


@sparse(aten._values.default)
def _any_values(tensor: Any) -> Any:
    return tensor.sparse_parts.values


@sparse(aten.values.default)
def _values(tensor: Any) -> Any:
    parts = tensor.sparse_parts
    if parts.layout is torch.sparse_coo and not parts.coalesced:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    return parts.values


@sparse(aten._indices.default)
def _any_indices(tensor: Any) -> Any:
    return tensor.sparse_parts.indices[0]


@sparse(aten.indices.default)
def _indices(tensor: Any) -> Any:
    if not tensor.sparse_parts.coalesced:
        raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
    return tensor.sparse_parts.indices[0]


def _part(number: int) -> Any:
    return lambda tensor: tensor.sparse_parts.indices[number]


sparse(aten.crow_indices.default, aten.ccol_indices.default)(_part(0))
sparse(aten.col_indices.default, aten.row_indices.default)(_part(1))


# --- copies ----------------------------------------------------------------------------------------------


@sparse(aten.detach.default, aten.alias.default, aten.lift_fresh.default)
def _detach(tensor: Any) -> Any:
    return with_values(tensor, tensor.sparse_parts.values.detach())


@sparse(aten.contiguous.default)
def _same(tensor: Any, **options: Any) -> Any:
    return tensor


@sparse(aten.clone.default)
def _clone(tensor: Any, *, memory_format: Any = None) -> Any:
    parts = tensor.sparse_parts
    indices = tuple(index.clone() for index in parts.indices)
    return made(parts.layout, indices, parts.values.clone(), parts.size, parts.coalesced)


@sparse(aten.to.dtype, aten.to.device, aten.to.dtype_layout, aten.to.other)
def _to(tensor: Any, *args: Any, layout: Any = None, copy: bool = False, **options: Any) -> Any:
    if layout is not None and layout is not tensor.layout:
        return NotImplemented
    given = [getattr(value, "dtype", value) for value in args]
    values = tensor.sparse_parts.values
    dtype = next((value for value in given if isinstance(value, torch.dtype)), options.get("dtype")) or values.dtype
    device = next((value for value in given if isinstance(value, (torch.device, str))), options.get("device"))
    return _to_copy(tensor, dtype=dtype, device=device)


@sparse(aten._to_copy.default)
def _to_copy(tensor: Any, *, dtype: Any = None, device: Any = None, layout: Any = None, **options: Any) -> Any:
    parts = tensor.sparse_parts
    indices = parts.indices if device is None else tuple(index.to(device) for index in parts.indices)
    values = parts.values.to(device=device or parts.values.device, dtype=dtype or parts.values.dtype)
    return made(parts.layout, indices, values, parts.size, parts.coalesced)


@sparse(aten.zeros_like.default)
def _zeros_like(tensor: Any, *, dtype: Any = None, layout: Any = None, **options: Any) -> Any:
    parts = tensor.sparse_parts
    if layout is torch.strided:
        return torch.zeros(parts.size, dtype=dtype or parts.values.dtype, device=parts.values.device)
    if parts.layout is not torch.sparse_coo or layout not in (None, parts.layout):
        return NotImplemented
    indices, values = parts.indices[0][:, :0], parts.values[:0]
    return coo(indices, values if dtype is None else values.to(dtype), parts.size, coalesced=True)


# --- other orders ----------------------------------------------------------------------------------------


@sparse(aten.t.default)
def _t(tensor: Any) -> Any:
    return transposed(tensor, 0, 1) if tensor.dim() == 2 else tensor


@sparse(aten.transpose.int)
def transposed(tensor: Any, first: int, second: int) -> Any:
    """Two dimensions exchanged."""
    parts = tensor.sparse_parts
    count = len(parts.size)
    first, second = sorted((first % count, second % count))
    size = list(parts.size)
    size[first], size[second] = size[second], size[first]
    if parts.layout is not torch.sparse_coo:
        batches = parts.batch_dim
        if (first, second) != (batches, batches + 1):
            return tensor if first == second else NotImplemented
        values = parts.values
        if parts.layout in (torch.sparse_bsr, torch.sparse_bsc):
            values = values.transpose(batches + 1, batches + 2)
        return made(_OTHER_WAY[parts.layout], parts.indices, values, size)
    order = list(range(count))
    order[first], order[second] = second, first
    return _permuted(tensor, order)


@sparse(aten.permute.default)
def _permuted(tensor: Any, dims: Any) -> Any:
    parts = tensor.sparse_parts
    if parts.layout is not torch.sparse_coo:
        return NotImplemented
    count, indexed = len(parts.size), parts.sparse_dim
    order = [dim % count for dim in dims]
    if order == list(range(count)):
        return tensor
    if sorted(order[:indexed]) != list(range(indexed)):
        return NotImplemented  # what has coordinates would be what has none
    indices = torch.stack([parts.indices[0][dim] for dim in order[:indexed]]) if indexed else parts.indices[0]
    values = parts.values.permute(0, *[dim - indexed + 1 for dim in order[indexed:]])
    same = order[:indexed] == list(range(indexed))
    return coo(indices, values, [parts.size[dim] for dim in order], coalesced=same and parts.coalesced)


@sparse(aten.unsqueeze.default)
def _unsqueeze(tensor: Any, dim: int) -> Any:
    parts = tensor.sparse_parts
    if parts.layout is not torch.sparse_coo:
        return NotImplemented
    indexed = parts.sparse_dim
    dim = dim % (len(parts.size) + 1)
    size = [*parts.size[:dim], 1, *parts.size[dim:]]
    if dim > indexed:
        return coo(parts.indices[0], parts.values.unsqueeze(dim - indexed + 1), size)
    indices = parts.indices[0]
    indices = torch.cat([indices[:dim], indices.new_zeros((1, indices.shape[1])), indices[dim:]])
    return coo(indices, parts.values, size)


# --- some of it ------------------------------------------------------------------------------------------


@sparse(aten.select.int)
def _select(tensor: Any, dim: int, index: Any) -> Any:
    parts = tensor.sparse_parts
    if parts.layout is not torch.sparse_coo:
        return NotImplemented
    dim = dim % len(parts.size)
    index = index + parts.size[dim] if index < 0 else index
    size = [*parts.size[:dim], *parts.size[dim + 1 :]]
    indexed = parts.sparse_dim
    if dim >= indexed:
        return coo(parts.indices[0], parts.values.select(dim - indexed + 1, index), size)
    chosen = (parts.indices[0][dim] == index).nonzero().squeeze(1)
    values = parts.values[chosen]
    if indexed == 1:
        return values.sum(0)
    rest = [row for number, row in enumerate(parts.indices[0].unbind(0)) if number != dim]
    return coo(torch.stack([row[chosen] for row in rest]), values, size)


@sparse(aten.index_select.default)
def _index_select(tensor: Any, dim: int, index: Any) -> Any:
    parts = tensor.sparse_parts
    if parts.layout is not torch.sparse_coo:
        return NotImplemented
    dim = dim % len(parts.size)
    size = [*parts.size[:dim], index.shape[0], *parts.size[dim + 1 :]]
    indexed = parts.sparse_dim
    if dim >= indexed:
        return coo(parts.indices[0], parts.values.index_select(dim - indexed + 1, index), size)
    index = torch.where(index < 0, index + parts.size[dim], index)
    # pairs of a place in the index and a value of that coordinate
    where, which = (index.unsqueeze(1) == parts.indices[0][dim].unsqueeze(0)).nonzero().unbind(1)
    rows = [row[which] for row in parts.indices[0].unbind(0)]
    rows[dim] = where
    return coo(torch.stack(rows), parts.values[which], size)


@sparse(aten.narrow_copy.default)
def _narrow_copy(tensor: Any, dim: int, start: Any, length: Any) -> Any:
    parts = tensor.sparse_parts
    if parts.layout is not torch.sparse_coo:
        return NotImplemented
    dim = dim % len(parts.size)
    size = [*parts.size[:dim], length, *parts.size[dim + 1 :]]
    indexed = parts.sparse_dim
    if dim >= indexed:
        return coo(parts.indices[0], parts.values.narrow(dim - indexed + 1, start, length), size, parts.coalesced)
    rows = list(parts.indices[0].unbind(0))
    chosen = ((rows[dim] >= start) & (rows[dim] < start + length)).nonzero().squeeze(1)
    rows[dim] = rows[dim] - start
    return coo(torch.stack([row[chosen] for row in rows]), parts.values[chosen], size, parts.coalesced)


@sparse(aten.cat.default)
def _cat(tensors: Any, dim: int = 0) -> Any:
    parts = [tensor.sparse_parts for tensor in tensors if isinstance(tensor, SparseTensor)]
    if len(parts) != len(tensors) or any(part.layout is not torch.sparse_coo for part in parts):
        return NotImplemented
    dim = dim % len(parts[0].size)
    indexed = parts[0].sparse_dim
    size = list(parts[0].size)
    size[dim] = sum(part.size[dim] for part in parts)
    if dim >= indexed:
        return _cat_values(parts, dim, indexed, size)
    indices, before = [], 0
    for part in parts:
        rows = list(part.indices[0].unbind(0))
        rows[dim] = rows[dim] + before
        indices.append(torch.stack(rows))
        before = before + part.size[dim]
    return coo(torch.cat(indices, 1), torch.cat([part.values for part in parts]), size)


def _cat_values(parts: list[Any], dim: int, indexed: int, size: list[Any]) -> Any:
    """Along a dimension without coordinates each value has zeros where the others have theirs."""
    found, before = [], 0
    for part in parts:
        after = size[dim] - before - part.size[dim]
        shape = list(part.values.shape)
        place = dim - indexed + 1
        blanks = [part.values.new_zeros([*shape[:place], width, *shape[place + 1 :]]) for width in (before, after)]
        found.append(torch.cat([blanks[0], part.values, blanks[1]], place))
        before = before + part.size[dim]
    return coo(torch.cat([part.indices[0] for part in parts], 1), torch.cat(found), size)
