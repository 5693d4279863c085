"""Code objects as operations: what the machine runs, and what is asked about it.

Decoding is done once for a code object and kept as long as the object lives. Operations name their handlers; a
machine binds the names to functions (``Decoded.bound``), since a policy with hooks has other handlers than one
without.
"""

from __future__ import annotations

import inspect
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from opcode import opname
from types import CodeType
from typing import Any, NamedTuple

from tintype.interpret.errors import not_interpreted
from tintype.interpret.versions import RUNNING, Target, Version

Bound = list[tuple[Callable[..., Any], Any]]

ASYNC_FLAGS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE

# RESUME is told where it stands; this: behind the yield of a `yield from`
AFTER_YIELD_FROM = 2


class Protected(NamedTuple):
    """A range of operations whose exceptions go to `handler`, with the stack cut to `depth`."""

    start: int
    end: int
    handler: int
    depth: int
    pushes_index: bool


class Decoded:
    """The operations of a code object.

    It does not hold on to the code object, whose life ends its own.
    """

    __slots__ = (
        "_bound",
        "_lines",
        "delegating",
        "flow",
        "names",
        "offsets",
        "operations",
        "protected",
        "starts",
        "template",
    )

    def __init__(self, code: CodeType, version: Version) -> None:
        self.operations: list[tuple[str, Any]] = []
        self.offsets: list[int] = []  # of each operation, in bytes of co_code
        self.names = local_names(code)
        self.delegating: set[int] = set()  # the yields that stand for `yield from`
        self._bound: dict[int, Bound] = {}
        self._lines: list[int] | None = None
        self.flow: Any = None  # see flow.py, which fills it in when it is asked
        self.template: CodeType | None = None  # see tracebacks.py
        self.read(code, version)

    def read(self, code: CodeType, version: Version) -> None:
        if code.co_flags & ASYNC_FLAGS:
            raise not_interpreted("async def", code)
        index_at: dict[int, int] = {}
        keyword_names: tuple[str, ...] = ()
        for start, offset, after, opcode, argument in units(code.co_code):
            index_at[start] = len(self.operations)
            refused = version.refused.get(opcode)
            if refused is not None:
                raise not_interpreted(refused, code)
            if opcode == "RESUME" and argument & 3 == AFTER_YIELD_FROM:
                self.delegating.add(len(self.operations) - 1)
            for handler, value in version.opcodes[opcode](code, argument, after):
                if handler == "keyword_names":  # belongs to the call that follows
                    keyword_names = code.co_consts[value]
                    continue
                if handler == "refused":
                    raise not_interpreted(value, code)
                if keyword_names and handler == "call":
                    handler, value, keyword_names = "call_with_keywords", (value, keyword_names), ()
                self.operations.append((handler, value))
                self.offsets.append(offset)
        index_at[len(code.co_code)] = len(self.operations)
        for index, (handler, value) in enumerate(self.operations):
            if value.__class__ is Target:
                self.operations[index] = (handler, index_at[value.offset])
        self.protected = [
            Protected(index_at[start], index_at[end], index_at[handler], depth, lasti)
            for start, end, handler, depth, lasti in exception_table(code)
        ]
        self.starts = [entry.start for entry in self.protected]

    def handler_of(self, index: int) -> Protected | None:
        """Where an exception of the operation goes."""
        position = bisect_right(self.starts, index) - 1
        # ranges without operations of their own may share their start with the range that follows them
        while position >= 0:
            entry = self.protected[position]
            if index < entry.end:
                return entry
            if entry.start < entry.end:
                return None
            position -= 1
        return None

    def positions(self, code: CodeType) -> list[Any]:
        """Where in the source each operation comes from: lines and columns."""
        all_positions = list(code.co_positions())
        return [all_positions[offset // 2] for offset in self.offsets]

    def lines(self, code: CodeType) -> list[int]:
        """The line of each operation; the first line of the code for one that has none."""
        if self._lines is None:
            line_of: dict[int, int] = {}
            for start, end, line in code.co_lines():
                if line is not None:
                    line_of.update((offset, line) for offset in range(start, end, 2) if offset not in line_of)
            self._lines = [line_of.get(offset, code.co_firstlineno) for offset in self.offsets]
        return self._lines

    def bound(self, handlers: Mapping[str, Callable[..., Any]]) -> Bound:
        """The operations with functions in the place of names, kept for each table of handlers (none dies)."""
        found = self._bound.get(id(handlers))
        if found is None:
            found = [(handlers[name], value) for name, value in self.operations]
            self._bound[id(handlers)] = found
        return found


def line_at(code: CodeType, offset: int) -> int:
    """The line of the instruction at an offset; the first line of the code where it has none."""
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def local_names(code: CodeType) -> tuple[str, ...]:
    """The names of a frame's slots: locals, cells that are no locals, free variables."""
    variables = code.co_varnames
    return (*variables, *(cell for cell in code.co_cellvars if cell not in variables), *code.co_freevars)


def units(data: bytes) -> Iterator[tuple[int, int, int, str, int]]:
    """(where jumps to it go, offset, offset of what follows, name, argument) of every instruction."""
    position, extended, start = 0, 0, None
    while position < len(data):
        name, argument = opname[data[position]], data[position + 1] | extended
        if start is None:
            start = position
        offset = position
        position += 2
        if name == "EXTENDED_ARG":
            extended = argument << 8
            continue
        while position < len(data) and data[position] == 0:  # CACHE, room for the interpreter's own notes
            position += 2
        yield start, offset, position, name, argument
        extended, start = 0, None


def exception_table(code: CodeType) -> Iterator[tuple[int, int, int, int, bool]]:
    """(start, end, handler, depth, whether the place is pushed) of every entry, in bytes of co_code."""
    numbers = varints(code.co_exceptiontable)
    for start in numbers:
        length, handler, depth_and_flag = next(numbers), next(numbers), next(numbers)
        yield start * 2, (start + length) * 2, handler * 2, depth_and_flag >> 1, bool(depth_and_flag & 1)


def varints(data: bytes) -> Iterator[int]:
    """Numbers of six bits a byte, the most significant first; bit 6 says that more follows."""
    value = 0
    for byte in data:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0


_known: dict[int, tuple[weakref.ref[CodeType], Decoded]] = {}


def decode(code: CodeType) -> Decoded:
    """The operations of a code object of the Python that runs."""
    # By identity: codes that are equal can come from different files, and comparing them is slow.
    found = _known.get(id(code))
    if found is not None and found[0]() is code:
        return found[1]
    if RUNNING is None:
        raise not_interpreted("the bytecode of this Python", code)
    decoded = Decoded(code, RUNNING)
    key = id(code)
    _known[key] = (weakref.ref(code, lambda gone: _known.pop(key, None) and None), decoded)
    return decoded
