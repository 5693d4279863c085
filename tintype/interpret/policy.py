"""What is interpreted, and who is told: the machine itself decides neither.

A policy overrides what it wants to hear of. A machine looks once which methods are overridden and takes handlers that
call them; a method that nobody overrides costs nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tintype.interpret.decode import Bound
    from tintype.interpret.frame import Frame

# What a handler gives back: None (go on), the index of an operation (jump), a frame (go on there).
Outcome = Any
# A call done by the machine: the calling frame, what is called, positional and keyword arguments.
Caller = Callable[["Frame", Any, "list[Any]", "dict[str, Any] | None"], Outcome]

ASYNC_FLAGS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


class Policy:
    """Everything is interpreted but async code, and nobody is told of anything.

    >>> from tintype.interpret import Machine, Policy
    >>> class Counting(Policy):
    ...     branches = 0
    ...     def on_branch(self, frame, value, if_true, if_false):
    ...         self.branches += 1
    ...         return if_true if value else if_false
    >>> def count_down(n):
    ...     while n:
    ...         n -= 1
    ...     return n
    >>> policy = Counting()
    >>> Machine(policy).call(count_down, 3), policy.branches
    (0, 4)
    """

    def interprets(self, function: FunctionType) -> bool:
        """Whether calls of the function are interpreted. Asked once for a code object."""
        return not function.__code__.co_flags & ASYNC_FLAGS

    def stand_ins(self) -> Mapping[Any, Caller]:
        """Builtin functions and classes whose calls are done by the policy, by identity."""
        return {}

    def caller_for(self, type_of_callable: type) -> Caller | None:
        """Who does the calls of objects of a class, where it isn't the machine. Asked once for a class."""
        return None

    def computes_attribute(self, frame: Frame, owner: Any, name: str) -> None:
        """An attribute is computed by code that is interpreted. Told to policies that hear of reads."""

    def operations(self, code: CodeType, bound: Bound) -> Bound:
        """The operations of a code object as the machine does them. Asked once for a code object."""
        return bound

    # Hooks. What they get is what the operation works on; reads give the value that the program sees.

    def on_branch(self, frame: Frame, value: Any, if_true: int, if_false: int) -> Outcome:
        """A branch on a value: the operation to go on with.

        A policy that takes both arms changes the frame to what they have in common and gives the index of their
        join, or leaves the frame with ``machine.leave(frame, value)``.
        """
        raise NotImplementedError

    def on_truth(self, frame: Frame, value: Any) -> Any:
        """The truth of a value where it is wanted as a value, as in ``not x``; a bool, or what stands for one."""
        raise NotImplementedError

    def negated(self, truth: Any) -> Any:
        """``not`` of what ``on_truth`` gave that is no bool."""
        return ~truth

    def on_iterate(self, frame: Frame, value: Any) -> Any:
        """The iterator of a loop; NotImplemented: as always."""
        raise NotImplementedError

    def on_loop(self, frame: Frame, iterator: Any, body: int, after: int) -> Outcome:
        """A step of a loop whose iterator is on top of the stack; NotImplemented: as always."""
        raise NotImplementedError

    def on_operands(self, frame: Frame, operation: str, values: list[Any]) -> AbstractContextManager[Any] | None:
        """Before an operation that looks into values natively: operators, comparisons, ``in``, ``is``, truth,
        unpacking, spreading, formatting, items, the iterator of a loop. ``operation`` is the name of the handler; the
        values are on top of the frame's stack, and may be replaced there. The operation is done within what it
        gives, if that is something."""
        raise NotImplementedError

    def on_native_call(self, frame: Frame, callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """A call that isn't interpreted: does it, and gives the result."""
        raise NotImplementedError

    def on_read_global(self, frame: Frame, name: str, value: Any) -> Any:
        """After a global or a builtin was read; ``NULL``: there is none."""
        raise NotImplementedError

    def on_write_global(self, frame: Frame, name: str, value: Any) -> None:
        """Before a global is written; ``NULL``: deleted."""
        raise NotImplementedError

    def on_read_attribute(self, frame: Frame, owner: Any, name: str, value: Any) -> Any:
        """After an attribute was read without interpreting code of its owner; ``NULL``: there is none."""
        raise NotImplementedError

    def on_write_attribute(self, frame: Frame, owner: Any, name: str, value: Any) -> None:
        """Before an attribute is written; ``NULL``: deleted."""
        raise NotImplementedError

    def on_read_item(self, frame: Frame, owner: Any, key: Any, value: Any) -> Any:
        """After an item was read; ``NULL``: there is none."""
        raise NotImplementedError

    def on_write_item(self, frame: Frame, owner: Any, key: Any, value: Any) -> None:
        """Before an item is written; ``NULL``: deleted."""
        raise NotImplementedError

    def on_create(self, frame: Frame, value: Any) -> None:
        """After the program has made a container, a cell, or an object whose ``__init__`` is interpreted."""
        raise NotImplementedError

    def on_update(self, frame: Frame, owner: Any) -> None:
        """Before an operator such as ``+=`` may change its left operand, or a comprehension adds to what it makes."""
        raise NotImplementedError

    def on_read_cell(self, frame: Frame, cell: CellType, name: str, value: Any) -> Any:
        raise NotImplementedError

    def on_write_cell(self, frame: Frame, cell: CellType, name: str, value: Any) -> None:
        """Before a variable that functions share is written; ``NULL``: deleted."""
        raise NotImplementedError


HOOKS = frozenset(name for name in vars(Policy) if name.startswith("on_"))


def overridden(policy: Policy) -> frozenset[str]:
    """The hooks that a policy has."""
    return frozenset(hook for hook in HOOKS if getattr(type(policy), hook) is not getattr(Policy, hook))
