"""Functions around the gamma function that take two numbers: series and continued fractions, in loops that end when
nothing changes any more."""

from __future__ import annotations

import math
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.formulas import BOOL, DOUBLE, INT64, Formula
from tintype.onnx.lowerings.special import digamma, lgamma
from tintype.onnx.registry import lowering
from tintype.onnx.subgraphs import repeated, while_true

aten = torch.ops.aten
_SMALLEST = 1.2e-16  # a term of this part of the sum changes nothing
_MOST_TERMS = 4000
_BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330]


def _is_any(op: Builder, truth: Any) -> Any:
    # a sum, since nothing is the largest of no elements
    return op.Cast(op.ReduceSum(op.Cast(truth, to=INT64), keepdims=0), to=BOOL)


def _zeta(x: Formula, q: Formula) -> Formula:
    """Hurwitz' zeta function by Euler and Maclaurin: terms until q is past 9, then the rest as an integral."""
    op = x.op

    def going(inner: Builder, at: Any, total: Any, number: Any) -> Any:
        more = inner.Less(number, 9)
        return inner.Or(more, _is_any(inner, inner.LessOrEqual(at, inner.constant(9.0, DOUBLE))))

    def step(inner: Builder, at: Any, total: Any, number: Any) -> Any:
        term = inner.Pow(at, inner.Neg(x.value))
        return inner.Add(at, inner.constant(1.0, DOUBLE)), inner.Add(total, term), inner.Add(number, 1)

    shape = op.Shape((x + q).value)
    # where there is no value the loop must end, too
    safe = Formula(op, op.Expand(q.else_where((q < -1e6) | q.IsNaN(), 1.0).value, shape))
    start = [safe.value, op.Expand(op.constant(0.0, DOUBLE), shape), op.constant(0, INT64)]
    at, total, _ = (Formula(op, each) for each in while_true(op, going, step, start))
    power = at ** (-x)
    total = total + power * at / (x - 1.0) + power * 0.5
    factor = x * power / at
    for number, bernoulli in enumerate(_BERNOULLI, 1):
        total = total + factor * (bernoulli / math.factorial(2 * number))
        factor = factor * (x + (2.0 * number - 1)) * (x + 2.0 * number) / (at * at)
    whole = q.equals(q.Floor().value)
    total = total.else_where((q <= 0.0) & ~x.equals(x.Floor().value), math.nan)
    total = total.else_where((q <= 0.0) & whole, math.inf)
    total = total.else_where(x.equals(1.0), math.inf)
    return total.else_where((x < 1.0) | x.IsNaN() | q.IsNaN(), math.nan)


@lowering(aten.special_zeta.default, aten.special_zeta.self_scalar, aten.special_zeta.other_scalar)
def zeta(op: Builder, x: Any, q: Any) -> Any:
    return _zeta(Formula(op, x, DOUBLE), Formula(op, q, DOUBLE)).value


def _trigamma(x: Formula) -> Formula:
    """The asymptotic series, from where it holds; below 1/2 by reflection."""
    low = x < 0.5
    turned = x.else_where(low, 1.0 - x)
    sine = (x * math.pi).Sin()
    total: Any = 0.0
    for number in range(8):
        term = turned + float(number)
        total = 1 / (term * term) + total
    far = turned + 8.0
    inverse = 1 / (far * far)
    series: Any = 5 / 66
    for coefficient in (-1 / 30, 1 / 42, -1 / 30, 1 / 6):
        series = inverse * series + coefficient
    value = total + (1.0 + 1 / (2.0 * far) + inverse * series) / far
    return value.else_where(low, math.pi**2 / (sine * sine) - value)


@lowering(aten.polygamma.default, aten.special_polygamma.default)
def polygamma(op: Builder, order: int, tensor: Any) -> Any:
    x = Formula(op, tensor, DOUBLE)
    if order == 0:
        return digamma(op, op.cast(tensor, ir.DataType.FLOAT) if not tensor.dtype.is_floating_point() else tensor)
    if order == 1:
        return _trigamma(x).value
    sign = 1.0 if order % 2 else -1.0
    return (_zeta(Formula(op, order + 1.0, DOUBLE), x) * (sign * math.gamma(order + 1.0))).value


def _prefactor(a: Formula, x: Formula) -> Formula:
    """x^a exp(-x) / Gamma(a)."""
    return (a * x.Log() - x - lgamma(a.op, a.value)).Exp()


def _lower_part(a: Formula, x: Formula) -> Formula:
    """The series of the lower incomplete gamma function, for x up to about a."""
    op = a.op
    shape = op.Shape((a + x).value)

    def step(inner: Builder, number: Any, term: Any, total: Any) -> list[Any]:
        n = Formula(inner, inner.cast(inner.Add(number, 1), DOUBLE))
        new = Formula(inner, term) * Formula(inner, x.value) / (n + Formula(inner, a.value))
        return [new.value, inner.Add(total, new.value)]

    def is_done(inner: Builder, number: Any, term: Any, total: Any) -> Any:
        part = Formula(inner, term) - Formula(inner, total) * _SMALLEST
        return inner.Not(_is_any(inner, (part > 0.0).value))

    one = op.Expand(op.constant(1.0, DOUBLE), shape)
    total = Formula(op, repeated(op, _MOST_TERMS, step, [one, one], is_done)[1])
    return total * _prefactor(a, x) / a


def _upper_part(a: Formula, x: Formula) -> Formula:
    """The continued fraction of the upper incomplete gamma function by Lentz, for x from about a on."""
    op = a.op
    shape = op.Shape((a + x).value)
    first = Formula(op, op.Expand((x + 1.0 - a).value, shape))

    def step(inner: Builder, number: Any, b: Any, c: Any, d: Any, total: Any, change: Any) -> list[Any]:
        n = Formula(inner, inner.cast(inner.Add(number, 1), DOUBLE))
        coefficient = -(n * (n - Formula(inner, a.value)))
        new_b = Formula(inner, b) + 2.0
        new_d = _not_zero(coefficient * Formula(inner, d) + new_b)
        new_c = _not_zero(new_b + coefficient / Formula(inner, c))
        new_d = 1 / new_d
        factor = new_c * new_d
        return [new_b.value, new_c.value, new_d.value, inner.Mul(total, factor.value), factor.value]

    def is_done(inner: Builder, number: Any, b: Any, c: Any, d: Any, total: Any, change: Any) -> Any:
        return inner.Not(_is_any(inner, ((Formula(inner, change) - 1.0).Abs() > 2 * _SMALLEST).value))

    start = 1 / _not_zero(first)
    large = op.Expand(op.constant(1e300, DOUBLE), shape)
    state = [first.value, large, start.value, start.value, start.value]
    return Formula(op, repeated(op, _MOST_TERMS, step, state, is_done)[3]) * _prefactor(a, x)


def _not_zero(value: Formula) -> Formula:
    return value.else_where(value.Abs() < 1e-300, 1e-300)


def _incomplete_gamma(op: Builder, order: Any, tensor: Any, upper: bool) -> Any:
    a, x = Formula(op, order, DOUBLE), Formula(op, tensor, DOUBLE)
    odd = (a <= 0.0) | (x <= 0.0) | a.IsNaN() | x.IsNaN() | a.IsInf() | x.IsInf()
    safe_a, safe_x = a.else_where(odd, 1.0), x.else_where(odd, 1.0)
    by_series = (safe_x < 1.0) | (safe_x < safe_a)
    # each of the two is asked only where it converges
    low = _lower_part(safe_a.else_where(~by_series, 1.0), safe_x.else_where(~by_series, 0.5))
    high = _upper_part(safe_a.else_where(by_series, 1.0), safe_x.else_where(by_series, 2.0))
    value = high.else_where(by_series, 1.0 - low) if upper else (1.0 - high).else_where(by_series, low)
    none, all_of_it = (0.0, 1.0) if upper else (1.0, 0.0)
    value = value.else_where(x.IsInf() & (x > 0.0), none).else_where(a.IsInf() & (a > 0.0), all_of_it)
    value = value.else_where(x.equals(0.0), all_of_it).else_where(a.equals(0.0), none)
    both = (a.equals(0.0) & x.equals(0.0)) | (a.IsInf() & x.IsInf())
    return value.else_where(both | (a < 0.0) | (x < 0.0) | a.IsNaN() | x.IsNaN(), math.nan).value


@lowering(aten.igamma.default, aten.special_gammainc.default)
def igamma(op: Builder, order: Any, tensor: Any) -> Any:
    return _incomplete_gamma(op, order, tensor, upper=False)


@lowering(aten.igammac.default, aten.special_gammaincc.default)
def igammac(op: Builder, order: Any, tensor: Any) -> Any:
    return _incomplete_gamma(op, order, tensor, upper=True)
