"""The shape environment: the symbols of one capture, their hints, and what was decided.

Questions come in four strengths:

* ``known``     is it certain?  Never changes anything.
* ``guard_or``  a library operator asks, and has a path that is right in every case
* ``guard``     the program branches: what the example does is recorded as a guard
* ``require``   the program needs it: a guard on input sizes, else a runtime assertion

A guard is a fact from then on.  Sizes 0 and 1 are like any other: no library
operator's question whether a size is 0 or 1 is answered from the example.

Facts belong to one program.  When it is there, its environment is finished and
learns nothing more; what is made of the program works in a copy (``copy``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType, MappingProxyType
from typing import Any

from tintype.errors import DataDependentError, Location, TintypeError

from .decide import decide
from .evaluation import Translation, evaluate
from .expression import UNSET, Expr, Kind, Size, Symbol
from .facts import Contradiction, Facts
from .failures import FinishedProgramError, RequirementError
from .location import user_location
from .raising import needed_answer
from .ranges import EVERYTHING, INFINITY, Range
from .relations import Condition, eq, not_
from .solve import Congruence
from .table import Table


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on input sizes that held for the example and on which the program rests."""

    condition: Expr
    location: Location | None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Assertion:
    """A condition that the captured program must check when it runs."""

    condition: Expr
    message: str
    location: Location | None


@dataclass(frozen=True, slots=True)
class Specialization:
    """An expression that was fixed to one value, and the line that did it."""

    expression: Expr
    value: int | float | bool
    location: Location | None


@dataclass(frozen=True, slots=True)
class Mark:
    """What an environment knew at one time: its facts, and how many symbols and decisions there were."""

    facts: Facts
    counts: tuple[int, ...]


class Environment(Table):
    """The symbols of one capture and everything that is known and was decided about them.

    ``guards``, ``assertions`` and ``specializations`` are lists in order of
    discovery.  With ``defer_requirements`` a requirement on input sizes is a
    runtime assertion instead of a guard.  ``before_plain`` is asked, with the
    frame that asks, before a symbolic number becomes a plain one by int() or
    as an index.
    """

    def __init__(
        self, *, defer_requirements: bool = False, before_plain: Callable[[FrameType], None] | None = None
    ) -> None:
        super().__init__()
        self.defer_requirements = defer_requirements
        self.symbols: dict[str, Symbol] = {}
        # what users call the sizes of symbols (the names of their Dims), by the symbols' own names; for people only
        self.names: dict[str, str] = {}
        self.guards: list[Guard] = []
        self.assertions: list[Assertion] = []
        self.specializations: list[Specialization] = []
        # what did not hold for the example where the program needed it: a guard if the program goes on all the same
        self.failures: list[Guard] = []
        # values of sizes that functions of operators rest on, though they need not: each asserts that for itself
        self.fixed_inside: list[Guard] = []
        # what layouts were worked out from; guards once the program looks at a layout
        self.assumptions: list[Guard] = []
        # what was asserted of sizes that only the data decide where eager mode would take a size of 1, too
        self.presumptions: list[Assertion] = []
        # what the capture could not do; a program that catches it and goes on is refused all the same
        self.refused: list[TintypeError] = []
        # the lines that asked the data for numbers
        self._made_at: dict[Symbol, Location | None] = {}
        # quotients that kernels compute and not the program: Python refuses to divide by zero, a kernel does not
        self.kernel_quotients: set[Expr] = set()
        self.facts = Facts()
        # The same symbols, every size taken as 2 or more.
        self._general = Facts()
        self.follows_hints = False
        self.asks_nothing = False
        # whether what is known holds for the example; not in a branch that the example does not take
        self.hints_hold = True
        self.before_plain = before_plain
        # what an expression over numbers from data is for the example, where somebody has its data
        self.by_example: Callable[[Expr, Location | None], Any] | None = None
        # whether what is asked now may be denied, whatever the data: what follows holds in either case
        self.may_deny: Callable[[], bool] | None = None
        # what a library asks next, of which "no" is right in every case
        self.denied_next: Expr | None = None
        # whether a library has just been told, for sizes in general, that a tensor has elements
        self.said_full = False
        # whether the program that has these symbols is running: then it may look at the text of a number
        self.has_running_program = False
        self._next_number: dict[str, int] = {}
        self._finished = False

    # -- one program, one environment

    def finish(self) -> None:
        """Say that the program is there: its facts are its contract now, and nothing may be added to them."""
        self._finished = True
        self.assumptions.clear()  # whoever looks at layouts now is not the program

    def copy(self) -> tuple[Environment, Translation]:
        """An environment that knows the same and can learn more, and the way of expressions into it."""
        new = Environment(defer_requirements=self.defer_requirements)
        replacements = {
            symbol: new._new_symbol(symbol.kind, name, symbol.hint, symbol.declared, symbol.source)
            for name, symbol in self.symbols.items()
        }
        translation = Translation(replacements)
        new.facts = self.facts.translated(translation)
        new.guards = [replace(guard, condition=translation(guard.condition)) for guard in self.guards]
        new.assertions = [replace(found, condition=translation(found.condition)) for found in self.assertions]
        new.specializations = [
            replace(found, expression=translation(found.expression)) for found in self.specializations
        ]
        new._next_number = dict(self._next_number)
        new.names = dict(self.names)
        return new, translation

    # -- symbols

    def backed(
        self,
        hint: int,
        *,
        name: str | None = None,
        source: object = None,
        lower: int | None = 0,
        upper: int | None = None,
        general: int = 2,
    ) -> Symbol:
        """A new symbol for an input size that is ``hint`` in the example, or an integer (``lower`` is None).

        From ``general`` on, sizes that it stands for are neither 0 nor 1."""
        declared = Range(-INFINITY if lower is None else lower, INFINITY if upper is None else upper)
        if hint not in declared:
            raise ValueError(f"the example size {hint} is outside the declared range {declared}")
        symbol = self._new_symbol("int", name or self._next_name("s"), hint, declared, source)
        if symbol in self._general.bounds:
            self._general.bounds[symbol] = Range(general, INFINITY)
        return symbol

    def unbacked_int(self, *, lower: int | None = None, upper: int | None = None, source: object = None) -> Symbol:
        """A new symbol for an integer that only the data decide."""
        declared = Range(-INFINITY if lower is None else lower, INFINITY if upper is None else upper)
        return self._new_unbacked("int", "u", declared, source)

    def unbacked_float(self, *, source: object = None) -> Symbol:
        """A new symbol for a float that only the data decide."""
        return self._new_unbacked("float", "zuf", EVERYTHING, source)

    def unbacked_bool(self, *, source: object = None) -> Symbol:
        """A new symbol for a truth value that only the data decide."""
        return self._new_unbacked("bool", "ub", Range(0, 1), source)

    def _new_unbacked(self, kind: Kind, prefix: str, declared: Range, source: object) -> Symbol:
        symbol = self._new_symbol(kind, self._next_name(prefix), None, declared, source)
        self._made_at[symbol] = user_location()
        return symbol

    @property
    def has_unbacked(self) -> bool:
        """Whether there are numbers that only the data decide."""
        return bool(self._made_at)

    def declare(self, name: str, kind: Kind, hint: int | None, declared: Range) -> Symbol:
        """A symbol with everything given: for an environment that is put together again from a file."""
        return self._new_symbol(kind, name, hint, declared, None)

    def _next_name(self, prefix: str) -> str:
        while True:
            number = self._next_number.get(prefix, 0)
            self._next_number[prefix] = number + 1
            if f"{prefix}{number}" not in self.symbols:
                return f"{prefix}{number}"

    def _new_symbol(self, kind: Any, name: str, hint: int | None, declared: Range, source: object) -> Symbol:
        if name in self.symbols:
            raise ValueError(f"the environment has a symbol {name!r} already")
        assert not self._finished, "a program that is there gets no further symbols"
        symbol = Symbol(self, kind, name, hint=hint, declared=declared, source=source)
        self.symbols[name] = symbol
        if declared.lower >= 0 and declared.upper >= 2:
            self._general.bounds[symbol] = Range(2, INFINITY)
        return symbol

    # -- what is known

    def known(self, condition: Condition) -> bool | None:
        """Whether the condition holds or fails in every case; None when that is not certain."""
        if isinstance(condition, bool):
            return condition
        return decide(condition, self.facts)

    def hint(self, expression: Any) -> Any:
        """The value in the example; None when unbacked symbols decide it."""
        if not isinstance(expression, Expr):
            return expression
        found = expression._hint
        if found is UNSET:
            found = None
            if not expression.has_unbacked:
                found = self._value_in_example(expression)
            expression._hint = found
        if found is None and self.facts.replacements:
            replaced = self.facts.replace(expression)
            if replaced is not expression:
                return self.hint(replaced)
        return found

    def _value_in_example(self, expression: Expr) -> Any:
        try:
            return evaluate(expression, {part: part.hint for part in expression.symbols})
        except ZeroDivisionError:  # it has no value there; a kernel that compares strides asks all the same
            return None

    def range(self, expression: Any) -> Range:
        """The interval in which the expression lies."""
        return self.facts.range(self.facts.replace(expression))

    def simplify(self, expression: Any) -> Any:
        """The expression with known equalities applied and what is certain worked out."""
        if type(expression) is int:
            return expression
        return self.facts.reduce(expression)

    @property
    def replacements(self) -> Mapping[Symbol, Size]:
        """Symbols that are known to equal an expression over others."""
        return MappingProxyType(self.facts.replacements)

    @property
    def ranges(self) -> dict[Symbol, Range]:
        """The range of every symbol, in order of creation."""
        return {symbol: self.range(symbol) for symbol in self.symbols.values()}

    @property
    def congruences(self) -> Mapping[Symbol, Congruence]:
        """Symbols that are known modulo something."""
        return MappingProxyType(self.facts.congruences)

    @property
    def version(self) -> int:
        """Grows with every fact; answers stay valid while it stays the same."""
        return self.facts.version

    # -- deciding

    def guard(self, condition: Condition, *, location: Location | None = None) -> bool:
        """Which way the program goes; recorded as a guard where the example had to tell."""
        answer = self.known(condition)
        if answer is not None:
            return answer
        assert isinstance(condition, Expr)
        hint = self.hint(condition)
        if hint is None:
            needed = needed_answer()
            if needed is None:
                if self.may_deny is not None and self.may_deny():
                    return False
                return self._answered_by_example(condition, location or user_location())
            self.require(condition if needed.answer else not_(condition), needed.message, location=location)
            return needed.answer
        self._decide(condition if hint else not_(condition), location)
        return bool(hint)

    def guard_or(self, condition: Condition, default: bool) -> bool:
        """For an operator whose ``default`` path is right in every case.

        Where nothing is certain, the default is taken, with no guard.  Only when
        the example goes the other way is that recorded and followed; but not for
        questions whether a size is 0 or 1, which would tie the program to an
        example that happened to have such a size.
        """
        answer = self.known(condition)
        if answer is not None:
            return answer
        assert isinstance(condition, Expr)
        hint = self.hint(condition)
        if hint is None or hint == default:
            return default
        if self.asks_nothing or (not self.follows_hints and self.general_answer(condition) is not None):
            return default
        self._decide(condition if hint else not_(condition), None)
        return bool(hint)

    def general_answer(self, condition: Condition) -> bool | None:
        """The answer for all sizes but 0 and 1; None when it depends on more than that."""
        return decide(self.facts.replace(condition), self._general)

    def holds_from_two(self, condition: Condition) -> bool:
        """Whether a condition holds for all sizes but 0 and 1, whatever the program decided about them."""
        return decide(condition, self._general) is True

    @contextmanager
    def following_hints(self) -> Iterator[None]:
        """Within it ``guard_or`` follows the example in everything, sizes 0 and 1 included.

        For a second try of an operator that only works the example's way, such
        as broadcasting a size that is 1.
        """
        before, self.follows_hints = self.follows_hints, True
        try:
            yield
        finally:
            self.follows_hints = before

    @contextmanager
    def unguarded(self) -> Iterator[None]:
        """Within it the questions of library operators are answered by what is certain, and nothing is learned.

        For what nobody can observe, such as the memory of a tensor that only stands for another.
        """
        before, self.asks_nothing = self.asks_nothing, True
        try:
            yield
        finally:
            self.asks_nothing = before

    @contextmanager
    def branch(self) -> Iterator[None]:
        """Within it what is learned, guarded and required belongs to one branch of the program; afterwards it is
        forgotten. What the branch must assert for itself is asked for before (``conditions_of_branch``)."""
        outer = self.facts, self.guards, self.assertions, self.specializations, self.failures
        held, self.hints_hold = self.hints_hold, False
        presumed, self.presumptions = self.presumptions, [*self.presumptions]
        self.facts, self.guards, self.assertions, self.specializations = self.facts.copy(), [], [], []
        self.failures = []
        try:
            yield
        finally:
            inner = self.facts
            self.hints_hold, self.presumptions = held, presumed
            self.facts, self.guards, self.assertions, self.specializations, self.failures = outer
            # answers that were given inside must not look valid outside
            self.facts.version = inner.version + 1

    def mark(self) -> Mark:
        """The state to which :meth:`take_back` returns."""
        lists = (self.symbols, self.guards, self.assertions, self.specializations, self.fixed_inside)
        counts = tuple(map(len, lists))
        return Mark(self.facts.copy(), counts)

    def has_learned(self, mark: Mark) -> bool:
        """Whether a guard or an assertion was added since."""
        return (len(self.guards), len(self.assertions)) != mark.counts[1:3]

    def take_back(self, mark: Mark) -> None:
        """Forget the facts and symbols that were added since; no expression over such a symbol may be left."""
        version = self.facts.version
        self.facts = mark.facts
        self.facts.version = version + 1  # answers that were given meanwhile must not look valid
        symbols, guards, assertions, specializations, fixed = mark.counts
        for name in list(self.symbols)[symbols:]:
            del self.symbols[name]
        del self.guards[guards:], self.assertions[assertions:], self.specializations[specializations:]
        del self.fixed_inside[fixed:]

    def conditions_of_branch(self) -> list[tuple[Expr, str]]:
        """What the branch that is being recorded rests on: its guards and assertions."""
        guards = [
            (guard.condition, f"Runtime assertion failed for expression {guard.condition}") for guard in self.guards
        ]
        return [*guards, *((assertion.condition, assertion.message) for assertion in self.assertions)]

    def require(self, condition: Condition, message: str, *, location: Location | None = None) -> None:
        """The program can't go on unless the condition holds."""
        if not self.expect(condition, message, location=location):
            raise RequirementError(message, condition=condition, location=location or user_location())

    def expect(self, condition: Condition, message: str | None = None, *, location: Location | None = None) -> bool:
        """Like ``require``, but leaves the error to the caller: False says that it does not hold."""
        answer = self.known(condition)
        if answer is not None:
            return answer
        hint = self.hint(condition)
        assert isinstance(condition, Expr)
        if hint is False:
            self.note_failure(not_(condition), location=location)
            return False
        if hint is True and not self.defer_requirements:
            self._record_guard(condition, location, message)
            return True
        location = location or user_location()
        message = message or f"Runtime assertion failed for expression {condition}"
        self._learn(condition, message, location)
        self.assertions.append(Assertion(condition, message, location))
        return True

    def presume(self, condition: Condition, message: str) -> None:
        """Require what eager mode does not need of a size that only the data decide, so that there is one program: of
        the answers that it may get, size 1 would be another program. What the program fails on afterwards may be
        due to that (``presumptions``)."""
        before = len(self.assertions)
        self.require(condition, message)
        self.presumptions += self.assertions[before:]

    def note_failure(self, condition: Condition, *, location: Location | None = None) -> None:
        """Something failed because of a condition that holds for the example. That ends the program, unless it
        expects the failure (``try``) and goes on: then it rests on the condition as on any it branches on."""
        if isinstance(condition, Expr):
            self.failures.append(Guard(condition, location or user_location()))

    def assume(self, condition: Expr) -> bool:
        """What holds for the example, where only the layout of a result depends on it."""
        hint = self.hint(condition)
        if hint is None:
            return False
        assumed = condition if hint else not_(condition)
        if isinstance(assumed, Expr) and not self.asks_nothing:
            self.assumptions.append(Guard(assumed, user_location()))
        return bool(hint)

    def settle_assumptions(self) -> None:
        """The program looks at a layout: now it rests on what layouts were worked out from."""
        assumptions, self.assumptions = self.assumptions, []
        for assumption in assumptions:
            if self.known(assumption.condition) is None:
                self._record_guard(assumption.condition, assumption.location)

    def settle_failures(self) -> None:
        """The program, or one branch of it, has come to its end: what it failed on was expected."""
        failures, self.failures = self.failures, []
        for failure in failures:
            if self.known(failure.condition) is None:
                self._record_guard(failure.condition, failure.location)

    def specialize(self, expression: Any, *, location: Location | None = None) -> Any:
        """The one value of an expression that the program needs as a number."""
        reduced = self.simplify(expression)
        if not isinstance(reduced, Expr):
            return reduced
        hint = self.hint(expression)
        location = location or user_location()
        if hint is None:
            return self._answered_by_example(reduced, location)
        if hint != hint:  # nan, which no condition on the number itself can ask for
            for symbol in reduced.symbols:
                self.specialize(symbol, location=location)
            return hint
        condition = eq(reduced, hint)
        before = len(self.specializations)
        if isinstance(condition, Expr):
            self._decide(condition, location)
        if len(self.specializations) == before:
            self.specializations.append(Specialization(reduced, hint, location))
        return hint

    # -- recording

    def _answered_by_example(self, asked: Expr, location: Location | None) -> Any:
        """What only the data can tell: refused, unless somebody has the data of the example. Then it is asserted."""
        if self.by_example is None:
            raise self._data_dependent(asked, location)
        answer = self.by_example(asked, location)
        held = (asked if answer else not_(asked)) if asked.kind == "bool" else eq(asked, answer)
        self.require(held, f"a draft rests on the example, for which {held} held", location=location)
        return answer

    def _decide(self, condition: Condition, location: Location | None) -> None:
        """A guard for what the program would do otherwise where the condition does not hold."""
        self._record_guard(condition, location)
        guard = self.guards[-1]
        if not self.hints_hold and guard.condition.operation == "eq":
            self.fixed_inside.append(guard)

    def _record_guard(self, condition: Condition, location: Location | None, message: str | None = None) -> None:
        assert isinstance(condition, Expr)
        location = location or user_location()
        self._learn(condition, message or str(condition), location)
        self.guards.append(Guard(condition, location, message))

    def _learn(self, condition: Expr, message: str, location: Location | None) -> None:
        if self._finished:
            raise FinishedProgramError(condition, location)
        before = len(self.facts.fixed)
        try:
            self.facts.learn(condition)
        except Contradiction:
            raise RequirementError(message, condition=condition, location=location) from None
        for symbol in self.facts.fixed[before:]:
            value = self.replacements[symbol]
            if symbol.hint is not None and type(value) is int:
                self.specializations.append(Specialization(symbol, value, location))

    def made_at(self, symbol: Symbol) -> Location | None:
        """The line of the program that a number comes from which it reads off its data."""
        return self._made_at.get(symbol)

    def _data_dependent(self, condition: Expr, location: Location | None) -> DataDependentError:
        shown = self.facts.replace(condition)
        unknown = sorted((part for part in condition.symbols if part.hint is None), key=str)
        names = ", ".join(f"{part}{_line_text(self._made_at.get(part), location)}" for part in unknown)
        what = "whether it holds" if condition.kind == "bool" else "its value"
        if isinstance(condition, Symbol) and condition.kind == "bool":
            names = f"the data of a tensor, which decide it{_line_text(self._made_at.get(condition), location)}"
        error = DataDependentError(
            f"Could not guard on data-dependent expression {shown}: {what} is not known while the program is "
            f"captured, because of {names}",
            condition=condition,
            location=location,
            remedy=_remedy(condition, location),
        )
        self.refused.append(error)
        return error


_EXTREMES = re.compile(r"\b(min|max)\(")
_MATHEMATICS = re.compile(r"\bmath\.(\w+)\(")


def _remedy(condition: Expr, location: Location | None) -> str:
    if condition.kind != "bool":
        named = [] if location is None else sorted(set(_MATHEMATICS.findall(location.source_line())))
        if named:
            return (
                f"{' and '.join(f'math.{name}()' for name in named)} would need the number itself: compute with "
                "tensors there, as torch.sqrt, torch.exp and torch.floor do, and take item() of the result"
            )
        return (
            "the program needs the number itself there, as an index of a list, a key or a text: choose among tensors "
            "instead (torch.tensor(values)[n], torch.where), or make the number an input of the model"
        )
    names = sorted(set(_EXTREMES.findall(location.source_line()))) if location is not None else []
    written = "".join(f"write {name}() of such numbers as torch.sym_{name}(a, b), " for name in names)
    return f"{written}promise it with torch._check, or compute both ways and choose with torch.where or tintype.cond"


def _line_text(location: Location | None, asked_at: Location | None) -> str:
    """Where a number comes from, for a message that names it and the line that asked for it."""
    if location is None:
        return ""
    if location == asked_at:
        return " (from this line)"
    line = location.source_line()
    return f" (from {location}{f': {line}' if line else ''})"
