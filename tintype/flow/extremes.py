"""``min`` and ``max`` in programs that are interpreted: what they give is as in others."""

from __future__ import annotations

import builtins
from types import GeneratorType
from typing import Any

import torch

from tintype.flow.in_python import begun
from tintype.interpret import Frame
from tintype.interpret.policy import Caller, Outcome
from tintype.trace.extremes import extreme_of, is_mixed, largest_of, smallest_of


def _caller(builtin: Any) -> Caller:
    def call(frame: Frame, function: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
        if len(arguments) == 1 and type(arguments[0]) is GeneratorType:  # all of its elements are looked at
            frame.machine.call_native(frame, list, arguments, None)
            arguments = [frame.stack.pop()]
        numbers = arguments[0] if len(arguments) == 1 else arguments
        found = NotImplemented
        if not keywords and isinstance(numbers, (list, tuple)):
            if is_mixed(numbers) or (len(numbers) > 1 and any(map(_is_data, numbers))):
                return begun(frame, _TEXTS[builtin], [list(numbers)])
            found = extreme_of(builtin, numbers)
        if found is NotImplemented:
            return frame.machine.call_native(frame, builtin, arguments, keywords)
        frame.stack.append(found)
        return None

    return call


def _is_data(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1


def _text_of(sign: str, name: str) -> str:
    """What ``min`` or ``max`` does with two values and more: the first of those than which none is better."""
    return (
        f"def found(values):\n {name} = values[0]\n for value in values[1:]:\n"
        f"  if value {sign} {name}: {name} = value\n return {name}"
    )


_TEXTS = {builtins.min: _text_of("<", "smallest"), builtins.max: _text_of(">", "largest")}
EXTREMES: dict[Any, Caller] = {
    builtins.min: _caller(builtins.min),
    builtins.max: _caller(builtins.max),
    smallest_of: _caller(builtins.min),
    largest_of: _caller(builtins.max),
}
