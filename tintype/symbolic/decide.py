"""The decision procedure: does a condition follow from the facts, or its negation?

``decide`` answers True, False or None (not known).  It is sound and
incomplete: intervals first, then a bounded search that combines known
inequalities, including those that hold of every floor division, minimum and
maximum.  Weak spots are written down in tests/symbolic/test_decide.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any

from . import ranges
from .division import exact_quotient, shared_factors
from .expression import Expr, Size, Symbol, atom, linear
from .extrema import maximum
from .facts import Facts
from .relations import Condition, not_
from .terms import ordered_terms

# How many inequalities may be combined, and how many combinations are tried.
_DEPTH = 3
_MOST_ATTEMPTS = 60


def decide(condition: Condition, facts: Facts) -> bool | None:
    """Whether ``condition`` holds in every case that the facts allow; None when not known."""
    if isinstance(condition, bool):
        return condition
    known = facts.decided.get(condition)
    if known is not None or facts.leaves_open(condition):
        return known
    simplified = facts.replace(condition)
    if simplified is condition:
        result = _decide(condition, facts)
        if result is None:
            facts.undecided[condition] = facts.version
            return None
    else:
        result = decide(simplified, facts)
    if result is not None:
        facts.decided[condition] = result
    return result


def _decide(condition: Condition, facts: Facts) -> bool | None:
    if isinstance(condition, bool):
        return condition
    if condition in facts.truths:
        return True
    operation = condition.operation
    if operation in ("and", "or"):
        return _decide_joined(condition, facts, absorbing=operation == "or")
    if operation == "not":
        inner = _decide(condition.arguments[0], facts)
        return None if inner is None else not inner
    if facts.tell_of(condition.symbols) and not_(condition) in facts.truths:
        return False
    if operation == "eq":
        return _decide_equality(condition.arguments[0], facts)
    if operation == "ne":
        equal = _decide_equality(condition.arguments[0], facts)
        return None if equal is None else not equal
    if operation == "le":
        return _decide_nonpositive(condition.arguments[0], facts)
    if operation in ("float_lt", "float_le", "float_eq"):
        return _decide_float(condition, facts)
    return None


def _decide_joined(condition: Expr, facts: Facts, *, absorbing: bool) -> bool | None:
    unknown = False
    for part in condition.arguments:
        answer = decide(part, facts)
        if answer is absorbing:
            return absorbing
        unknown = unknown or answer is None
    if absorbing and any(_is_part(truth, condition) for truth in facts.truths):
        return True
    if unknown and not_(condition) in facts.truths:
        return False
    return None if unknown else not absorbing


def _is_part(truth: Expr, alternatives: Expr) -> bool:
    """Whether ``truth`` is a choice between some of the alternatives."""
    return truth.operation == "or" and set(truth.arguments) <= set(alternatives.arguments)


def _decide_float(condition: Expr, facts: Facts) -> bool | None:
    # A float symbol may be nan, of which no comparison holds whatever its range.
    if any(symbol.kind != "int" for symbol in condition.symbols):
        return None
    left, right = (facts.range(argument) for argument in condition.arguments)
    if condition.operation == "float_eq":
        if left.upper < right.lower or right.upper < left.lower:
            return False
        return True if left.is_point and left == right and left.is_bounded else None
    strict = condition.operation == "float_lt"
    if left.upper < right.lower or (not strict and left.upper <= right.lower):
        return True
    if left.lower > right.upper or (strict and left.lower >= right.upper):
        return False
    return None


# -- integers


def _decide_equality(difference: Size, facts: Facts) -> bool | None:
    if type(difference) is int or not _is_sum_of_symbols(difference):  # which are as simple as they can be
        difference = facts.reduce(difference)
        if isinstance(difference, Expr):
            difference = canonical(difference)
    if type(difference) is int:
        return difference == 0
    assert isinstance(difference, Expr)
    bounds = facts.range(difference)
    if 0 not in bounds:
        return False
    if bounds.is_point or _divides_never(difference, facts):
        return bounds.is_point
    if _only_ranges_tell(difference, facts):
        return None
    below, above = _nonpositive(difference, facts), _nonpositive(-difference, facts)
    if below and above:
        return True
    if above and _nonpositive(1 - difference, facts):
        return False
    if below and _nonpositive(difference + 1, facts):
        return False
    return None


def _divides_never(difference: Expr, facts: Facts) -> bool:
    """Whether some modulus that the facts mention shows that ``difference`` is not 0."""
    moduli = {abs(coefficient) for coefficient in difference.terms.values()}
    if facts.congruences:
        known = [facts.congruences.get(symbol) for symbol in difference.symbols]
        moduli.update(congruence.modulus for congruence in known if congruence is not None)
    return any(modulus > 1 and facts.residue(difference, modulus) not in (None, 0) for modulus in moduli)


def _decide_nonpositive(difference: Size, facts: Facts) -> bool | None:
    reduced = facts.reduce(difference)
    if type(reduced) is int:
        return reduced <= 0
    assert isinstance(reduced, Expr)
    if _only_ranges_tell(reduced, facts):
        bounds = facts.range(reduced)
        return True if bounds.upper <= 0 else False if bounds.lower > 0 else None
    if _nonpositive(reduced, facts):
        return True
    if _nonpositive(1 - reduced, facts):
        return False
    return None


def _only_ranges_tell(difference: Expr, facts: Facts) -> bool:
    """Whether a search for a proof can't find more than intervals do: a sum of symbols in no known inequality."""
    terms = difference.terms.keys()
    return _is_sum_of_symbols(difference) and all(terms.isdisjoint(known.terms) for known in facts.inequalities)


def _is_sum_of_symbols(difference: Any) -> bool:
    return all(type(term) is Symbol for term in difference.terms)


def _nonpositive(difference: Size, facts: Facts) -> bool:
    """Whether ``difference <= 0`` can be proved."""
    return _Proof(facts).holds(difference, _DEPTH)


class _Proof:
    """One bounded search for a proof that an expression is never positive."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.attempts = _MOST_ATTEMPTS
        self.seen: set[Any] = set()

    def holds(self, difference: Size, depth: int) -> bool:
        if type(difference) is int:
            return difference <= 0
        assert isinstance(difference, Expr)
        if self.facts.range(difference).upper <= 0:
            return True
        if difference in self.seen or self.attempts <= 0:
            return False
        self.attempts -= 1
        self.seen.add(difference)
        for other_form in (quotients_as_remainders(difference), remainders_as_quotients(difference)):
            if other_form is not difference and self.holds(other_form, depth):
                return True
        if self.by_factor(difference, depth) or self.by_grouping(difference):
            return True
        return depth > 0 and self.by_combination(difference, depth)

    def by_factor(self, difference: Expr, depth: int) -> bool:
        """s0 - s0*s1 is s0*(1 - s1): the sign of the factors tells the rest's."""
        if difference.constant:
            return False
        for factor in set(shared_factors(difference, difference)):
            if len(difference.terms) == 1 and factor is difference:
                continue
            bounds = self.facts.range(factor)
            quotient = exact_quotient(difference, factor)
            if quotient is None or type(quotient) is int:
                continue
            if bounds.lower >= 0 and self.holds(quotient, depth):
                return True
            if bounds.upper <= 0 and self.holds(-quotient, depth):
                return True
        return False

    def by_grouping(self, difference: Expr) -> bool:
        """s1 - s1*s1 + 1 is s1*(1 - s1) + 1, which intervals bound better."""
        atoms = {factor for monomial in difference.terms for factor in monomial.factors if monomial is not factor}
        for factor in atoms:
            inside = {part: count for part, count in difference.terms.items() if factor in part.factors}
            grouped = linear(difference.environment, inside, 0)
            quotient = exact_quotient(grouped, factor)
            if quotient is None or len(inside) < 2:
                continue
            product = ranges.multiply(self.facts.range(factor), self.facts.range(quotient))
            rest = self.facts.range(difference - grouped)
            if ranges.add(product, rest).upper <= 0:
                return True
        return False

    def by_combination(self, difference: Expr, depth: int) -> bool:
        """Take away a multiple of something known to be <= 0, so that a monomial vanishes."""
        for known in self.candidates(difference):
            for monomial, coefficient in known.terms.items():
                target = difference.terms.get(monomial, 0)
                if target * coefficient <= 0:
                    continue
                common = gcd(target, coefficient)
                mine, theirs = abs(coefficient) // common, abs(target) // common
                if self.holds(mine * difference - theirs * known, depth - 1):
                    return True
        return False

    def candidates(self, difference: Expr) -> Iterator[Expr]:
        """Known expressions <= 0 that share a monomial with ``difference``."""
        for monomial in difference.terms:
            yield from _inherent(monomial, self.facts)
        for known in reversed(self.facts.inequalities):
            if not difference.terms.keys().isdisjoint(known.terms):
                yield known


def _inherent(monomial: Expr, facts: Facts) -> Iterator[Expr]:
    """Expressions that are <= 0 because of what the atom is."""
    operation, arguments = monomial.operation, monomial.arguments
    candidates: list[Any] = []
    if operation in ("floordiv", "mod") and facts.range(arguments[1]).lower < 1:
        return
    if operation == "floordiv":
        dividend, divisor = arguments
        candidates = [divisor * monomial - dividend, dividend - divisor * monomial - (divisor - 1)]
    elif operation == "mod":
        candidates = [monomial - arguments[1] + 1]
        if facts.range(arguments[0]).lower >= 0:
            candidates.append(monomial - arguments[0])
    elif operation == "max":
        candidates = [argument - monomial for argument in arguments]
    elif operation == "min":
        candidates = [monomial - argument for argument in arguments]
    elif operation == "abs":
        candidates = [arguments[0] - monomial, -arguments[0] - monomial]
    for candidate in candidates:
        if isinstance(candidate, Expr):
            yield candidate


# -- forms that the algebra does not choose because they read worse


def quotients_as_remainders(expression: Expr) -> Size:
    """d*(A//d) becomes A - Mod(A, d), whose range is known better."""
    result: Any = expression
    for monomial, coefficient in expression.terms.items():
        if monomial.operation != "floordiv":
            continue
        dividend, divisor = monomial.arguments
        if type(divisor) is int and coefficient % divisor == 0:
            whole = coefficient // divisor
            result = result - coefficient * monomial + whole * (dividend - dividend % divisor)
    return result


def remainders_as_quotients(expression: Expr) -> Size:
    """Mod(A, d) + 2*(A//d) becomes A + (2 - d)*(A//d): where both are there, one of them says it all."""
    quotients = {monomial.arguments for monomial in expression.terms if monomial.operation == "floordiv"}
    result: Any = expression
    for monomial, coefficient in expression.terms.items():
        if monomial.operation == "mod" and monomial.arguments in quotients:
            dividend, divisor = monomial.arguments
            result = result + coefficient * (dividend - divisor * (dividend // divisor) - monomial)
    return result


def canonical(expression: Size) -> Size:
    """A form in which equal sums of floors and remainders by constants are one object.

    Remainders become floors; each floor has coefficients in [0, divisor), the
    first at most half of it, which picks one of floor(x/d) and -floor(-x/d).
    The minimum of two is their sum without the maximum.
    """
    if type(expression) is int:
        return expression
    assert isinstance(expression, Expr)
    result: Any = expression
    for monomial, coefficient in expression.terms.items():
        if monomial.operation == "min" and len(monomial.arguments) == 2:
            left, right = monomial.arguments
            result = result + coefficient * (left + right - maximum(left, right) - monomial)
        value = _canonical_product(monomial) if monomial.operation == "product" else _canonical_atom(monomial)
        if value is not monomial:
            result = result + coefficient * (value - monomial)
    return result


def _canonical_product(monomial: Expr) -> Any:
    """s0*Mod(s1, 4) with the remainder as a floor, multiplied out."""
    if not any(factor.operation in ("floordiv", "mod") for factor in monomial.factors):
        return monomial
    value: Any = 1
    for factor in monomial.factors:
        value = value * _canonical_atom(factor)
    return value


def _canonical_atom(atom: Expr) -> Any:
    if atom.operation not in ("floordiv", "mod") or type(atom.arguments[1]) is not int:
        return atom
    dividend, divisor = atom.arguments
    floor = _canonical_floor(canonical(dividend), divisor)
    return floor if atom.operation == "floordiv" else dividend - divisor * floor


def _canonical_floor(dividend: Size, divisor: int) -> Any:
    if type(dividend) is int:
        return dividend // divisor
    assert isinstance(dividend, Expr)
    residues = {part: count % divisor for part, count in dividend.terms.items() if count % divisor}
    environment = dividend.environment
    rest = linear(environment, residues, dividend.constant % divisor)
    whole = exact_quotient(dividend - rest, divisor)
    if type(rest) is int:
        return whole
    assert isinstance(rest, Expr)
    if _prefers_negation(rest, divisor):
        return whole - _canonical_floor(divisor - 1 - rest, divisor)
    return whole + atom(environment, "int", "floordiv", rest, divisor)


def _prefers_negation(rest: Expr, divisor: int) -> bool:
    for _, residue in ordered_terms(rest):
        if 2 * residue != divisor:
            return 2 * residue > divisor
    # Every residue is half the divisor: floor(x/2) and x - floor((x + 1)/2) are told
    # apart by the constant alone.
    return 2 * rest.constant >= divisor
