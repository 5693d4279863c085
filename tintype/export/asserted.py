"""What a program asserts of its sizes when it runs, in as few words as say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tintype.errors import Location
from tintype.export.constraints import DynamicSize, SizeNames, complex_guards, narrowing
from tintype.export.solution import Standing, inverse_range, is_implied, parameter_of
from tintype.symbolic import Environment, Expr, Guard, Symbol, eq, mod, substitute


def asserted_guards(environment: Environment, sizes: Sequence[DynamicSize]) -> list[Guard]:
    """The guards that checks of single inputs do not cover. One that asks for a multiple of something stands for all
    that follow from it: ``x.shape[2] % 8 == 0`` for ``(x.shape[2] + 3)//4 == 2*((x.shape[2] + 7)//8)``."""
    guards = complex_guards(environment, sizes)
    names = SizeNames(sizes)
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
    if not environment.guards:
        return []
    standing = SizeNames(sizes).standing

    def is_promised(guard: Guard) -> bool:
        return all(standing.get(symbol) is Standing.NAMED for symbol in guard.condition.symbols)

    if not any(map(is_promised, environment.guards)):  # what is asserted is of the symbols of one of these
        return []
    asked = list(filter(is_promised, asserted_guards(environment, sizes)))
    return narrowing(environment, sizes, asked)
