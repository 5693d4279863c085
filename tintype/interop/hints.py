"""Examples of sizes that torch's tools don't take for fixed.

torch takes a size that is 0 or 1 in the example for one that is always 0 or 1: whoever asks about it while a program
is compiled gets that answer, and the program is wrong at all other sizes without a word. Here sizes 0 and 1 are like
any other. So torch's program gets other examples where ours has such sizes: numbers that are allowed, that keep the
relations between sizes, and with which no size that varies is 0 or 1, if there are any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tintype.symbolic import Expr, Range
from tintype.symbolic.environment import Environment
from tintype.symbolic.evaluation import evaluate
from tintype.symbolic.expression import Symbol
from tintype.symbolic.relations import ge
from tintype.symbolic.solve import ANY_INTEGER

_CANDIDATES = (
    24  # as many numbers are tried for a symbol, from the smallest, besides some in proportion to the example
)
_STEPS = 20_000  # how many of them are tried in all


def examples(environment: Environment, sizes: Iterable[Expr]) -> dict[Symbol, int]:
    """A number for every symbol that inputs decide: that of the example, unless one of them or of the ``sizes`` is 0
    or 1 there and need not be. Then there are others, with which all are at least 2, or at least the symbols. Those
    that can only be 0 or 1 are 1 if they can."""
    given = {symbol: symbol.hint for symbol in environment.symbols.values() if symbol.hint is not None}
    replaced = environment.replacements
    symbols = [symbol for symbol in given if symbol not in replaced]
    roots = {symbol: _least(environment, symbol) for symbol in symbols if given[symbol] >= 0}
    wanted = roots | {
        size: _least(environment, size)
        for size in map(environment.simplify, sizes)
        if isinstance(size, Expr) and not size.has_unbacked
    }
    if all(_value(size, given) not in range(least) for size, least in wanted.items()):
        return given
    for goals in (wanted, {size: least for size, least in wanted.items() if least == 2}, roots):
        found = _Search(environment, symbols, [ge(size, least) for size, least in goals.items()]).run()
        if found is not None:
            return {symbol: evaluate(replaced.get(symbol, symbol), found) for symbol in given}
    return given


def _least(environment: Environment, size: Expr) -> int:
    """What a size should be at least: 2, or 1 where it can't be more, as tools leave out what is empty."""
    return int(min(environment.range(size).upper, 2))


def _value(size: Expr, given: Mapping[Symbol, int]) -> int | None:
    try:
        return int(evaluate(size, given))
    except ZeroDivisionError:
        return None


class _Search:
    """Goes through the symbols one by one, and back where no number fits."""

    def __init__(self, environment: Environment, symbols: Sequence[Symbol], goals: Sequence[bool | Expr]) -> None:
        self.environment = environment
        self.symbols = symbols
        self.steps = _STEPS
        # what must hold, by the last symbol that it speaks of: then all of them have a number
        self.conditions: dict[Symbol, list[Expr]] = {symbol: [] for symbol in symbols}
        self.bounds: dict[Symbol, list[tuple[Expr, Range]]] = {symbol: [] for symbol in symbols}
        order = {symbol: position for position, symbol in enumerate(symbols)}
        facts = environment.facts
        for condition in (*facts.truths, *goals):
            if isinstance(condition, Expr) and condition.symbols <= order.keys():
                self.conditions[max(condition.symbols, key=order.__getitem__)].append(condition)
        for form, bounds in facts.bounds.items():
            if form.symbols <= order.keys():
                self.bounds[max(form.symbols, key=order.__getitem__)].append((form, bounds))

    def run(self) -> dict[Symbol, int] | None:
        """The numbers; None where none were found."""
        values: dict[Symbol, int] = {}
        untried = [self._candidates(self.symbols[0])]
        while untried and self.steps > 0:
            symbol = self.symbols[len(untried) - 1]
            candidate = next(untried[-1], None)
            self.steps -= 1
            if candidate is None:
                untried.pop()
                values.pop(symbol, None)
                continue
            values[symbol] = candidate
            if not self._fits(symbol, values):
                continue
            if len(untried) == len(self.symbols):
                return values
            untried.append(self._candidates(self.symbols[len(untried)]))
        return None

    def _fits(self, symbol: Symbol, values: dict[Symbol, int]) -> bool:
        try:
            return all(evaluate(form, values) in bounds for form, bounds in self.bounds[symbol]) and all(
                evaluate(condition, values) for condition in self.conditions[symbol]
            )
        except ZeroDivisionError:
            return False

    def _candidates(self, symbol: Symbol) -> Iterator[int]:
        """Numbers that a symbol may be by itself: that of the example, then others."""
        assert symbol.hint is not None
        yield symbol.hint
        bounds = self.environment.range(symbol)
        modulus, remainder = self.environment.congruences.get(symbol, ANY_INTEGER)
        least = _least(self.environment, symbol)
        start = max(int(bounds.lower), least) if bounds.lower > float("-inf") else least
        first = start + (remainder - start) % modulus
        for candidate in (
            *range(first, first + _CANDIDATES * modulus, modulus),
            *(first + symbol.hint * factor * modulus for factor in (1, 2, 3, 4, 8)),
        ):
            if candidate in bounds:
                yield candidate
