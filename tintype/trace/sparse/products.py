"""Matrix products with sparse tensors."""

from __future__ import annotations

from typing import Any

import torch

from tintype.trace.calls import NOT_HANDLED
from tintype.trace.plan import handle_by
from tintype.trace.sparse.conversions import coalesced, compressed_lines, coordinates, to_layout
from tintype.trace.sparse.structure import transposed
from tintype.trace.sparse.tensor import SparseTensor, coo, sparse, with_values

aten = torch.ops.aten


@sparse(aten.mm.default, aten._sparse_mm.default)
def mm(left: Any, right: Any) -> Any:
    """A product of matrices, one of which is sparse at least."""
    if not isinstance(left, SparseTensor):
        found = mm(transposed(right, 0, 1), left.t()).t()
        # the kernels of compressed layouts write rows, that of coordinates writes columns
        return found if right.layout is torch.sparse_coo else found.clone(memory_format=torch.contiguous_format)
    if left.dim() != 2 or right.dim() != 2:
        return NotImplemented
    torch._check(left.shape[1] == right.shape[0])
    if isinstance(right, SparseTensor):
        return _sparse_by_sparse(left, right)
    (rows, columns), values = coordinates(left)
    return _summed_rows(rows, values.unsqueeze(1) * right[columns], left.shape[0])


def _summed_rows(rows: Any, values: Any, count: Any) -> Any:
    found = torch.zeros((count, *values.shape[1:]), dtype=values.dtype, device=values.device)
    return found.index_add(0, rows, values)


@sparse(aten._sparse_sparse_matmul.default)
def _sparse_by_sparse(left: Any, right: Any) -> Any:
    """Each value of the left one meets the values of a row of the right one."""
    if left.layout is not right.layout or left.layout in (torch.sparse_bsr, torch.sparse_bsc):
        return NotImplemented
    if left.layout is not torch.sparse_coo:
        return to_layout(_sparse_by_sparse(to_layout(left), to_layout(right)), layout=left.layout)
    right = coalesced(right)
    (rows, inner), values = coordinates(left)
    (right_rows, right_columns), right_values = coordinates(right)
    begins = compressed_lines(right_rows, right.shape[0])
    counts = begins[inner + 1] - begins[inner]
    which = torch.repeat_interleave(torch.arange(rows.shape[0], device=rows.device), counts)
    # how far each pair is into the row that it goes through
    into = torch.arange(which.shape[0], device=rows.device) - (counts.cumsum(0) - counts)[which]
    there = begins[inner[which]] + into
    indices = torch.stack([rows[which], right_columns[there]])
    found = coo(indices, values[which] * right_values[there], (left.shape[0], right.shape[1]))
    return coalesced(found)


@sparse(aten.addmm.default, aten._sparse_addmm.default)
def _addmm(bias: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if isinstance(bias, SparseTensor):
        return NotImplemented
    found = _added(bias, mm(left, right), beta, alpha)
    return found if found is NotImplemented else found.contiguous()  # however the bias lies in memory


def _added(bias: Any, product: Any, beta: Any, alpha: Any) -> Any:
    """What is multiplied by zero has no say, whatever it is."""
    if isinstance(product, SparseTensor) or product is NotImplemented:
        return NotImplemented
    product = product * alpha if alpha != 1 else product
    if beta == 0:
        return product
    return bias + product if beta == 1 else bias * beta + product


@sparse(aten.mv.default)
def _mv(left: Any, right: Any) -> Any:
    return mm(left, right.unsqueeze(1)).squeeze(1)


@sparse(aten.addmv.default)
def _addmv(bias: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _added(bias, _mv(left, right), beta, alpha)


@sparse(aten.bmm.default)
def _bmm(left: Any, right: Any) -> Any:
    if not isinstance(left, SparseTensor) or isinstance(right, SparseTensor):
        return NotImplemented
    (batch, rows, columns), values = coordinates(left)
    count = left.shape[1]
    found = _summed_rows(batch * count + rows, values.unsqueeze(1) * right[batch, columns], left.shape[0] * count)
    return found.view(left.shape[0], count, right.shape[2])


@sparse(aten.sparse_sampled_addmm.default)
def _sampled_addmm(tensor: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """A product of strided matrices, only where the tensor has values."""
    if tensor.layout is not torch.sparse_csr:
        return NotImplemented
    indices, _ = coordinates(tensor)
    rows, columns = indices[-2], indices[-1]
    leading = tuple(indices[:-2].unbind(0))
    products = (left[(*leading, rows)] * right.transpose(-2, -1)[(*leading, columns)]).sum(-1) * alpha
    values = tensor.sparse_parts.values
    return with_values(tensor, _added(values, products.view(values.shape), beta, 1))


_REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "amax", "amin": "amin"}


@sparse(aten._sparse_mm.reduce)
def _mm_reduce(left: Any, right: Any, reduce: str) -> Any:
    """A product whose sums are means or extremes instead; a row without values is zero."""
    if left.layout is not torch.sparse_csr or isinstance(right, SparseTensor) or reduce not in _REDUCTIONS:
        return NotImplemented
    (rows, columns), values = coordinates(left)
    terms = values.unsqueeze(1) * right[columns]
    found = torch.zeros((left.shape[0], right.shape[1]), dtype=terms.dtype, device=terms.device)
    return found.scatter_reduce(0, rows.unsqueeze(1).expand_as(terms), terms, reduce, include_self=False)


_MEAN = 1


def _bags_gradient(recorder: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The gradient of ``embedding_bag``, where a sparse one is wanted."""
    if not args[9]:
        return NOT_HANDLED
    return recorder.inside(lambda: _sparse_bags_gradient(*args, **kwargs))


def _sparse_bags_gradient(
    gradient: Any,
    indices: Any,
    offsets: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> Any:
    # which bag each index is in; the kernel leaves that out where it does not need it itself
    positions = torch.arange(indices.shape[0], device=indices.device, dtype=offsets.dtype)
    bags = torch.searchsorted(offsets, positions, right=True) - 1
    values = gradient[bags]
    if mode == _MEAN:
        values = values / bag_size[bags].clamp(min=1).unsqueeze(1)
    if per_sample_weights is not None:
        values = values * per_sample_weights.unsqueeze(1)
    if padding_idx >= 0:
        kept = (indices != padding_idx).nonzero().squeeze(1)
        indices, values = indices[kept], values[kept]
    return coo(indices.to(torch.int64).unsqueeze(0), values, (num_weights, gradient.shape[1]))


handle_by(aten._embedding_bag_backward.default, _bags_gradient)
