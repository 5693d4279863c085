"""Bit operations on integers; ``&``, ``|`` and ``^`` of booleans are logic."""

from __future__ import annotations

from typing import Any

from .expression import Expr, as_int, atom, environment_of, is_bool
from .extrema import power
from .intervals import declared_range

_PYTHON: dict[str, Any] = {
    "and": lambda left, right: left & right,
    "or": lambda left, right: left | right,
    "xor": lambda left, right: left ^ right,
}


def bitwise(operation: str, left: Any, right: Any) -> Any:
    """``left & right``, ``left | right`` or ``left ^ right``."""
    for value in (left, right):
        if not (isinstance(value, (bool, int)) or (isinstance(value, Expr) and value.kind != "float")):
            return NotImplemented
    if is_bool(left) and is_bool(right):
        return _logic(operation, left, right)
    left, right = as_int(left), as_int(right)
    if not isinstance(left, Expr) and not isinstance(right, Expr):
        return _PYTHON[operation](left, right)
    if isinstance(right, Expr) and (not isinstance(left, Expr) or right.serial < left.serial):
        left, right = right, left
    if left is right:
        return 0 if operation == "xor" else left
    return _with_constant(operation, left, right)


def _logic(operation: str, left: Any, right: Any) -> Any:
    from .relations import and_, not_, or_

    if operation == "and":
        return and_(left, right)
    if operation == "or":
        return or_(left, right)
    return or_(and_(left, not_(right)), and_(not_(left), right))


def _with_constant(operation: str, left: Expr, right: Any) -> Any:
    if type(right) is int:
        if right == 0:
            return 0 if operation == "and" else left
        if right == -1 and operation == "and":
            return left
        if operation == "and" and right > 0 and right & (right + 1) == 0:
            # All low bits: the remainder of a power of two, of negative numbers too.
            return left % (right + 1)
    return atom(environment_of(left, right), "int", f"bit_{operation}", left, right)


def _of_shift(left: Any, right: Any) -> tuple[Any, Any]:
    """The operands of a shift as integers."""
    left, right = (int(value) if type(value) is bool else as_int(value) for value in (left, right))
    if type(right) is int and right < 0:
        raise ValueError("negative shift count")
    return left, right


def shift_left(left: Any, right: Any) -> Any:
    """``left << right``, for right >= 0."""
    left, right = _of_shift(left, right)
    return left * power(2, right)


def shift_right(left: Any, right: Any) -> Any:
    """``left >> right``, for right >= 0."""
    left, right = _of_shift(left, right)
    divisor = power(2, right)
    if isinstance(divisor, Expr) and declared_range(divisor).lower < 1:
        # A negative exponent would not be a shift at all; keep Python's error for evaluation.
        return atom(environment_of(left, right), "int", "bit_rshift", left, right)
    return left // divisor
