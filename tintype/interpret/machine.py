"""The machine: runs frames.

Calls from interpreted code to interpreted code don't nest: the loop goes on in the new frame. Native code that calls
back begins a run of its own inside of the one that called it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from tintype.interpret import handlers
from tintype.interpret.calling import Callers, Plan, call_native, call_native_hooked, discard, new_frame
from tintype.interpret.decode import ASYNC_FLAGS, decode
from tintype.interpret.errors import NotInterpretedError, not_interpreted
from tintype.interpret.frame import DISCARDED, LEFT, RETURNED, STOPPED, Frame
from tintype.interpret.generators import throw_into
from tintype.interpret.lookup import SpecialMethods
from tintype.interpret.policy import Caller, Outcome, Policy, overridden
from tintype.interpret.raising import raise_unchanged
from tintype.interpret.stand_ins import STAND_INS
from tintype.interpret.tracebacks import with_line_of, without_machine


@cache
def table_for(hooks: frozenset[str]) -> Mapping[str, Callable[..., Any]]:
    """The handlers for policies with these hooks."""
    table = dict(handlers.HANDLERS)
    for hook in hooks:
        table.update(handlers.HOOKED.get(hook, {}))
    if "on_create" in hooks:
        handlers.containers.told_of_results(table)
    if "on_operands" in hooks:
        handlers.operands.told_of_operands(table)
    return table


class Machine:
    """Interprets functions.

    >>> def greet(name, *, mark="!"):
    ...     return f"hello {name}{mark}"
    >>> Machine().call(greet, "you", mark="?")
    'hello you?'

    A machine is used by one thread.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = Policy() if policy is None else policy
        hooks = overridden(self.policy)
        self.table = table_for(hooks)
        self.frame: Frame | None = None  # the innermost one
        self.handled: BaseException | None = None  # what `raise` raises again
        self.reraised: BaseException | None = None  # raised again: its line is in its traceback already
        self.tells_of_objects = "on_create" in hooks
        self.call_native: Caller = call_native_hooked if "on_native_call" in hooks else call_native
        self.plans: dict[int, tuple[CodeType, Plan | None]] = {}  # by the identity of code objects
        self.callers = Callers(self)
        stand_ins = {**STAND_INS, **self.policy.stand_ins()}
        self.kept = list(stand_ins)
        self.stand_ins: dict[int, Caller] = {id(callable): caller for callable, caller in stand_ins.items()}
        # Classes that were seen: their special methods, and attributes that need no care.
        self.getitem = SpecialMethods("__getitem__", self)
        self.setitem = SpecialMethods("__setitem__", self)
        self.delitem = SpecialMethods("__delitem__", self)
        self.iter = SpecialMethods("__iter__", self)
        self.next = SpecialMethods("__next__", self)
        self.plain_attributes: set[tuple[type, str]] = set()
        self.plain_stores: set[tuple[type, str]] = set()

    # What is interpreted.

    def plan(self, function: FunctionType) -> Plan | None:
        """How to begin a function's frames; None: it runs natively."""
        code = function.__code__
        found = self.plans.get(id(code))
        if found is None:
            plan = self.plan_of_code(code) if self.policy.interprets(function) else None
            found = self.plans[id(code)] = (code, plan)
        return found[1]

    def plan_of_code(self, code: CodeType) -> Plan:
        decoded = decode(code)
        return Plan(code, decoded, self.policy.operations(code, decoded.bound(self.table)))

    def interprets(self, thing: Any) -> bool:
        """Whether it is a function that is interpreted."""
        return type(thing) is FunctionType and self.plan(thing) is not None

    # Calls.

    def call(self, callable: Any, /, *arguments: Any, **keywords: Any) -> Any:
        """Calls from outside of the machine, or from native code that interpreted code called."""
        function = getattr(callable, "__func__", callable)
        if type(function) is FunctionType and function.__code__.co_flags & ASYNC_FLAGS:
            raise not_interpreted("async def", function.__code__)
        if type(callable) is FunctionType:
            plan = self.plan(callable)
            if plan is None:
                return callable(*arguments, **keywords)
            return self.execute(new_frame(self, plan, callable, list(arguments), keywords, self.frame))
        # a frame that is left at once: what stands on its stack is the result
        waiting = Frame(self, NOWHERE, decode(NOWHERE), [], [], None, {}, {}, self.frame)
        outcome = self.callers[type(callable)](waiting, callable, list(arguments), keywords)
        if outcome is None:
            return waiting.stack.pop()
        outcome.back = self.frame
        return self.execute(outcome)

    def execute(self, frame: Frame) -> Any:
        """Runs a frame to its end."""
        back, handled = self.frame, self.handled
        frame.is_entry = True
        self.frame = frame
        self.handled = sys.exception()
        try:
            self.run(frame)
        finally:
            self.frame, self.handled = back, handled
        return frame.result

    def begin(
        self,
        frame: Frame,
        callable: Any,
        arguments: list[Any],
        keywords: dict[str, Any] | None = None,
        discarded: bool = False,
    ) -> Outcome:
        """A call by interpreted code, for a handler to give back; its result goes onto the frame's stack."""
        outcome = self.callers[type(callable)](frame, callable, arguments, keywords)
        if discarded:
            if outcome is None:
                frame.stack.pop()
            else:
                outcome.finish = discard
        return outcome

    def leave(self, frame: Frame, value: Any) -> Outcome:
        """Ends a frame with a result, for a handler to give back."""
        if frame.finish is not None:
            frame.pc = LEFT  # an exception of what finishes is the caller's
            value = frame.finish(frame, value)
        if frame.is_entry:
            frame.result = value
            return RETURNED
        back = frame.back
        assert back is not None
        if value is not DISCARDED:
            back.stack.append(value)
        return back

    def leave_to_caller(self, frame: Frame, generator: Any) -> Outcome:
        """Gives a generator to who called its function; the frame stays, to be continued by it."""
        finish, frame.finish = frame.finish, None
        if finish is not None:
            generator = finish(frame, generator)
        if frame.is_entry:
            frame.result = generator
            return RETURNED
        back, frame.back = frame.back, None
        assert back is not None
        if generator is not DISCARDED:
            back.stack.append(generator)
        return back

    # Running.

    def run(self, frame: Frame, thrown: BaseException | None = None) -> Any:
        """Continues a frame until it returns or yields, and says which; the value is ``frame.result``."""
        while True:
            try:
                if thrown is not None:
                    raise_unchanged(thrown)
                instructions = frame.instructions
                pc = frame.pc + 1
                while True:
                    handler, argument = instructions[pc]
                    frame.pc = pc
                    outcome = handler(frame, argument)
                    if outcome is None:
                        pc += 1
                    elif outcome.__class__ is int:
                        pc = outcome
                    elif outcome.__class__ is Frame:
                        frame = self.frame = outcome
                        instructions = frame.instructions
                        pc = frame.pc + 1
                    else:
                        return outcome
            except BaseException as error:
                thrown = None
                found: Frame | None = self.unwind(frame, error)
                if found is None:
                    raise
                frame = self.frame = found
                found = None  # or the frame would live until the next exception

    def unwind(self, frame: Frame, error: BaseException) -> Frame | None:
        """The frame that handles an exception, made ready to do so; None: nobody in this run."""
        trace = without_machine(error.__traceback__)
        named = self.reraised is error
        self.reraised = None
        while True:
            if frame.pc >= 0:
                if not named:
                    trace = with_line_of(frame, trace)
                named = False
                entry = frame.decoded.handler_of(frame.pc)
                if entry is not None:
                    error.__traceback__ = trace
                    stack = frame.stack
                    del stack[entry.depth :]
                    if entry.pushes_index:
                        stack.append(frame.pc)
                    stack.append(error)
                    frame.pc = entry.handler - 1
                    return frame
            frame.stack.clear()  # iterators that a loop has not finished are closed now
            if frame.is_entry:
                error.__traceback__ = trace
                return None
            assert frame.back is not None
            frame = frame.back

    def resume(self, frame: Frame, sent: Any, thrown: BaseException | None) -> Any:
        """Continues the frame of a generator."""
        back, handled = self.frame, self.handled
        frame.back = back
        frame.depth = 1 if back is None else back.depth + 1
        frame.is_entry = True
        self.frame, self.handled = frame, frame.handled
        try:
            if thrown is not None:
                return throw_into(self, frame, thrown)
            frame.stack.append(sent)
            return self.run(frame)
        finally:
            frame.handled = self.handled
            frame.back = None
            self.frame, self.handled = back, handled
            del thrown  # it knows this frame, which shall not keep it

    def table_at(self, frame: Frame, index: int) -> tuple[Callable[..., Any], Any]:
        """An operation of a frame's code, also where the frame stops at it."""
        return frame.decoded.bound(self.table)[index]

    def run_until(self, frame: Frame, stops: frozenset[int], *, again: bool = False) -> Any:
        """Continues a frame until it is about to do one of these operations, or ends; says which.

        ``STOPPED``: the frame stands before the operation, at ``frame.pc + 1``. With ``again``, one that the frame
        begins with is done, and stops it when it comes again.
        """
        whole = frame.instructions
        instructions = whole.copy()
        for index in stops:
            instructions[index] = (stop, None)
        start = frame.pc + 1
        if again and start in stops:
            instructions[start] = (stop_later, (instructions, start, self.table_at(frame, start)))
        back, was_entry, inner = self.frame, frame.is_entry, frame.back
        frame.instructions, frame.is_entry = instructions, True
        self.frame = frame
        try:
            return self.run(frame)
        finally:
            frame.instructions, frame.is_entry, frame.back = whole, was_entry, inner
            self.frame = back


def stop_later(frame: Frame, argument: tuple[Any, int, tuple[Callable[..., Any], Any]]) -> Any:
    instructions, index, (handler, value) = argument
    instructions[index] = (stop, None)
    return handler(frame, value)


def stop(frame: Frame, _: None) -> Any:
    frame.pc -= 1
    return STOPPED


NOWHERE = compile("", "<machine>", "exec")

__all__ = ["Machine", "NotInterpretedError"]
