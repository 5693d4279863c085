"""What was promised about the sizes of inputs against what the captured program needs of them.

``dynamic_shapes`` promises that the program works for every value in the range of each named dimension, and
that dimensions of different names are independent. The guards of the capture that the promises do not imply
break them; all of them are reported in one error, with definitions that would keep them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Literal

from tintype.errors import ConstraintViolationError, Location
from tintype.ir.sources import Source
from tintype.symbolic import (
    Environment,
    Expr,
    Guard,
    Range,
    Size,
    Symbol,
    python_source,
    substitute,
)
from tintype.symbolic.ranges import INFINITY

from .dimensions import Dim, DimHint
from .solution import Solution, Standing, Step, is_implied, parameter_of, scaled_symbol
from .suggestions import fix_lines, suggest

_MORE = "For more information: tintype explain constraint-violation"


_LONGEST_LINE = 250


@dataclass(frozen=True)
class DynamicSize:
    """One dimension of one input that may vary.

    ``expression`` is its size over the symbols of the environment, a symbol for plain dimensions; ``source``
    says where it is, such as ``inputs['a'][1].shape[2]``. An input that is a number itself has no ``.shape``.
    """

    dimension: Dim | DimHint
    expression: Expr
    source: Source


@dataclass(frozen=True)
class ContractLine:
    """One thing that a program asks of its inputs, and the line of the user's program that made it so."""

    kind: Literal["size", "relation", "specialization", "assertion", "observation", "control flow", "left out"]
    text: str
    location: Location | None
    # what is asked, where sizes alone decide it and checks of single inputs do not cover it
    condition: Expr | None = field(default=None, compare=False, repr=False)

    def brief_text(self) -> str:
        """``text`` as far as people read it: products of many sizes can take thousands of characters."""
        if len(self.text) <= _LONGEST_LINE:
            return self.text
        return f"{self.text[: _LONGEST_LINE - 50]} ... (the first of {len(self.text):,} characters)"


def check_constraints(
    environment: Environment, sizes: Sequence[DynamicSize], *, complex_as_assertions: bool = False
) -> None:
    """Raise one error for all promises of ``sizes`` that the guards of the environment break.

    Guards that no ``Dim`` can express fix sizes to those of the example, which is an error for named ones.
    With ``complex_as_assertions`` they are no problem: ``complex_guards`` lists them for the program to check.
    """
    if not environment.guards and not environment.fixed_inside:
        return
    if not any(_standing(size.dimension) > Standing.AUTO for size in sizes if size.expression.kind == "int"):
        return
    names = SizeNames(sizes)
    # a branch on data, or a loop, that fixes a size breaks a promise about it as the program does
    solution = Solution(environment, names.standing, environment.fixed_inside)
    solution.solve(force=not complex_as_assertions)
    report = _Report(names, solution)
    if report.fixes:
        raise ConstraintViolationError(report.text(), suggested_fixes=report.fixes)


def complex_guards(environment: Environment, sizes: Sequence[DynamicSize]) -> list[Guard]:
    """The guards that checks of single inputs do not cover, for the program to assert when it runs.

    Covered is what follows from the declared ranges of named sizes, and for those without a name from their
    final range and from being a number or a multiple of one other symbol plus a constant.
    """
    if not environment.guards:
        return []
    names = SizeNames(sizes)
    scratch = Environment()
    free: dict[Symbol, Symbol] = {}

    @functools.cache
    def checked(symbol: Symbol) -> Size:
        """The symbol over symbols whose declared range is what the input checks make sure of."""
        unnamed = names.standing.get(symbol, Standing.NAMED) is not Standing.NAMED
        final = environment.replacements.get(symbol, symbol) if unnamed else symbol
        if not isinstance(final, Expr):
            return final
        root, scale, offset = symbol, 1, 0
        single = scaled_symbol(final)
        if single is not None and single[0] in names.standing:
            root, scale, offset = single
        if root not in free:
            free[root] = parameter_of(scratch, environment.hint(root), names.accepted(environment, root))
        return scale * free[root] + offset

    def is_covered(guard: Guard) -> bool:
        symbols = guard.condition.symbols
        if any(symbol.hint is None for symbol in symbols):
            return False
        return _is_same_by(checked, guard.condition) or is_implied(
            substitute(guard.condition, {symbol: checked(symbol) for symbol in symbols})
        )

    return [guard for guard in environment.guards if not is_covered(guard)]


def _is_same_by(checked: Callable[[Symbol], Size], condition: Expr) -> bool:
    """Whether a condition asks for two symbols that are one thing to the checks, or for the one value that a symbol
    has there: most conditions do."""
    if condition.operation != "eq":
        return False
    difference: Expr = condition.arguments[0]
    symbols = list(difference.terms)
    if len(symbols) > 2 or not all(type(symbol) is Symbol for symbol in symbols):
        return False
    if len(symbols) == 1:
        value = checked(symbols[0])  # type: ignore[arg-type]
        return type(value) is int and difference.terms[symbols[0]] * value + difference.constant == 0
    first, second = symbols
    opposite = difference.constant == 0 == difference.terms[first] + difference.terms[second]
    return opposite and checked(first) is checked(second)  # type: ignore[arg-type]


def narrowing(
    environment: Environment, sizes: Sequence[DynamicSize], guards: Sequence[Guard]
) -> list[tuple[str, Location | None]]:
    """Those guards that refuse more than sizes of 0 and 1 that nobody spoke of, as text with their lines."""
    names = SizeNames(sizes)
    scratch = Environment()

    @functools.cache
    def promised(symbol: Symbol) -> Size:
        lower, upper = symbol.declared
        lower = max(lower, 2) if lower == 0 else lower
        return parameter_of(scratch, max(environment.hint(symbol), int(lower)), Range(lower, upper))

    refused: dict[tuple[str, Location | None], None] = {}
    for guard in guards:
        symbols = guard.condition.symbols
        if any(symbol.hint is None for symbol in symbols) or not is_implied(
            substitute(guard.condition, {symbol: promised(symbol) for symbol in symbols})
        ):
            refused[names.text(guard.condition), guard.location] = None
    return list(refused)


# -- the report


class SizeNames:
    """What the symbols of the sizes are called, and what was promised about them."""

    def __init__(self, sizes: Sequence[DynamicSize]) -> None:
        # nothing is promised about floats, and there are no guards on them
        self.sizes = [size for size in sizes if size.expression.kind == "int"]
        self.roots: dict[Symbol, Dim] = {}
        self.standing: dict[Symbol, Standing] = {}
        for size in self.sizes:
            for symbol in size.expression.symbols:
                if isinstance(size.dimension, Dim):
                    self.roots.setdefault(symbol, size.dimension.root)
                standing = _standing(size.dimension)
                self.standing[symbol] = max(standing, self.standing.get(symbol, standing))

    @functools.cached_property
    def sources(self) -> dict[Symbol, str]:
        """Where the symbols are that are sizes themselves, as text."""
        found: dict[Symbol, str] = {}
        for size in self.sizes:
            if isinstance(size.expression, Symbol) and size.expression not in found:
                found[size.expression] = str(size.source)
        return found

    def accepted(self, environment: Environment, symbol: Symbol) -> Range:
        """The values that the program takes: all that were promised, or all that the guards leave."""
        promised = self.standing.get(symbol, Standing.NAMED) is Standing.NAMED
        return symbol.declared if promised else environment.range(symbol)

    def text(self, expression: Expr) -> str:
        """The expression over the places of the sizes."""
        names = {symbol: dim.name for symbol, dim in self.roots.items()}
        return python_source(expression, {**names, **self.sources})

    def subject(self, symbol: Symbol) -> str:
        """A named symbol and where it is."""
        name = self.roots[symbol].name
        if symbol in self.sources:
            return _named(name, self.sources[symbol])
        for size in self.sizes:
            if isinstance(size.dimension, Dim) and symbol in size.expression.symbols:
                return f"{name} (where {size.dimension.name} = {size.source})"
        return name

    def named(self, symbols: Sequence[Symbol]) -> list[Symbol]:
        """Those that have names, in the order of declaration."""
        return [symbol for symbol in self.roots if symbol in symbols]


class _Report:
    """The problems that a solution shows, and the fixes."""

    def __init__(self, names: SizeNames, solution: Solution) -> None:
        self.names = names
        self.solution = solution
        self.fixes = suggest(solution, names.roots)
        for size in names.sizes:
            if isinstance(size.dimension, DimHint) and size.dimension.kind == "DYNAMIC":
                value = substitute(size.expression, {part: solution.value(part) for part in size.expression.symbols})
                if type(value) is int:
                    self.fixes[str(size.source)] = value

    def text(self) -> str:
        specialized: dict[str, None] = {}
        violated: dict[str, None] = {}
        for step in self.solution.steps:
            if step.kind == "fixed":
                specialized.update(dict.fromkeys(self._fixed(step)))
            elif step.kind == "related":
                violated.update(dict.fromkeys(self._related(step)))
            else:
                violated.update(dict.fromkeys(self._narrowed(step)))
        declared = {dim.name for dim in self.names.roots.values()}
        fixed = [name for name, fix in self.fixes.items() if isinstance(fix, int)]
        others = [name for name, fix in self.fixes.items() if name in declared and name not in fixed]
        lines: list[str] = []
        if specialized:
            lines += [_header("Specializations unexpectedly required", dict.fromkeys(fixed)), *specialized]
        if violated:
            lines += [_header("Constraints violated", dict.fromkeys(others or fixed)), *violated]
        lines += ["Suggested fixes:", *fix_lines(self.fixes, declared)]
        if any(step.forced for step in self.solution.steps):
            lines.append(
                "What is too complex can also be left to vary: Dim.AUTO takes what the model allows, and "
                "prefer_deferred_runtime_asserts_over_guards=True checks it in every call."
            )
        if any(fix == 1 for fix in self.fixes.values()):
            lines.append(
                "What is 1 in the example is often treated apart, as here: with an example of 2 or more, it may vary."
            )
        return "\n".join(lines)

    def _narrowed(self, step: Step) -> Iterator[str]:
        for symbol in self.names.named(step.symbols)[:1]:
            promised = range_text(self.names.roots[symbol].name, symbol.declared)
            yield (
                f"  - Not all values of {self.names.subject(symbol)} in the specified range {promised} satisfy "
                f"the generated guard {self.names.text(step.guard.condition)}.{_at(step.guard.location)}"
            )

    def _related(self, step: Step) -> Iterator[str]:
        pair = [self._representative(side, step.guard) for side in (step.symbols, step.others)]
        left, right = pair
        if left is None or right is None:
            return
        order = list(self.names.roots)
        earlier, later = sorted((left, right), key=order.index)
        earlier, later, relation = self._relation(earlier, later, step)
        yield (
            f"  - The values of {self.names.subject(later)} must always be related to the values of "
            f"{self.names.subject(earlier)} by {relation}.{_at(step.guard.location)}"
        )

    def _representative(self, symbols: Sequence[Symbol], guard: Guard) -> Symbol | None:
        """The named symbol of a side that the guard itself mentions, else the first."""
        named = self.names.named(symbols)
        mentioned = [symbol for symbol in named if symbol in guard.condition.symbols]
        return next(iter(mentioned or named), None)

    def _relation(self, earlier: Symbol, later: Symbol, step: Step) -> tuple[Symbol, Symbol, str]:
        """Which symbol is written in terms of which, and how."""
        first, second = self._line(earlier), self._line(later)
        if first is None or second is None:
            return earlier, later, self.names.text(step.guard.condition)
        (scale, offset), (other_scale, other_offset) = first, second
        # scale*later - other_scale*earlier == scale*other_offset - other_scale*offset
        common = gcd(scale, other_scale)
        a, b = scale // common, other_scale // common
        constant = (scale * other_offset - other_scale * offset) // common
        if b == 1 and a > 1:
            earlier, later, a, b, constant = later, earlier, b, a, -constant
        sign = "" if constant == 0 else f" + {constant}" if constant > 0 else f" - {-constant}"
        names = [self.names.roots[symbol].name for symbol in (later, earlier)]
        left, right = (
            name if factor == 1 else f"{factor}*{name}" for name, factor in zip(names, (a, b), strict=True)
        )
        return earlier, later, f"{left} = {right}{sign}"

    def _line(self, symbol: Symbol) -> tuple[int, int] | None:
        """(a, b) when the symbol is ``a*t + b``; None when it turned out to be one number."""
        value = self.solution.value(symbol)
        if not isinstance(value, Expr):
            return None
        found = scaled_symbol(value)
        assert found is not None
        return found[1], found[2]

    def _fixed(self, step: Step) -> Iterator[str]:
        seen: set[str] = set()
        for size in self.names.sizes:
            if _standing(size.dimension) is Standing.AUTO or size.expression.symbols.isdisjoint(step.symbols):
                continue
            value = substitute(size.expression, {part: self.solution.value(part) for part in size.expression.symbols})
            name = size.dimension.name if isinstance(size.dimension, Dim) else ""
            if isinstance(value, Expr) or (name and name in seen):
                continue
            seen.add(name)
            guard = step.guard
            reason = "because the guards generated for it are too complex:"
            if not step.forced and guard.condition.symbols == {size.expression}:
                reason = "because of the guard"
            yield (
                f"  - {_named(name, str(size.source))} must be specialized to {value} {reason} "
                f"{self.names.text(guard.condition)}.{_at(guard.location)}"
            )


def _named(name: str, source: str) -> str:
    """A size by its name and its place; a number has only one of them."""
    return f"{name} = {source}" if name and name != source else source


def _standing(dimension: Dim | DimHint) -> Standing:
    if isinstance(dimension, Dim):
        return Standing.NAMED
    return Standing.DYNAMIC if dimension.kind == "DYNAMIC" else Standing.AUTO


def _header(what: str, names: Mapping[str, None]) -> str:
    return f"{what} ({', '.join(names)})! {_MORE}"


def _at(location: Location | None) -> str:
    """The line that a guard comes from, with its text where the file can be read."""
    if location is None:
        return ""
    line = location.source_line()
    return f" ({location}: {line})" if line else f" ({location})"


def range_text(name: str, bounds: Range) -> str:
    lower, upper = bounds
    if lower == -INFINITY:
        return f"{name} is any integer" if upper == INFINITY else f"{name} <= {upper}"
    if upper == INFINITY:
        return f"{name} >= {lower}"
    return f"{lower} <= {name} <= {upper}" if lower else f"{name} <= {upper}"
