"""Sparse tensors inside of programs: what operators on them are in terms of indices and values."""

from tintype.trace.sparse import arithmetic, conversions, products, reductions, structure  # noqa: F401  (they register)
from tintype.trace.sparse.tensor import MeetsSparse, SparseTensor, call_sparse

__all__ = ["MeetsSparse", "SparseTensor", "call_sparse"]
