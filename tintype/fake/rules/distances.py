"""Products and distances of vectors, pairwise or all with all."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tintype.fake.info import TensorInfo, preserved_strides
from tintype.fake.promotion import real_of, result_type, to_float
from tintype.fake.rules.elementwise import broadcast, elementwise
from tintype.fake.rules.matrix import inner_product
from tintype.fake.rules.reductions import reduced_sizes
from tintype.fake.rules.registry import rule
from tintype.fake.rules.views import wrap_dimension
from tintype.symbolic import Size, eq
from tintype.symbolic.sizes import (
    contiguous_strides,
    is_one,
    is_stretched,
    require_equal_or_one,
    require_same,
    same,
)


def _fresh(self: TensorInfo, sizes: tuple[Size, ...]) -> TensorInfo:
    return TensorInfo(sizes, contiguous_strides(sizes), self.dtype, self.device)


@rule("cdist", "_cdist_forward")
def all_distances(x1: TensorInfo, x2: TensorInfo, p: float = 2.0, compute_mode: int | None = None) -> TensorInfo:
    if x1.dim < 2 or x2.dim < 2:
        raise RuntimeError("cdist only supports at least 2D tensors")
    require_same(
        x1.sizes[-1],
        x2.sizes[-1],
        lambda: f"X1 and X2 must have the same number of columns. X1: {x1.sizes[-1]} X2: {x2.sizes[-1]}",
    )
    return _fresh(x1, (*broadcast([x1.sizes[:-2], x2.sizes[:-2]]), x1.sizes[-2], x2.sizes[-2]))


@rule("linalg_cross")
def linalg_cross(self: TensorInfo, other: TensorInfo, *, dim: int = -1) -> TensorInfo:
    if self.dim != other.dim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    where = wrap_dimension(dim, self.dim)
    for info in (self, other):
        require_same(info.sizes[where], 3, "linalg.cross: inputs dimension must have length 3.")
    return _fresh(self, broadcast([self.sizes, other.sizes]))


@rule("cross")
def cross(self: TensorInfo, other: TensorInfo, dim: int | None = None) -> TensorInfo:
    if dim is None:
        found = [i for i, size in enumerate(self.sizes) if same(size, 3)]
        if not found:
            raise RuntimeError("no dimension of size 3 in input")
        dim = found[0]
    return linalg_cross(self, other, dim=dim)


@rule("cosine_similarity")
def cosine_similarity(x1: TensorInfo, x2: TensorInfo, dim: int = 1, eps: float = 1e-8) -> TensorInfo:
    # both are broadcast first: what has no dimensions counts like the other one
    dtype = to_float(torch.promote_types(x1.dtype, x2.dtype))
    sizes = broadcast([x1.sizes, x2.sizes])
    result = reduced_sizes(sizes, dim, False)
    return TensorInfo(result, contiguous_strides(result), dtype, x1.device)


@rule("pairwise_distance")
def pairwise_distance(
    x1: TensorInfo, x2: TensorInfo, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> TensorInfo:
    difference = elementwise([x1, x2], real_of(to_float(result_type(x1, x2))))
    return _fresh(difference, reduced_sizes(difference.sizes, -1, keepdim))


@rule("inner")
def inner(self: TensorInfo, other: TensorInfo) -> TensorInfo:
    if not self.sizes or not other.sizes:
        return elementwise([self, other], result_type(self, other))
    if self.dim == 1 and other.dim == 1:
        return inner_product(self, other)
    require_same(
        self.sizes[-1],
        other.sizes[-1],
        lambda: (
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(self.sizes)} and {list(other.sizes)}"
        ),
    )
    return _fresh(self, (*self.sizes[:-1], *other.sizes[:-1]))


@rule("tensordot")
def tensordot(self: TensorInfo, other: TensorInfo, dims_self: Sequence[int], dims_other: Sequence[int]) -> TensorInfo:
    first = [wrap_dimension(d, self.dim) for d in dims_self]
    second = [wrap_dimension(d, other.dim) for d in dims_other]
    if len(first) != len(second):
        raise RuntimeError("both dimension lists should have same length")
    for one, two in zip(first, second, strict=True):
        own, others = self.sizes[one], other.sizes[two]
        if is_one(own) or is_one(others) or is_stretched(own, others) or is_stretched(others, own):
            continue  # the other one is summed
        require_equal_or_one(
            eq(own, others),
            lambda: f"contracted dimensions need to match, but {list(self.sizes)} and {list(other.sizes)} don't",
        )
    kept = [size for i, size in enumerate(self.sizes) if i not in first]
    kept += [size for i, size in enumerate(other.sizes) if i not in second]
    return _fresh(self, tuple(kept))


@rule("glu")
def gated_linear_unit(self: TensorInfo, dim: int = -1) -> TensorInfo:
    if not self.sizes:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    where = wrap_dimension(dim, self.dim)
    size = self.sizes[where]
    require_same(size % 2, 0, lambda: f"Halving dimension must be even, but dimension {where} is size {size}")
    sizes = (*self.sizes[:where], size // 2, *self.sizes[where + 1 :])
    return TensorInfo(sizes, preserved_strides(sizes, self.strides), self.dtype, self.device)
