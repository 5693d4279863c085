"""How high the stack is before every operation: where a loop over an iterator is left, the iterator has gone."""

from __future__ import annotations

import dis
from types import CodeType

from tintype.interpret.decode import decode, exception_table

_GOES_NOWHERE = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
_ONLY_JUMPS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


def stack_depths(code: CodeType) -> list[int | None]:
    """By the index of operations; None for one that nothing leads to.

    >>> def last(rows):
    ...     for row in rows:
    ...         pass
    ...     return row
    >>> depths = stack_depths(last.__code__)
    >>> operations = [name for name, _ in decode(last.__code__).operations]
    >>> depths[operations.index("for_iterator")]
    1
    """
    decoded = decode(code)
    at = _depths_at(code)
    return [at.get(offset) for offset in decoded.offsets]


def _depths_at(code: CodeType) -> dict[int, int]:
    """The same by the offset of instructions."""
    instructions = list(dis.get_instructions(code))
    position = {instruction.offset: index for index, instruction in enumerate(instructions)}
    found: dict[int, int] = {}
    waiting = [(0, 0)]
    for _, _, handler, depth, pushes_index in exception_table(code):
        waiting.append((handler, depth + 1 + pushes_index))
    while waiting:
        offset, depth = waiting.pop()
        if offset in found or offset not in position:
            continue
        found[offset] = depth
        index = position[offset]
        instruction = instructions[index]
        if instruction.opcode in _JUMPS:
            waiting.append((instruction.argval, depth + _effect(instruction, jump=True)))
        if instruction.opname in _GOES_NOWHERE or instruction.opname in _ONLY_JUMPS:
            continue
        if index + 1 < len(instructions):
            waiting.append((instructions[index + 1].offset, depth + _effect(instruction, jump=False)))
    return found


def _effect(instruction: dis.Instruction, *, jump: bool) -> int:
    """How much higher the stack is after an instruction."""
    if instruction.opname == "RETURN_GENERATOR":  # goes on with what is sent, which `dis` counts from 3.13 on
        return 1
    argument = instruction.arg if instruction.opcode >= dis.HAVE_ARGUMENT else None
    if "PRECALL" in dis.opmap:  # is said to take the arguments that the call takes
        if instruction.opname == "PRECALL":
            return 0
        if instruction.opname == "CALL":
            return -(argument or 0) - 1
    return dis.stack_effect(instruction.opcode, argument, jump=jump)
