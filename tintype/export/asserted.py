"""What a program asserts of its sizes when it runs, in as few words as say it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tintype.errors import Location
from tintype.export.constraints import DynamicSize, SizeNames, complex_guards, narrowing
from tintype.export.dimensions import Dim
from tintype.export.solution import (
    Solution,
    Standing,
    divisions,
    inverse_range,
    is_implied,
    parameter_of,
    scaled_symbol,
)
from tintype.symbolic import Environment, Expr, Guard, Symbol, eq, ge, le, mod, substitute
from tintype.symbolic.ranges import INFINITY, Range


def asserted_guards(environment: Environment, sizes: Sequence[DynamicSize]) -> list[Guard]:
    """The guards that checks of single inputs do not cover. One that asks for a multiple of something stands for all
    that follow from it: ``x.shape[2] % 8 == 0`` for ``(x.shape[2] + 3)//4 == 2*((x.shape[2] + 7)//8)``."""
    guards = complex_guards(environment, sizes)
    names = SizeNames(sizes)
    if any(any(divisions(guard.condition)) for guard in guards):  # a comparison of sums says what it says
        guards = _in_few_words(guards, environment, names)
    for symbol in environment.congruences:
        asked = congruence(environment, symbol)
        following = [guard for guard in guards if _follows(guard, environment, symbol, names)]
        if asked is None or not following:
            continue
        found = Guard(asked, following[-1].location)
        position = guards.index(following[0])
        rest = [guard for guard in guards if guard not in following]
        guards = [*rest[:position], found, *rest[position:]]
    return guards


def _in_few_words(guards: list[Guard], environment: Environment, names: SizeNames) -> list[Guard]:
    """The same promises, where remainders, bounds and values of single sizes say what several guards do together."""
    sized = [symbol for symbol in environment.symbols.values() if symbol.hint is not None and symbol.kind == "int"]
    solution = Solution(environment, dict.fromkeys(sized, Standing.NAMED))
    considered = {id(guard) for guard, _ in solution.pending}
    solution.solve(force=False)
    kept = {id(guard) for guard, _ in solution.pending}
    kept.update(id(step.guard) for step in solution.steps if step.kind == "related")
    settled = [guard for guard in guards if id(guard) in considered - kept]
    if not settled:
        return guards
    found = []
    mentioned = {symbol for guard in settled for symbol in guard.condition.symbols}
    finals = [environment.replacements.get(symbol, symbol) for symbol in mentioned]
    for symbol in sorted(
        {part for final in finals if isinstance(final, Expr) for part in final.symbols}, key=_serial
    ):
        causes = [step.guard.location for step in solution.steps if symbol in step.symbols and step.kind != "related"]
        said = _said(symbol, solution.value(symbol), names.accepted(environment, symbol))
        found += [Guard(condition, causes[-1] if causes else settled[0].location) for condition in said]
    position = guards.index(settled[0])
    before, after = (
        [guard for guard in part if guard not in settled] for part in (guards[:position], guards[position:])
    )
    return [*before, *found, *after]


def _serial(symbol: Symbol) -> int:
    return symbol.serial


def _said(symbol: Symbol, value: Any, accepted: Range) -> Iterator[Expr]:
    """What a solution says of a symbol, beyond what checks of the inputs do."""
    line = scaled_symbol(value) if isinstance(value, Expr) else None
    conditions: list[Any] = []
    if line is None:
        conditions.append(eq(symbol, value))
    else:
        parameter, scale, offset = line
        lower, upper = (scale * bound + offset for bound in parameter.declared)
        if scale > 1:
            conditions.append(eq(mod(symbol, scale), offset % scale))
        if -INFINITY < lower and lower - scale >= accepted.lower:  # otherwise no smaller one of these is taken
            conditions.append(ge(symbol, int(lower)))
        if upper < INFINITY and upper + scale <= accepted.upper:
            conditions.append(le(symbol, int(upper)))
    yield from (condition for condition in conditions if isinstance(condition, Expr))


def congruence(environment: Environment, symbol: Symbol) -> Expr | None:
    """``symbol % modulus == remainder``, where that is known."""
    known = environment.congruences.get(symbol)
    asked: Any = None if known is None else eq(mod(symbol, known.modulus), known.remainder)
    return asked if isinstance(asked, Expr) else None


def _follows(guard: Guard, environment: Environment, symbol: Symbol, names: SizeNames) -> bool:
    """Whether a guard holds for all values of a symbol that are what is known of it modulo something."""
    hint = symbol.hint
    if hint is None or guard.condition.symbols != {symbol}:
        return False
    modulus, remainder = environment.congruences[symbol]
    bounds = inverse_range(names.accepted(environment, symbol), modulus, remainder)
    quotient = parameter_of(Environment(), hint // modulus, bounds)
    return is_implied(substitute(guard.condition, {symbol: modulus * quotient + remainder}))


def refused_promises(environment: Environment, sizes: Sequence[DynamicSize]) -> list[tuple[str, Location | None]]:
    """What a program asserts of named sizes that were promised to be anything else too, with the lines.

    That 0 or 1 is refused where nobody spoke of a smallest size is nothing to speak of."""
    if not environment.guards or not any(isinstance(size.dimension, Dim) for size in sizes):
        return []
    standing = SizeNames(sizes).standing

    def is_promised(guard: Guard) -> bool:
        return all(standing.get(symbol) is Standing.NAMED for symbol in guard.condition.symbols)

    if not any(map(is_promised, environment.guards)):  # what is asserted is of the symbols of one of these
        return []
    asked = list(filter(is_promised, asserted_guards(environment, sizes)))
    return narrowing(environment, sizes, asked)
