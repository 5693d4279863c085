"""``any`` and ``all`` of values of which only a run can tell whether they are true."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from types import GeneratorType
from typing import Any

import torch

from tintype.flow.in_python import begun
from tintype.interpret import Frame
from tintype.interpret.policy import Caller, Outcome

# values whose truth asks no code of the user's, so that it makes no difference how many of them are asked
_PLAIN = (bool, int, float, type(None), torch.SymBool, torch.SymInt, torch.SymFloat, torch.Tensor)


def _caller(stops_at: bool, combine: Callable[[Any, Any], Any]) -> Caller:
    def call(frame: Frame, builtin: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
        machine = frame.machine
        values: Any = arguments[0] if len(arguments) == 1 and not keywords else None
        if type(values) is GeneratorType:  # what it computes is computed for as many elements as are looked at
            return begun(frame, _text_of(stops_at), [values])
        if type(values) not in (list, tuple) or not all(isinstance(value, _PLAIN) for value in values):
            return machine.call_native(frame, builtin, arguments, keywords)
        policy: Any = machine.policy
        found: Any = not stops_at
        for value in values:
            truth = policy.on_truth(frame, value)
            if truth is stops_at:
                found = truth
                break
            if type(truth) is not bool:
                found = truth if type(found) is bool else combine(found, truth)
        frame.stack.append(found)
        return None

    return call


def _text_of(stops_at: bool) -> str:
    """What ``any`` or ``all`` does."""
    test = "value" if stops_at else "not value"
    return f"def found(values):\n for value in values:\n  if {test}: return {stops_at}\n return {not stops_at}"


TRUTHS: dict[Any, Caller] = {
    builtins.any: _caller(True, operator.or_),
    builtins.all: _caller(False, operator.and_),
}
