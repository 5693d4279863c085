"""Answers that make no difference to the branch that they are asked for.

``if torch.is_grad_enabled() and self.gradient_checkpointing:`` asks for the gradient mode, but where the flag is off,
the branch goes the same way in every mode. What follows a question is looked at as far as it does nothing but read
plain attributes of the function's own variables and jump; if both answers come to the same place, nobody learns which
it was.
"""

from __future__ import annotations

import inspect
from types import FrameType
from typing import Any

from tintype.interpret.decode import decode, local_names
from tintype.interpret.errors import NotInterpretedError

_JUMPS = {"pop_jump_if_false": False, "pop_jump_if_true": True}
_PLAIN = (bool, int, float, str, type(None))
_NOTHING = object()


def makes_no_difference(frame: FrameType) -> bool:
    """Whether the code of a frame goes on in the same way whether the call that it is at gives True or False."""
    try:
        decoded = decode(frame.f_code)
    except NotInterpretedError:  # async code
        return False
    if frame.f_lasti not in decoded.offsets:
        return False
    # of several operations at one offset the call is the last one
    call = len(decoded.offsets) - 1 - decoded.offsets[::-1].index(frame.f_lasti)
    if call + 1 >= len(decoded.operations) or decoded.operations[call + 1][0] not in _JUMPS:
        return False
    ends = [_end(decoded.operations, call + 1, answer, frame) for answer in (False, True)]
    return ends[0] == ends[1]


def _end(operations: list[tuple[str, Any]], jump: int, value: Any, frame: FrameType) -> int:
    """Where a chain of jumps ends that begins with a value."""
    while True:
        handler, target = operations[jump]
        index = target if bool(value) is _JUMPS[handler] else jump + 1
        if index <= jump:
            return index  # a loop
        value, following = _plain_value(operations, index, frame)
        if value is _NOTHING or operations[following][0] not in _JUMPS:
            return index
        jump = following


def _plain_value(operations: list[tuple[str, Any]], index: int, frame: FrameType) -> tuple[Any, int]:
    """The value of a variable, or of attributes that nobody computes, and the index of what follows."""
    handler, slot = operations[index]
    if handler != "load_local":
        return _NOTHING, index
    value = frame.f_locals.get(local_names(frame.f_code)[slot], _NOTHING)
    index += 1
    while operations[index][0] == "load_attribute":
        kind: Any = type(value)
        if kind.__getattribute__ is not object.__getattribute__:
            return _NOTHING, index
        value = inspect.getattr_static(value, operations[index][1], _NOTHING)
        index += 1
    return (value if type(value) in _PLAIN else _NOTHING), index
