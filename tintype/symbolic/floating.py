"""Float expressions: what true division, sqrt and friends of sizes give.

Float arithmetic is rounded, so it is never reordered: an expression of kind
"float" is the tree that the program computed.  Rewriting happens only where
the operands are integers that a float holds exactly; there ``floor(n / 2)``
is ``n // 2`` and the program is back among integers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from .division import ceil_div, exact_quotient, floor_div
from .expression import Expr, Symbol, as_int, atom, environment_of, is_int
from .intervals import declared_range, interval
from .ranges import Range

# No machine addresses more elements than this, so a tensor size that is not
# bounded otherwise is taken as no larger.  Only exactness of floats rests on it.
ADDRESSABLE = 2**48
# Integers up to this one are floats exactly.
EXACT_FLOAT = 2**53

_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
}

# The one-argument functions of a float that give a float.
FUNCTIONS: dict[str, Callable[[float], float]] = {
    name: getattr(math, name)
    for name in (
        "sqrt",
        "cos",
        "cosh",
        "sin",
        "sinh",
        "tan",
        "tanh",
        "asin",
        "acos",
        "atan",
        "exp",
        "log",
        "log2",
    )
}


def is_exact_float(value: Any) -> bool:
    """Whether the integer ``value`` surely is a float without rounding."""
    if type(value) is int:
        return abs(value) <= EXACT_FLOAT
    bounds = interval(value, _addressable, {})
    return -EXACT_FLOAT <= bounds.lower and bounds.upper <= EXACT_FLOAT


def _addressable(expression: Expr) -> Range | None:
    if isinstance(expression, Symbol) and expression.hint is not None:
        return Range(-ADDRESSABLE, ADDRESSABLE)
    return None


def to_float(value: Any) -> Any:
    """``float(value)``."""
    value = as_int(value)
    if not isinstance(value, Expr):
        return float(value)
    if value.kind == "float":
        return value
    return atom(value.environment, "float", "to_float", value)


def _exact_integer(value: Any) -> Any:
    """The integer that ``value`` is for certain, exactly; None otherwise."""
    if isinstance(value, Expr):
        inner = value.arguments[0] if value.operation == "to_float" else value
        return inner if inner.kind == "int" and is_exact_float(inner) else None
    if isinstance(value, float) and not value.is_integer():
        return None
    integer = int(value)
    # -0.0 is an integer's value but not an integer's bits.
    if integer == 0 and math.copysign(1.0, value) < 0:
        return None
    return integer if is_exact_float(integer) else None


def arithmetic(operation: str, left: Any, right: Any) -> Any:
    """Python's arithmetic between numbers of which one is a float (or a true division)."""
    if not isinstance(left, Expr) and not isinstance(right, Expr):
        return _PYTHON[operation](left, right)
    integers = _exact_integer(left), _exact_integer(right)
    if operation == "truediv":
        return _true_divide(left, right, *integers)
    if operation in ("add", "sub", "mul") and None not in integers:
        result = _PYTHON[operation](*integers)
        if is_exact_float(result) and not (operation == "mul" and _may_be_negative_zero(*integers)):
            return to_float(result)
    if operation in ("floordiv", "mod") and None not in integers and declared_range(integers[1]).lower >= 1:
        return to_float(_PYTHON[operation](*integers))
    if operation == "mul":
        dyadic = _times_dyadic(left, right, *integers)
        if dyadic is not None:
            return dyadic
        if right == 1.0:
            return to_float(left)
    return _opaque(operation, left, right)


def _opaque(operation: str, left: Any, right: Any) -> Any:
    environment = environment_of(left, right)
    return atom(environment, "float", f"float_{operation}", to_float(left), to_float(right))


def _may_be_negative_zero(left: Any, right: Any) -> bool:
    """Whether a float product of these integers could be -0.0 where the integer product is 0."""
    bounds = declared_range(left), declared_range(right)
    zero = any(0 in bound for bound in bounds)
    negative = any(bound.lower < 0 for bound in bounds)
    return zero and negative


def _true_divide(left: Any, right: Any, whole: Any, divisor: Any) -> Any:
    if not isinstance(right, Expr) and right == 0:
        raise ZeroDivisionError("division by zero")
    if whole is None or divisor is None:
        if is_int(left) and is_int(right):
            # Python divides huge integers correctly rounded, unlike their floats.
            return atom(environment_of(left, right), "float", "int_truediv", left, right)
        return _opaque("truediv", left, right)
    quotient = exact_quotient(whole, divisor)
    # 0 / -1 is -0.0, which is no float of an integer.
    if quotient is not None and declared_range(divisor).lower >= 1:
        return to_float(quotient)
    return atom(environment_of(left, right), "float", "int_truediv", whole, divisor)


def _times_dyadic(left: Any, right: Any, whole: Any, other: Any) -> Any:
    """n * 1.5 is (3*n) / 2 exactly, as long as 3*n is an exact float."""
    if whole is None:
        left, right, whole = right, left, other
    if whole is None or isinstance(right, Expr) or not math.isfinite(right) or right <= 0:
        return None
    numerator, denominator = float(right).as_integer_ratio()
    if denominator == 1 or not is_exact_float(numerator * whole):
        return None
    if declared_range(whole).lower < 0:
        return None
    return arithmetic("truediv", numerator * whole, denominator)


def negate(value: Expr) -> Any:
    """``-value`` of a float expression."""
    if value.operation == "float_neg":
        return value.arguments[0]
    return atom(value.environment, "float", "float_neg", value)


def absolute(value: Expr) -> Any:
    """``abs(value)`` of a float expression."""
    if value.operation in ("to_float", "int_truediv") and declared_range(value).lower >= 0:
        return value
    return atom(value.environment, "float", "float_abs", value)


def extremum(operation: str, left: Any, right: Any) -> Any:
    """min or max where one operand is a float; the result is a float."""
    left, right = to_float(left), to_float(right)
    if not isinstance(left, Expr) and not isinstance(right, Expr):
        return min(left, right) if operation == "min" else max(left, right)
    if left is right:
        return left
    return atom(environment_of(left, right), "float", f"float_{operation}", left, right)


def function(name: str, value: Any) -> Any:
    """sqrt, sin, ... of a number, as a float."""
    value = to_float(value)
    if not isinstance(value, Expr):
        return FUNCTIONS[name](value)
    return atom(value.environment, "float", name, value)


# -- back to integers


def floor(value: Any) -> Any:
    """The integer ``math.floor(value)``."""
    return _to_integer("floor", value, math.floor, floor_div)


def ceil(value: Any) -> Any:
    """The integer ``math.ceil(value)``."""
    return _to_integer("ceil", value, math.ceil, ceil_div)


def trunc(value: Any) -> Any:
    """The integer ``int(value)``."""
    return _to_integer("trunc", value, math.trunc, None)


def round_to_integer(value: Any) -> Any:
    """The integer ``round(value)``, halves to even."""
    return _to_integer("round", value, round, None)


def _to_integer(
    operation: str,
    value: Any,
    python: Callable[[Any], int],
    divide: Callable[[Any, Any], Any] | None,
) -> Any:
    value = as_int(value)
    if not isinstance(value, Expr):
        return python(value)
    if value.kind == "int":
        return value
    if value.operation == "to_float" and is_exact_float(value.arguments[0]):
        return value.arguments[0]
    if value.operation == "int_truediv":
        numerator, denominator = value.arguments
        # The rounded quotient of exact floats has the floor of the true one.
        exact = is_exact_float(numerator) and is_exact_float(denominator)
        if operation == "trunc" and declared_range(value).lower >= 0:
            divide = floor_div
        if exact and divide is not None:
            return divide(numerator, denominator)
    return atom(value.environment, "int", operation, value)


def round_to_digits(value: Any, digits: int) -> Any:
    """``round(value, digits)``, a float (an int for an int)."""
    if not isinstance(value, Expr):
        return round(value, digits)
    if value.kind == "int" and digits >= 0:
        return value
    return atom(value.environment, value.kind, "round_digits", value, digits)


def is_integer(value: Any) -> Any:
    """``value.is_integer()``."""
    value = as_int(value)
    if not isinstance(value, Expr):
        return float(value).is_integer()
    if value.kind == "int" or value.operation == "to_float":
        return True
    if value.operation == "int_truediv" and all(map(is_exact_float, value.arguments)):
        from .relations import eq

        return eq(value.arguments[0] % value.arguments[1], 0)
    return atom(value.environment, "bool", "is_integer", value)
