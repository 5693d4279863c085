"""Functions of one number that ONNX has no operators for, by Chebyshev series.

A function is taken apart into pieces: on each, what is left of it after its growth, its oscillation and its
singularities are divided out is smooth, and is interpolated at Chebyshev's points, in double precision, from torch's
own function. So there are no tables here, and a result is as good as torch's in float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tintype.onnx.builder import Builder
from tintype.onnx.lowerings.formulas import DOUBLE, Formula, chebyshev_series
from tintype.onnx.registry import lowering

aten = torch.ops.aten
special = torch.special
_DEGREE = 48
_NEAR = 8.0  # where the pieces of most functions meet


def _real(function: Callable[[torch.Tensor], torch.Tensor], x: Any) -> Any:
    return function(torch.from_numpy(np.asarray(x, dtype=np.float64))).numpy()


def _coefficients(function: Callable[[Any], Any]) -> list[float]:
    """The Chebyshev series of a function on [-1, 1], without what adds nothing to it."""
    found = np.polynomial.chebyshev.chebinterpolate(function, _DEGREE)
    large = np.flatnonzero(np.abs(found) > 1e-16 * np.abs(found).max())
    return [float(each) for each in found[: max(int(large[-1]) + 1, 3)]]


@functools.cache
def _series(name: str) -> list[float]:
    return _coefficients(_SMOOTH[name])


def _near(t: Any) -> Any:
    """The number in [0, 8] whose square lies at ``t``."""
    return _NEAR * np.sqrt((np.asarray(t) + 1) / 2)


def _far(t: Any) -> Any:
    """The number from 8 on whose reciprocal lies at ``t``; never quite infinity."""
    return 2 * _NEAR / np.maximum(np.asarray(t) + 1, 1e-6)


def _hankel(order: int, part: str) -> Callable[[Any], Any]:
    """What the Bessel functions of an order oscillate with: the amplitudes of their cosine and their sine."""
    first = (special.bessel_j0, special.bessel_j1)[order]
    second = (special.bessel_y0, special.bessel_y1)[order]

    def smooth(t: Any) -> Any:
        x = _far(t)
        phase = x - math.pi / 4 - order * math.pi / 2
        j, y = _real(first, x), _real(second, x)
        cosine = j * np.cos(phase) + y * np.sin(phase)
        sine = y * np.cos(phase) - j * np.sin(phase)
        return np.sqrt(math.pi * x / 2) * (cosine if part == "cosine" else sine * x)

    return smooth


def _at(function: Callable[[Any], Any], place: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda t: function(np.maximum(place(t), 1e-4))


_i0e = functools.partial(_real, special.i0e)
_i1e = functools.partial(_real, special.i1e)
_SMOOTH: dict[str, Callable[[Any], Any]] = {
    "i0e near": lambda t: _i0e(_NEAR * (t + 1) / 2),
    "i0e far": lambda t: _i0e(_far(t)) * np.sqrt(_far(t)),
    "i1e near": _at(lambda x: _i1e(x) / x, lambda t: _NEAR * (t + 1) / 2),
    "i1e far": lambda t: _i1e(_far(t)) * np.sqrt(_far(t)),
    "k0 near": _at(
        lambda x: _real(special.modified_bessel_k0, x) + np.log(x / 2) * _real(special.i0, x), lambda t: _near(t) / 4
    ),
    "k1 near": _at(
        lambda x: (_real(special.modified_bessel_k1, x) - np.log(x / 2) * _real(special.i1, x)) * x,
        lambda t: _near(t) / 4,
    ),
    "k0 far": lambda t: _real(special.scaled_modified_bessel_k0, _far(t) / 4) * np.sqrt(_far(t) / 4),
    "k1 far": lambda t: _real(special.scaled_modified_bessel_k1, _far(t) / 4) * np.sqrt(_far(t) / 4),
    "j0 near": _at(lambda x: _real(special.bessel_j0, x), _near),
    "j1 near": _at(lambda x: _real(special.bessel_j1, x) / x, _near),
    "y0 near": _at(
        lambda x: _real(special.bessel_y0, x) - 2 / math.pi * np.log(x) * _real(special.bessel_j0, x), _near
    ),
    "y1 near": _at(
        lambda x: (_real(special.bessel_y1, x) - 2 / math.pi * (np.log(x) * _real(special.bessel_j1, x) - 1 / x)) / x,
        _near,
    ),
    "hankel 0 cosine": _hankel(0, "cosine"),
    "hankel 0 sine": _hankel(0, "sine"),
    "hankel 1 cosine": _hankel(1, "cosine"),
    "hankel 1 sine": _hankel(1, "sine"),
    "airy": lambda t: _real(special.airy_ai, 5 * np.asarray(t) - 3),
    "erfcx": lambda t: _erfcx_smooth(4 * (1 + t) / np.maximum(1 - t, 1e-9)),
    "ndtri near": lambda t: _ndtri_middle(np.sqrt(np.maximum((np.asarray(t) + 1) / 2, 1e-12)) * 0.4),
    "ndtri far": lambda t: _ndtri_tail(1 / (1 / 37 + (1 / 2 - 1 / 37) * (np.asarray(t) + 1) / 2)),
}


def _erfcx_smooth(x: Any) -> Any:
    return (1 + 2 * x) * _real(special.erfcx, x)


def _ndtri_middle(y: Any) -> Any:
    return _real(special.ndtri, 0.5 + y) / y


def _ndtri_tail(x: Any) -> Any:
    """How far the tail is from the first terms of its expansion, where x is the root of -2 log p."""
    return (x - np.log(x) / x) + _real(special.ndtri, np.exp(-x * x / 2))


def _doubled(op: Builder, tensor: Any) -> Formula:
    return Formula(op, tensor, DOUBLE)


def _clipped(x: Formula, low: float, high: float) -> Formula:
    """Within the piece that a series is for: elsewhere another piece is chosen."""
    return x.Max(x.op.constant(low, DOUBLE)).Min(x.op.constant(high, DOUBLE))


def _fitted(name: str, t: Formula) -> Formula:
    return chebyshev_series(t, _series(name))


def _square_place(x: Formula, end: float) -> Formula:
    near = _clipped(x, 0.0, end)
    return near * near * (2 / end**2) - 1.0


def _reciprocal_place(x: Formula, start: float) -> Formula:
    return 2 * start / _clipped(x, start, math.inf) - 1.0


def _scaled_modified(x: Formula, name: str) -> Formula:
    """i0 or i1 without their exponential, for numbers from 0 on."""
    near = _fitted(f"{name} near", _clipped(x, 0.0, _NEAR) * (2 / _NEAR) - 1.0)
    if name == "i1e":
        near = near * x
    far = _fitted(f"{name} far", _reciprocal_place(x, _NEAR)) / _clipped(x, _NEAR, math.inf).Sqrt()
    return near.else_where(x > _NEAR, far)


def _modified(op: Builder, tensor: Any, name: str, scaled: bool) -> Any:
    x = _doubled(op, tensor)
    size = x.Abs()
    value = _scaled_modified(size, name)
    if not scaled:
        value = value * size.Exp()
    if name == "i1e":
        value = value * x.Sign()
    return value.else_where(x.IsNaN(), x).value


@lowering(aten.i0.default, aten.special_i0.default, aten.special_modified_bessel_i0.default)
def i0(op: Builder, tensor: Any) -> Any:
    return _modified(op, tensor, "i0e", scaled=False)


@lowering(aten.special_i0e.default)
def i0e(op: Builder, tensor: Any) -> Any:
    return _modified(op, tensor, "i0e", scaled=True)


@lowering(aten.special_i1.default, aten.special_modified_bessel_i1.default)
def i1(op: Builder, tensor: Any) -> Any:
    return _modified(op, tensor, "i1e", scaled=False)


@lowering(aten.special_i1e.default)
def i1e(op: Builder, tensor: Any) -> Any:
    return _modified(op, tensor, "i1e", scaled=True)


def _modified_second(op: Builder, tensor: Any, order: int, scaled: bool) -> Any:
    """k0 and k1, which are infinite at 0 and have no value below it."""
    x = _doubled(op, tensor)
    small = _clipped(x, 1e-300, 2.0)
    growth = _scaled_modified(small, f"i{order}e") * small.Exp() * (small / 2.0).Log()
    smooth = _fitted(f"k{order} near", _square_place(x, 2.0))
    near = smooth - growth if order == 0 else growth + smooth / small
    far = _fitted(f"k{order} far", _reciprocal_place(x, 2.0)) / _clipped(x, 2.0, math.inf).Sqrt()
    value = near * small.Exp() if scaled else near
    value = value.else_where(x > 2.0, far if scaled else far * (-x).Exp())
    return value.else_where(x.equals(0.0), math.inf).else_where((x < 0.0) | x.IsNaN(), math.nan).value


def _second_kind(target: Any, order: int, scaled: bool) -> None:
    @lowering(target)
    def lower(op: Builder, tensor: Any) -> Any:
        return _modified_second(op, tensor, order, scaled)


_second_kind(aten.special_modified_bessel_k0.default, 0, False)
_second_kind(aten.special_modified_bessel_k1.default, 1, False)
_second_kind(aten.special_scaled_modified_bessel_k0.default, 0, True)
_second_kind(aten.special_scaled_modified_bessel_k1.default, 1, True)


def _first_kind(x: Formula, order: int) -> Formula:
    """j0 or j1 up to 8."""
    value = _fitted(f"j{order} near", _square_place(x, _NEAR))
    return value * x if order == 1 else value


def _oscillating(x: Formula, order: int, kind: str) -> Formula:
    """A Bessel function of the first (j) or second (y) kind from 8 on."""
    far = _clipped(x, _NEAR, math.inf)
    place = _reciprocal_place(x, _NEAR)
    cosine = _fitted(f"hankel {order} cosine", place)
    sine = _fitted(f"hankel {order} sine", place) / far
    phase = far - (math.pi / 4 + order * math.pi / 2)
    wave = cosine * phase.Cos() - sine * phase.Sin() if kind == "j" else cosine * phase.Sin() + sine * phase.Cos()
    value = wave * (2 / (math.pi * far)).Sqrt()
    return value.else_where(x.IsInf(), math.nan)


def _bessel_j(target: Any, order: int) -> None:
    @lowering(target)
    def lower(op: Builder, tensor: Any) -> Any:
        x = _doubled(op, tensor)
        size = x.Abs()
        value = _first_kind(size, order).else_where(size > _NEAR, _oscillating(size, order, "j"))
        if order == 1:
            value = value * x.Sign()
        return value.else_where(x.IsNaN(), x).value


_bessel_j(aten.special_bessel_j0.default, 0)
_bessel_j(aten.special_bessel_j1.default, 1)


def _bessel_y(target: Any, order: int) -> None:
    @lowering(target)
    def lower(op: Builder, tensor: Any) -> Any:
        x = _doubled(op, tensor)
        small = _clipped(x, 1e-300, _NEAR)
        smooth = _fitted(f"y{order} near", _square_place(x, _NEAR))
        logarithm = small.Log() * _first_kind(small, order)
        if order == 1:
            smooth, logarithm = smooth * small, logarithm - 1 / small
        near = smooth + 2 / math.pi * logarithm
        value = near.else_where(x > _NEAR, _oscillating(x, order, "y"))
        value = value.else_where(x.equals(0.0), -math.inf)
        return value.else_where((x < 0.0) | x.IsNaN(), math.nan).value


_bessel_y(aten.special_bessel_y0.default, 0)
_bessel_y(aten.special_bessel_y1.default, 1)


def _airy_terms(count: int) -> list[float]:
    """The coefficients of Airy's asymptotic expansions."""
    terms = [1.0]
    for k in range(1, count):
        terms.append(terms[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / ((2 * k - 1) * 216 * k))
    return terms


@lowering(aten.special_airy_ai.default)
def airy_ai(op: Builder, tensor: Any) -> Any:
    """A series between -8 and 2; the asymptotic expansions outside."""
    x = _doubled(op, tensor)
    middle = _fitted("airy", (_clipped(x, -8.0, 2.0) + 3.0) / 5.0)
    terms = _airy_terms(12)
    root = _clipped(x.Abs(), 2.0, 1e100)
    zeta = root * root.Sqrt() * (2 / 3)
    inverse = 1 / _clipped(zeta, 8.0, math.inf)
    square = -(inverse * inverse)
    even: Any = terms[10]
    odd: Any = terms[11]
    for k in range(8, -1, -2):
        even, odd = square * even + terms[k], square * odd + terms[k + 1]
    phase = zeta + math.pi / 4
    scale = 1 / (math.sqrt(math.pi) * root.Sqrt().Sqrt())
    below = scale * (even * phase.Sin() - odd * inverse * phase.Cos())
    value = middle.else_where(x < -8.0, below).else_where(x > 2.0, _airy_decay(x, zeta, scale))
    return value.else_where(x > 103.892, 0.0).else_where(x.IsInf() | x.IsNaN(), math.nan).value


def _airy_decay(x: Formula, zeta: Formula, scale: Formula) -> Formula:
    """Airy's function from 2 on, where its series in 1/zeta still converges too slowly to be cut off."""
    smooth = _fitted("airy decay", (1 / _clipped(zeta, _AIRY_START, math.inf)) * (2 * _AIRY_START) - 1.0)
    return scale * (-zeta).Exp() * smooth / 2.0


_AIRY_START = 2 / 3 * 2.0**1.5


def _airy_smooth(t: Any) -> Any:
    zeta = 2 * _AIRY_START / np.maximum(np.asarray(t) + 1, 0.02)
    x = (1.5 * zeta) ** (2 / 3)
    return 2 * math.sqrt(math.pi) * x**0.25 * np.exp(zeta) * _real(special.airy_ai, x)


_SMOOTH["airy decay"] = _airy_smooth


def scaled_erfc(x: Formula) -> Formula:
    """exp(x^2) erfc(x) for numbers from 0 on."""
    finite = _clipped(x, 0.0, 1e300)
    return _fitted("erfcx", (finite - 4.0) / (finite + 4.0)) / (1.0 + 2.0 * finite)


@lowering(aten.special_erfcx.default)
def erfcx(op: Builder, tensor: Any) -> Any:
    x = _doubled(op, tensor)
    size = x.Abs()
    above = scaled_erfc(size)
    value = above.else_where(x < 0.0, 2.0 * (x * x).Exp() - above)
    return value.else_where(x.IsNaN(), x).value


@lowering(aten.special_log_ndtr.default)
def log_ndtr(op: Builder, tensor: Any) -> Any:
    """The logarithm of the normal distribution: in its tail, of what the tail is without its exponential."""
    x = _doubled(op, tensor)
    t = x * math.sqrt(0.5)
    size = t.Abs()
    scaled = scaled_erfc(size)
    tail = (scaled / 2.0).Log() - t * t
    complement = scaled * (-(size * size)).Exp() / 2.0
    rest = complement.else_where(t < 0.0, 1.0 - complement)  # what lies above x
    # log(1 - r) by its series where r is small: the double 1 - r would lose it
    small = -(rest * (1.0 + rest * (0.5 + rest * (1 / 3 + rest * 0.25))))
    body = (1.0 - _clipped(rest, 0.0, 0.9)).Log().else_where(rest < 1e-4, small)
    value = body.else_where(x < -1.0, tail)
    return value.else_where(x.IsNaN(), x).value


@lowering(aten.special_ndtri.default)
def ndtri(op: Builder, tensor: Any) -> Any:
    """The inverse of the normal distribution."""
    p = _doubled(op, tensor)
    low = p < 0.5
    y = p - 0.5
    edge = _clipped((1.0 - p).else_where(low, p), 1e-300, 0.5)
    offset = _clipped(y.Abs(), 0.0, 0.4)
    middle = _fitted("ndtri near", offset * offset * (2 / 0.4**2) - 1.0) * y
    root = _clipped((-2.0 * edge.Log()).Sqrt(), 2.0, 37.0)
    place = (1 / root - 1 / 37) / (1 / 2 - 1 / 37) * 2.0 - 1.0
    tail = _fitted("ndtri far", place) - (root - root.Log() / root)
    tail = (-tail).else_where(low, tail)
    value = tail.else_where(y.Abs() < 0.37, middle)
    value = value.else_where(p.equals(0.0), -math.inf).else_where(p.equals(1.0), math.inf)
    return value.else_where((p < 0.0) | (p > 1.0) | p.IsNaN(), math.nan).value
