"""What an expression is for given values, and the same expression over other symbols."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from . import bits, extrema, floating, relations
from .division import floor_div, mod
from .expression import Expr, Symbol


def evaluate(expression: Any, values: Mapping[Symbol, Any] | Mapping[Expr, Any]) -> Any:
    """The number or truth value when each symbol has its value in ``values``."""
    if not isinstance(expression, Expr):
        return expression
    return _evaluate(expression, dict(values))


def _evaluate(expression: Any, known: dict[Any, Any]) -> Any:
    if not isinstance(expression, Expr):
        return expression
    found = known.get(expression)
    if found is not None:
        return found
    operation = expression.operation
    if operation == "sum":
        result: Any = expression.constant
        for monomial, coefficient in expression.terms.items():
            result += coefficient * _evaluate(monomial, known)
    elif operation == "product":
        result = 1
        for factor in expression.factors:
            result *= _evaluate(factor, known)
    elif operation == "symbol":
        raise KeyError(f"no value for the symbol {expression}")
    else:
        result = _evaluate_atom(expression, known)
    known[expression] = result
    return result


def _evaluate_atom(expression: Expr, known: dict[Any, Any]) -> Any:
    operation, arguments = expression.operation, expression.arguments
    # These three look at no more than they need: the rest may divide by zero.
    if operation == "choose":
        return _evaluate(arguments[1 if _evaluate(arguments[0], known) else 2], known)
    if operation == "and":
        return all(_evaluate(argument, known) for argument in arguments)
    if operation == "or":
        return any(_evaluate(argument, known) for argument in arguments)
    return PYTHON[operation](*(_evaluate(argument, known) for argument in arguments))


# How Python computes each operation.
PYTHON: dict[str, Callable[..., Any]] = {
    "times": lambda left, right: left * right,
    "floordiv": lambda left, right: left // right,
    "mod": lambda left, right: left % right,
    "min": min,
    "max": max,
    "abs": abs,
    "pow": lambda base, exponent: base**exponent,
    "bit_and": lambda left, right: left & right,
    "bit_or": lambda left, right: left | right,
    "bit_xor": lambda left, right: left ^ right,
    "bit_rshift": lambda left, right: left >> right,
    "eq": lambda difference: difference == 0,
    "ne": lambda difference: difference != 0,
    "le": lambda difference: difference <= 0,
    "not": lambda condition: not condition,
    "float_eq": lambda left, right: left == right,
    "float_lt": lambda left, right: left < right,
    "float_le": lambda left, right: left <= right,
    "is_integer": lambda value: float(value).is_integer(),
    "to_float": float,
    "int_truediv": lambda left, right: left / right,
    "float_add": lambda left, right: left + right,
    "float_sub": lambda left, right: left - right,
    "float_mul": lambda left, right: left * right,
    "float_truediv": lambda left, right: left / right,
    "float_floordiv": lambda left, right: left // right,
    "float_mod": lambda left, right: left % right,
    "float_pow": lambda base, exponent: base**exponent,
    "float_neg": lambda value: -value,
    "float_abs": abs,
    "float_min": min,
    "float_max": max,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
    "round_digits": round,
    **floating.FUNCTIONS,
}


def substitute(expression: Any, replacements: Mapping[Symbol, Any] | Mapping[Expr, Any]) -> Any:
    """The expression with symbols or atoms replaced, in normal form again.

    The replacements may belong to another environment, as long as they cover
    every symbol of the expression.
    """
    if not isinstance(expression, Expr) or not replacements:
        return expression
    return _substitute(expression, cast(Mapping[Expr, Any], replacements), {})


class Translation:
    """The way of expressions from one environment into another: each symbol has one there that stands for it."""

    __slots__ = ("_done", "_symbols")

    def __init__(self, symbols: Mapping[Symbol, Symbol]) -> None:
        self._symbols = symbols
        self._done: dict[Expr, Any] = {}

    def __call__(self, value: Any) -> Any:
        """What stands for an expression; anything else as it is."""
        if not isinstance(value, Expr):
            return value
        return _substitute(value, cast(Mapping[Expr, Any], self._symbols), self._done)


def _substitute(expression: Any, replacements: Mapping[Expr, Any], done: dict[Expr, Any]) -> Any:
    if not isinstance(expression, Expr):
        return expression
    if expression in replacements:
        return replacements[expression]
    if expression in done:
        return done[expression]
    operation = expression.operation
    if operation == "symbol":
        result: Any = expression
    elif operation == "sum":
        result = expression.constant
        for monomial, coefficient in expression.terms.items():
            result = result + coefficient * _substitute(monomial, replacements, done)
    elif operation == "product":
        result = 1
        for factor in expression.factors:
            result = result * _substitute(factor, replacements, done)
    else:
        arguments = [_substitute(part, replacements, done) for part in expression.arguments]
        result = rebuild(expression, arguments)
    done[expression] = result
    return result


def rebuild(expression: Expr, arguments: list[Any]) -> Any:
    """``expression``'s operation on other arguments; itself when they are the same."""
    if all(new is old for new, old in zip(arguments, expression.arguments, strict=True)):
        return expression
    return REBUILD[expression.operation](*arguments)


def _fold(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def folded(*arguments: Any) -> Any:
        result = arguments[0]
        for argument in arguments[1:]:
            result = function(result, argument)
        return result

    return folded


def _arithmetic(operation: str) -> Callable[[Any, Any], Any]:
    return lambda left, right: floating.arithmetic(operation, left, right)


def _function(name: str) -> Callable[[Any], Any]:
    return lambda value: floating.function(name, value)


def _negated_equality(difference: Any) -> Any:
    return relations.not_(relations.is_zero_form(difference))


# How this package builds each operation.
REBUILD: dict[str, Callable[..., Any]] = {
    "times": lambda left, right: left * right,
    "floordiv": floor_div,
    "mod": mod,
    "min": _fold(extrema.minimum),
    "max": _fold(extrema.maximum),
    "abs": extrema.absolute,
    "pow": extrema.power,
    "choose": extrema.choose,
    "bit_and": lambda left, right: bits.bitwise("and", left, right),
    "bit_or": lambda left, right: bits.bitwise("or", left, right),
    "bit_xor": lambda left, right: bits.bitwise("xor", left, right),
    "bit_rshift": bits.shift_right,
    "eq": relations.is_zero_form,
    "ne": _negated_equality,
    "le": relations.is_nonpositive,
    "and": relations.and_,
    "or": relations.or_,
    "not": relations.not_,
    "float_eq": relations.eq,
    "float_lt": relations.lt,
    "float_le": relations.le,
    "is_integer": floating.is_integer,
    "to_float": floating.to_float,
    "int_truediv": _arithmetic("truediv"),
    **{f"float_{name}": _arithmetic(name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")},
    "float_neg": lambda value: -value,
    "float_abs": extrema.absolute,
    "float_min": lambda left, right: floating.extremum("min", left, right),
    "float_max": lambda left, right: floating.extremum("max", left, right),
    "floor": floating.floor,
    "ceil": floating.ceil,
    "trunc": floating.trunc,
    "round": floating.round_to_integer,
    "round_digits": floating.round_to_digits,
    **{name: _function(name) for name in floating.FUNCTIONS},
}
