"""``min`` and ``max`` of numbers of which only a run can tell which is the smallest."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from types import GeneratorType
from typing import Any

import torch

from tintype.errors import DataDependentError
from tintype.flow.ends import location_of
from tintype.flow.merging import SYMBOLIC, is_decidable
from tintype.interpret import Frame
from tintype.interpret.policy import Caller, Outcome
from tintype.symbolic.bridge import sym_ite
from tintype.symbolic.raising import needed_answer

_WHOLE = (int, torch.SymInt)
_FLOATS = (float, torch.SymFloat)


def _caller(of_whole: Callable[[Any, Any], Any], is_better: Callable[[Any, Any], Any]) -> Caller:
    def choice(best: Any, other: Any) -> Any:
        # Python keeps the first of two unless the other is better, which decides between 0.0 and -0.0 and about nan
        condition = is_better(other, best)
        return (
            sym_ite(condition, other, best)
            if isinstance(condition, torch.SymBool)
            else (other if condition else best)
        )

    def call(frame: Frame, builtin: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
        if len(arguments) == 1 and type(arguments[0]) is GeneratorType:  # all of its elements are looked at
            frame.machine.call_native(frame, list, arguments, None)
            arguments = [frame.stack.pop()]
        numbers = _numbers(arguments)
        if keywords or numbers is None or needed_answer() is not None:
            return frame.machine.call_native(frame, builtin, arguments, keywords)
        if _all_of(_WHOLE, numbers):
            frame.stack.append(reduce(of_whole, numbers))
        elif _all_of(_FLOATS, numbers):
            frame.stack.append(reduce(choice, numbers))
        else:
            raise _mixed(frame, builtin.__name__)
        return None

    return call


def _numbers(arguments: list[Any]) -> Sequence[Any] | None:
    """What a call chooses from, if these are numbers and only a run can tell."""
    single = arguments[0] if len(arguments) == 1 else arguments
    if type(single) not in (list, tuple) or not all(isinstance(x, (*_WHOLE, *_FLOATS)) for x in single):
        return None
    return single if any(isinstance(x, SYMBOLIC) and not is_decidable(x) for x in single) else None


def _all_of(kinds: tuple[type, ...], numbers: Sequence[Any]) -> bool:
    return all(type(number) in kinds for number in numbers)


def _mixed(frame: Frame, name: str) -> DataDependentError:
    return DataDependentError(
        f"{name}() is given numbers of different types, and only the data decide which one it gives: the type of the "
        "result is not known while the program is captured",
        location=location_of(frame),
        remedy=f"give {name}() numbers of one type, all of them floats (3.0 for 3) or all whole numbers (int(n))",
    )


EXTREMES: dict[Any, Caller] = {
    builtins.min: _caller(torch.sym_min, operator.lt),
    builtins.max: _caller(torch.sym_max, operator.gt),
}
