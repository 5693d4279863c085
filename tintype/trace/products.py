"""Products in joint graphs, with gradients that hold for every number of elements.

torch's formulas for a tensor without data ask how many elements there are: for none, for one, and the one for
``cumprod`` goes through all of them. Those here multiply what stands before an element by what stands after it, so
that elements that are zero need no case of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tintype.fake.tensor import FakeTensor

aten = torch.ops.aten


def _others(x: torch.Tensor, dim: int) -> torch.Tensor:
    """For each element the product of all others along a dimension."""
    return _before(x, dim) * _before(x.flip(dim), dim).flip(dim)


def _before(x: torch.Tensor, dim: int) -> torch.Tensor:
    """For each element the product of those before it along a dimension."""
    one = x.new_ones([1 if place == dim else size for place, size in enumerate(x.shape)])
    return torch.cat([one, x], dim).narrow(dim, 0, x.shape[dim]).cumprod(dim)


class _Product(torch.autograd.Function):
    """A product along a dimension, which stays, or of all elements."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int | None) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.dim = dim
        return torch.prod(x) if dim is None else torch.prod(x, dim, True)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        others = _others(x.reshape(-1), 0).reshape(x.shape) if ctx.dim is None else _others(x, ctx.dim)
        return gradient * others.conj(), None


class _Products(torch.autograd.Function):
    """The products of an element and those before it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.dim = dim
        return torch.cumprod(x, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x = ctx.saved_tensors[0].movedim(ctx.dim, -1)
        gradient = gradient.movedim(ctx.dim, -1)
        places = torch.arange(x.shape[-1], device=x.device)
        own, other = places.unsqueeze(1), places.unsqueeze(0)
        # the products of what stands after an element, up to each of those, which has a gradient for it
        after = torch.where(other > own, x.unsqueeze(-2), 1).cumprod(-1).conj()
        reaching = torch.where(other >= own, gradient.unsqueeze(-2) * after, 0).sum(-1)
        return (reaching * _before(x, x.dim() - 1).conj()).movedim(-1, ctx.dim), None


def _product(
    input: torch.Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Any = None,
) -> Any:
    if out is not None or not _is_general(input, dtype) or not (dim is None or type(dim) is int):
        return NotImplemented
    input = input if dtype is None else input.to(dtype)
    if dim is None:
        return _Product.apply(input, None)
    where = dim % input.dim()
    result: Any = _Product.apply(input, where)
    return result if keepdim else result.squeeze(where)


def _products(input: torch.Tensor, dim: Any, *, dtype: torch.dtype | None = None, out: Any = None) -> Any:
    if out is not None or not _is_general(input, dtype) or type(dim) is not int:
        return NotImplemented
    return _Products.apply(input if dtype is None else input.to(dtype), dim % input.dim())


def _is_general(input: torch.Tensor, dtype: torch.dtype | None) -> bool:
    """Whether a tensor has a gradient, and sizes that vary. What a transform of torch's wraps is left to torch."""
    dtype = input.dtype if dtype is None else dtype
    return (
        type(input) is FakeTensor
        and (dtype.is_floating_point or dtype.is_complex)
        and torch.is_grad_enabled()
        and input.requires_grad
        and any(isinstance(size, torch.SymInt) for size in input.shape)
    )


# By the functions of torch that a program calls, and by the operators of one that is captured again.
PRODUCTS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.prod, torch.Tensor.prod, aten.prod.default, aten.prod.dim_int), _product),
    **dict.fromkeys((torch.cumprod, torch.Tensor.cumprod, aten.cumprod.default), _products),
}
