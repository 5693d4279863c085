"""Sums, norms and softmaxes of sparse tensors."""

from __future__ import annotations

from typing import Any

import torch

from tintype.trace.sparse.conversions import coalesced, raveled
from tintype.trace.sparse.tensor import coo, sparse, with_values

aten = torch.ops.aten


@sparse(aten.sum.default, aten._sparse_sum.default)
def _sum(tensor: Any, *, dtype: Any = None) -> Any:
    return tensor.sparse_parts.values.sum(dtype=dtype)


@sparse(aten._sparse_sum.dim)
def _sum_dims(tensor: Any, dim: Any) -> Any:
    """Sums over dimensions, sparse as long as one with coordinates is left."""
    parts = tensor.sparse_parts
    if parts.layout is not torch.sparse_coo:
        return NotImplemented
    count, indexed = len(parts.size), parts.sparse_dim
    dims = sorted(number % count for number in dim)
    values = parts.values
    inner = [number - indexed + 1 for number in dims if number >= indexed]
    values = values.sum(inner) if inner else values
    kept = [number for number in range(indexed) if number not in dims]
    if not kept:
        return values.sum(0)
    size = [parts.size[number] for number in range(count) if number not in dims]
    indices = torch.stack([parts.indices[0][number] for number in kept])
    return coalesced(coo(indices, values, size, coalesced=len(kept) == indexed and parts.coalesced))


@sparse(aten.sum.dim_IntList)
def _sum_as_torch(tensor: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if tensor.layout is not torch.sparse_coo or keepdim:
        return NotImplemented
    if not dim:
        return _sum(tensor, dtype=dtype)
    values = tensor.sparse_parts.values
    whole = values.dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32)
    wanted = dtype or (torch.int64 if whole else values.dtype)
    return _sum_dims(with_values(tensor, values.to(wanted)), [dim] if isinstance(dim, int) else dim)


@sparse(aten.norm.Scalar, aten.norm.ScalarOpt_dim, aten.norm.ScalarOpt_dim_dtype)
def _norm(tensor: Any, p: Any = 2, dim: Any = (), keepdim: bool = False, *, dtype: Any = None) -> Any:
    if (dim and len(dim) != tensor.dim()) or keepdim or dtype is not None:
        return NotImplemented
    tensor = coalesced(tensor) if tensor.layout is torch.sparse_coo else tensor
    return tensor.sparse_parts.values.norm(2 if p is None else p)


@sparse(aten._sparse_softmax.default)
def _softmax(tensor: Any, dim: int, half_to_float: bool) -> Any:
    return _normalized(tensor, dim, torch.softmax, lambda scaled, sums, which: scaled.exp() / sums[which])


@sparse(aten._sparse_log_softmax.default)
def _log_softmax(tensor: Any, dim: int, half_to_float: bool) -> Any:
    return _normalized(tensor, dim, torch.log_softmax, lambda scaled, sums, which: scaled - sums[which].log())


def _normalized(tensor: Any, dim: int, of_values: Any, finish: Any) -> Any:
    """Softmax among the values that are there: what is not, is as if it were infinitely small."""
    if tensor.layout is not torch.sparse_coo or tensor.sparse_parts.batch_dim:
        return NotImplemented
    tensor = coalesced(tensor)
    parts = tensor.sparse_parts
    indexed = parts.sparse_dim
    dim = dim % len(parts.size)
    values = parts.values
    if dim >= indexed:
        return with_values(tensor, of_values(values, dim - indexed + 1))
    others = [number for number in range(indexed) if number != dim]
    if others:
        rows = torch.stack([parts.indices[0][number] for number in others])
        groups, which = torch.unique(raveled(rows, [parts.size[number] for number in others]), return_inverse=True)
        count = groups.shape[0]
    else:
        which, count = torch.zeros_like(parts.indices[0][0]), 1
    shape = (count, *values.shape[1:])
    places = which.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    largest = values.new_zeros(shape).scatter_reduce(0, places, values.detach(), "amax", include_self=False)
    scaled = values - largest[which]
    sums = values.new_zeros(shape).index_add(0, which, scaled.exp())
    return with_values(tensor, finish(scaled, sums, which))
