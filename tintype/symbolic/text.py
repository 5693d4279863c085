"""Expressions as text: ``2*s0 + 1``, ``s0//2``, ``Mod(s0, 2)``, ``Eq(s0**2, 3*s1)``.

``text`` is for people and files, ``python_source`` for generated checks; both
print one tree, with other names for the operations that Python writes otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tintype.errors import CaptureError

from .expression import Expr, Symbol, linear
from .floating import FUNCTIONS
from .location import user_location
from .terms import ordered_terms

# Binding strengths, weakest first.
_CHOICE, _LOGIC, _COMPARISON, _SUM, _PRODUCT, _UNARY, _POWER, _ATOM = range(8)

_FUNCTION_NAMES = {
    "mod": "Mod",
    "min": "Min",
    "max": "Max",
    "abs": "Abs",
    "choose": "Where",
    "bit_and": "BitAnd",
    "bit_or": "BitOr",
    "bit_xor": "BitXor",
    "bit_rshift": "ShiftRight",
    "to_float": "float",
    "float_min": "Min",
    "float_max": "Max",
    "float_abs": "Abs",
    "float_mod": "Mod",
    "round_digits": "round",
    "is_integer": "IsInteger",
}
_INFIX = {
    "times": ("*", _PRODUCT),
    "floordiv": ("//", _PRODUCT),
    "int_truediv": ("/", _PRODUCT),
    "pow": ("**", _POWER),
    "float_add": (" + ", _SUM),
    "float_sub": (" - ", _SUM),
    "float_mul": ("*", _PRODUCT),
    "float_truediv": ("/", _PRODUCT),
    "float_floordiv": ("//", _PRODUCT),
    "float_pow": ("**", _POWER),
}
_PYTHON_INFIX = {
    **_INFIX,
    "mod": (" % ", _PRODUCT),
    "float_mod": (" % ", _PRODUCT),
}
# Formulas that grow by cases double with every step.
_LONGEST = 50_000
# Where Python's name is not the name used in text.
_PYTHON_NAMES = {
    "min": "min",
    "max": "max",
    "abs": "abs",
    "to_float": "float",
    "float_min": "min",
    "float_max": "max",
    "float_abs": "abs",
    "round_digits": "round",
    "round": "round",
    "trunc": "int",
}
_MATH_FUNCTIONS = frozenset(("floor", "ceil", *FUNCTIONS))


def text(value: Any) -> str:
    """The expression as people and files read it."""
    return _Printer(_own_name, python=False).show(value, _CHOICE)


def own_text(value: Expr) -> str:
    """The same of a number, by which numbers are ordered; one that can't be written any more is refused."""
    found = text(value)
    if len(found) > _LONGEST:
        raise CaptureError(
            f"a size or number is computed from others in so many steps that its formula has {len(found)} letters, "
            f"and the next one would have several times as many: {found[:100]}...",
            location=user_location(),
            remedy="end the steps by a plain number, or let what they compute follow from fewer cases",
        )
    return found


def named_text(value: Any) -> str:
    """The expression as people read it, with sizes called what the user called them."""
    names = value.environment.names if isinstance(value, Expr) else {}
    return _Printer(lambda symbol: names.get(symbol.name, symbol.name), python=False).show(value, _CHOICE)


def python_source(value: Any, names: Mapping[Symbol, str] | None = None) -> str:
    """The expression as Python source over ``names`` (``math`` must be in scope)."""
    given = names or {}

    def name(symbol: Any) -> str:
        return given.get(symbol, symbol.name)

    return _Printer(name, python=True).show(value, _CHOICE)


def _own_name(symbol: Any) -> str:
    return str(symbol.name)


class _Printer:
    """Prints one tree; ``name`` says what a symbol is called."""

    def __init__(self, name: Callable[[Any], str], *, python: bool) -> None:
        self.name = name
        self.python = python

    def show(self, value: Any, strength: int) -> str:
        """``value``, in parentheses where it binds weaker than ``strength``."""
        if not isinstance(value, Expr):
            written = repr(value)
            return f"({written})" if written.startswith("-") and strength > _SUM else written
        written, own = self.written(value)
        return f"({written})" if own < strength else written

    def written(self, value: Expr) -> tuple[str, int]:
        operation = value.operation
        if isinstance(value, Symbol):
            return self.name(value), _ATOM
        if operation == "sum":
            return self.sum(value)
        if operation == "product":
            return self.product(value), _PRODUCT if len(set(value.factors)) > 1 else _POWER
        if operation in ("eq", "ne", "le"):
            return self.relation(operation, value.arguments[0])
        infix = (_PYTHON_INFIX if self.python else _INFIX).get(operation)
        if infix is not None:
            return self.infix(value, *infix)
        return self.call(value)

    def sum(self, value: Expr) -> tuple[str, int]:
        pieces: list[str] = []
        for monomial, coefficient in ordered_terms(value):
            magnitude = self.scaled(monomial, abs(coefficient))
            if pieces:
                pieces.append(f" - {magnitude}" if coefficient < 0 else f" + {magnitude}")
            elif coefficient < 0:
                # Unary minus binds tighter than //, so -(s0//2) keeps its parentheses.
                pieces.append(f"-{self.scaled(monomial, -coefficient, alone=True)}")
            else:
                pieces.append(magnitude)
        if value.constant:
            sign = "-" if value.constant < 0 else "+"
            pieces.append(f" {sign} {abs(value.constant)}")
        alone = len(pieces) == 1 and not pieces[0].startswith("-")
        return "".join(pieces), _PRODUCT if alone else _SUM

    def scaled(self, monomial: Expr, coefficient: int, *, alone: bool = False) -> str:
        # 2*(s0//2), not 2*s0//2: they are different numbers.
        strength = _PRODUCT if monomial.operation == "product" else _UNARY
        if coefficient == 1:
            return self.show(monomial, strength if alone else _PRODUCT)
        return f"{coefficient}*{self.show(monomial, strength)}"

    def product(self, value: Expr) -> str:
        counts: dict[Expr, int] = {}
        for factor in sorted(value.factors, key=lambda factor: factor.order):
            counts[factor] = counts.get(factor, 0) + 1
        return "*".join(
            self.show(factor, _UNARY) if count == 1 else f"{self.show(factor, _ATOM)}**{count}"
            for factor, count in counts.items()
        )

    def infix(self, value: Expr, symbol: str, strength: int) -> tuple[str, int]:
        left, right = value.arguments
        if strength == _POWER:
            return f"{self.show(left, _ATOM)}{symbol}{self.show(right, _ATOM)}", _POWER
        return f"{self.show(left, strength)}{symbol}{self.show(right, strength + 1)}", strength

    def relation(self, operation: str, difference: Expr) -> tuple[str, int]:
        left, right, strict = sides(difference, ordered=operation == "le")
        first, second = self.show(left, _SUM), self.show(right, _SUM)
        if operation == "le":
            return f"{first} {strict} {second}", _COMPARISON
        if self.python:
            return f"{first} {'==' if operation == 'eq' else '!='} {second}", _COMPARISON
        return f"{'Eq' if operation == 'eq' else 'Ne'}({first}, {second})", _ATOM

    def call(self, value: Expr) -> tuple[str, int]:
        operation, arguments = value.operation, value.arguments
        if operation == "float_neg":
            return f"-{self.show(arguments[0], _UNARY)}", _UNARY
        if operation in ("float_lt", "float_le"):
            symbol = "<" if operation == "float_lt" else "<="
            return self.comparison(symbol, arguments), _COMPARISON
        if self.python:
            return self.python_call(operation, arguments)
        if operation == "float_eq":
            return self.listed("Eq", arguments), _ATOM
        if operation in ("and", "or", "not"):
            return self.listed(operation.capitalize(), arguments), _ATOM
        return self.listed(_FUNCTION_NAMES.get(operation, operation), arguments), _ATOM

    def comparison(self, symbol: str, arguments: tuple[Any, ...]) -> str:
        return f"{self.show(arguments[0], _SUM)} {symbol} {self.show(arguments[1], _SUM)}"

    def listed(self, name: str, arguments: tuple[Any, ...]) -> str:
        return f"{name}({', '.join(self.show(argument, _CHOICE) for argument in arguments)})"

    def python_call(self, operation: str, arguments: tuple[Any, ...]) -> tuple[str, int]:
        if operation == "float_eq":
            return self.comparison("==", arguments), _COMPARISON
        if operation in ("and", "or"):
            shown = (self.show(argument, _COMPARISON) for argument in arguments)
            return f" {operation} ".join(shown), _LOGIC
        if operation == "not":
            return f"not {self.show(arguments[0], _ATOM)}", _LOGIC
        if operation == "choose":
            condition, chosen, otherwise = (self.show(part, _LOGIC) for part in arguments)
            return f"{chosen} if {condition} else {otherwise}", _CHOICE
        if operation.startswith("bit_"):
            symbol = {"and": "&", "or": "|", "xor": "^", "rshift": ">>"}[operation[4:]]
            left, right = (self.show(argument, _ATOM) for argument in arguments)
            return f"({left} {symbol} {right})", _ATOM
        if operation == "is_integer":
            return f"({self.show(arguments[0], _CHOICE)}).is_integer()", _ATOM
        if operation in _MATH_FUNCTIONS:
            return self.listed(f"math.{operation}", arguments), _ATOM
        return self.listed(_PYTHON_NAMES[operation], arguments), _ATOM


def sides(difference: Expr, *, ordered: bool) -> tuple[Any, Any, str]:
    """``difference`` (against 0) as two sides without minus signs, and the symbol between.

    s0 - 20 is (s0, 20); for <= the sides may be swapped (``s0 >= 3``) and a
    leftover 1 makes the comparison strict (``s0 < s1``).
    """
    environment = difference.environment
    positive = {part: count for part, count in difference.terms.items() if count > 0}
    negative = {part: -count for part, count in difference.terms.items() if count < 0}
    constant = difference.constant
    symbol = "<="
    if ordered and constant == 1 and positive and negative:
        symbol, constant = "<", 0
    left = linear(environment, positive, max(constant, 0))
    right = linear(environment, negative, max(-constant, 0))
    if ordered and type(left) is int and isinstance(right, Expr):
        return right, left, ">="
    return left, right, symbol
