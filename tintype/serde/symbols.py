"""Symbolic sizes to and from the schema: symbols, what is known of them, and what was promised of the inputs."""

from __future__ import annotations

import math
import re
from typing import Any

from tintype.errors import FileFormatError, Location
from tintype.export.constraints import DynamicSize
from tintype.export.dimensions import DerivedDim, Dim, DimHint
from tintype.export.input_sizes import name_symbol
from tintype.ir.sources import Argument
from tintype.serde import schema
from tintype.symbolic import Assertion, Environment, Expr, Guard, Specialization, Symbol, parse, text
from tintype.symbolic.facts import Contradiction
from tintype.symbolic.ranges import INFINITY, Range

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_EXPRESSION = 8192
_HINTS = ("AUTO", "DYNAMIC", "STATIC")


# --- writing ------------------------------------------------------------------------------------------------------


def encode_symbols(environment: Environment, sizes: list[DynamicSize], locations: bool) -> schema.Symbols:
    """An environment. Facts are written in the order in which they were learned, so that they lead to the same."""

    def line(location: Location | None) -> schema.SourceLine | None:
        return encode_location(location) if locations else None

    return schema.Symbols(
        [_encode_symbol(symbol) for symbol in environment.symbols.values()],
        [text(truth) for truth in environment.facts.truths],
        [schema.Condition(text(g.condition), g.message, line(g.location)) for g in environment.guards],
        [schema.Condition(text(a.condition), a.message, line(a.location)) for a in environment.assertions],
        [schema.Specialization(text(s.expression), s.value, line(s.location)) for s in environment.specializations],
        [schema.DynamicSize(_encode_dimension(s.dimension), text(s.expression), str(s.source)) for s in sizes],
    )


def _bound(value: float) -> int | None:
    return None if value in (INFINITY, -INFINITY) else int(value)


def _encode_symbol(symbol: Symbol) -> schema.Symbol:
    lower, upper = symbol.declared
    return schema.Symbol(symbol.name, symbol.kind, symbol.hint, _bound(lower), _bound(upper))


def encode_location(location: Location | None) -> schema.SourceLine | None:
    """A line of the user's program, with its text."""
    if location is None:
        return None
    return schema.SourceLine(location.filename, location.line, location.function, location.source_line())


def _encode_dimension(dimension: Dim | DimHint) -> schema.Dimension:
    if isinstance(dimension, DimHint):
        return schema.Dimension(dimension.kind, "", dimension.lower, _bound(dimension.max))
    root = dimension.root
    return schema.Dimension("DIM", root.name, int(root.min), _bound(root.max), dimension.scale, dimension.offset)


# --- reading ------------------------------------------------------------------------------------------------------


class SymbolReader:
    """The environment of a file, and its expressions from their text."""

    def __init__(self, symbols: schema.Symbols) -> None:
        self.environment = Environment()
        self._expressions: dict[str, Any] = {}
        for symbol in symbols.symbols:
            self._declare(symbol)
        for fact in symbols.facts:
            self._learn(fact)
        environment = self.environment
        for guard in symbols.guards:
            environment.guards.append(
                Guard(self.expression(guard.text), decode_location(guard.location), guard.message)
            )
        for assertion in symbols.assertions:
            environment.assertions.append(
                Assertion(
                    self.expression(assertion.text), assertion.message or "", decode_location(assertion.location)
                )
            )
        for fixed in symbols.specializations:
            if not isinstance(fixed.value, (int, float)):
                raise FileFormatError("a size is fixed to something that is no number")
            environment.specializations.append(
                Specialization(self.expression(fixed.expression), fixed.value, decode_location(fixed.location))
            )
        self._dimensions: dict[tuple[Any, ...], Dim] = {}
        self.sizes = [
            DynamicSize(self._dimension(size.dimension), self.expression(size.expression), Argument(size.source))
            for size in symbols.dynamic_sizes
        ]
        for size in self.sizes:
            if isinstance(size.expression, Symbol):
                size.expression.source = size.source  # so that messages say what it is the size of
            if isinstance(size.dimension, Dim) and isinstance(size.expression, Expr):
                for root in size.expression.symbols:
                    name_symbol(root, size.dimension.root.name)

    def _declare(self, symbol: schema.Symbol) -> None:
        environment = self.environment
        if not _IDENTIFIER.fullmatch(symbol.name) or symbol.name in environment.symbols:
            raise FileFormatError(f"{symbol.name!r:.80} can't be the name of a symbol, or comes twice")
        lower = -INFINITY if symbol.lower is None else symbol.lower
        declared = Range(lower, INFINITY if symbol.upper is None else symbol.upper)
        if declared.is_empty or (symbol.hint is not None and symbol.hint not in declared):
            raise FileFormatError(f"the symbol {symbol.name} is outside of its own range")
        environment.declare(symbol.name, symbol.kind, symbol.hint, declared)

    def _learn(self, fact: str) -> None:
        condition = self.value(fact)
        if condition is True:  # certain by now
            return
        if not isinstance(condition, Expr) or condition.kind != "bool":
            raise FileFormatError(f"{fact!r:.80} is no condition that can hold")
        try:
            self.environment.facts.learn(condition)
        except Contradiction as error:
            raise FileFormatError(f"the facts about sizes contradict each other at {fact!r:.80}") from error

    def value(self, source: str) -> Any:
        """The number or expression that a text says."""
        found = self._expressions.get(source)
        if found is None:
            if len(source) > _LONGEST_EXPRESSION:
                raise FileFormatError(f"an expression of {len(source)} characters is too long to be a size")
            try:
                found = parse(source, self.environment.symbols)
            except (ValueError, TypeError, ArithmeticError) as error:
                raise FileFormatError(f"{source!r:.80} is no expression: {error}") from error
            self._expressions[source] = found
        return found

    def expression(self, source: str) -> Expr:
        """An expression that symbols occur in."""
        found = self.value(source)
        if not isinstance(found, Expr):
            raise FileFormatError(f"{source!r:.80} has no symbol in it")
        return found

    def size(self, written: int | str) -> Any:
        """A size, stride or offset."""
        if type(written) is int:
            found: Any = written
        else:
            found = self.value(written)  # type: ignore[arg-type]
        if isinstance(found, Expr):
            if found.kind == "int":
                return found
        elif type(found) is int and 0 <= found < 1 << 62:
            return found
        raise FileFormatError(f"{written!r:.80} is no size")

    def _dimension(self, dimension: schema.Dimension) -> Dim | DimHint:
        lower, upper = dimension.lower or 0, dimension.upper
        if lower < 0 or (upper is not None and upper < lower):
            raise FileFormatError("a dimension's bounds are no range of sizes")
        if dimension.kind in _HINTS:
            return DimHint(dimension.kind, min=dimension.lower, max=upper)
        if dimension.kind != "DIM" or not dimension.name.isidentifier():
            raise FileFormatError(f"{dimension.name!r:.80} can't be the name of a dimension")
        key = (dimension.name, lower, upper)
        root = self._dimensions.get(key)
        if root is None:
            root = self._dimensions[key] = Dim(dimension.name, min=lower or None, max=upper)
        if dimension.scale == 1 and dimension.offset == 0:
            return root
        if dimension.scale < 1 or abs(dimension.offset) >= 1 << 62 or math.inf in (lower, upper):
            raise FileFormatError("a dimension is derived from another one in an absurd way")
        return DerivedDim(root, dimension.scale, dimension.offset)


def decode_location(line: schema.SourceLine | None) -> Location | None:
    """A line of the user's program; its text comes from the file."""
    if line is None:
        return None
    check_one_line(line.filename, line.function, line.code)
    return Location(line.filename, line.line, line.function, line.code)


def check_one_line(*texts: str) -> None:
    """Raise for text that could break out of the comment that it is printed in."""
    for written in texts:
        if not written.isprintable() and any(mark in written for mark in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029\0"):
            raise FileFormatError("the name or text of a source line has more than one line")
