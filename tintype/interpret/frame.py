"""A frame: all that a running function is, as plain data.

Frames can be copied, kept, and continued from the operation they stand at; nothing of a running function is anywhere
else.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from tintype.interpret.decode import line_at

if TYPE_CHECKING:
    from tintype.interpret.decode import Bound, Decoded
    from tintype.interpret.machine import Machine


class Mark:
    """A value that no program has."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


# A local without a value, and what stands where a call may have `self`. gc.get_objects() has no bare objects.
NULL: Any = object()
DISCARDED = Mark("discarded")  # the value of a frame that nobody waits for

# How a run ended.
RETURNED = Mark("returned")
YIELDED = Mark("yielded")
STOPPED = Mark("stopped")

# Where a frame stands whose function has returned.
LEFT = -2


class Frame:
    """One activation of a code object.

    ``pc`` is the operation that is being done, so a frame continues at ``pc + 1``; a fresh one has -1.
    """

    __slots__ = (
        "back",
        "builtins",
        "code",
        "decoded",
        "depth",
        "finish",
        "function",
        "globals",
        "handled",
        "instructions",
        "is_entry",
        "locals",
        "machine",
        "missing",
        "names",
        "note",
        "pc",
        "result",
        "stack",
    )

    def __init__(
        self,
        machine: Machine,
        code: CodeType,
        decoded: Decoded,
        instructions: Bound,
        locals: list[Any],
        function: FunctionType | None,
        globals: dict[str, Any],
        builtins: dict[str, Any],
        back: Frame | None,
    ) -> None:
        self.machine = machine
        self.code = code
        self.decoded = decoded
        self.instructions = instructions
        self.pc = -1
        self.stack: list[Any] = []
        self.locals = locals
        self.function = function
        self.globals = globals
        self.builtins = builtins
        # where names live in modules, class bodies and exec; None in functions
        self.names: MutableMapping[str, Any] | None = None
        self.back = back  # who called, whichever way
        self.depth: int = 1 if back is None else back.depth + 1
        self.is_entry = False  # called from outside of the machine: leaving this frame leaves the run
        self.finish: Callable[[Frame, Any], Any] | None = None  # what becomes of the result
        self.result: Any = None
        self.note: Any = None  # what a policy wants to know of the frame
        # of locals without a value that a policy took away: what reading them raises
        self.missing: dict[int, BaseException] | None = None
        self.handled: BaseException | None = None  # of a generator that waits: the exception that it handles

    def __repr__(self) -> str:
        return f"<frame of {self.code.co_qualname}, line {self.line}>"

    @property
    def line(self) -> int:
        return self.decoded.lines(self.code)[self.pc] if self.pc >= 0 else line_at(self.code, -1)

    def copy(self) -> Frame:
        """The same state once more: values and cells are shared, stack and locals are not."""
        other = Frame.__new__(Frame)
        for slot in Frame.__slots__:
            setattr(other, slot, getattr(self, slot))
        other.stack = self.stack.copy()
        other.locals = self.locals.copy()
        return other

    def variables(self) -> MutableMapping[str, Any]:
        """What ``locals()`` gives: the namespace of a class body or module itself, a new dictionary of a function."""
        if self.names is not None:
            # comprehensions of class bodies and modules may have theirs in slots
            inner = zip(self.code.co_varnames, self.locals)
            hidden = {name: value for name, value in inner if value is not NULL}
            return {**self.names, **hidden} if hidden else self.names
        found = {}
        cells = {*self.code.co_cellvars, *self.code.co_freevars}
        for name, value in zip(self.decoded.names, self.locals):
            if name in cells and isinstance(value, CellType):
                try:
                    value = value.cell_contents
                except ValueError:
                    continue
            if value is not NULL:
                found[name] = value
        return found
