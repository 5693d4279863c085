"""The words in which a version's table says what its opcodes mean.

A table maps the name of an opcode to a *decoder*: a function of the code object, the argument and the offset after
the instruction, which gives the operations that do the opcode's work. An operation is the name of a handler and an
argument that is ready for it: a constant, a name, the offset of a jump's target as :class:`Target`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

Operation = tuple[str, Any]
Decoder = Callable[[CodeType, int, int], "tuple[Operation, ...]"]


class Target(NamedTuple):
    """Where a jump goes, as an offset in bytes; becomes the index of an operation when all of them are known."""

    offset: int


class Version(NamedTuple):
    """All that differs from one version of Python to the next."""

    name: str
    opcodes: dict[str, Decoder]
    # what never stands in the code of a function: parts of other instructions, the interpreter's own, instrumentation
    internal: frozenset[str]
    # "ASYNC_OP": what the user wrote; a code object with one of these is refused by that name
    refused: dict[str, str]


def dropped(code: CodeType, argument: int, after: int) -> tuple[Operation, ...]:
    """An opcode without a meaning here."""
    return ()


def plain(*handlers: str) -> Decoder:
    """Handlers without an argument, one after the other."""
    operations = tuple((handler, None) for handler in handlers)
    return lambda code, argument, after: operations


def number(handler: str) -> Decoder:
    """The argument as it is."""
    return lambda code, argument, after: ((handler, argument),)


def constant(handler: str) -> Decoder:
    return lambda code, argument, after: ((handler, code.co_consts[argument]),)


def name(handler: str) -> Decoder:
    return lambda code, argument, after: ((handler, code.co_names[argument]),)


def name_or(handler: str, with_flag: str) -> Decoder:
    """A name above a flag that asks for another handler."""
    return lambda code, argument, after: ((with_flag if argument & 1 else handler, code.co_names[argument >> 1]),)


def forward(handler: str, skipping: int = 0) -> Decoder:
    """A jump forward, over `skipping` instructions more than it says."""
    return lambda code, argument, after: ((handler, Target(after + 2 * (argument + skipping))),)


def backward(handler: str) -> Decoder:
    return lambda code, argument, after: ((handler, Target(after - 2 * argument)),)


def two_locals(first: str, second: str) -> Decoder:
    """Two opcodes on locals in one."""
    return lambda code, argument, after: ((first, argument >> 4), (second, argument & 15))


def native(opcode: str, operands: int) -> Decoder:
    """An opcode that is done by the interpreter in C: operands off the stack, one result onto it."""
    return lambda code, argument, after: (("native", (opcode, argument, operands)),)
