"""Expressions to and from sympy.  Imported only when someone asks for sympy.

A symbol becomes an integer sympy symbol of the same name.  On the way back,
torch's own sympy functions (FloorDiv, Mod, ToFloat, ...) are known by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from . import bits, extrema, floating, relations
from .division import floor_div, mod
from .environment import Environment
from .expression import Expr, Symbol


def to_sympy(value: Any) -> Any:
    """The sympy expression that equals ``value``."""
    if isinstance(value, bool):
        return sympy.true if value else sympy.false
    if not isinstance(value, Expr):
        return sympy.Integer(value) if isinstance(value, int) else sympy.Float(value)
    if isinstance(value, Symbol):
        return _symbol(value)
    if value.operation == "sum":
        total = sympy.Integer(value.constant)
        for monomial, coefficient in value.terms.items():
            total += coefficient * to_sympy(monomial)
        return total
    if value.operation == "product":
        return sympy.Mul(*(to_sympy(factor) for factor in value.factors))
    if value.operation in ("eq", "ne", "le"):
        return _relation(value)
    arguments = [to_sympy(argument) for argument in value.arguments]
    return _TO_SYMPY.get(value.operation, _opaque(value.operation))(*arguments)


def _symbol(symbol: Symbol) -> Any:
    if symbol.kind == "bool":
        return sympy.Symbol(symbol.name)
    # True as an assumption, None (not False) where nothing is known.
    nonnegative = True if symbol.declared.lower >= 0 else None
    positive = True if symbol.declared.lower >= 1 else None
    return sympy.Symbol(
        symbol.name,
        integer=True if symbol.kind == "int" else None,
        real=True,
        nonnegative=nonnegative,
        positive=positive,
    )


def _relation(value: Expr) -> Any:
    from .text import sides

    left, right, symbol = sides(value.arguments[0], ordered=value.operation == "le")
    build = {
        "eq": sympy.Eq,
        "ne": sympy.Ne,
        "<": sympy.Lt,
        "<=": sympy.Le,
        ">=": sympy.Ge,
    }[symbol if value.operation == "le" else value.operation]
    return build(to_sympy(left), to_sympy(right))


def _opaque(operation: str) -> Any:
    return sympy.Function(f"tintype_{operation}", real=True)


_TO_SYMPY: dict[str, Callable[..., Any]] = {
    "times": lambda left, right: left * right,
    "floordiv": lambda left, right: sympy.floor(left / right),
    "mod": sympy.Mod,
    "min": sympy.Min,
    "max": sympy.Max,
    "abs": sympy.Abs,
    "pow": sympy.Pow,
    "choose": lambda condition, chosen, otherwise: sympy.Piecewise((chosen, condition), (otherwise, True)),
    "and": sympy.And,
    "or": sympy.Or,
    "not": sympy.Not,
    "float_eq": sympy.Eq,
    "float_lt": sympy.Lt,
    "float_le": sympy.Le,
}


def from_sympy(expression: Any, environment: Environment) -> Any:
    """The expression over the environment's symbols of the same names."""
    if expression in (sympy.true, sympy.false):
        return bool(expression)
    if isinstance(expression, sympy.Integer):
        return int(expression)
    if isinstance(expression, sympy.Float):
        return float(expression)
    if isinstance(expression, sympy.Symbol):
        return environment.symbols[expression.name]
    name = type(expression).__name__
    if name == "floor":
        return _floor(expression.args[0], environment)
    if name == "ceiling":
        return -1 * _floor(-expression.args[0], environment)
    if name == "Piecewise":
        return _piecewise(expression, environment)
    if isinstance(expression, sympy.Rational):
        return int(expression.p) / int(expression.q)
    build = _FROM_SYMPY.get(name)
    if build is None:
        build = _named_operation(name)
    return build(*(from_sympy(argument, environment) for argument in expression.args))


def _floor(quotient: Any, environment: Environment) -> Any:
    numerator, denominator = sympy.fraction(sympy.together(quotient))
    return floor_div(from_sympy(numerator, environment), from_sympy(denominator, environment))


def _piecewise(expression: Any, environment: Environment) -> Any:
    (chosen, condition), (otherwise, rest) = expression.args
    if rest != sympy.true:
        raise ValueError(f"only a choice between two values is known, not {expression}")
    return extrema.choose(*(from_sympy(part, environment) for part in (condition, chosen, otherwise)))


def _named_operation(name: str) -> Callable[..., Any]:
    from .evaluation import REBUILD

    operation = name.removeprefix("tintype_").removeprefix("OpaqueUnaryFn_")
    if operation not in REBUILD:
        raise ValueError(f"the sympy function {name} has no counterpart here")
    return REBUILD[operation]


def _fold(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def folded(first: Any, *rest: Any) -> Any:
        for value in rest:
            first = function(first, value)
        return first

    return folded


_FROM_SYMPY: dict[str, Callable[..., Any]] = {
    "Add": _fold(lambda left, right: left + right),
    "Mul": _fold(lambda left, right: left * right),
    "Pow": lambda base, exponent: base**exponent,
    "PowByNatural": extrema.power,
    "FloatPow": lambda base, exponent: floating.arithmetic("pow", base, exponent),
    "FloorDiv": floor_div,
    "CleanDiv": floor_div,
    "Mod": mod,
    "PythonMod": mod,
    "Min": _fold(extrema.minimum),
    "Max": _fold(extrema.maximum),
    "Abs": extrema.absolute,
    "IntTrueDiv": lambda left, right: floating.arithmetic("truediv", left, right),
    "FloatTrueDiv": lambda left, right: floating.arithmetic("truediv", left, right),
    "ToFloat": floating.to_float,
    "FloorToInt": floating.floor,
    "CeilToInt": floating.ceil,
    "TruncToInt": floating.trunc,
    "RoundToInt": floating.round_to_integer,
    "RoundDecimal": floating.round_to_digits,
    "LShift": bits.shift_left,
    "RShift": bits.shift_right,
    "Equality": relations.eq,
    "Unequality": relations.ne,
    "StrictLessThan": relations.lt,
    "LessThan": relations.le,
    "StrictGreaterThan": relations.gt,
    "GreaterThan": relations.ge,
    "And": relations.and_,
    "Or": relations.or_,
    "Not": relations.not_,
}
