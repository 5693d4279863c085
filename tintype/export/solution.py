"""The sizes that satisfy a set of guards, in the forms that a user can write with ``Dim``.

Every input symbol stands for ``scale*t + offset`` over an integer parameter t with a range. A guard of a
simple form changes that: a bound narrows a parameter, ``Mod(t, 3) == 1`` makes it ``3*k + 1``, an equation
between two parameters leaves one of them (or a new one that both are multiples of), an equation on one
fixes it. Such guards are absorbed: the parameters say exactly what they say. What is left is complex, and
is either left to be asserted when the program runs or forced, which fixes sizes to those of the example.

The parameters are symbols of a scratch environment whose declared ranges are what is known, so that a guard
written over them vanishes by itself when it is implied.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tintype.export.periodic import congruence_of
from tintype.symbolic import (
    Condition,
    Environment,
    Expr,
    Guard,
    Range,
    Size,
    Symbol,
    and_,
    evaluate,
    ge,
    le,
    solve_congruence,
    solve_linear,
    substitute,
)
from tintype.symbolic.decide import decide, quotients_as_remainders
from tintype.symbolic.facts import Facts
from tintype.symbolic.ranges import INFINITY


class Standing(enum.IntEnum):
    """How much a size was promised to vary."""

    AUTO = 0  # nothing is promised
    DYNAMIC = 1  # more than one value
    NAMED = 2  # every value of the declared range, whatever other names are


@dataclass(frozen=True, slots=True)
class Step:
    """What one guard did to the sizes of ``symbols``.

    ``others`` are the symbols that they are now related to; ``forced`` says that the guard could not be
    expressed and sizes were fixed to the example's instead.
    """

    kind: Literal["narrowed", "related", "fixed"]
    guard: Guard
    symbols: tuple[Symbol, ...]
    others: tuple[Symbol, ...] = ()
    forced: bool = False


def is_implied(condition: Condition) -> bool:
    """Whether a condition holds for all values in the declared ranges of its symbols."""
    return decide(condition, Facts()) is True or (isinstance(condition, Expr) and _holds_by_cases(condition))


# How many of the smallest sizes are looked at one by one.
_MOST_CASES = 64


def _holds_by_cases(condition: Expr) -> bool:
    """For one symbol: whether the condition holds for its smallest values, and for all larger ones by proof.

    Bounds on quotients that are off by one decide nothing near the lower end, and everything further up.
    """
    if len(condition.symbols) != 1:
        return False
    (symbol,) = condition.symbols
    lower, upper = symbol.declared
    if lower == -INFINITY:
        return False
    for count, value in enumerate(range(int(lower), int(min(upper, lower + _MOST_CASES)) + 1), start=1):
        try:
            if evaluate(condition, {symbol: value}) is not True:
                return False
        except ZeroDivisionError:  # it has no value there
            return False
        if value == upper:
            return True
        if count & (count - 1) == 0:  # 1, 2, 4, ... of them
            rest = Facts()
            rest.learn(ge(symbol, value + 1))
            if decide(condition, rest) is True:
                return True
    return False


def parameter_of(scratch: Environment, hint: int, bounds: Range) -> Symbol:
    """A new symbol of a scratch environment."""
    lower, upper = bounds
    return scratch.backed(
        hint, lower=None if lower == -INFINITY else int(lower), upper=None if upper == INFINITY else int(upper)
    )


def scaled_symbol(expression: Expr) -> tuple[Symbol, int, int] | None:
    """(t, a, b) of the expression ``a*t + b``; None when it is something else."""
    if len(expression.terms) != 1:
        return None
    ((symbol, scale),) = expression.terms.items()
    return (symbol, scale, expression.constant) if isinstance(symbol, Symbol) else None


def centered(value: int, modulus: int) -> int:
    """The number nearest to 0 that leaves the same remainder as ``value``."""
    remainder = value % modulus
    return remainder - modulus if 2 * remainder > modulus else remainder


def inverse_range(bounds: Range, scale: int, offset: int) -> Range:
    """The integers k with ``scale*k + offset`` within the bounds, for scale > 0."""
    lower, upper = bounds
    return Range(
        lower if lower == -INFINITY else -((offset - lower) // scale),
        upper if upper == INFINITY else (upper - offset) // scale,
    )


class Solution:
    """The values that the guards of an environment allow; ``steps`` says which guard did what.

    ``inside`` are guards that functions of operators have for themselves.
    """

    def __init__(
        self, environment: Environment, standing: Mapping[Symbol, Standing], inside: Sequence[Guard] = ()
    ) -> None:
        self.standing = standing
        self.steps: list[Step] = []
        self.pending: list[tuple[Guard, Condition]] = []
        # For each parameter the input symbols that depend on it.
        self.members: dict[Symbol, list[Symbol]] = {}
        self._scratch = Environment()
        self._replaced: dict[Symbol, Size] = {}
        # Complex conditions that were looked at already; they change when a parameter does.
        self._seen: set[Expr] = set()
        self._first: dict[Symbol, Symbol] = {}
        for symbol in environment.symbols.values():
            if symbol.hint is not None and symbol.kind == "int":
                parameter = parameter_of(self._scratch, symbol.hint, symbol.declared)
                self._first[symbol] = parameter
                self.members[parameter] = [symbol]
        known = {symbol: value for symbol, value in environment.replacements.items() if symbol.hint is None}
        # what only rules out sizes of 0 and 1 breaks no promise: the program asserts it, and its contract says so
        guards = [*environment.guards, *inside]
        guards = [guard for guard in guards if not environment.holds_from_two(guard.condition)]
        conditions = [(guard, substitute(guard.condition, known)) for guard in guards]
        # What is left over data is asserted when the program runs, not promised by inputs.
        backed = [(guard, rest) for guard, rest in conditions if isinstance(rest, Expr) and not rest.has_unbacked]
        for guard, condition in _connected(backed, {symbol for symbol, standing in standing.items() if standing}):
            self.pending.append((guard, substitute(condition, self._first)))

    def solve(self, *, force: bool) -> None:
        """Absorb the guards; with ``force`` also those complex ones that restrict named sizes."""
        self._settle()
        while self._eliminate() or (force and self._force()):
            self._settle()

    def value(self, symbol: Symbol) -> Size:
        """An input symbol over the parameters."""
        found: Size = self._current(self._first[symbol])
        return found

    # -- parameters

    def _current(self, expression: Any) -> Any:
        """The expression over the parameters that are still in use."""
        while isinstance(expression, Expr) and not expression.symbols.isdisjoint(self._replaced):
            expression = substitute(expression, self._replaced)
        return expression

    def _replace(self, parameter: Symbol, value: Size) -> None:
        self._replaced[parameter] = value
        moved = self.members.pop(parameter)
        if isinstance(value, Expr):
            for part in value.symbols:
                self.members.setdefault(part, []).extend(moved)

    def _standing(self, parameter: Symbol) -> Standing:
        return max(self.standing.get(symbol, Standing.AUTO) for symbol in self.members[parameter])

    def _is_named(self, parameter: Symbol) -> bool:
        return self._standing(parameter) is Standing.NAMED

    # -- guards that a Dim can express

    def _settle(self) -> None:
        """Absorb guards until none of the rest has become simple."""
        while True:
            before = len(self._replaced)
            pending, self.pending = self.pending, []
            for guard, condition in pending:
                rest = self._absorb(guard, condition)
                if isinstance(rest, Expr):
                    self.pending.append((guard, rest))
            if len(self._replaced) == before:
                return

    def _absorb(self, guard: Guard, condition: Condition) -> Condition:
        """Make the condition part of the solution; returns what is left of it, True for nothing."""
        condition = self._current(condition)
        if not isinstance(condition, Expr):
            assert condition, f"the example does not satisfy {guard.condition}"
            return True
        if condition in self._seen:
            return condition
        if condition.operation == "and":
            return and_(*[self._absorb(guard, part) for part in condition.arguments])
        if condition.operation in ("eq", "le", "ne") and (
            self._absorb_relation(guard, condition) or self._absorb_repeating(guard, condition)
        ):
            return True
        # Complex guards on sizes without a name are never forced, so it does not matter what implies them.
        if any(self._is_named(parameter) for parameter in condition.symbols) and is_implied(condition):
            return True
        self._seen.add(condition)
        return condition

    def _absorb_relation(self, guard: Guard, condition: Expr) -> bool:
        operation = condition.operation
        difference = quotients_as_remainders(condition.arguments[0])
        if not isinstance(difference, Expr):
            return False
        single = scaled_symbol(difference)
        if single is not None:
            return self._absorb_single(guard, operation, *single)
        if len(difference.terms) == 1:
            return self._absorb_modulus(guard, operation, difference)
        if operation == "eq" and len(difference.terms) == 2:
            (left, scale), (right, other) = difference.terms.items()
            if isinstance(left, Symbol) and isinstance(right, Symbol) and scale * other < 0:
                self._relate(guard, difference if scale > 0 else -difference)
                return True
        return False

    def _absorb_single(self, guard: Guard, operation: str, parameter: Symbol, scale: int, offset: int) -> bool:
        if operation == "eq":
            self._fix(guard, parameter)
        elif operation == "le":
            limit = Range(-INFINITY, -offset // scale) if scale > 0 else Range(-(-offset // -scale), INFINITY)
            self._narrow(guard, parameter, limit)
        return operation != "ne"

    def _absorb_modulus(self, guard: Guard, operation: str, difference: Expr) -> bool:
        ((remainder, sign),) = difference.terms.items()
        if remainder.operation != "mod" or abs(sign) != 1:
            return False
        dividend, divisor = remainder.arguments
        target = -difference.constant * sign
        if operation == "ne" and divisor == 2:
            target = 1 - target
        elif operation != "eq" or type(divisor) is not int or divisor < 1:
            return False
        single = scaled_symbol(dividend)
        if single is None:
            return False
        parameter, scale, offset = single
        found = solve_congruence(scale, (target - offset) % divisor, divisor)
        assert found is not None, f"the example does not satisfy {guard.condition}"
        if found.modulus > 1:
            self.steps.append(Step("narrowed", guard, tuple(self.members[parameter])))
            self._rescale(guard, parameter, found.modulus, found.remainder)
        return True

    def _absorb_repeating(self, guard: Guard, condition: Expr) -> bool:
        found = congruence_of(condition)
        if found is None:
            return False
        if found.modulus > 1:
            (parameter,) = condition.symbols
            self.steps.append(Step("narrowed", guard, tuple(self.members[parameter])))
            self._rescale(guard, parameter, found.modulus, found.remainder)
        return True

    def _narrow(self, guard: Guard, parameter: Symbol, bounds: Range) -> None:
        known = parameter.declared.intersect(bounds)
        if known == parameter.declared:
            return
        if known.is_point:
            self._fix(guard, parameter)
            return
        self.steps.append(Step("narrowed", guard, tuple(self.members[parameter])))
        assert parameter.hint is not None
        self._replace(parameter, parameter_of(self._scratch, parameter.hint, known))

    def _fix(self, guard: Guard, parameter: Symbol, *, forced: bool = False) -> None:
        """Every value of the parameter but the example's is excluded."""
        assert parameter.hint is not None
        self.steps.append(Step("fixed", guard, tuple(self.members[parameter]), forced=forced))
        self._replace(parameter, parameter.hint)

    def _rescale(self, guard: Guard, parameter: Symbol, scale: int, offset: int) -> None:
        """The parameter is ``scale*k + offset`` for a new parameter k."""
        assert parameter.hint is not None
        bounds = inverse_range(parameter.declared, scale, offset)
        if bounds.is_point:
            self._fix(guard, parameter)
            return
        other = parameter_of(self._scratch, (parameter.hint - offset) // scale, bounds)
        self._replace(parameter, scale * other + offset)

    def _relate(self, guard: Guard, difference: Expr) -> None:
        """``a*left - b*right + c == 0``: both become multiples of one parameter, plus constants."""
        (left, a), (right, negative) = difference.terms.items()
        b, constant = -negative, difference.constant
        assert isinstance(left, Symbol) and isinstance(right, Symbol)
        assert left.hint is not None and right.hint is not None
        # left = b*k + p and right = a*k + q; one that need not be rescaled is k itself.
        if a == 1:
            p, q = -constant, 0
        elif b == 1:
            p, q = 0, constant
        else:
            congruence = solve_congruence(a, -constant % b, b)
            assert congruence is not None, f"the example does not satisfy {guard.condition}"
            p = centered(congruence.remainder, b)
            q = (a * p + constant) // b
        bounds = inverse_range(left.declared, b, p).intersect(inverse_range(right.declared, a, q))
        step = Step("related", guard, tuple(self.members[left]), tuple(self.members[right]))
        self.steps.append(step)
        sides = ((left, right, b, p), (right, left, a, q))
        for side, other, scale, offset in sides:
            kept = scale == 1 and bounds == inverse_range(side.declared, scale, offset)
            if not kept and not self._is_named(other):
                self.steps.append(Step("narrowed", guard, tuple(self.members[side])))
        if bounds.is_point:
            self._fix(guard, left)
            self._fix(guard, right)
            return
        parameter = parameter_of(self._scratch, (left.hint - p) // b, bounds)
        for side, _, scale, offset in sides:
            self._replace(side, scale * parameter + offset)

    # -- guards that it can't

    def _eliminate(self) -> bool:
        """Let an equation with named sizes define a size that has no name, whatever the formula.

        All that it asks of the named ones is that the formula stays within the other's range.
        """
        for position, (guard, condition) in enumerate(self.pending):
            condition = self._current(condition)
            if not isinstance(condition, Expr) or condition.operation != "eq":
                continue
            unnamed = sorted(condition.symbols, key=self._standing)
            if not unnamed or not self._is_named(unnamed[-1]):
                continue
            for parameter in unnamed:
                value = None if self._is_named(parameter) else solve_linear(condition, parameter)
                if not isinstance(value, Expr):
                    continue
                lower, upper = parameter.declared
                parts = [ge(value, lower)] if upper == INFINITY else [ge(value, lower), le(value, upper)]
                self.steps.append(Step("related", guard, tuple(self.members[parameter])))
                self._replace(parameter, value)
                self.pending[position : position + 1] = [(guard, part) for part in parts]
                return True
        return False

    def _force(self) -> bool:
        """Fix or narrow sizes on account of one complex guard; False when none asks for it."""
        found = [(guard, rest) for guard, rest in self.pending if isinstance(rest, Expr) and self._restricts(rest)]
        choices: tuple[Callable[[Guard, Expr], bool], ...] = (
            self._force_unnamed,
            self._force_moduli,
            self._force_multiples,
            self._strengthen,
            self._force_bounds,
            self._force_all,
        )
        return any(force(guard, condition) for force in choices for guard, condition in found)

    def _restricts(self, condition: Expr) -> bool:
        """Whether a condition excludes values of named sizes, however those without a name are chosen."""
        named = [parameter for parameter in condition.symbols if self._is_named(parameter)]
        if not named:
            return False
        unnamed = [parameter for parameter in condition.symbols if not self._is_named(parameter)]
        return not any(_can_satisfy(condition, parameter) for parameter in unnamed)

    def _force_unnamed(self, guard: Guard, condition: Expr) -> bool:
        """What a guard asks of the named sizes when those that were promised least suit it best, or are fixed."""
        least = min(self._standing(parameter) for parameter in condition.symbols)
        if least is Standing.NAMED:
            return False
        for parameter in condition.symbols:
            scale = 0 if self._is_named(parameter) else _linear_scale(condition, parameter)
            if scale and condition.operation == "le":
                best = parameter.declared.lower if scale > 0 else parameter.declared.upper
                self._exchange(condition, substitute(condition, {parameter: best}))
                return True
        for parameter in condition.symbols:
            if self._standing(parameter) is least:
                self._fix(guard, parameter, forced=True)
        return True

    def _force_moduli(self, guard: Guard, condition: Expr) -> bool:
        """Sizes that something must be divisible by are fixed before those that are divided."""
        divisors = [divisor for divisor in _divisors(condition) if isinstance(divisor, Expr)]
        moduli = {symbol for divisor in divisors for symbol in divisor.symbols}
        for parameter in sorted(moduli, key=lambda symbol: symbol.serial):
            self._fix(guard, parameter, forced=True)
        return bool(moduli)

    def _force_multiples(self, guard: Guard, condition: Expr) -> bool:
        """Sizes that are divided leave the example's remainders, where that is enough for the guard to hold: the
        heights and widths of ``H*W == 256*(H//16)*(W//16)`` are multiples of 16."""
        divisors: dict[Symbol, int] = {}
        if condition.operation != "eq":
            return False
        for dividend, divisor in divisions(condition):
            single = scaled_symbol(dividend) if isinstance(dividend, Expr) else None
            if single is not None and type(divisor) is int and divisor > 1:
                parameter, scale, _ = single
                divisors[parameter] = math.lcm(divisors.get(parameter, 1), divisor // math.gcd(scale, divisor))
        rescaled: dict[Any, Any] = {}
        for parameter, divisor in divisors.items():
            assert parameter.hint is not None
            bounds = inverse_range(parameter.declared, divisor, parameter.hint % divisor)
            multiple = parameter_of(self._scratch, parameter.hint // divisor, bounds)
            rescaled[parameter] = divisor * multiple + parameter.hint % divisor
        if not rescaled or not is_implied(substitute(condition, rescaled)):
            return False
        for parameter in sorted(divisors, key=lambda symbol: symbol.serial):
            assert parameter.hint is not None
            divisor = divisors[parameter]
            self.steps.append(Step("narrowed", guard, tuple(self.members[parameter])))
            self._rescale(guard, parameter, divisor, parameter.hint % divisor)
        return True

    def _strengthen(self, guard: Guard, condition: Expr) -> bool:
        """The part of a choice that the example is in: one side of a hole in a range, or one alternative."""
        if condition.operation == "ne":
            single = scaled_symbol(condition.arguments[0])
            if single is None:
                return False
            parameter, scale, offset = single
            hole = -offset // scale
            assert parameter.hint is not None
            side = Range(hole + 1, INFINITY) if parameter.hint > hole else Range(-INFINITY, hole - 1)
            self._narrow(guard, parameter, side)
            return True
        if condition.operation != "or":
            return False
        hints = {symbol: symbol.hint for symbol in condition.symbols}
        chosen = next(part for part in condition.arguments if evaluate(part, hints))
        self._exchange(condition, chosen)
        return True

    def _force_bounds(self, guard: Guard, condition: Expr) -> bool:
        """Bounds around the example within which an inequality of several sizes always holds: powers of two, as far
        from the example as that allows. ``H*W <= 2**26`` holds where both are at most 8192."""
        if condition.operation != "le":
            return False
        ends = _harmful_ends(condition)
        steps = range(_MOST_BITS, -1, -1)
        up = next((step for step in steps if self._holds_within(condition, _box(ends, 0, step))), 0)
        down = next((step for step in steps if self._holds_within(condition, _box(ends, step, up))), 0)
        box = _box(ends, down, up)
        if any(bounds.is_point for bounds in box.values()) or not self._holds_within(condition, box):
            return False
        for parameter, bounds in box.items():
            if bounds != parameter.declared:
                self.steps.append(Step("narrowed", guard, tuple(self.members[parameter]), forced=True))
                self._replace(parameter, _within(self._scratch, parameter, bounds))
        return True

    def _holds_within(self, condition: Expr, box: Mapping[Symbol, Range]) -> bool:
        scratch = Environment()
        inside = {parameter: _within(scratch, parameter, bounds) for parameter, bounds in box.items()}
        return is_implied(substitute(condition, inside))

    def _exchange(self, condition: Expr, other: Condition) -> None:
        self.pending = [(guard, other if rest is condition else rest) for guard, rest in self.pending]

    def _force_all(self, guard: Guard, condition: Expr) -> bool:
        for parameter in sorted(condition.symbols, key=lambda symbol: symbol.serial):
            self._fix(guard, parameter, forced=True)
        return True


# Sizes are 64-bit integers.
_MOST_BITS = 62


def _within(scratch: Environment, parameter: Symbol, bounds: Range) -> Symbol:
    """The parameter with other bounds."""
    assert parameter.hint is not None
    return parameter_of(scratch, parameter.hint, bounds)


def _harmful_ends(inequality: Expr) -> dict[Symbol, tuple[bool, bool]]:
    """For each parameter of ``difference <= 0`` whether the difference grows when it alone becomes as small as it may
    be, and as large."""
    (difference,) = inequality.arguments
    hints = {symbol: symbol.hint for symbol in inequality.symbols}
    example = evaluate(difference, hints)

    def grows(parameter: Symbol, end: float) -> bool:
        value = int(min(max(end, -(2**_MOST_BITS)), 2**_MOST_BITS))
        try:
            return bool(evaluate(difference, {**hints, parameter: value}) > example)
        except ZeroDivisionError:  # it has no value there
            return True

    parameters = sorted(inequality.symbols, key=lambda symbol: symbol.serial)
    return {
        parameter: (grows(parameter, parameter.declared.lower), grows(parameter, parameter.declared.upper))
        for parameter in parameters
    }


def _box(ends: Mapping[Symbol, tuple[bool, bool]], down: int, up: int) -> dict[Symbol, Range]:
    """The ranges of parameters whose harmful ends are powers of two, so many factors of two from the example."""
    box = {}
    for parameter, (small, large) in ends.items():
        lower, upper = parameter.declared
        hint = parameter.hint
        assert hint is not None
        if small:
            lower = max(lower, (1 << hint.bit_length() - 1) >> down if hint > 0 else hint)
        if large:
            upper = min(upper, 1 << (hint - 1).bit_length() + up if hint > 0 else max(hint, 0))
        box[parameter] = Range(lower, upper)
    return box


def _connected(guards: list[tuple[Guard, Expr]], promised: set[Symbol]) -> list[tuple[Guard, Expr]]:
    """The guards that have to do with promised sizes, if only by way of other sizes."""
    guards_with: dict[Symbol, list[int]] = {}
    for index, (_, condition) in enumerate(guards):
        for symbol in condition.symbols:
            guards_with.setdefault(symbol, []).append(index)
    reached: set[int] = set()
    waiting = list(promised)
    while waiting:
        for index in guards_with.pop(waiting.pop(), ()):
            if index not in reached:
                reached.add(index)
                waiting.extend(guards[index][1].symbols)
    return [guards[index] for index in sorted(reached)]


def _can_satisfy(condition: Expr, parameter: Symbol) -> bool:
    """Whether some value of ``parameter`` makes the condition hold for all values of the others."""
    lower, upper = parameter.declared
    scale = _linear_scale(condition, parameter)
    if scale and (condition.operation == "ne" or (scale < 0 and upper == INFINITY)):
        return True
    values = {lower, upper, parameter.hint}
    values.update(-(-lower // divisor) * divisor for divisor in _divisors(condition) if type(divisor) is int)
    return any(
        type(value) is int and value in parameter.declared and is_implied(substitute(condition, {parameter: value}))
        for value in values
    )


def _linear_scale(condition: Expr, parameter: Symbol) -> int:
    """The factor of a parameter that occurs but once in an inequality or disequality; 0 when it is not so."""
    if condition.operation not in ("le", "ne"):
        return 0
    difference = condition.arguments[0]
    scale: int = difference.terms.get(parameter, 0)
    rest = difference - scale * parameter
    return 0 if isinstance(rest, Expr) and parameter in rest.symbols else scale


def divisions(expression: Expr) -> Iterator[tuple[Size, Size]]:
    """What is divided by what, with a quotient or a remainder, anywhere in the expression."""
    for part in expression.parts():
        if part is not expression:
            yield from divisions(part)
    if expression.operation in ("mod", "floordiv"):
        yield expression.arguments[0], expression.arguments[1]


def _divisors(expression: Expr) -> Iterator[Size]:
    """What a remainder is taken by, anywhere in the expression."""
    for part in expression.parts():
        if part is not expression:
            yield from _divisors(part)
    if expression.operation == "mod":
        yield expression.arguments[1]
