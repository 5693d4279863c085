"""Reading expressions back from their text, by hand: nothing is ever evaluated as Python.

The grammar, weakest first::

    comparison = sum [("<" | "<=" | ">" | ">=" | "==" | "!=") sum]
    sum        = product {("+" | "-") product}
    product    = unary {("*" | "//" | "/" | "%") unary}
    unary      = "-" unary | power
    power      = atom ["**" unary]
    atom       = number | name | name "(" comparison {"," comparison} ")" | "(" comparison ")"
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from . import bits, extrema, floating, relations

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\*\*|//|<=|>=|==|!=|[-+*/%<>(),]))"
)
# Text from outside may be nested on purpose to exhaust the stack, or 9**9**9 the memory.
_DEEPEST = 100
_HIGHEST_POWER = 1024
_MOST_BITS = 65_536


class ExpressionSyntaxError(ValueError):
    """Text that is no expression; says where."""


def parse(source: str, symbols: Mapping[str, Any]) -> Any:
    """The number, truth value or expression that ``source`` says, over the given symbols."""
    parser = _Parser(source, symbols)
    result = parser.comparison()
    if parser.kind != "end":
        parser.fail("the end")
    return result


class _Parser:
    def __init__(self, source: str, symbols: Mapping[str, Any]) -> None:
        self.source = source
        self.symbols = symbols
        self.position = 0
        self.depth = 0
        self.kind = ""
        self.word = ""
        self.advance()

    @property
    def sign(self) -> str | None:
        return self.word if self.kind == "sign" else None

    def advance(self) -> None:
        match = _TOKEN.match(self.source, self.position)
        if match is None:
            if self.source[self.position :].strip():
                self.kind, self.word = "", self.source[self.position :].strip()[0]
                self.fail("an expression")
            self.kind, self.word = "end", ""
            return
        self.kind = match.lastgroup or ""
        self.word = match.group(self.kind)
        self.position = match.end()

    def fail(self, expected: str) -> NoReturn:
        found = repr(self.word) if self.word else "the end"
        raise ExpressionSyntaxError(
            f"expected {expected} but found {found} at character {self.position} of {self.source!r}"
        )

    def take(self, sign: str) -> None:
        if self.sign != sign:
            self.fail(repr(sign))
        self.advance()

    def comparison(self) -> Any:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ExpressionSyntaxError(f"nested too deeply: {self.source[:80]!r}")
        left = self.sum()
        compare = _COMPARISONS.get(self.sign or "")
        if compare is not None:
            self.advance()
            left = compare(left, self.sum())
        self.depth -= 1
        return left

    def sum(self) -> Any:
        return self.chain(self.product, _SUMS)

    def product(self) -> Any:
        return self.chain(self.unary, _PRODUCTS)

    def chain(self, operand: Callable[[], Any], operations: dict[str, Callable[[Any, Any], Any]]) -> Any:
        left = operand()
        while (apply := operations.get(self.sign or "")) is not None:
            self.advance()
            left = apply(left, operand())
        return left

    def unary(self) -> Any:
        negative = False
        while self.sign == "-":
            self.advance()
            negative = not negative
        value = self.power()
        return -value if negative else value

    def power(self) -> Any:
        base = self.atom()
        if self.sign != "**":
            return base
        self.advance()
        exponent = self.unary()
        if isinstance(exponent, int) and isinstance(base, int):
            if exponent > _HIGHEST_POWER or base.bit_length() * exponent > _MOST_BITS:
                raise ExpressionSyntaxError(f"the power {exponent} in {self.source!r:.200} is too high")
        return base**exponent

    def atom(self) -> Any:
        kind, word = self.kind, self.word
        if kind == "number":
            self.advance()
            return int(word) if word.isdigit() else float(word)
        if kind == "name":
            self.advance()
            return self.call(word) if self.sign == "(" else self.named(word)
        self.take("(")
        inner = self.comparison()
        self.take(")")
        return inner

    def named(self, name: str) -> Any:
        if name in self.symbols:
            return self.symbols[name]
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        raise ExpressionSyntaxError(f"unknown symbol {name!r} in {self.source!r}")

    def call(self, name: str) -> Any:
        function = _FUNCTIONS.get(name)
        if function is None:
            raise ExpressionSyntaxError(f"unknown function {name!r} in {self.source!r}")
        self.take("(")
        arguments = [self.comparison()]
        while self.sign == ",":
            self.advance()
            arguments.append(self.comparison())
        self.take(")")
        try:
            return function(*arguments)
        except TypeError as error:
            raise ExpressionSyntaxError(f"{name} with {len(arguments)} arguments in {self.source!r}") from error


def _fold(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def folded(first: Any, *rest: Any) -> Any:
        for value in rest:
            first = function(first, value)
        return first

    return folded


def _round(value: Any, digits: int | None = None) -> Any:
    return floating.round_to_integer(value) if digits is None else floating.round_to_digits(value, digits)


def _function(name: str) -> Callable[[Any], Any]:
    return lambda value: floating.function(name, value)


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": relations.lt,
    "<=": relations.le,
    ">": relations.gt,
    ">=": relations.ge,
    "==": relations.eq,
    "!=": relations.ne,
}
_SUMS: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "*": operator.mul,
    "//": operator.floordiv,
    "/": operator.truediv,
    "%": operator.mod,
}
_CONSTANTS: dict[str, Any] = {
    "True": True,
    "False": False,
    "inf": float("inf"),
    "nan": float("nan"),
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
    "Min": _fold(extrema.minimum),
    "Max": _fold(extrema.maximum),
    "Abs": extrema.absolute,
    "Where": extrema.choose,
    "BitAnd": lambda left, right: bits.bitwise("and", left, right),
    "BitOr": lambda left, right: bits.bitwise("or", left, right),
    "BitXor": lambda left, right: bits.bitwise("xor", left, right),
    "ShiftRight": bits.shift_right,
    "float": floating.to_float,
    "floor": floating.floor,
    "ceil": floating.ceil,
    "trunc": floating.trunc,
    "round": _round,
    "IsInteger": floating.is_integer,
    **{name: _function(name) for name in floating.FUNCTIONS},
    "Eq": relations.eq,
    "Ne": relations.ne,
    "Lt": relations.lt,
    "Le": relations.le,
    "Gt": relations.gt,
    "Ge": relations.ge,
    "And": relations.and_,
    "Or": relations.or_,
    "Not": relations.not_,
}
