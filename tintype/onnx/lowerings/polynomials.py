"""Orthogonal polynomials, whose degree is a tensor: by their recurrences, in a loop up to the largest degree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.formulas import INT64, Formula
from tintype.onnx.registry import lowering
from tintype.onnx.subgraphs import repeated

aten = torch.ops.aten
# first(x) is the polynomial of degree 1, following(x, k, q, p) that of degree k + 1 from those of degrees k and k - 1
First = Callable[[Formula], Formula]
Following = Callable[[Formula, Formula, Formula, Formula], Formula]
Closed = Callable[[Formula, Formula], Formula]


def _recurrence(op: Builder, x: Formula, degree: Formula, first: First, following: Following) -> Formula:
    shape = op.Shape((x + degree.cast(x.dtype)).value)
    start = Formula(op, op.Expand(first(x).value, shape))
    one = Formula(op, op.Expand(op.constant(1.0, x.dtype), shape))

    def step(inner: Builder, number: Any, previous: Any, current: Any, result: Any) -> list[Any]:
        k = Formula(inner, inner.cast(inner.Add(number, 1), x.dtype))
        p, q = Formula(inner, previous), Formula(inner, current)
        new = following(Formula(inner, x.value), k, q, p)
        reached = inner.Greater(degree.value, inner.Add(number, 1))
        return [current, new.value, inner.Where(reached, new.value, result)]

    largest = op.ReduceMax(op.Concat(op.Reshape(degree.value, [-1]), op.constant([0], INT64), axis=0), keepdims=0)
    steps = op.Max(op.Sub(largest, 1), op.constant(0, INT64))
    result = Formula(op, repeated(op, steps, step, [one.value, start.value, start.value])[2])
    return result.else_where(degree.equals(0), 1.0)


def _lower(
    target: Any,
    first: First,
    following: Following,
    *,
    closed: tuple[int, Closed] | None = None,
    shifted: bool = False,
    limited: bool = False,
) -> None:
    @lowering(target)
    def lower(op: Builder, tensor: Any, degree: Any) -> Any:
        dtype = ir.DataType.DOUBLE if ir.DataType.DOUBLE in (_dtype(tensor), _dtype(degree)) else ir.DataType.FLOAT
        x = Formula(op, tensor, dtype)
        if shifted:
            x = x + x - 1.0
        n = Formula(op, op.cast(degree, dtype))
        n = n.else_where(n.IsNaN() | n.IsInf(), -1.0).cast(INT64)
        result = _recurrence(op, x, n, first, following)
        if closed is not None:
            least, formula = closed
            inside = (x.Abs() < 1.0) & (n > least)
            angle = Formula(op, op.Acos(x.Max(op.constant(-1.0, dtype)).Min(op.constant(1.0, dtype)).value))
            result = result.else_where(inside, formula(n.cast(dtype), angle))
        if limited:
            result = result.else_where(n > (512 if dtype is ir.DataType.DOUBLE else 128), math.nan)
        return result.else_where(n < 0, 0.0).value


def _dtype(value: Any) -> Any:
    return value.dtype if isinstance(value, ir.Value) else None


def _twice(x: Formula, k: Formula, q: Formula, p: Formula) -> Formula:
    return (x + x) * q - p


for _prefix, _shifted in (("special_", False), ("special_shifted_", True)):
    for _kind, _first, _closed in (
        ("t", lambda x: x, (6, lambda n, angle: (n * angle).Cos())),
        ("u", lambda x: x + x, (8, lambda n, angle: ((n + 1.0) * angle).Sin() / angle.Sin())),
        ("v", lambda x: x + x - 1.0, (8, lambda n, angle: ((n + 0.5) * angle).Cos() / (angle / 2.0).Cos())),
        ("w", lambda x: x + x + 1.0, (8, lambda n, angle: ((n + 0.5) * angle).Sin() / (angle / 2.0).Sin())),
    ):
        for _overload in ("default", "x_scalar", "n_scalar"):
            _target = getattr(getattr(aten, f"{_prefix}chebyshev_polynomial_{_kind}"), _overload)
            _lower(_target, _first, _twice, closed=_closed, shifted=_shifted)

for _overload in ("default", "x_scalar", "n_scalar"):
    _lower(
        getattr(aten.special_hermite_polynomial_h, _overload),
        lambda x: x + x,
        lambda x, k, q, p: (x + x) * q - (k + k) * p,
        limited=True,
    )
    _lower(
        getattr(aten.special_hermite_polynomial_he, _overload),
        lambda x: x,
        lambda x, k, q, p: x * q - k * p,
        limited=True,
    )
    _lower(
        getattr(aten.special_laguerre_polynomial_l, _overload),
        lambda x: 1.0 - x,
        lambda x, k, q, p: (((k + k) + (1.0 - x)) * q - k * p) / (k + 1.0),
    )
    _lower(
        getattr(aten.special_legendre_polynomial_p, _overload),
        lambda x: x,
        lambda x, k, q, p: ((k + k + 1.0) * x * q - k * p) / (k + 1.0),
    )
