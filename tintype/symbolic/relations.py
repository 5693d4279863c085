"""Comparisons and logic: functions from sizes to ``bool`` or a boolean Expr.

Integer comparisons come down to three forms over one expression D:
D == 0, D != 0 and D <= 0.  Strict ones become non-strict (a < b is
a - b + 1 <= 0), common divisors are cancelled and constants rounded, and the
leading coefficient of == and != is positive, so one fact has one form.
Negation stays within the three forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import gcd
from typing import Any, TypeAlias

from .division import exact_quotient, shared_factors
from .expression import Expr, Symbol, as_int, atom, environment_of, is_bool, is_float, linear, product_of
from .floating import EXACT_FLOAT, is_exact_float
from .intervals import declared_range
from .terms import ordered_terms

Condition: TypeAlias = bool | Expr


def eq(left: Any, right: Any) -> Condition:
    """``left == right``."""
    if type(left) is int and type(right) is int:
        return left == right
    environment = getattr(left, "environment", None) or getattr(right, "environment", None)
    if environment is None:
        return bool(left == right)
    found: Condition | None = environment.equalities.get((left, right))
    if found is None:
        found = environment.equalities[left, right] = _equal(left, right)
    return found


def _equal(left: Any, right: Any) -> Condition:
    if left is right and not is_float(left):
        return True
    if is_bool(left) or is_bool(right):
        return _same_truth(left, right)
    if is_float(left) or is_float(right):
        return _float_equal(left, right)
    return _relation("eq", left - right)


def ne(left: Any, right: Any) -> Condition:
    """``left != right``."""
    return not_(eq(left, right))


def le(left: Any, right: Any) -> Condition:
    """``left <= right``."""
    if type(left) is int and type(right) is int:
        return left <= right
    environment = getattr(left, "environment", None) or getattr(right, "environment", None)
    if environment is None:
        return bool(left <= right)
    found: Condition | None = environment.orders.get((left, right))
    if found is None:
        found = environment.orders[left, right] = _at_most(left, right)
    return found


def _at_most(left: Any, right: Any) -> Condition:
    left, right = as_int(left), as_int(right)
    if is_float(left) or is_float(right):
        return _float_order("float_le", left, right)
    return _relation("le", left - right)


def lt(left: Any, right: Any) -> Condition:
    """``left < right``."""
    if type(left) is int and type(right) is int:
        return left < right
    environment = getattr(left, "environment", None) or getattr(right, "environment", None)
    if environment is None:
        return bool(left < right)
    found: Condition | None = environment.strict_orders.get((left, right))
    if found is None:
        found = environment.strict_orders[left, right] = _below(left, right)
    return found


def _below(left: Any, right: Any) -> Condition:
    left, right = as_int(left), as_int(right)
    if is_float(left) or is_float(right):
        return _float_order("float_lt", left, right)
    # A shared positive factor goes before the 1 comes in: m < m*m is 1 < m.
    return _relation("le", _without_positive_factors(left - right, 1) + 1)


def ge(left: Any, right: Any) -> Condition:
    """``left >= right``."""
    return le(right, left)


def gt(left: Any, right: Any) -> Condition:
    """``left > right``."""
    return lt(right, left)


def is_nonpositive(difference: Any) -> Condition:
    """``difference <= 0`` for an integer expression."""
    return _relation("le", difference)


def is_zero_form(difference: Any) -> Condition:
    """``difference == 0`` for an integer expression."""
    return _relation("eq", difference)


# -- logic


def not_(condition: Condition) -> Condition:
    """The negation."""
    if isinstance(condition, bool):
        return not condition
    operation = condition.operation
    if operation == "eq":
        return _inequation(condition.arguments[0])
    if operation == "ne":
        return atom(condition.environment, "bool", "eq", *condition.arguments)
    if operation == "le":
        return _relation("le", 1 - condition.arguments[0])
    if operation == "not":
        inner: Expr = condition.arguments[0]
        return inner
    if operation == "and":
        return or_(*(not_(part) for part in condition.arguments))
    if operation == "or":
        return and_(*(not_(part) for part in condition.arguments))
    return atom(condition.environment, "bool", "not", condition)


def and_(*conditions: Condition) -> Condition:
    """Whether all hold."""
    return _joined("and", conditions, absorbing=False)


def or_(*conditions: Condition) -> Condition:
    """Whether one holds."""
    return _joined("or", conditions, absorbing=True)


def _joined(operation: str, conditions: tuple[Condition, ...], *, absorbing: bool) -> Condition:
    parts: dict[Expr, None] = {}
    for condition in conditions:
        if isinstance(condition, bool):
            if condition is absorbing:
                return absorbing
        elif condition.operation == operation:
            parts.update(dict.fromkeys(condition.arguments))
        else:
            parts[condition] = None
    for part in parts:
        if not_(part) in parts:
            return absorbing
    if not parts:
        return not absorbing
    kept = sorted(parts, key=repr)
    if len(kept) == 1:
        return kept[0]
    return atom(environment_of(*kept), "bool", operation, *kept)


def _same_truth(left: Any, right: Any) -> Condition:
    if not (is_bool(left) and is_bool(right)):
        return eq(as_int(_unbool(left)), as_int(_unbool(right)))
    if isinstance(left, bool):
        left, right = right, left
    if isinstance(right, bool):
        return left if right else not_(left)
    return or_(and_(left, right), and_(not_(left), not_(right)))


def _unbool(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


# -- the integer normal form


def _relation(operation: str, difference: Any) -> Condition:
    if type(difference) is int:
        return difference == 0 if operation == "eq" else difference <= 0
    memo = difference.environment.relations
    found: Condition | None = memo.get((operation, difference))
    if found is None:
        found = _equality(difference) if operation == "eq" else _inequality(difference)
        memo[operation, difference] = found
    return found


def _equality(difference: Expr) -> Condition:
    if _is_reduced(difference):
        return _equality_of_symbols(difference)
    common = _coefficient_gcd(difference)
    if difference.constant % common:
        return False
    reduced = _without_positive_factors(difference, common)
    if type(reduced) is int:
        return reduced == 0
    if ordered_terms(reduced)[0][1] < 0:
        reduced = -reduced
    bounds = declared_range(reduced)
    if 0 not in bounds:
        return False
    if bounds.is_point:
        return True
    if reduced.operation == "product":
        return or_(*(eq(factor, 0) for factor in set(reduced.factors)))
    simpler = _without_atom("eq", reduced)
    if simpler is None:
        simpler = _is_extremum(reduced)
    return atom(reduced.environment, "bool", "eq", reduced) if simpler is None else simpler


def _is_reduced(difference: Expr) -> bool:
    """Whether a difference is a sum of symbols that nothing can be divided by."""
    terms = difference.terms
    if not difference.constant and len(terms) == 1:
        return False
    coefficients = terms.values()
    return (1 in coefficients or -1 in coefficients) and all(type(term) is Symbol for term in terms)


def _equality_of_symbols(difference: Any) -> Condition:
    """The same for those, which most questions are about."""
    if ordered_terms(difference)[0][1] < 0:
        difference = -difference
    bounds = declared_range(difference)
    if 0 not in bounds:
        return False
    return True if bounds.is_point else atom(difference.environment, "bool", "eq", difference)


def _is_extremum(difference: Expr) -> Condition | None:
    """``a == Min(a, b)`` is ``a <= b``."""
    for monomial, coefficient in difference.terms.items():
        if monomial.operation not in ("min", "max") or abs(coefficient) != 1:
            continue
        value = monomial - coefficient * difference
        if any(value is argument or value == argument for argument in monomial.arguments):
            compare = le if monomial.operation == "min" else ge
            return and_(*(compare(value, argument) for argument in monomial.arguments))
    return None


def _inequality(difference: Expr) -> Condition:
    common = _coefficient_gcd(difference)
    if common > 1:
        terms = {monomial: coefficient // common for monomial, coefficient in difference.terms.items()}
        # L + c/g <= 0 for an integer L means L + ceil(c/g) <= 0.
        reduced: Any = linear(difference.environment, terms, -(-difference.constant // common))
    else:
        reduced = difference
    reduced = _without_positive_factors(reduced, 1)
    if type(reduced) is int:
        return reduced <= 0
    bounds = declared_range(reduced)
    if bounds.upper <= 0:
        return True
    if bounds.lower > 0:
        return False
    if bounds.lower == 0:
        return _relation("eq", reduced)
    positive = 1 - reduced
    if isinstance(positive, Expr) and positive.operation == "mod" and declared_range(positive).lower == 0:
        return _inequation(positive)
    if isinstance(positive, Expr) and positive.operation == "product":
        # s0*s1 >= 1 for sizes: a tensor has elements when every size is at least 1.
        if all(declared_range(factor).lower >= 0 for factor in positive.factors):
            return and_(*(ge(factor, 1) for factor in set(positive.factors)))
    simpler = _without_atom("le", reduced)
    return atom(reduced.environment, "bool", "le", reduced) if simpler is None else simpler


def _inequation(difference: Expr) -> Condition:
    """``difference != 0`` for a difference in the form that ``==`` has."""
    bounds = declared_range(difference)
    # s0 >= 1 rather than Ne(s0, 0); but Ne(Mod(s0, 20), 0), which is how divisibility reads.
    if bounds.lower == 0 and difference.operation != "mod":
        return _relation("le", 1 - difference)
    if bounds.upper == 0:
        return _relation("le", difference + 1)
    return atom(difference.environment, "bool", "ne", difference)


def _without_atom(operation: str, difference: Expr) -> Condition | None:
    """The condition on the arguments when one Max, Min or floor division is compared with a constant."""
    if len(difference.terms) != 1:
        return None
    ((monomial, sign),) = difference.terms.items()
    limit = -difference.constant * sign
    if abs(sign) != 1 or monomial.operation not in ("max", "min", "floordiv"):
        return None
    if operation == "eq":
        below, above = _bounded(monomial, 1, limit), _bounded(monomial, -1, limit)
        if below is None or above is None:
            return None
        # Worth it only where one simple condition is left, as in Max(1, s0) == 1.
        found = and_(below, above)
        return found if isinstance(found, bool) or found.operation in ("eq", "le") else None
    return _bounded(monomial, sign, limit)


def _bounded(monomial: Expr, sign: int, limit: int) -> Condition | None:
    """``monomial <= limit`` (sign 1) or ``monomial >= limit`` (sign -1) in terms of its arguments."""
    arguments = monomial.arguments
    if monomial.operation == "floordiv":
        dividend, divisor = arguments
        if type(divisor) is not int:
            return None
        return le(dividend, limit * divisor + divisor - 1) if sign == 1 else ge(dividend, limit * divisor)
    parts = [le(part, limit) if sign == 1 else ge(part, limit) for part in arguments]
    if (monomial.operation == "max") == (sign == 1):
        return and_(*parts)
    joined = or_(*parts)
    return None if isinstance(joined, Expr) and joined.operation == "or" else joined


def _coefficient_gcd(difference: Expr) -> int:
    common = 0
    for coefficient in difference.terms.values():
        common = gcd(common, coefficient)
    return common


def _without_positive_factors(difference: Any, common: int) -> Any:
    """``difference`` divided by ``common`` and by each shared atom that is at least 1."""
    divisor: Any = common
    if isinstance(difference, Expr) and not difference.constant:
        positive = [factor for factor in shared_factors(difference, difference) if declared_range(factor).lower >= 1]
        if positive:
            divisor = common * product_of(difference.environment, tuple(positive))
    if type(divisor) is int and divisor == 1:
        return difference
    quotient = exact_quotient(difference, divisor)
    assert quotient is not None
    return quotient


# -- comparisons with floats


def _as_integer_operand(value: Any) -> Any:
    """The integer expression behind ``float(n)``; None when there is none."""
    if isinstance(value, Expr):
        if value.kind == "int":
            return value
        if value.operation == "to_float":
            return value.arguments[0]
    return None


def _float_equal(left: Any, right: Any) -> Condition:
    if not isinstance(left, Expr) and not isinstance(right, Expr):
        return bool(left == right)
    if isinstance(left, (int, float)):
        left, right = right, left
    integer = _as_integer_operand(left)
    if integer is not None and not isinstance(right, Expr) and abs(right) < EXACT_FLOAT:
        return eq(integer, int(right)) if right == int(right) else False
    other = _as_integer_operand(right)
    if integer is not None and other is not None and _both_exact(integer, other):
        return eq(integer, other)
    if isinstance(right, Expr) and right.serial < left.serial:
        left, right = right, left
    return atom(environment_of(left, right), "bool", "float_eq", left, right)


def _float_order(operation: str, left: Any, right: Any) -> Condition:
    if not isinstance(left, Expr) and not isinstance(right, Expr):
        return bool(left < right if operation == "float_lt" else left <= right)
    strict = operation == "float_lt"
    integers = _as_integer_operand(left), _as_integer_operand(right)
    if integers[0] is not None and not isinstance(right, Expr) and abs(right) < EXACT_FLOAT:
        # n < 2.5 is n <= 2; n < 2.0 is n < 2.
        limit = math.ceil(right) - 1 if strict else math.floor(right)
        return le(integers[0], limit)
    if integers[1] is not None and not isinstance(left, Expr) and abs(left) < EXACT_FLOAT:
        limit = math.floor(left) + 1 if strict else math.ceil(left)
        return le(limit, integers[1])
    if integers[0] is not None and integers[1] is not None and _both_exact(*integers):
        compare: Callable[[Any, Any], Condition] = lt if strict else le
        return compare(*integers)
    if left is right and isinstance(left, Expr) and left.kind == "int":
        return not strict
    return atom(environment_of(left, right), "bool", operation, left, right)


def _both_exact(left: Any, right: Any) -> bool:
    return is_exact_float(left) and is_exact_float(right)
