"""``sum`` of what a generator expression gives, and of lists whose length varies: the loop that Python's own is.

The expression runs as a part of who sums, and adds in place of giving what it has: so its branches and loops may be
those that only the data decide.
"""

from __future__ import annotations

import builtins
from types import CellType, GeneratorType
from typing import Any

from tintype.flow.in_python import begun
from tintype.flow.references import has_unknown_holder
from tintype.flow.sequences import elements_of, varies
from tintype.interpret import Frame
from tintype.interpret.generators import frame_of
from tintype.interpret.policy import Caller, Outcome
from tintype.trace.recorder import active_recorder

_TEXT = "def found(values, total):\n for value in values:\n  total = total + value\n return total"


def _sum(frame: Frame, builtin: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
    is_given_away = bool(arguments) and not has_unknown_holder([arguments[0]], [arguments])
    given = [*arguments, *(keywords or {}).values()]
    if not arguments or len(given) > 2 or (keywords and keywords.keys() != {"start"}):
        return frame.machine.call_native(frame, builtin, arguments, keywords)
    values, total = given[0], given[1] if len(given) == 2 else 0
    if isinstance(total, (str, bytes, bytearray)):  # which it refuses
        return frame.machine.call_native(frame, builtin, arguments, keywords)
    inner = _expression_of(values) if type(values) is GeneratorType else None
    if inner is not None and (is_given_away or not _is_in_an_arm()):
        adding = _adding(frame, inner, total)
        values.close()  # a copy runs, and whoever else has it finds nothing in it
        return adding
    if varies(elements_of(values)):
        return begun(frame, _TEXT, [values, total])
    return frame.machine.call_native(frame, builtin, arguments, keywords)


def _is_in_an_arm() -> bool:
    """Whether another arm may go through the same generator."""
    recorder = active_recorder()
    return recorder is None or recorder.is_inside


def _expression_of(generator: Any) -> Frame | None:
    """The frame of a generator expression that has not begun."""
    frame = frame_of(generator)
    if frame is None or frame.code.co_name != "<genexpr>" or frame.decoded.operations[frame.pc][0] == "yield_value":
        return None
    return None if frame.decoded.delegating else frame


def _adding(frame: Frame, expression: Frame, total: Any) -> Frame:
    """The frame of a generator expression, as one that is called and returns the sum."""
    adding = expression.copy()
    adding.back, adding.depth, adding.is_entry = frame, frame.depth + 1, False
    adding.note = CellType(total)  # of the frame, so that nobody else has it
    frame.machine.policy.on_create(frame, adding.note)
    named = zip(adding.decoded.operations, adding.instructions, strict=True)
    adding.instructions = [_instead_of(name, *operation) for (name, _), operation in named]
    adding.stack.append(None)  # what is sent to it
    return adding


def _instead_of(name: str, handler: Any, argument: Any) -> tuple[Any, Any]:
    if name == "return_value":
        return _return_sum, handler
    return (_add, None) if name == "yield_value" else (handler, argument)


def _add(frame: Frame, _: None) -> None:
    cell, value = frame.note, frame.stack.pop()
    frame.machine.policy.on_write_cell(frame, cell, "sum", value)
    cell.cell_contents = cell.cell_contents + value
    frame.stack.append(None)


def _return_sum(frame: Frame, handler: Any) -> Outcome:
    frame.stack[-1] = frame.note.cell_contents
    return handler(frame, None)


SUMS: dict[Any, Caller] = {builtins.sum: _sum}
