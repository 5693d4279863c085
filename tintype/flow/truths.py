"""``any`` and ``all`` of values of which only a run can tell whether they are true."""

from __future__ import annotations

import ast
import builtins
import functools
import operator
from collections.abc import Callable
from types import CodeType, FunctionType, GeneratorType
from typing import Any

import torch

from tintype.interpret import Frame
from tintype.interpret.policy import Caller, Outcome

# values whose truth asks no code of the user's, so that it makes no difference how many of them are asked
_PLAIN = (bool, int, float, type(None), torch.SymBool, torch.SymInt, torch.SymFloat, torch.Tensor)


def _caller(stops_at: bool, combine: Callable[[Any, Any], Any]) -> Caller:
    def call(frame: Frame, builtin: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
        machine = frame.machine
        values: Any = arguments[0] if len(arguments) == 1 and not keywords else None
        if type(values) is GeneratorType:  # what it computes is computed for as many elements as are looked at
            code = _code_of(stops_at, frame.code.co_filename, frame.line, frame.code.co_name)
            return machine.begin(frame, FunctionType(code, frame.globals), [values])
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


@functools.lru_cache(maxsize=1024)
def _code_of(stops_at: bool, filename: str, line: int, name: str) -> CodeType:
    """What ``any`` or ``all`` does, in Python, as if it stood where it is called."""
    test = "value" if stops_at else "not value"
    tree = ast.parse(
        f"def found(values):\n for value in values:\n  if {test}: return {stops_at}\n return {not stops_at}"
    )
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            place: Any = node
            place.lineno = place.end_lineno = line
            place.col_offset = place.end_col_offset = 0
    module = compile(tree, filename, "exec", dont_inherit=True)
    code = next(part for part in module.co_consts if isinstance(part, CodeType))
    return code.replace(co_name=name)


TRUTHS: dict[Any, Caller] = {
    builtins.any: _caller(True, operator.or_),
    builtins.all: _caller(False, operator.and_),
}
