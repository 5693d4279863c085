"""Floor division and modulus, with Python's meaning (towards minus infinity).

An expression with a division is defined where its divisor is not 0; every
rewrite below is an equality wherever the original is defined.  Each is one
function and is proved in tests/symbolic/test_rewrites.py.
"""

from __future__ import annotations

from math import gcd

from .expression import Expr, Size, as_int, atom, environment_of, linear, product_of
from .intervals import declared_range
from .terms import ordered_terms

# Steps of polynomial division before giving up: quotients of sizes are short.
_LONGEST_QUOTIENT = 32


def floor_div(left: Size, right: Size) -> Size:
    """``left // right``."""
    left, right = as_int(left), as_int(right)
    if type(left) is int and type(right) is int:
        return left // right
    if type(left) is int and left == 0:
        return 0
    if type(right) is int:
        assert isinstance(left, Expr)
        return _floor_div_constant(left, right)
    return _floor_div_symbolic(left, right)


def mod(left: Size, right: Size) -> Size:
    """``left % right``; the result has the sign of ``right``."""
    left, right = as_int(left), as_int(right)
    if type(left) is int and type(right) is int:
        return left % right
    if type(left) is int and left == 0:
        return 0
    if type(right) is int:
        assert isinstance(left, Expr)
        return _mod_constant(left, right)
    return _mod_symbolic(left, right)


def ceil_div(left: Size, right: Size) -> Size:
    """``left / right`` rounded up."""
    if type(left) is int and type(right) is int:
        return -(-left // right)
    if type(right) is int and right > 0:
        # The same number as -(-left // right), in the form that conv and pooling write.
        return floor_div(left + (right - 1), right)
    return -floor_div(-left, right)


# -- constant divisors


def _floor_div_constant(left: Expr, divisor: int) -> Size:
    if divisor == 0:
        raise ZeroDivisionError(f"{left} // 0")
    if divisor < 0:
        return _floor_div_constant(-left, -divisor) if isinstance(-left, Expr) else -left // -divisor
    whole, rest = _split_multiples(left, divisor)
    return whole + _proper_quotient(rest, divisor)


def _split_multiples(left: Expr, divisor: int) -> tuple[Size, Size]:
    """``left == divisor * whole + rest`` where every coefficient of rest is below the divisor.

    Coefficients keep their sign, so (3*s)//2 is s + s//2 and never 2*s - (s + 1)//2:
    the interval of the former is exact.
    """
    whole: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    for monomial, coefficient in left.terms.items():
        magnitude, remainder = divmod(abs(coefficient), divisor)
        sign = 1 if coefficient > 0 else -1
        if magnitude:
            whole[monomial] = sign * magnitude
        if remainder:
            rest[monomial] = sign * remainder
    quotient, constant = divmod(left.constant, divisor)
    environment = left.environment
    return linear(environment, whole, quotient), linear(environment, rest, constant)


def _proper_quotient(rest: Size, divisor: int) -> Size:
    """``rest // divisor`` for a form that no multiple of the divisor can be taken out of."""
    if type(rest) is int:
        return rest // divisor
    assert isinstance(rest, Expr)
    flattened = _flatten_nested(rest, divisor)
    if flattened is not None:
        return floor_div(*flattened)
    rest, divisor = _cancel_common_divisor(rest, divisor)
    if divisor == 1:
        return rest
    bounds = declared_range(rest)
    if 0 <= bounds.lower and bounds.upper < divisor:
        return 0
    if ordered_terms(rest)[0][1] < 0:
        # (-s)//2 is -((s + 1)//2): one form for the floor and the ceiling of one number.
        return -1 * floor_div(-1 * rest + (divisor - 1), divisor)
    return atom(rest.environment, "int", "floordiv", rest, divisor)


def _cancel_common_divisor(rest: Expr, divisor: int) -> tuple[Expr, int]:
    """(2*s + 1)//6 is s//3: the constant's remainder can't reach the next multiple."""
    common = divisor
    for coefficient in rest.terms.values():
        common = gcd(common, coefficient)
    if common == 1:
        return rest, divisor
    terms = {monomial: coefficient // common for monomial, coefficient in rest.terms.items()}
    reduced = linear(rest.environment, terms, rest.constant // common)
    assert isinstance(reduced, Expr)
    return reduced, divisor // common


def _flatten_nested(rest: Expr, divisor: int) -> tuple[Size, int] | None:
    """(A//p + R)//q is (A + p*R)//(p*q): chains of strided convolutions stay flat."""
    nested = [
        monomial
        for monomial, coefficient in rest.terms.items()
        if monomial.operation == "floordiv" and coefficient == 1 and type(monomial.arguments[1]) is int
    ]
    if len(nested) != 1:
        return None
    inner, inner_divisor = nested[0].arguments
    outside = rest - nested[0]
    return inner + inner_divisor * outside, divisor * inner_divisor


def _mod_constant(left: Expr, divisor: int) -> Size:
    if divisor == 0:
        raise ZeroDivisionError(f"{left} % 0")
    if divisor < 0:
        return -1 * mod(-1 * left, -divisor)
    left_reduced = _reduce_modulo(left, divisor)
    if type(left_reduced) is int:
        return left_reduced % divisor
    assert isinstance(left_reduced, Expr)
    common = divisor
    for coefficient in left_reduced.terms.values():
        common = gcd(common, coefficient)
    if common > 1:
        # Mod(2*s + 1, 4) is 2*Mod(s, 2) + 1.
        reduced, smaller = _cancel_common_divisor(left_reduced, divisor)
        return common * mod(reduced, smaller) + left_reduced.constant % common
    bounds = declared_range(left_reduced)
    if 0 <= bounds.lower and bounds.upper < divisor:
        return left_reduced
    return atom(left.environment, "int", "mod", left_reduced, divisor)


def _reduce_modulo(left: Expr, divisor: int) -> Size:
    """A form that is congruent to ``left``, with coefficients in [0, divisor)."""
    for monomial, coefficient in left.terms.items():
        if monomial.operation == "mod" and type(monomial.arguments[1]) is int:
            # Mod(Mod(x, 6), 3) is Mod(x, 3).
            if coefficient * monomial.arguments[1] % divisor == 0:
                replaced = left + coefficient * (monomial.arguments[0] - monomial)
                return _reduce_modulo(replaced, divisor) if isinstance(replaced, Expr) else replaced
    terms = {monomial: coefficient % divisor for monomial, coefficient in left.terms.items() if coefficient % divisor}
    return linear(left.environment, terms, left.constant % divisor)


# -- symbolic divisors


def _floor_div_symbolic(left: Size, right: Size) -> Size:
    assert isinstance(right, Expr)
    exact = exact_quotient(left, right)
    if exact is not None:
        return exact
    left, right = _cancel_common_factor(left, right)
    if type(right) is int:
        return floor_div(left, right)
    assert isinstance(right, Expr)
    if ordered_terms(right)[0][1] < 0:
        left, right = -1 * left, -1 * right
        assert isinstance(right, Expr)
    whole, rest = _split_by_monomial(left, right)
    if type(rest) is int and rest == 0:
        return whole
    below, divisor = declared_range(rest), declared_range(right - rest)
    if below.lower >= 0 and divisor.lower >= 1:
        return whole
    return whole + atom(environment_of(left, right), "int", "floordiv", rest, right)


def _mod_symbolic(left: Size, right: Size) -> Size:
    assert isinstance(right, Expr)
    if exact_quotient(left, right) is not None:
        return 0
    factor = _common_factor(left, right)
    if not (type(factor) is int and factor == 1):
        # Mod(g*a, g*b) is g*Mod(a, b).
        return factor * mod(*_divided_by(factor, left, right))
    if ordered_terms(right)[0][1] < 0:
        return -1 * mod(-1 * left, -1 * right)
    _, rest = _split_by_monomial(left, right)
    if type(rest) is int and rest == 0:
        return 0
    if declared_range(rest).lower >= 0 and declared_range(right - rest).lower >= 1:
        return rest
    return atom(environment_of(left, right), "int", "mod", rest, right)


def _split_by_monomial(left: Size, right: Expr) -> tuple[Size, Size]:
    """``left == right * whole + rest``, the whole taken term by term when right is one term."""
    if type(left) is int or len(right.terms) != 1 or right.constant:
        return 0, left
    assert isinstance(left, Expr)
    ((divisor, scale),) = right.terms.items()
    whole: Size = 0
    for monomial, coefficient in left.terms.items():
        remaining = _divide_monomial(monomial, divisor)
        if remaining is not None and coefficient % scale == 0:
            whole = whole + remaining * (coefficient // scale)
    return whole, left - whole * right


def exact_quotient(left: Size, right: Size) -> Size | None:
    """The polynomial q with ``left == q * right``, or None when there is none."""
    if type(right) is int:
        return _exact_quotient_constant(left, right)
    assert isinstance(right, Expr)
    if type(left) is int:
        return 0 if left == 0 else None
    lead, scale = ordered_terms(right)[0]
    quotient: Size = 0
    remainder: Size = left
    for _ in range(_LONGEST_QUOTIENT):
        if type(remainder) is int:
            return quotient if remainder == 0 else None
        assert isinstance(remainder, Expr)
        monomial, coefficient = ordered_terms(remainder)[0]
        piece = _divide_monomial(monomial, lead)
        if piece is None or coefficient % scale:
            return None
        step = piece * (coefficient // scale)
        quotient = quotient + step
        remainder = remainder - step * right
    return None


def _exact_quotient_constant(left: Size, right: int) -> Size | None:
    if type(left) is int:
        return left // right if right and left % right == 0 else None
    assert isinstance(left, Expr)
    if right == 0 or left.constant % right:
        return None
    if any(coefficient % right for coefficient in left.terms.values()):
        return None
    terms = {monomial: coefficient // right for monomial, coefficient in left.terms.items()}
    return linear(left.environment, terms, left.constant // right)


def _divide_monomial(monomial: Expr, divisor: Expr) -> Size | None:
    """The monomial without the divisor's factors, or None when one is missing."""
    if monomial is divisor:
        return 1
    remaining = list(monomial.factors)
    for factor in divisor.factors:
        if factor not in remaining:
            return None
        remaining.remove(factor)
    return product_of(monomial.environment, tuple(remaining)) if remaining else 1


def _cancel_common_factor(left: Size, right: Size) -> tuple[Size, Size]:
    """(g*a)//(g*b) is a//b."""
    return _divided_by(_common_factor(left, right), left, right)


def _divided_by(factor: Size, left: Size, right: Size) -> tuple[Size, Size]:
    first, second = exact_quotient(left, factor), exact_quotient(right, factor)
    assert first is not None and second is not None
    return first, second


def _common_factor(left: Size, right: Size) -> Size:
    """The monomial with the largest coefficient that divides every term of both."""
    common = gcd(content(left), content(right))
    shared = shared_factors(left, right)
    if not shared:
        return common
    return common * product_of(environment_of(left, right), tuple(shared))


def content(value: Size) -> int:
    """The greatest common divisor of all coefficients and the constant."""
    if type(value) is int:
        return abs(value)
    assert isinstance(value, Expr)
    result = value.constant
    for coefficient in value.terms.values():
        result = gcd(result, coefficient)
    return abs(result)


def shared_factors(left: Size, right: Size) -> list[Expr]:
    shared: list[Expr] | None = None
    for value in (left, right):
        if type(value) is int:
            if value == 0:
                continue
            return []
        assert isinstance(value, Expr)
        if value.constant:
            return []
        for monomial in value.terms:
            shared = list(monomial.factors) if shared is None else _overlap(shared, monomial)
    return shared or []


def _overlap(factors: list[Expr], monomial: Expr) -> list[Expr]:
    remaining = list(monomial.factors)
    kept = []
    for factor in factors:
        if factor in remaining:
            remaining.remove(factor)
            kept.append(factor)
    return kept
