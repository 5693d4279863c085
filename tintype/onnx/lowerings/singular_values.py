"""Singular values and eigenvalues of symmetric matrices, by Jacobi's rotations, and what rests on them.

Sizes are fixed: which columns meet when is known while the model is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.lowerings.formulas import DOUBLE, INT64, Formula
from tintype.onnx.lowerings.matrices import (
    as_double,
    diagonal_of,
    is_used,
    orthogonalized,
    rank_of,
    triangle_of,
    unit_matrix,
)  # fmt: skip
from tintype.onnx.registry import lowering
from tintype.onnx.subgraphs import repeated

aten = torch.ops.aten


def _fixed(op: Builder, tensor: Any) -> tuple[int, int]:
    rows, columns = op.size(tensor, -2), op.size(tensor, -1)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise LoweringError("of matrices whose sizes vary, ONNX can't compute it")
    return rows, columns


def _rounds(count: int) -> list[int]:
    """Where columns go after each step, so that every two of them meet once in ``count - 1`` steps."""
    if count == 2:
        return [0, 1]
    evens, odds = list(range(0, count, 2)), list(range(1, count, 2))
    new_evens = [evens[0], odds[0], *evens[1:-1]]
    new_odds = [*odds[1:], evens[-1]]
    return [each for pair in zip(new_evens, new_odds) for each in pair]


_SWEEPS = 16


def _rotated(op: Builder, matrix: Formula, rank: int, columns: int) -> tuple[Formula, Formula]:
    """Columns made orthogonal by rotations (Jacobi's method, from one side), and the product of these rotations.

    Columns are rotated in pairs, all pairs at once; then they change places. Of an odd number, one rests.
    """
    even = columns + columns % 2
    lead = op.Shape(matrix.value, start=0, end=rank - 2) if rank > 2 else op.constant([], INT64)
    if even > columns:
        pads = [0] * (2 * rank)
        pads[-1] = 1
        matrix = matrix.Pad(op.constant(pads, INT64))
    order = op.constant(_rounds(even), INT64)
    pairs = op.constant([*range(1, even, 2)], INT64)
    firsts = op.constant([*range(0, even, 2)], INT64)
    weave = op.constant([each + half for each in range(even // 2) for half in (0, even // 2)], INT64)

    def turned(inner: Builder, value: Any, cosine: Formula, sine: Formula) -> Any:
        left = Formula(inner, inner.Gather(value, firsts, axis=-1))
        right = Formula(inner, inner.Gather(value, pairs, axis=-1))
        new = inner.Concat((cosine * left - sine * right).value, (sine * left + cosine * right).value, axis=-1)
        return inner.Gather(inner.Gather(new, weave, axis=-1), order, axis=-1)

    def step(inner: Builder, number: Any, value: Any, rotation: Any) -> list[Any]:
        left = Formula(inner, inner.Gather(value, firsts, axis=-1))
        right = Formula(inner, inner.Gather(value, pairs, axis=-1))
        product = (left * right).sum(rank - 2)
        difference = (right * right).sum(rank - 2) - (left * left).sum(rank - 2)
        is_zero = product.equals(0.0)
        zeta = difference / (2.0 * product.else_where(is_zero, 1.0))
        tangent = 1 / (zeta.Abs() + (zeta * zeta + 1.0).Sqrt())
        tangent = tangent.else_where(zeta < 0.0, -tangent)
        tangent = tangent.else_where(is_zero, 0.0)
        cosine = 1 / (tangent * tangent + 1.0).Sqrt()
        sine = cosine * tangent
        return [turned(inner, value, cosine, sine), turned(inner, rotation, cosine, sine)]

    identity = op.Expand(unit_matrix(op, even).value, op.Concat(lead, op.constant([even, even], INT64), axis=0))
    count = _SWEEPS * max(even - 1, 1)
    value, rotation = repeated(op, count, step, [matrix.value, identity])
    cut = [op.constant([0], INT64), op.constant([columns], INT64)]
    kept = op.Slice(value, *cut, [rank - 1])
    rotation = op.Slice(op.Slice(rotation, *cut, [rank - 1]), *cut, [rank - 2])
    return Formula(op, kept), Formula(op, rotation)


def _sorted_columns(
    op: Builder, sizes: Formula, matrices: Sequence[Formula], rank: int, count: int, largest: bool
) -> tuple[Formula, list[Formula]]:
    values, index = op.TopK(sizes.value, op.constant([count], INT64), axis=-1, largest=int(largest))
    places = op.Unsqueeze(index, [rank - 2])
    found = []
    for matrix in matrices:
        whole = op.Expand(places, op.Shape(matrix.value))
        found.append(Formula(op, op.GatherElements(matrix.value, whole, axis=rank - 1)))
    return Formula(op, values), found


def _decomposed(op: Builder, matrix: Formula, rank: int, columns: int) -> tuple[Formula, Formula, Formula]:
    """The columns of a matrix made orthogonal, the largest first; their lengths; the rotations that did it."""
    turned, rotation = _rotated(op, matrix, rank, columns)
    lengths = (turned * turned).sum(rank - 2, keep=False).Sqrt()
    values, (turned, rotation) = _sorted_columns(op, lengths, [turned, rotation], rank, columns, True)
    return turned, values, rotation


@lowering(aten.linalg_pinv.atol_rtol_tensor)
def pinv(op: Builder, tensor: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    """V 1/S U', where what is small against the largest singular value counts as nothing."""
    rank = rank_of(tensor)
    rows, columns = _fixed(op, tensor)
    matrix = as_double(op, tensor)
    if hermitian:
        matrix = _mirrored(op, matrix, rank, rows, upper=False)
    turned, values, rotation = _decomposed(op, matrix, rank, columns)
    largest = Formula(op, op.Slice(values.value, [0], [1], [rank - 2]))
    absolute = Formula(op, op.Unsqueeze(atol, [-1]), DOUBLE) if atol is not None else None
    precision = float(torch.finfo(op.node.args[0].meta["val"].dtype).eps) * max(rows, columns)
    relative: Any = Formula(op, op.constant(precision, DOUBLE))
    if rtol is not None:
        relative = Formula(op, op.Unsqueeze(rtol, [-1]), DOUBLE)
    elif absolute is not None:
        relative = relative.else_where(absolute > 0.0, 0.0)
    limit = largest * relative
    if absolute is not None:
        limit = limit.Max(absolute)
    used = values > limit
    inverse = (1 / (values * values).else_where(~used, 1.0)).else_where(~used, 0.0)
    scaled = rotation * Formula(op, op.Unsqueeze(inverse.value, [rank - 2]))
    return (scaled @ turned.transposed(rank)).value


@lowering(aten._linalg_svd.default)
def svd(op: Builder, tensor: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None) -> Any:
    """U and V are right up to the signs of their columns, which nothing determines."""
    rank = rank_of(tensor)
    rows, columns = _fixed(op, tensor)
    matrix = as_double(op, tensor)
    is_wide = columns > rows
    if is_wide:
        matrix, rows, columns = matrix.transposed(rank), columns, rows
    turned, values, rotation = _decomposed(op, matrix, rank, columns)
    if not compute_uv or not is_used(op, 0, 2):
        nothing = op.constant([], tensor.dtype)
        return nothing, values.value, nothing
    basis, triangle = orthogonalized(op, turned, rank, rows, columns)
    signs = diagonal_of(triangle, rank, columns)
    signs = Formula(op, op.constant(1.0, DOUBLE)).else_where(signs < 0.0, -1.0)
    count = rows if full_matrices else columns
    left = Formula(op, op.Slice(basis.value, [0], [count], [rank - 1]))
    if count > columns:
        pads = [0] * (2 * (rank - 1))
        pads[-1] = count - columns
        signs = Formula(op, op.Pad(signs.value, op.constant(pads, INT64), op.constant(1.0, DOUBLE)))
    left = left * Formula(op, op.Unsqueeze(signs.value, [rank - 2]))
    if is_wide:
        return rotation.value, values.value, left.transposed(rank).value
    return left.value, values.value, rotation.transposed(rank).value


def _mirrored(op: Builder, given: Formula, rank: int, size: int, *, upper: bool) -> Formula:
    """The symmetric matrix that one triangle of a matrix stands for."""
    half = triangle_of(given, upper, without_diagonal=True)
    return half + half.transposed(rank) + given * unit_matrix(op, size)


@lowering(aten._linalg_eigh.default)
def eigh(op: Builder, tensor: Any, uplo: str = "L", compute_v: bool = True) -> Any:
    """The singular values of the matrix moved by more than its norm, where all are above 0, moved back."""
    rank = rank_of(tensor)
    size, _ = _fixed(op, tensor)
    matrix = _mirrored(op, as_double(op, tensor), rank, size, upper=uplo.upper() == "U")
    identity = unit_matrix(op, size)
    shift = (matrix * matrix).sum(rank - 2).sum(rank - 1).Sqrt() * 1.25
    turned, rotation = _rotated(op, matrix + shift * identity, rank, size)
    lengths = (turned * turned).sum(rank - 2, keep=False).Sqrt()
    values, (vectors,) = _sorted_columns(op, lengths, [rotation], rank, size, False)
    values = values - Formula(op, op.Squeeze(shift.value, [rank - 1]))
    return values.value, vectors.value
