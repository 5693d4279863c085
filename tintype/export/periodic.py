"""Conditions on one size that repeat: what quotients and remainders by constants come to.

``3*(H//2) % 4 == 0`` and ``(H + 2)//4 == H//4`` hold for H exactly where they hold for H + 8 and H + 4: going through
one period tells which remainders of H they allow, for all sizes at once.
"""

from __future__ import annotations

from math import gcd, lcm

from tintype.symbolic import Expr, Size, Symbol, evaluate
from tintype.symbolic.solve import Congruence

# Longer periods are not gone through.
_LONGEST = 1024


def _steps(expression: Size, symbol: Symbol) -> tuple[int, int] | None:
    """(period, growth) with ``expression(t + period) == expression(t) + growth`` for all integers t; None if there is
    no such thing, or it is too long."""
    if not isinstance(expression, Expr):
        return 1, 0
    if expression is symbol:
        return 1, 1
    if expression.operation in ("floordiv", "mod"):
        dividend, divisor = expression.arguments
        inner = _steps(dividend, symbol)
        if inner is None or type(divisor) is not int or divisor <= 0:
            return None
        period, growth = inner
        if expression.operation == "mod" and growth % divisor == 0:
            return period, 0
        more = divisor // gcd(divisor, growth)
        if period * more > _LONGEST:
            return None
        return period * more, 0 if expression.operation == "mod" else growth * more // divisor
    if not expression.terms:
        return None
    found = [(_steps(part, symbol), factor) for part, factor in expression.terms.items() if part is not expression]
    if len(found) != len(expression.terms) or any(steps is None for steps, _ in found):
        return None
    known = [(steps, factor) for steps, factor in found if steps is not None]
    period = lcm(*(steps[0] for steps, _ in known))
    if period > _LONGEST:
        return None
    return period, sum(factor * steps[1] * (period // steps[0]) for steps, factor in known)


def congruence_of(condition: Expr) -> Congruence | None:
    """What a condition on one integer says of it, where that is its remainder by some number and nothing else. It is
    what the condition says of all integers, exactly; a modulus of 1 says that it always holds."""
    if len(condition.symbols) != 1 or condition.operation not in ("eq", "ne"):
        return None
    (symbol,) = condition.symbols
    steps = _steps(condition.arguments[0], symbol)
    if steps is None or steps[1] != 0:
        return None
    period = steps[0]
    allowed = [value for value in range(period) if evaluate(condition, {symbol: value}) is True]
    if not allowed or period % len(allowed):
        return None
    modulus = period // len(allowed)
    if any(value % modulus != allowed[0] for value in allowed):
        return None
    return Congruence(modulus, allowed[0])
