"""Branches that do nothing but raise: ``if bad: raise ValueError(...)``, ``assert good``.

A program that asks about its data on such a branch needs one of the answers in order to go on. So it is captured with
that answer, and the captured program asserts it. Whether a branch is of that kind is read from the bytecode of the
function that asks.
"""

from __future__ import annotations

import dis
import functools
import os
from types import CodeType
from typing import NamedTuple

import torch

from tintype.errors import Location

from .catching import ANSWERS, is_caught, is_caught_by_callers
from .location import caller_of, program_caller, user_location
from .messages import raising_text

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# what stands between the code that asks a tensor or a number and the answer
_BETWEEN = tuple(
    _TORCH + os.path.join(*path)
    for path in (
        ("_ops.py",),
        ("_library", ""),
        ("__init__.py",),
        ("utils", "_python_dispatch.py"),
        ("fx", "experimental", "sym_node.py"),
    )
)
_MOST_INSTRUCTIONS = 80
_NOTHING = frozenset({"CACHE", "EXTENDED_ARG", "NOP"})
# exceptions that are answers, to whom only a run can tell
_ANSWERS = frozenset(kind.__name__ for kind in ANSWERS)
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


class Needed(NamedTuple):
    """The answer without which the program raises, and where."""

    answer: bool
    location: Location | None

    @property
    def message(self) -> str:
        """What a program says that got the other answer."""
        if self.location is None:
            return "the program raises on this data"
        line = raising_text(self.location.filename, self.location.line)
        return f"the program raises on this data at {self.location}" + (f": {line}" if line else "")


def needed_answer() -> Needed | None:
    """The answer that the code which asks for a truth value needs in order not to raise; None if it needs none, or
    if what it raises would be caught."""
    asking = program_caller(1)
    while asking is not None and asking.f_code.co_filename.startswith((_OWN, *_BETWEEN)):
        asking = caller_of(asking)
    if asking is None:
        return None
    found = _raising_branch(asking.f_code, asking.f_lasti)
    if found is None:
        return None
    answer, offset = found
    if is_caught(asking, offset) or is_caught_by_callers(asking):
        return None
    return Needed(answer, user_location())


@functools.lru_cache(maxsize=1024)
def _raising_branch(code: CodeType, offset: int) -> tuple[bool, int] | None:
    """The answer to the question asked at an offset that does not lead to a ``raise``, and the offset of that."""
    instructions = [step for step in dis.get_instructions(code) if step.opname not in _NOTHING]
    position = next((i for i, step in enumerate(instructions) if step.offset == offset), None)
    if position is None:
        return None
    answer = True  # what the jump goes by, if the question is answered with yes
    if instructions[position].opname == "TO_BOOL":
        position += 1
    if instructions[position].opname == "UNARY_NOT":
        answer = False
        position += 1
    if position < len(instructions) and instructions[position].opname == "TO_BOOL":
        position += 1
    if position >= len(instructions):
        return None
    jump = instructions[position]
    if not jump.opname.startswith("POP_JUMP") or not jump.opname.endswith(("IF_TRUE", "IF_FALSE")):
        return None
    jumps_if = jump.opname.endswith("IF_TRUE")
    there = next((i for i, step in enumerate(instructions) if step.offset == jump.argval), None)
    beyond, next_one = _raise_after(instructions, there), _raise_after(instructions, position + 1)
    if (beyond is None) == (next_one is None):
        return None
    if beyond is not None:  # so it must not jump
        return answer is not jumps_if, beyond
    assert next_one is not None
    return answer is jumps_if, next_one


def _raise_after(instructions: list[dis.Instruction], position: int | None) -> int | None:
    """The offset of a ``raise`` that everything from a position on leads to."""
    for step in instructions[position : position + _MOST_INSTRUCTIONS] if position is not None else ():
        if step.opname == "RAISE_VARARGS":
            return step.offset
        if step.opname == "STORE_FAST":  # the text of the error
            continue
        if step.argval in _ANSWERS:
            return None
        if step.opcode in _JUMPS or step.opname.startswith(("RETURN", "YIELD", "STORE", "DELETE", "SEND", "RERAISE")):
            return None
    return None
