"""Elementwise operators on sparse tensors."""

from __future__ import annotations

from typing import Any

import torch

from tintype.trace.sparse.conversions import coalesced, coordinates, put, raveled, to_dense, to_layout
from tintype.trace.sparse.tensor import SparseTensor, coo, made, sparse, with_values

aten = torch.ops.aten

# of zero they are zero
_UNARY = (
    *("abs", "asin", "asinh", "atan", "atanh", "ceil", "conj_physical", "erf", "erfinv", "expm1", "floor", "frac"),
    *("isinf", "isnan", "isneginf", "isposinf", "log1p", "neg", "relu", "round", "sgn", "sign", "signbit", "sin"),
    *("sinh", "sqrt", "tan", "tanh", "trunc", "deg2rad", "rad2deg", "angle", "nan_to_num"),
)
# the values of a place may be added before or after
_LINEAR = frozenset({"neg", "conj_physical", "deg2rad", "rad2deg"})


def _on_values(operator: Any, linear: bool) -> Any:
    def compute(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if tensor.layout is torch.sparse_coo and not linear:
            tensor = coalesced(tensor)
        return with_values(tensor, operator(tensor.sparse_parts.values, *args, **kwargs))

    return compute


def _writing_values(operator: Any, linear: bool) -> Any:
    def write(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if tensor.layout is torch.sparse_coo and not linear and not tensor.sparse_parts.coalesced:
            return NotImplemented
        operator(tensor.sparse_parts.values, *args, **kwargs)
        return tensor

    return write


for _name in _UNARY:
    sparse(getattr(aten, _name).default)(_on_values(getattr(aten, _name).default, _name in _LINEAR))
    if hasattr(aten, f"{_name}_"):
        _operator = getattr(aten, f"{_name}_").default
        sparse(_operator)(_writing_values(_operator, _name in _LINEAR))

for _operator in (aten.mul.Scalar, aten.div.Scalar):
    sparse(_operator)(_on_values(_operator, True))
for _operator in (aten.mul_.Scalar, aten.div_.Scalar):
    sparse(_operator)(_writing_values(_operator, True))
sparse(aten.pow.Tensor_Scalar)(_on_values(aten.pow.Tensor_Scalar, False))


# --- products and quotients ------------------------------------------------------------------------------


@sparse(aten.mul.Tensor)
def _mul(left: Any, right: Any) -> Any:
    if not isinstance(left, SparseTensor):
        left, right = right, left
    if isinstance(right, SparseTensor):
        return _intersection(left, right)
    if not isinstance(right, torch.Tensor) or not right.dim():
        return with_values(left, left.sparse_parts.values * right)
    return _times_strided(left, right)


def _times_strided(left: Any, right: Any) -> Any:
    """A product with what may be as large, or broadcast."""
    parts = left.sparse_parts
    if parts.layout in (torch.sparse_bsr, torch.sparse_bsc) or right.dim() > len(parts.size):
        return NotImplemented
    indices, _ = coordinates(left)
    right = right.expand(parts.size)
    return with_values(left, parts.values * right[tuple(indices.unbind(0))])


def _intersection(left: Any, right: Any) -> Any:
    """Where both have a value."""
    layout = left.layout
    if layout is not right.layout or layout in (torch.sparse_bsr, torch.sparse_bsc):
        return NotImplemented
    if layout is not torch.sparse_coo:
        found = _intersection(to_layout(left), to_layout(right))
        return to_layout(found, layout=layout)
    left, right = coalesced(left), coalesced(right)
    parts, others = left.sparse_parts, right.sparse_parts
    if parts.sparse_dim != others.sparse_dim:
        return NotImplemented
    size = parts.size[: parts.sparse_dim]
    here, there = raveled(parts.indices[0], size), raveled(others.indices[0], size)
    # one that is nowhere stands behind the others
    where = torch.searchsorted(there, here)
    chosen = (torch.cat([there, there.new_full((1,), -1)])[where] == here).nonzero().squeeze(1)
    values = parts.values[chosen] * others.values[where[chosen]]
    return coo(parts.indices[0][:, chosen], values, parts.size, coalesced=True)


@sparse(aten.div.Tensor)
def _div(left: Any, right: Any) -> Any:
    if isinstance(right, SparseTensor) or (isinstance(right, torch.Tensor) and right.dim()):
        return NotImplemented
    return with_values(left, left.sparse_parts.values / right)


@sparse(aten.div.Tensor_mode)
def _div_mode(left: Any, right: Any, *, rounding_mode: Any = None) -> Any:
    if isinstance(right, SparseTensor) or (isinstance(right, torch.Tensor) and right.dim()):
        return NotImplemented
    left = left if rounding_mode is None or left.layout is not torch.sparse_coo else coalesced(left)
    return with_values(left, torch.div(left.sparse_parts.values, right, rounding_mode=rounding_mode))


@sparse(aten.mul_.Tensor, aten.div_.Tensor)
def _scale_in_place(left: Any, right: Any) -> Any:
    return NotImplemented


# --- sums ------------------------------------------------------------------------------------------------


@sparse(aten.add.Tensor)
def _add(left: Any, right: Any, *, alpha: Any = 1) -> Any:
    if not isinstance(left, SparseTensor):
        return _add_to_strided(left, right, alpha)
    if not isinstance(right, SparseTensor):
        if not isinstance(right, torch.Tensor) or not right.dim():
            return NotImplemented
        return to_dense(left) + alpha * right
    if left.layout is not right.layout or left.layout in (torch.sparse_bsr, torch.sparse_bsc):
        return NotImplemented
    if left.layout is not torch.sparse_coo:
        return to_layout(_add(to_layout(left), to_layout(right), alpha=alpha), layout=left.layout)
    parts, others = left.sparse_parts, right.sparse_parts
    if parts.sparse_dim != others.sparse_dim:
        return NotImplemented
    for extent, other in zip(parts.size, others.size, strict=True):
        torch._check(extent == other)
    values = torch.cat([parts.values, others.values if _is_one(alpha) else others.values * alpha])
    both = coo(torch.cat([parts.indices[0], others.indices[0]], 1), values, parts.size)
    return coalesced(both) if parts.coalesced and others.coalesced else both


def _is_one(alpha: Any) -> bool:
    return type(alpha) in (int, float) and alpha == 1


def _add_to_strided(left: Any, right: Any, alpha: Any) -> Any:
    indices, values = coordinates(right)
    if left.dim() != right.dim():
        return left + alpha * to_dense(right)
    dtype = torch.promote_types(left.dtype, values.dtype)
    values = values.to(dtype) if _is_one(alpha) else values.to(dtype) * alpha
    return put(left.to(dtype).expand(right.sparse_parts.size), indices, values, repeats=True)


@sparse(aten.sub.Tensor)
def _sub(left: Any, right: Any, *, alpha: Any = 1) -> Any:
    return _add(left, right, alpha=-alpha)


@sparse(aten.add_.Tensor)
def _add_in_place(left: Any, right: Any, *, alpha: Any = 1) -> Any:
    if isinstance(left, SparseTensor):
        return NotImplemented  # it would get more values than it has
    return left.copy_(_add_to_strided(left, right, alpha))


# --- where another one has values ------------------------------------------------------------------------


@sparse(aten.sparse_mask.default)
def sparse_mask(tensor: Any, mask: Any) -> Any:
    """The values of a tensor at the places of another one."""
    parts = mask.sparse_parts
    if parts.layout in (torch.sparse_bsr, torch.sparse_bsc):
        return NotImplemented
    if isinstance(tensor, SparseTensor):
        tensor = to_dense(tensor)
    indices, _ = coordinates(mask)
    values = tensor[tuple(indices.unbind(0))]
    return made(parts.layout, parts.indices, values, parts.size, parts.coalesced)
