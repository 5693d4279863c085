"""``min`` and ``max`` of numbers that vary: an expression, where the answer is not the same for all of them.

Python's own compare, and a comparison decides: with an example of five rows, ``x[: min(x.shape[0], 4)]`` would serve
none of three. Numbers that only the data decide could not be compared at all.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from types import GeneratorType
from typing import Any

import torch

from tintype.errors import DataDependentError
from tintype.symbolic import Expr, extrema, relations
from tintype.symbolic.bridge import from_torch, sym_ite, to_torch
from tintype.symbolic.location import user_location
from tintype.symbolic.raising import needed_answer

_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_WHOLE = (int, torch.SymInt)
_FLOATS = (float, torch.SymFloat)


def extreme_of(builtin: Any, numbers: Sequence[Any]) -> Any:
    """The number that ``min`` or ``max`` gives; NotImplemented where that is Python's own business: one of them is no
    number, none varies, or some are whole and some are not, so that the type of the answer would vary."""
    kinds = set(map(type, numbers))
    if kinds.isdisjoint(_SYMBOLIC) or not kinds.issubset((*_WHOLE, *_FLOATS)) or needed_answer() is not None:
        return NotImplemented
    whole, best = _WAYS[builtin]
    if kinds.issubset(_WHOLE):
        return reduce(whole, numbers)
    if kinds.issubset(_FLOATS):
        return reduce(best, numbers)
    if is_mixed(numbers):
        raise _mixed(builtin.__name__)
    return NotImplemented


def is_mixed(numbers: Sequence[Any]) -> bool:
    """Whether some of the numbers are whole and some are not, and only the data decide which one is the smallest."""
    kinds = set(map(type, numbers))
    if not kinds.issubset((*_WHOLE, *_FLOATS)) or kinds.issubset(_WHOLE) or kinds.issubset(_FLOATS):
        return False
    return any(map(_is_up_to_the_data, numbers))


def _is_up_to_the_data(number: Any) -> bool:
    value = from_torch(number)
    return isinstance(value, Expr) and value.environment.hint(value) is None


def _mixed(name: str) -> DataDependentError:
    return DataDependentError(
        f"{name}() is given numbers of different types, and only the data decide which one it gives: the type of the "
        "result is not known while the program is captured",
        location=user_location(),
        remedy=f"give {name}() numbers of one type, all of them floats (3.0 for 3) or all whole numbers (int(n))",
    )


def _of_whole(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def chosen(one: Any, other: Any) -> Any:
        left, right = from_torch(one), from_torch(other)
        condition = relations.le(left, right)
        first = condition.environment.known(condition) if isinstance(condition, Expr) else condition
        if first is None:
            return to_torch(operation(left, right))
        return one if first is (operation is extrema.minimum) else other

    return chosen


def _of_floats(is_better: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def chosen(best: Any, other: Any) -> Any:
        # Python keeps the first of two unless the other is better, which decides between 0.0 and -0.0 and about nan
        condition = from_torch(is_better(other, best))
        known = condition.environment.known(condition) if isinstance(condition, Expr) else condition
        if known is None:
            return sym_ite(to_torch(condition), other, best)
        return other if known else best

    return chosen


_WAYS: dict[Any, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    builtins.min: (_of_whole(extrema.minimum), _of_floats(operator.lt)),
    builtins.max: (_of_whole(extrema.maximum), _of_floats(operator.gt)),
}


def _instead_of(builtin: Any) -> Callable[..., Any]:
    def extreme(*arguments: Any, **options: Any) -> Any:
        numbers: Any = arguments
        if len(arguments) == 1:
            numbers = list(arguments[0]) if type(arguments[0]) is GeneratorType else arguments[0]
            arguments = (numbers,)
        if not options and isinstance(numbers, (list, tuple)):
            found = extreme_of(builtin, numbers)
            if found is not NotImplemented:
                return found
        return builtin(*arguments, **options)

    return extreme


smallest_of = _instead_of(builtins.min)
largest_of = _instead_of(builtins.max)
