"""What is known of an environment's symbols: ranges, equalities, congruences.

Facts come in as conditions that hold (``learn``) and are kept in the forms
that questions are asked in:

* ``bounds``: the range of a symbol, a monomial or a linear form without constant
* ``replacements``: symbols that are equal to an expression over other symbols
* ``congruences``: symbols known modulo something
* ``truths``: every condition, for questions that are the very same

``decide`` asks; nothing here evaluates hints or records guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import gcd
from typing import Any

from . import ranges
from .evaluation import rebuild, substitute
from .expression import Expr, Size, Symbol, linear
from .interruptions import Word
from .intervals import interval
from .ranges import EVERYTHING, Range, point
from .relations import Condition, ge, le
from .solve import ANY_INTEGER, Congruence, solve_congruence, solve_divisibility, solve_linear
from .terms import ordered_terms

# Inequalities between several terms that a proof may combine; the latest are the likeliest.
MOST_INEQUALITIES = 64


class Contradiction(Word):
    """A condition was to be learned that can't hold together with what is known."""


def primitive(expression: Expr) -> tuple[Expr, int, int]:
    """``expression == factor * form + constant``, the form without constant or common divisor."""
    terms = expression.terms
    if len(terms) == 1:
        ((monomial, coefficient),) = terms.items()
        return monomial, coefficient, expression.constant
    common = 0
    for coefficient in terms.values():
        common = gcd(common, coefficient)
    if ordered_terms(expression)[0][1] < 0:
        common = -common
    if common == 1 and expression.constant == 0:
        return expression, 1, 0
    reduced = {monomial: coefficient // common for monomial, coefficient in terms.items()}
    form = linear(expression.environment, reduced, 0)
    assert isinstance(form, Expr)
    return form, common, expression.constant


class Facts:
    """A growing set of facts; ``version`` changes with each, and what rests on fewer facts is dropped then.

    Answers outlast facts about other symbols. What a search for a proof gets to see are symbols of the question and
    those that inequalities link to them: a question that found no answer is asked again when something was learned of
    one of these."""

    def __init__(self) -> None:
        self.bounds: dict[Expr, Range] = {}
        self.replacements: dict[Symbol, Size] = {}
        self.congruences: dict[Symbol, Congruence] = {}
        self.truths: dict[Expr, None] = {}
        self.inequalities: list[Expr] = []
        # The symbols that turned out to be one number, in order of discovery.
        self.fixed: list[Symbol] = []
        self.version = 0
        # What is certain stays so, however much is learned; what is not has to be asked again.
        self.decided: dict[Expr, bool] = {}
        self.undecided: dict[Expr, int] = {}  # with the version that had no answer
        # The version in which something was last learned of symbols, by one of those that are linked to it.
        self._learned: dict[Symbol, int] = {}
        self._linked: dict[Symbol, Symbol] = {}
        self._ranges: dict[Expr, Range] = {}
        self._replaced: dict[Expr, Any] = {}
        self._substituted: dict[Expr, Any] = {}
        # By sizes or strides what :meth:`replace_sizes` gives for them, for whoever looks there first.
        self.replaced_sizes: dict[tuple[Size, ...], tuple[Size, ...]] = {}
        self._reduced: dict[Expr, Any] = {}
        # Where each symbol occurs, so that a replacement costs what it changes.
        self._truths_with: dict[Symbol, list[Expr]] = {}
        self._replaced_by: dict[Symbol, list[Symbol]] = {}

    def copy(self) -> Facts:
        """The same facts, to which others can be added."""
        return self.translated(lambda value: value)

    def translated(self, translate: Callable[[Any], Any]) -> Facts:
        """The same facts, to which others can be added, with each expression replaced by what stands for it."""
        new = Facts()
        new.bounds = {translate(form): bounds for form, bounds in self.bounds.items()}
        new.replacements = {translate(symbol): translate(value) for symbol, value in self.replacements.items()}
        new.congruences = {translate(symbol): found for symbol, found in self.congruences.items()}
        new.truths = {translate(truth): None for truth in self.truths}
        new.inequalities = [translate(form) for form in self.inequalities]
        new.fixed = [translate(symbol) for symbol in self.fixed]
        new.version = self.version
        new._linked = {translate(symbol): translate(other) for symbol, other in self._linked.items()}
        for symbol, truths in self._truths_with.items():
            new._truths_with[translate(symbol)] = [translate(truth) for truth in truths]
        for symbol, symbols in self._replaced_by.items():
            new._replaced_by[translate(symbol)] = [translate(other) for other in symbols]
        return new

    # -- questions

    def range(self, expression: Any) -> Range:
        """The range of an expression; numbers are their own."""
        return interval(expression, self._bound, self._ranges)

    def _bound(self, expression: Expr) -> Range | None:
        if not self.bounds:
            return None
        if expression.operation != "sum":
            return self.bounds.get(expression)
        if len(expression.terms) == 1:
            return None
        form, factor, constant = primitive(expression)
        found = self.bounds.get(form)
        if found is None:
            return None
        return ranges.add(ranges.scale(found, factor), point(constant))

    def replace(self, expression: Any) -> Any:
        """The expression without the symbols that are known to equal others."""
        if not isinstance(expression, Expr) or not self.replacements:
            return expression
        found = self._replaced.get(expression)
        if found is None:
            found = self._replaced[expression] = self._replace(expression)
        return found

    def _replace(self, expression: Expr) -> Any:
        replaced = self.replacements.keys()
        if replaced.isdisjoint(expression.symbols):
            return expression
        found = self._substituted.get(expression)
        if found is None or (isinstance(found, Expr) and not replaced.isdisjoint(found.symbols)):
            found = self._substituted[expression] = substitute(expression, self.replacements)
        return found

    def replace_sizes(self, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
        """The same for the sizes or strides of a tensor, of which many have the same."""
        found = self.replaced_sizes.get(sizes)
        if found is None:
            found = tuple([size if type(size) is int else self.replace(size) for size in sizes])
            self.replaced_sizes[sizes] = found
        return found

    def reduce(self, expression: Any) -> Any:
        """The simplest expression that is equal as far as the facts go."""
        expression = self.replace(expression)
        if not isinstance(expression, Expr):
            return expression
        found = self._reduced.get(expression)
        if found is None:
            found = self._reduce(expression)
            self._reduced[expression] = found
        return found

    def _reduce(self, expression: Expr) -> Any:
        if expression.kind == "int":
            bounds = self.range(expression)
            if bounds.is_point and type(bounds.lower) is int:
                return bounds.lower
        operation = expression.operation
        if operation == "symbol":
            return expression
        if operation == "sum":
            total: Any = expression.constant
            for monomial, coefficient in expression.terms.items():
                total = total + coefficient * self.reduce(monomial)
            return total
        if operation == "product":
            result: Any = 1
            for factor in expression.factors:
                result = result * self.reduce(factor)
            return result
        rebuilt = rebuild(expression, [self.reduce(part) for part in expression.arguments])
        if rebuilt is not expression:
            return self.reduce(rebuilt)
        return self._reduce_atom(expression)

    def _reduce_atom(self, expression: Expr) -> Any:
        operation, arguments = expression.operation, expression.arguments
        if operation == "mod" and type(arguments[1]) is int:
            return self._reduce_modulus(expression, *arguments)
        if operation == "floordiv" and type(arguments[1]) is int:
            bounds = self.range(arguments[0])
            if bounds.is_bounded and bounds.lower // arguments[1] == bounds.upper // arguments[1]:
                return bounds.lower // arguments[1]
        if operation in ("min", "max"):
            return self._reduce_extremum(expression)
        if operation == "abs":
            bounds = self.range(arguments[0])
            if bounds.lower >= 0:
                return arguments[0]
            if bounds.upper <= 0:
                return -arguments[0]
        return expression

    def _reduce_modulus(self, expression: Expr, dividend: Expr, divisor: int) -> Any:
        bounds = self.range(dividend)
        if bounds.is_bounded and bounds.lower // divisor == bounds.upper // divisor:
            return dividend - int(bounds.lower // divisor) * divisor
        known = self.residue(dividend, divisor)
        return expression if known is None else known

    def _reduce_extremum(self, expression: Expr) -> Any:
        kept = list(expression.arguments)
        smaller = expression.operation == "min"
        for candidate in expression.arguments:
            for other in kept:
                if other is candidate:
                    continue
                difference = self.range(other - candidate)
                if difference.upper <= 0 if smaller else difference.lower >= 0:
                    kept.remove(candidate)
                    break
        if len(kept) == len(expression.arguments):
            return expression
        from .extrema import maximum, minimum

        result: Any = kept[0]
        for argument in kept[1:]:
            result = (minimum if smaller else maximum)(result, argument)
        return result

    def leaves_open(self, condition: Expr) -> bool:
        """Whether a condition that was asked for had no answer, and nothing was learned since that could give one."""
        asked = self.undecided.get(condition)
        if asked is None:
            return False
        if asked != self.version:
            for symbol in condition.symbols:
                if self._learned.get(self._link(symbol), 0) > asked:
                    return False
            self.undecided[condition] = self.version
        return True

    def tell_of(self, symbols: frozenset[Symbol]) -> bool:
        """Whether there are conditions about all of these symbols among the facts; not if they were replaced."""
        return self._truths_with.keys() >= symbols

    def residue(self, expression: Any, modulus: int) -> int | None:
        """``expression % modulus`` where the congruences tell it; None otherwise."""
        if not isinstance(expression, Expr):
            return int(expression) % modulus
        if modulus == 1:
            return 0
        total = expression.constant if expression.operation == "sum" else 0
        terms = expression.terms if expression.operation == "sum" else {expression: 1}
        for monomial, coefficient in terms.items():
            part = self._monomial_residue(monomial, modulus // gcd(coefficient, modulus))
            if part is None:
                return None
            total += coefficient * part
        return total % modulus

    def _monomial_residue(self, monomial: Expr, modulus: int) -> int | None:
        if modulus == 1:
            return 0
        total = 1
        unknown = False
        for factor in monomial.factors:
            part = self._atom_residue(factor, modulus)
            if part == 0:
                return 0
            if part is None:
                unknown = True
            else:
                total = total * part % modulus
        return None if unknown else total

    def _atom_residue(self, factor: Expr, modulus: int) -> int | None:
        if isinstance(factor, Symbol):
            known = self.congruences.get(factor, ANY_INTEGER)
            return known.remainder % modulus if known.modulus % modulus == 0 else None
        if factor.operation == "mod":
            dividend, divisor = factor.arguments
            if type(divisor) is int and divisor % modulus == 0:
                return self.residue(dividend, modulus)
        return None

    # -- learning

    def learn(self, condition: Condition) -> None:
        """Take ``condition`` as true from now on."""
        condition = self.replace(condition)
        if isinstance(condition, bool):
            if not condition:
                raise Contradiction
            return
        if condition in self.truths:
            return
        if condition.operation == "and":
            for part in condition.arguments:
                self.learn(part)
            return
        symbols = condition.symbols
        self.truths[condition] = None
        for symbol in symbols:
            self._truths_with.setdefault(symbol, []).append(condition)
        # itself it answers conditions about all of its symbols: one of them stands for them, best the one that an
        # equality makes superfluous
        self._learned_of((min(symbols, key=_gives_way),))
        if condition.operation == "le":
            self._learn_nonpositive(condition.arguments[0])
        elif condition.operation == "eq":
            self._learn_zero(condition.arguments[0])
        elif condition.operation == "ne":
            self._learn_nonzero(condition.arguments[0])

    def _learned_of(self, symbols: Iterable[Symbol]) -> None:
        """Something was learned of symbols: questions about them, and those linked to them, may have answers now."""
        self.version += 1
        for symbol in symbols:
            self._learned[self._link(symbol)] = self.version

    def _link(self, symbol: Symbol) -> Symbol:
        """The symbol that stands for all that one is linked to."""
        linked = self._linked
        while symbol in linked:
            following = linked[symbol]
            if following in linked:
                linked[symbol] = linked[following]  # the next one who looks has half the way
            symbol = following
        return symbol

    def _limited(self, form: Expr) -> None:
        """An expression has a narrower range: drop what was computed from wider ones."""
        self._learned_of_all(form)
        self._ranges.clear()
        self._reduced.clear()

    def _learned_of_all(self, form: Expr) -> None:
        """Something was learned of symbols together: from now on, each tells of the others."""
        first, *others = map(self._link, form.symbols)
        for other in others:
            if other is not first:
                self._linked[other] = first
        self._learned_of((first,))

    def narrow(self, expression: Any, bounds: Range) -> None:
        """Take ``expression`` to lie within ``bounds``."""
        if not isinstance(expression, Expr):
            if expression not in bounds:
                raise Contradiction
            return
        form, factor, constant = primitive(expression)
        shifted = ranges.add(bounds, point(-constant))
        known = self.range(form)
        narrowed = known.intersect(_divided(shifted, factor))
        if narrowed.is_empty:
            raise Contradiction
        if narrowed == known:
            return
        self.bounds[form] = self.bounds.get(form, EVERYTHING).intersect(narrowed)
        self._limited(form)
        if isinstance(form, Symbol):
            if narrowed.is_point:
                self._replace_symbol(form, int(narrowed.lower))
        elif form.operation != "sum":
            self._narrow_atom(form, narrowed)

    def _narrow_atom(self, form: Expr, bounds: Range) -> None:
        operation, arguments = form.operation, form.arguments
        if operation == "floordiv" and type(arguments[1]) is int:
            divisor = arguments[1]
            lower = ranges.scale(bounds, divisor).lower
            upper = ranges.add(ranges.scale(bounds, divisor), point(divisor - 1)).upper
            self.narrow(arguments[0], Range(lower, upper))
        elif operation == "max":
            for argument in arguments:
                self.narrow(argument, Range(-ranges.INFINITY, bounds.upper))
        elif operation == "min":
            for argument in arguments:
                self.narrow(argument, Range(bounds.lower, ranges.INFINITY))
        elif operation == "abs":
            self.narrow(arguments[0], Range(-bounds.upper, bounds.upper))

    def _learn_nonpositive(self, difference: Expr) -> None:
        self.narrow(difference, Range(-ranges.INFINITY, 0))
        if len(difference.terms) > 1:
            self.inequalities.append(difference)
            del self.inequalities[:-MOST_INEQUALITIES]
            self._learned_of_all(difference)
            self._propagate(difference)

    def _propagate(self, difference: Expr) -> None:
        """What ``difference <= 0`` says of each of its monomials, given the range of the others."""
        for monomial, coefficient in difference.terms.items():
            rest = self.range(difference - coefficient * monomial)
            limit = Range(-ranges.INFINITY, -rest.lower)
            if limit.upper != ranges.INFINITY:
                self.narrow(coefficient * monomial, limit)

    def _learn_zero(self, difference: Expr) -> None:
        symbols = [term for term in difference.terms if type(term) is Symbol]
        if len(symbols) == 2 == len(difference.terms) and difference.constant == 0:
            if sum(difference.terms.values()) == 0:
                self._learn_same(*symbols)
                return
        self.narrow(difference, point(0))
        if len(symbols) != 1 or len(difference.terms) > 1:
            self._learn_congruences(difference)
        if len(difference.terms) > 1:
            self._propagate(difference)
            self._propagate(-difference)
            self._learn_replacement(difference)

    def _learn_same(self, left: Symbol, right: Symbol) -> None:
        """That two symbols are equal: what is known of one holds for the other, which stands for both."""
        left, right = sorted((left, right), key=_gives_way)
        common = self.range(left).intersect(self.range(right))
        self.narrow(right, common)
        self._replace_symbol(left, self.replace(right))

    def _learn_congruences(self, difference: Expr) -> None:
        for monomial, coefficient in difference.terms.items():
            if isinstance(monomial, Symbol):
                self._meet(monomial, solve_divisibility(difference, monomial))
            elif len(difference.terms) == 1 and monomial.operation == "mod" and coefficient == 1:
                dividend, divisor = monomial.arguments
                self._learn_modulus(dividend, divisor, -difference.constant)

    def _learn_modulus(self, dividend: Any, divisor: Any, remainder: int) -> None:
        """Mod(a*s + b, m) == r says s modulo a divisor of m."""
        if type(divisor) is not int or not isinstance(dividend, Expr) or len(dividend.terms) != 1:
            return
        ((symbol, coefficient),) = dividend.terms.items()
        if isinstance(symbol, Symbol):
            target = (remainder - dividend.constant) % divisor
            self._meet(symbol, solve_congruence(coefficient, target, divisor))

    def _meet(self, symbol: Symbol, congruence: Congruence | None) -> None:
        known = self.congruences.get(symbol, ANY_INTEGER)
        both = None if congruence is None else known.intersect(congruence)
        if both is None:
            raise Contradiction
        if both != known:
            self.congruences[symbol] = both
            self._limited(symbol)

    def _learn_nonzero(self, difference: Expr) -> None:
        """x != 0 moves an end of x's range that is 0."""
        bounds = self.range(difference)
        if bounds.lower == 0:
            self.narrow(difference, Range(1, bounds.upper))
        elif bounds.upper == 0:
            self.narrow(difference, Range(bounds.lower, -1))

    # -- replacements

    def _learn_replacement(self, difference: Expr) -> None:
        candidates = [
            monomial
            for monomial, coefficient in difference.terms.items()
            if isinstance(monomial, Symbol) and abs(coefficient) == 1
        ]
        candidates.sort(key=_gives_way)
        for symbol in candidates:
            value = solve_linear(difference, symbol)
            if value is None:
                continue
            if symbol.hint is not None and isinstance(value, Expr) and value.has_unbacked:
                continue
            self._replace_symbol(symbol, value)
            return

    def _replace_symbol(self, symbol: Symbol, value: Size) -> None:
        if symbol in self.replacements:
            return
        bounds = self.range(symbol)
        congruence = self.congruences.pop(symbol, ANY_INTEGER)
        for other in self._replaced_by.pop(symbol, ()):
            self._set_replacement(other, substitute(self.replacements[other], {symbol: value}))
        self._set_replacement(symbol, value)
        self.inequalities = [kept for kept in self.inequalities if symbol not in kept.symbols]
        self._learned_of((symbol,))
        self._replaced.clear()
        self.replaced_sizes.clear()
        self._carry_over(value, bounds, congruence)
        for truth in self._truths_with.pop(symbol, ()):
            if not _says_same(truth, symbol, value):
                self.learn(truth)

    def _set_replacement(self, symbol: Symbol, value: Size) -> None:
        self.replacements[symbol] = value
        if isinstance(value, Expr):
            for part in value.symbols:
                self._replaced_by.setdefault(part, []).append(symbol)
        else:
            self.fixed.append(symbol)

    def _carry_over(self, value: Size, bounds: Range, congruence: Congruence) -> None:
        """What was known of a symbol now holds for what replaces it."""
        if bounds.lower != -ranges.INFINITY:
            self.learn(ge(value, bounds.lower))
        if bounds.upper != ranges.INFINITY:
            self.learn(le(value, bounds.upper))
        if congruence.modulus == 1:
            return
        if type(value) is int:
            if value not in congruence:
                raise Contradiction
            return
        assert isinstance(value, Expr)
        self._learn_modulus(value, congruence.modulus, congruence.remainder)


def _says_same(truth: Expr, symbol: Symbol, value: Size) -> bool:
    """Whether a condition says that a symbol is equal to a number or to another symbol, and nothing else."""
    if truth.operation != "eq":
        return False
    difference: Expr = truth.arguments[0]
    scale, count = difference.terms.get(symbol, 0), len(difference.terms)
    if type(value) is int:
        return count == 1 and scale * value + difference.constant == 0 != scale
    return count == 2 and difference.constant == 0 and difference.terms.get(value, 0) == -scale != 0  # type: ignore[arg-type]


def _gives_way(symbol: Symbol) -> tuple[bool, int]:
    """The order of replacement: unbacked symbols give way to backed ones, later ones to earlier ones."""
    return symbol.hint is not None, -symbol.serial


def _divided(bounds: Range, factor: int) -> Range:
    """The integers x with ``factor * x`` within the bounds."""
    if factor < 0:
        bounds, factor = ranges.negative(bounds), -factor
    lower, upper = bounds
    if lower != -ranges.INFINITY:
        lower = -(-lower // factor)
    if upper != ranges.INFINITY:
        upper = upper // factor
    return Range(lower, upper)
