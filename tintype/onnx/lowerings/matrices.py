"""Factorizations of matrices and what rests on them, by loops over columns.

All of it is computed in double precision and for many matrices at once; a row or column is chosen by a mask, as ONNX
has no writing in place.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.formulas import BOOL, DOUBLE, INT64, Formula
from tintype.onnx.registry import lowering
from tintype.onnx.subgraphs import repeated

aten = torch.ops.aten
_INT32 = ir.DataType.INT32


def rank_of(tensor: Any) -> int:
    return len(tensor.shape)


def _numbers(op: Builder, count: Any) -> Any:
    return op.Range(op.constant(0, INT64), op.cast(count, INT64), op.constant(1, INT64))


def _rows(op: Builder, count: Any) -> Any:
    """The numbers of rows, as a column."""
    return op.Unsqueeze(_numbers(op, count), [1])


def _columns(op: Builder, count: Any) -> Any:
    return op.Unsqueeze(_numbers(op, count), [0])


def unit_matrix(op: Builder, count: Any) -> Formula:
    return Formula(op, op.Equal(_rows(op, count), _columns(op, count)), DOUBLE)


def _column(matrix: Formula, number: Any) -> Formula:
    """One column, as a matrix of one column."""
    return Formula(matrix.op, matrix.op.Gather(matrix.value, matrix.op.Reshape(number, [1]), axis=-1))


def _row(matrix: Formula, number: Any, rank: int) -> Formula:
    return Formula(matrix.op, matrix.op.Gather(matrix.value, matrix.op.Reshape(number, [1]), axis=rank - 2))


def as_double(op: Builder, tensor: Any) -> Formula:
    return Formula(op, tensor, DOUBLE)


def _least(op: Builder, rows: Any, columns: Any) -> Any:
    if isinstance(rows, int) and isinstance(columns, int):
        return min(rows, columns)
    return op.Min(op.cast(rows, INT64), op.cast(columns, INT64))


def triangle_of(matrix: Formula, upper: bool, without_diagonal: bool = False) -> Formula:
    op = matrix.op
    shift = (1 if upper else -1) if without_diagonal else 0
    return Formula(op, op.Trilu(matrix.value, op.constant(shift, INT64), upper=int(upper)))


# --- triangular matrices -----------------------------------------------------------------------------------------


def _substituted(
    matrix: Formula, right: Formula, rank: int, size: Any, *, upper: bool, unit: bool = False
) -> Formula:
    """The solution of a triangular system, row by row."""
    op = matrix.op
    rows = _rows(op, size)
    last = op.Sub(op.cast(size, INT64), 1)

    def step(inner: Builder, number: Any, found: Any) -> list[Any]:
        k = inner.Sub(last, number) if upper else number
        solved = Formula(inner, found)
        row = _row(Formula(inner, matrix.value), k, rank)
        here = inner.Equal(rows, k)
        new = _row(Formula(inner, right.value), k, rank) - row @ solved
        if not unit:
            new = new / _column(row, k)
        return [inner.Where(here, new.value, found)]

    masked = triangle_of(matrix, upper)
    matrix = masked
    # of the shape of the result: the systems of one side may stand for many of the other
    room = (matrix @ right) * 0.0
    room = Formula(op, op.Expand(op.constant(0.0, DOUBLE), op.Shape(room.value)))
    return Formula(op, repeated(op, op.cast(size, INT64), step, [room.value])[0])


def _solved_triangular(
    op: Builder, matrix: Formula, right: Formula, rank: int, size: Any, upper: bool, left: bool, unit: bool
) -> Formula:
    if left:
        return _substituted(matrix, right, rank, size, upper=upper, unit=unit)
    turned = _substituted(matrix.transposed(rank), right.transposed(rank), rank, size, upper=not upper, unit=unit)
    return turned.transposed(rank)


def _same_rank(op: Builder, left: Any, right: Any) -> tuple[Formula, Formula, int]:
    """Two matrices, or stacks of them, with as many dimensions each."""
    rank = max(rank_of(left), rank_of(right))
    found = []
    for each in (left, right):
        missing = rank - rank_of(each)
        found.append(as_double(op, op.Unsqueeze(each, list(range(missing))) if missing else each))
    return found[0], found[1], rank


@lowering(aten.linalg_solve_triangular.default)
def solve_triangular(
    op: Builder, matrix: Any, right: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    size = op.size(matrix, -1)
    a, b, rank = _same_rank(op, matrix, right)
    return _solved_triangular(op, a, b, rank, size, upper, left, unitriangular).value


@lowering(aten.triangular_solve.default)
def triangular_solve(
    op: Builder, right: Any, matrix: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    size = op.size(matrix, -1)
    a, b, rank = _same_rank(op, matrix, right)
    kept = a
    if transpose:
        a, upper = triangle_of(a, upper).transposed(rank), not upper
    found = _substituted(a, b, rank, size, upper=upper, unit=unitriangular)
    shape = (
        op.Concat(op.Shape(found.value, start=0, end=rank - 2), op.Shape(matrix, start=-2), axis=0)
        if rank > 2
        else op.Shape(matrix)
    )
    return found.value, op.Expand(kept.value, shape)


# --- LU ----------------------------------------------------------------------------------------------------------


def _factored(op: Builder, tensor: Any, pivoting: bool = True) -> tuple[Formula, Any, Any]:
    """L and U in one matrix; the rows that were exchanged, counted from 0; the order that rows have then."""
    rank = rank_of(tensor)
    row_count, column_count = op.size(tensor, -2), op.size(tensor, -1)
    rows, columns = _rows(op, row_count), _columns(op, column_count)
    steps = _least(op, row_count, column_count)
    lead = op.Shape(tensor, start=0, end=rank - 2) if rank > 2 else op.constant([], INT64)
    order = op.Expand(rows, op.Concat(lead, op.vector([row_count, 1]), axis=0))
    swaps = op.Expand(op.constant(0, INT64), op.Concat(lead, op.vector([steps]), axis=0))
    places = _numbers(op, steps)

    def step(inner: Builder, k: Any, matrix: Any, order: Any, swaps: Any) -> list[Any]:
        a = Formula(inner, matrix)
        if pivoting:
            column = _column(a, k).Abs()
            below = inner.Less(rows, k)
            column = column.else_where(Formula(inner, below), -1.0)
            best = inner.ArgMax(column.value, axis=rank - 2, keepdims=1)
            swaps = inner.Where(inner.Equal(places, k), inner.Squeeze(best, [rank - 1]), swaps)
            index = inner.Where(inner.Equal(rows, k), best, inner.Where(inner.Equal(rows, best), k, rows))
            order = inner.GatherElements(order, index, axis=rank - 2)
            whole = inner.Expand(index, inner.Shape(matrix))
            a = Formula(inner, inner.GatherElements(matrix, whole, axis=rank - 2))
        pivot_row = _row(a, k, rank)
        pivot = _column(pivot_row, k)
        safe = pivot.else_where(pivot.equals(0.0), 1.0)
        under = inner.Greater(rows, k)
        factors = _column(a, k) / safe
        factors = Formula(inner, inner.Where(under, factors.value, inner.constant(0.0, DOUBLE)))
        later = inner.Greater(columns, k)
        reduced = a - factors * pivot_row
        new = inner.Where(later, reduced.value, a.value)
        here = inner.And(under, inner.Equal(columns, k))
        return [inner.Where(here, factors.value, new), order, swaps]

    start = as_double(op, tensor)
    made = repeated(op, op.cast(steps, INT64), step, [start.value, order, swaps])
    return Formula(op, made[0]), made[2], made[1]


def _parity(op: Builder, swaps: Any) -> Formula:
    """1 or -1, by the number of exchanges."""
    moved = op.Not(op.Equal(swaps, _numbers(op, op.Gather(op.Shape(swaps), op.constant(-1, INT64)))))
    count = op.ReduceSum(op.Cast(moved, to=INT64), [-1], keepdims=0)
    return 1.0 - 2.0 * Formula(op, op.Mod(count, 2), DOUBLE)


def diagonal_of(matrix: Formula, rank: int, count: Any) -> Formula:
    """The elements on the diagonal of a matrix that has at least ``count`` rows and columns."""
    op = matrix.op
    if not isinstance(count, int):
        raise LoweringError("the diagonal of a matrix whose size varies")
    index = op.constant([[[each] for each in range(count)]], INT64)
    rows = op.Slice(matrix.value, [0], [count], [rank - 2])
    lead = op.Shape(matrix.value, start=0, end=rank - 2) if rank > 2 else op.constant([], INT64)
    shaped = op.Expand(op.Reshape(index, [count, 1]), op.Concat(lead, op.constant([count, 1], INT64), axis=0))
    return Formula(op, op.Squeeze(op.GatherElements(rows, shaped, axis=rank - 1), [rank - 1]))


def _singular(op: Builder, packed: Formula, rank: int, count: Any) -> Any:
    """The first zero on U's diagonal, counted from 1; 0 where there is none."""
    if count == 0:
        lead = op.Shape(packed.value, start=0, end=rank - 2) if rank > 2 else op.constant([], INT64)
        return op.Expand(op.constant(0, _INT32), lead)
    zero = diagonal_of(packed, rank, count).equals(0.0).value
    first = op.ArgMax(op.Cast(zero, to=_INT32), axis=-1, keepdims=0)
    some = op.Cast(op.ReduceMax(op.Cast(zero, to=_INT32), [-1], keepdims=0), to=BOOL)
    return op.Cast(op.Where(some, op.Add(first, 1), op.constant(0, INT64)), to=_INT32)


@lowering(aten.linalg_lu_factor_ex.default)
def lu_factor_ex(op: Builder, tensor: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    packed, swaps, _ = _factored(op, tensor, pivot)
    count = _least(op, op.size(tensor, -2), op.size(tensor, -1))
    if not pivot:
        swaps = op.Expand(_numbers(op, count), op.Shape(swaps))
    return packed.value, op.Cast(op.Add(swaps, 1), to=_INT32), _singular(op, packed, rank_of(tensor), count)


def _permutation(op: Builder, order: Any, rows: Any, rank: int) -> Formula:
    """The matrix whose product with rows in their new order gives the old one."""
    numbers = _rows(op, rows)
    turned = op.Transpose(order, perm=[*range(rank - 2), rank - 1, rank - 2])
    return Formula(op, op.Equal(numbers, turned), DOUBLE)


def _unpacked(op: Builder, packed: Formula, rank: int, rows: Any, columns: Any) -> tuple[Formula, Formula]:
    count = _least(op, rows, columns)
    many = op.as_vector(count)
    zero = op.constant([0], INT64)
    left = Formula(op, op.Slice(packed.value, zero, many, [rank - 1]))
    right = Formula(op, op.Slice(packed.value, zero, many, [rank - 2]))
    unit = Formula(op, op.Equal(_rows(op, rows), _columns(op, count)), DOUBLE)
    return triangle_of(left, False, without_diagonal=True) + unit, triangle_of(right, True)


@lowering(aten.linalg_lu.default)
def lu(op: Builder, tensor: Any, *, pivot: bool = True) -> Any:
    packed, _, order = _factored(op, tensor, pivot)
    rank, rows, columns = rank_of(tensor), op.size(tensor, -2), op.size(tensor, -1)
    lower, upper = _unpacked(op, packed, rank, rows, columns)
    if not pivot:
        return op.constant([], tensor.dtype), lower.value, upper.value
    return _permutation(op, order, rows, rank).value, lower.value, upper.value


def _order_of(op: Builder, pivots: Any, rows: Any) -> Any:
    """The order of rows after exchanges, as a column of numbers."""
    rank = len(pivots.shape) + 1
    numbers = _rows(op, rows)
    lead = op.Shape(pivots, start=0, end=rank - 2) if rank > 2 else op.constant([], INT64)
    order = op.Expand(numbers, op.Concat(lead, op.vector([rows, 1]), axis=0))
    swaps = op.Unsqueeze(op.Sub(op.cast(pivots, INT64), 1), [rank - 1])

    def step(inner: Builder, k: Any, order: Any) -> list[Any]:
        other = inner.Gather(swaps, inner.Reshape(k, [1]), axis=rank - 2)
        index = inner.Where(inner.Equal(numbers, k), other, inner.Where(inner.Equal(numbers, other), k, numbers))
        return [inner.GatherElements(order, index, axis=rank - 2)]

    return repeated(op, op.cast(op.size(pivots, -1), INT64), step, [order])[0]


@lowering(aten.lu_unpack.default)
def lu_unpack(op: Builder, packed: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    rank, rows, columns = rank_of(packed), op.size(packed, -2), op.size(packed, -1)
    nothing = op.constant([], packed.dtype)
    lower: Any = nothing
    upper: Any = nothing
    if unpack_data:
        lower, upper = (each.value for each in _unpacked(op, as_double(op, packed), rank, rows, columns))
    if not unpack_pivots:
        return nothing, lower, upper
    return _permutation(op, _order_of(op, pivots, rows), rows, rank).value, lower, upper


def _with_order(op: Builder, right: Formula, order: Any) -> Formula:
    """The rows of the right side of a system in another order."""
    index = op.Expand(order, op.Shape(op.Add(op.Mul(order, 0), op.Cast(op.Mul(right.value, 0.0), to=INT64))))
    spread = op.Expand(right.value, op.Shape(index))
    return Formula(op, op.GatherElements(spread, index, axis=-2))


def _solved(op: Builder, packed: Formula, order: Any, right: Formula, rank: int, size: Any) -> Formula:
    ordered = _with_order(op, right, order)
    middle = _substituted(packed, ordered, rank, size, upper=False, unit=True)
    return _substituted(packed, middle, rank, size, upper=True)


@lowering(aten.linalg_lu_solve.default)
def lu_solve(op: Builder, packed: Any, pivots: Any, right: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    size = op.size(packed, -1)
    order = _order_of(op, pivots, size)
    a, b, rank = _same_rank(op, packed, right)
    order = op.Unsqueeze(order, list(range(rank - rank_of(packed)))) if rank > rank_of(packed) else order
    if not left:
        b, adjoint = b.transposed(rank), not adjoint
    if not adjoint:
        found = _solved(op, a, order, b, rank, size)
    else:  # the transposed system: U's transpose first, then L's, then rows go back
        turned = a.transposed(rank)
        middle = _substituted(turned, b, rank, size, upper=False)
        last = _substituted(turned, middle, rank, size, upper=True, unit=True)
        back = op.Transpose(op.Equal(_rows(op, size), _turn(op, order, rank)), perm=_exchanged(rank))
        found = Formula(op, _turn(op, back, rank), DOUBLE) @ last
    return (found if left else found.transposed(rank)).value


def _exchanged(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


def _turn(op: Builder, value: Any, rank: int) -> Any:
    return op.Transpose(value, perm=_exchanged(rank))


@lowering(aten._linalg_solve_ex.default)
def solve_ex(op: Builder, matrix: Any, right: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    size = op.size(matrix, -1)
    is_vector = rank_of(right) == 1 or (rank_of(right) == rank_of(matrix) - 1 and _is_vector(op))
    target = op.Unsqueeze(right, [rank_of(right)]) if is_vector else right
    packed, swaps, order = _factored(op, matrix if left or is_vector else _turn(op, matrix, rank_of(matrix)))
    given = Formula(op, target, DOUBLE)
    rank = max(rank_of(matrix), rank_of(right) + is_vector)
    if rank_of(matrix) < rank:
        packed = Formula(op, op.Unsqueeze(packed.value, list(range(rank - rank_of(matrix)))))
        order = op.Unsqueeze(order, list(range(rank - rank_of(matrix))))
    if rank_of(right) + is_vector < rank:
        given = Formula(op, op.Unsqueeze(given.value, list(range(rank - rank_of(right) - is_vector))))
    if not left and not is_vector:
        given = given.transposed(rank)
    found = _solved(op, packed, order, given, rank, size)
    if not left and not is_vector:
        found = found.transposed(rank)
    result = op.Squeeze(found.value, [rank - 1]) if is_vector else found.value
    info = _singular(op, packed, rank, size) if isinstance(size, int) else None
    pivots = op.Cast(op.Add(swaps, 1), to=_INT32)
    return result, packed.value, pivots, info


def _is_vector(op: Builder) -> bool:
    """Whether the result of a solution has as many dimensions as a stack of vectors."""
    matrix, right = (op.node.args[each].meta["val"] for each in (0, 1))
    return tuple(right.info.sizes) == tuple(matrix.info.sizes[:-1])


@lowering(aten.linalg_inv_ex.default)
def inv_ex(op: Builder, tensor: Any, *, check_errors: bool = False) -> Any:
    rank, size = rank_of(tensor), op.size(tensor, -1)
    packed, _, order = _factored(op, tensor)
    identity = Formula(op, op.Expand(unit_matrix(op, size).value, op.Shape(tensor)))
    found = _solved(op, packed, order, identity, rank, size)
    return found.value, _singular(op, packed, rank, size)


@lowering(aten._linalg_slogdet.default)
def slogdet(op: Builder, tensor: Any) -> Any:
    rank, size = rank_of(tensor), op.size(tensor, -1)
    packed, swaps, _ = _factored(op, tensor)
    if size == 0:  # of nothing the product is 1
        lead = op.Shape(tensor, start=0, end=rank - 2) if rank > 2 else op.constant([], INT64)
        one, zero = (op.Expand(op.constant(each, DOUBLE), lead) for each in (1.0, 0.0))
        return one, zero, packed.value, op.Cast(op.Add(swaps, 1), to=_INT32)
    diagonal = diagonal_of(packed, rank, size)
    sign = Formula(op, op.ReduceProd(diagonal.Sign().value, [-1], keepdims=0)) * _parity(op, swaps)
    logarithm = op.ReduceSum(diagonal.Abs().Log().value, [-1], keepdims=0)
    return sign.value, logarithm, packed.value, op.Cast(op.Add(swaps, 1), to=_INT32)


@lowering(aten._linalg_det.default)
def det(op: Builder, tensor: Any) -> Any:
    if not is_used(op, 1, 2):
        return determinant(op, tensor), None, None
    sign, logarithm, packed, pivots = slogdet(op, tensor)
    return op.Mul(sign, op.Exp(logarithm)), packed, pivots


@lowering(aten.linalg_det.default, aten.det.default)
def determinant(op: Builder, tensor: Any) -> Any:
    if tensor.dtype is not DOUBLE:
        return op.Det(tensor)
    rank, size = rank_of(tensor), op.size(tensor, -1)  # ONNX Runtime has a kernel for float32 only
    if size == 0:
        return slogdet(op, tensor)[0]
    packed, swaps, _ = _factored(op, tensor)
    product = op.ReduceProd(diagonal_of(packed, rank, size).value, [-1], keepdims=0)
    return (Formula(op, product) * _parity(op, swaps)).value


def is_used(op: Builder, *results: int) -> bool:
    """Whether somebody uses one of these results of the operator that is translated."""
    return any(user.args[1] in results and user.users for user in op.node.users)


@lowering(aten._linalg_check_errors.default)
def check_errors(op: Builder, info: Any, name: str, *, is_matrix: bool) -> None:
    if info is None:
        return
    bad = op.ReduceSum(op.Abs(op.cast(info, INT64)), keepdims=0)
    text = f"{name}: the factorization could not be completed: a matrix is singular or not positive-definite"
    op.program.assert_that(op.Equal(bad, 0), text)


# --- Cholesky ----------------------------------------------------------------------------------------------------


def _cholesky(op: Builder, matrix: Formula, rank: int, size: Any) -> tuple[Formula, Any]:
    """The lower factor, and the column that could not be found, counted from 1."""
    rows, columns = _rows(op, size), _columns(op, size)

    def step(inner: Builder, k: Any, found: Any, info: Any) -> list[Any]:
        factor = Formula(inner, found)
        row = _row(factor, k, rank)
        column = _column(Formula(inner, matrix.value), k) - factor @ row.transposed(rank)
        pivot = _row(column, k, rank)
        good = pivot > 0.0
        number = inner.Add(k, 1)
        failed = inner.And(inner.Not(good.value), inner.Equal(info, 0))
        info = inner.Where(failed, number, info)
        new = column / pivot.Sqrt()
        here = inner.And(inner.GreaterOrEqual(rows, k), inner.Equal(columns, k))
        return [inner.Where(here, new.value, found), info]

    zeros = op.Expand(op.constant(0.0, DOUBLE), op.Shape(matrix.value))
    info = op.Expand(op.constant(0, INT64), op.Shape(_row(_column(matrix, op.constant(0, INT64)),
                                                           op.constant(0, INT64), rank).value))  # fmt: skip
    made = repeated(op, op.cast(size, INT64), step, [zeros, info])
    return Formula(op, made[0]), op.Cast(op.Squeeze(made[1], [rank - 2, rank - 1]), to=_INT32)


@lowering(aten.linalg_cholesky_ex.default)
def cholesky_ex(op: Builder, tensor: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    rank = rank_of(tensor)
    matrix = as_double(op, tensor)
    factor, info = _cholesky(op, matrix.transposed(rank) if upper else matrix, rank, op.size(tensor, -1))
    return (factor.transposed(rank) if upper else factor).value, info


@lowering(aten.cholesky.default)
def cholesky(op: Builder, tensor: Any, upper: bool = False) -> Any:
    factor, info = cholesky_ex(op, tensor, upper=upper)
    check_errors(op, info, "cholesky", is_matrix=rank_of(tensor) == 2)
    return factor


@lowering(aten.cholesky_solve.default)
def cholesky_solve(op: Builder, right: Any, factor: Any, upper: bool = False) -> Any:
    size = op.size(factor, -1)
    a, b, rank = _same_rank(op, factor, right)
    lower = triangle_of(a, True).transposed(rank) if upper else triangle_of(a, False)
    middle = _substituted(lower, b, rank, size, upper=False)
    return _substituted(lower.transposed(rank), middle, rank, size, upper=True).value


@lowering(aten.cholesky_inverse.default)
def cholesky_inverse(op: Builder, factor: Any, upper: bool = False) -> Any:
    identity = op.Expand(unit_matrix(op, op.size(factor, -1)).value, op.Shape(factor))
    identity.shape = factor.shape
    return cholesky_solve(op, identity, factor, upper)


# --- QR ----------------------------------------------------------------------------------------------------------


def orthogonalized(op: Builder, matrix: Formula, rank: int, rows: Any, columns: Any) -> tuple[Formula, Formula]:
    """Q, with all its columns, and R, by Householder's reflections with the signs that LAPACK chooses."""
    numbers = _rows(op, rows)
    steps = _least(op, rows, columns)

    def step(inner: Builder, k: Any, remaining: Any, made: Any) -> list[Any]:
        r, q = Formula(inner, remaining), Formula(inner, made)
        column = Formula(inner, inner.Where(inner.Less(numbers, k), inner.constant(0.0, DOUBLE), _column(r, k).value))
        head = _row(column, k, rank)
        norm = (column * column).sum(rank - 2).Sqrt()
        tail = norm.equals(head.Abs().value)  # nothing below the diagonal: no reflection
        target = norm.else_where(head >= 0.0, -norm)
        vector = Formula(inner, inner.Where(inner.Equal(numbers, k), (column - target).value, column.value))
        square = (vector * vector).sum(rank - 2)
        scale = (2.0 / square.else_where(square.equals(0.0), 1.0)).else_where(tail, 0.0)
        turned = vector.transposed(rank)
        new_r = r - scale * (vector @ (turned @ r))
        new_q = q - scale * ((q @ vector) @ turned)
        return [new_r.value, new_q.value]

    lead = op.Shape(matrix.value, start=0, end=rank - 2) if rank > 2 else op.constant([], INT64)
    start = op.Expand(unit_matrix(op, rows).value, op.Concat(lead, op.vector([rows, rows]), axis=0))
    made = repeated(op, op.cast(steps, INT64), step, [matrix.value, start])
    return Formula(op, made[1]), triangle_of(Formula(op, made[0]), True)


@lowering(aten.linalg_qr.default)
def qr(op: Builder, tensor: Any, mode: str = "reduced") -> Any:
    rank, rows, columns = rank_of(tensor), op.size(tensor, -2), op.size(tensor, -1)
    q, r = orthogonalized(op, as_double(op, tensor), rank, rows, columns)
    if mode != "complete":
        zero, count = op.constant([0], INT64), op.as_vector(_least(op, rows, columns))
        q = Formula(op, op.Slice(q.value, zero, count, [rank - 1]))
        r = Formula(op, op.Slice(r.value, zero, count, [rank - 2]))
    return (op.constant([], tensor.dtype) if mode == "r" else q.value), r.value


def _reflected(
    op: Builder, vectors: Any, scales: Any, start: Formula, rank: int, *, backwards: bool, left: bool
) -> Formula:
    """A matrix multiplied by the reflections that are stored in another's columns."""
    rows = _rows(op, op.size(vectors, -2))
    count = op.size(scales, -1)
    stored, factors = as_double(op, vectors), as_double(op, op.Unsqueeze(scales, [rank - 2]))
    last = op.Sub(op.cast(count, INT64), 1)

    def step(inner: Builder, number: Any, made: Any) -> list[Any]:
        k = inner.Sub(last, number) if backwards else number
        column = _column(Formula(inner, stored.value), k)
        vector = column.else_where(Formula(inner, inner.Less(rows, k)), 0.0)
        vector = vector.else_where(Formula(inner, inner.Equal(rows, k)), 1.0)
        factor = _column(Formula(inner, factors.value), k)
        matrix, turned = Formula(inner, made), vector.transposed(rank)
        change = vector @ (turned @ matrix) if left else (matrix @ vector) @ turned
        return [(matrix - factor * change).value]

    return Formula(op, repeated(op, op.cast(count, INT64), step, [start.value])[0])


@lowering(aten.linalg_householder_product.default)
def householder_product(op: Builder, tensor: Any, scales: Any) -> Any:
    rank = rank_of(tensor)
    unit = Formula(op, op.Equal(_rows(op, op.size(tensor, -2)), _columns(op, op.size(tensor, -1))), DOUBLE)
    start = Formula(op, op.Expand(unit.value, op.Shape(tensor)))
    return _reflected(op, tensor, scales, start, rank, backwards=True, left=True).value


@lowering(aten.ormqr.default)
def ormqr(op: Builder, tensor: Any, scales: Any, other: Any, left: bool = True, transpose: bool = False) -> Any:
    # Q is H1 H2 ... Hk: from the left the last comes first, unless it is transposed
    return _reflected(
        op, tensor, scales, as_double(op, other), rank_of(tensor), backwards=left != transpose, left=left
    ).value


@lowering(aten.linalg_matrix_exp.default)
def matrix_exp(op: Builder, tensor: Any) -> Any:
    """Scaled until it is small, by its series, and squared as often again."""
    rank, size = rank_of(tensor), op.size(tensor, -1)
    matrix = as_double(op, tensor)
    norm = op.ReduceMax(op.ReduceSum(matrix.Abs().value, [rank - 2], keepdims=0), keepdims=0)
    bounded = Formula(op, norm)
    bounded = bounded.else_where(bounded.IsNaN() | bounded.IsInf(), 1.0).Max(op.constant(0.5, DOUBLE))
    halvings = (bounded.Log() / math.log(2.0)).Ceil() + 1.0
    scaled = matrix / (Formula(op, op.constant(2.0, DOUBLE)) ** halvings)
    identity = unit_matrix(op, size)
    total = scaled / 18.0 + identity
    for number in range(17, 0, -1):
        total = scaled @ total / float(number) + identity
    count = halvings.cast(INT64)
    return repeated(op, count.value, lambda inner, k, value: [inner.MatMul(value, value)], [total.value])[0]
