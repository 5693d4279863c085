"""Solving linear equations for a symbol, and congruences."""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

from .division import exact_quotient
from .expression import Expr, Size, Symbol


class Congruence(NamedTuple):
    """All integers that leave ``remainder`` when divided by ``modulus``."""

    modulus: int
    remainder: int

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and value % self.modulus == self.remainder

    def intersect(self, other: Congruence) -> Congruence | None:
        """The integers in both, by the Chinese remainder theorem; None when there are none."""
        common = gcd(self.modulus, other.modulus)
        if (other.remainder - self.remainder) % common:
            return None
        step = other.modulus // common
        inverse = pow(self.modulus // common, -1, step) if step > 1 else 0
        offset = (other.remainder - self.remainder) // common * inverse % step
        modulus = self.modulus * step
        return Congruence(modulus, (self.remainder + self.modulus * offset) % modulus)


ANY_INTEGER = Congruence(1, 0)


def solve_congruence(factor: int, remainder: int, modulus: int) -> Congruence | None:
    """The x with ``factor * x == remainder (mod modulus)``; None when there are none."""
    common = gcd(factor, modulus)
    if remainder % common:
        return None
    step = modulus // common
    if step == 1:
        return ANY_INTEGER
    inverse = pow(factor // common, -1, step)
    return Congruence(step, remainder // common * inverse % step)


def solve_linear(equation: Any, symbol: Symbol) -> Size | None:
    """What ``symbol`` is when ``equation`` holds, if that is one polynomial.

    ``equation`` is a condition made by ``eq``, or an integer expression that is
    to be 0.  2*s0 + 4*s1 == 6 gives s0 == 3 - 2*s1; 2*s0 == s1 gives None for
    s0, because s1 need not be even.
    """
    difference = equation_difference(equation)
    if difference is None or not isinstance(difference, Expr):
        return None
    coefficient = difference.terms.get(symbol)
    if coefficient is None:
        return None
    rest = difference - coefficient * symbol
    if isinstance(rest, Expr) and symbol in rest.symbols:
        return None
    return exact_quotient(-rest, coefficient)


def solve_divisibility(equation: Any, symbol: Symbol) -> Congruence | None:
    """The congruence that ``equation`` forces on ``symbol``; None when nothing fits.

    3*s0 == 2*s1 forces s0 to be even.  The other terms may be anything integer.
    """
    difference = equation_difference(equation)
    if not isinstance(difference, Expr) or symbol not in difference.terms:
        return ANY_INTEGER
    others = 0
    for monomial, coefficient in difference.terms.items():
        if monomial is not symbol:
            others = gcd(others, coefficient)
    if others == 0:
        return ANY_INTEGER
    return solve_congruence(difference.terms[symbol], -difference.constant % others, others)


def equation_difference(equation: Any) -> Size | None:
    """The expression that an equation says is 0."""
    if isinstance(equation, bool):
        return None
    if isinstance(equation, Expr) and equation.kind == "bool":
        return equation.arguments[0] if equation.operation == "eq" else None
    found: Size = equation
    return found
