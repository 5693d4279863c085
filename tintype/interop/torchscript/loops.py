"""Loops: unrolled as long as it is known that they go on, then recorded.

A recorded loop is a ``while_loop``, one that appends to lists a ``scan``.
Variables that a step gives anew are carried, and so are places in lists, dictionaries and objects that it changes.
A variable that is only written to in place stays the tensor that it is. A list that every step appends to has the
appended tensors as rows afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import BranchMismatchError, CaptureError
from tintype.interop.torchscript.apart import Form, put_together, shared_containers, take_apart
from tintype.interop.torchscript.control_flow import (
    Changed,
    NotAlikeError,
    ScriptRaisedError,
    filling_for,
    known_truth,
)
from tintype.interop.torchscript.heap import APPENDING, ScriptList
from tintype.interop.torchscript.memory import LoopMemory
from tintype.interop.torchscript.operators import called
from tintype.interop.torchscript.values import UNINITIALIZED
from tintype.ops.scan import scan
from tintype.ops.while_loop import while_loop
from tintype.symbolic.interruptions import Word
from tintype.symbolic.location import user_location
from tintype.trace.recorder import active_recorder

if TYPE_CHECKING:
    from tintype.interop.torchscript.interpreter import Environment, Interpreter
    from tintype.interop.torchscript.reading import Statement

aten = torch.ops.aten
_CPU = torch.device("cpu")

# A loop of more steps is recorded, if it can be: unrolled, its program would be larger than anybody wants.
MOST_UNROLLED = 2000
_NO_LIMIT = 2**62


class _AgainError(Word):
    """A step showed something that was not known when the loop began to be recorded."""


class Loop:
    """One loop of a script that is being run."""

    def __init__(self, interpreter: Interpreter, statement: Statement, environment: Environment) -> None:
        self.interpreter = interpreter
        self.statement = statement
        self.environment = environment
        self.body = statement.blocks[0]
        self.limit, self.goes_on, *self.variables = (environment[unique] for unique in statement.inputs)
        self.step: Any = 0

    def run(self) -> list[Any]:
        while True:
            if not self._certainly_goes_on():
                break
            if self.step >= MOST_UNROLLED and self._recorded_if_possible():
                return self.variables
            self._one_step()
        if self._has_ended():
            return self.variables
        self._record(peel=True)
        return self.variables

    def _certainly_goes_on(self) -> bool:
        return known_truth(self.goes_on) is True and isinstance(self.limit, int) and self.step < self.limit

    def _has_ended(self) -> bool:
        if known_truth(self.goes_on) is False:
            return True
        return known_truth(self.step < self.limit) is False

    def _one_step(self) -> None:
        self.environment.update(zip(self.body.inputs, (self.step, *self.variables), strict=True))
        self.goes_on, *self.variables = self.interpreter.run_block(self.body, self.environment)
        self.step += 1

    # --- recording -------------------------------------------------------------------------------------------

    def _recorded_if_possible(self) -> bool:
        """Whether a long loop could be recorded; if not it is unrolled after all."""
        try:
            self._record(peel=False)
        except (CaptureError, NotAlikeError):
            return False
        return True

    def _record(self, *, peel: bool) -> None:
        try:
            Recording(self).run()
        except NotAlikeError as error:
            first = known_truth(self.goes_on) is True and known_truth(self.step < self.limit) is True
            if not peel or not first:
                raise self._refusal(error) from None
            self._one_step()  # a variable may be None or of another dtype before the first step
            try:
                Recording(self).run()
            except NotAlikeError as second:
                raise self._refusal(second) from None

    def _refusal(self, error: NotAlikeError) -> BranchMismatchError:
        return BranchMismatchError(
            "a loop whose number of steps is only known when the program runs changes what its variables are:\n"
            f"  before a step: {error.forms[0]}\n  after it:      {error.forms[1]}",
            location=user_location(),
            remedy="let variables keep their dtype, number of dimensions and containers from step to step; or fix "
            "the sizes that the number of steps depends on, and the loop is unrolled",
        )

    def unchanged(self) -> list[bool]:
        """Of each variable, whether a step gives what it takes: as it was, or written to in place."""
        makers = {unique: inner for inner in self.body.statements for unique in inner.outputs}
        answers = []
        for taken, given in zip(self.body.inputs[1:], self.body.outputs[1:], strict=True):
            while given != taken and given in makers and _writes_to_first(makers[given]):
                given = makers[given].inputs[0]
            answers.append(given == taken)
        return answers

    def ends_early(self) -> bool:
        """Whether a step may say that it is the last."""
        unique = self.body.outputs[0]
        constants = {inner.outputs[0]: inner.value for inner in self._constants()}
        return constants.get(unique, self.environment.get(unique)) is not True

    def _constants(self) -> list[Statement]:
        return [inner for inner in self.body.statements if inner.kind == "prim::Constant"]


def _writes_to_first(statement: Statement) -> bool:
    if not statement.operator.startswith("aten::") or not statement.kind.endswith("_") or len(statement.outputs) != 1:
        return False
    return called(statement.operator).writes == [0]


class Recording:
    """A loop that is being recorded."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.interpreter = loop.interpreter
        self.heap = loop.interpreter.heap
        self.unchanged = loop.unchanged()
        self.changed = Changed()
        # lists that every step appends to, and how much
        self.appended: dict[int, tuple[ScriptList, int]] = {}
        # variables that begin as a container and are other ones later, carried by their content
        self.opened: set[int] = set()
        self.memory: LoopMemory
        # variables that have no value before the first step, with what makes one that nobody looks at
        self.missing: dict[int, Any] = {}

    def run(self) -> None:
        """Record the loop; its variables are what they are after the last step."""
        loop = self.loop
        while True:
            loop.interpreter.note_origin(loop.statement, "while_loop")
            try:
                self._record()
            except _AgainError:
                for position, filling in self.missing.items():
                    loop.variables[position] = filling()
                self.missing = {}
                continue
            return

    def _carried(self) -> tuple[list[Any], Form]:
        """The tensors and numbers that the loop begins with."""
        self.heap.enter()
        try:
            values = [self._opened(position, value) for position, value in self._varying()]
            leaves: list[Any] = []
            return leaves, take_apart((tuple(values), tuple(self.changed.values())), leaves, self.heap)
        finally:
            self.heap.leave()

    def _varying(self) -> list[tuple[int, Any]]:
        return [(p, value) for p, value in enumerate(self.loop.variables) if not self.unchanged[p]]

    def _opened(self, position: int, value: Any) -> Any:
        if position in self.opened and isinstance(value, ScriptList):
            return self.heap.list(value.known())
        return value

    def _record(self) -> None:
        loop = self.loop
        leaves, form = self._carried()
        recorder = active_recorder()
        assert recorder is not None
        self.memory = LoopMemory(recorder, self.interpreter, loop.statement, leaves)
        limited = not (isinstance(loop.limit, int) and loop.limit >= _NO_LIMIT)
        if limited and not loop.ends_early() and known_truth(loop.goes_on) is True:
            results = self._scan(leaves, form) if self.appended else self._count(leaves, form)
        elif self.appended:
            raise CaptureError(
                "a list is appended to in a loop whose number of steps only the data decide",
                location=user_location(),
                remedy="collect into a tensor of a fixed size, or loop over a size",
            )
        else:
            results = self._while(leaves, form, limited)
        loop.interpreter.statement = loop.statement
        if not self.appended:
            self.memory.mark(results)
        values, places = put_together(form, results, self.heap)
        self.changed.make(self.heap, places)
        for (position, _), value in zip(self._varying(), values, strict=True):
            loop.variables[position] = value

    def _scan(self, leaves: list[Any], form: Form) -> list[Any]:
        """A loop that appends: what each step appends is a row."""
        loop = self.loop
        count = loop.limit - loop.step
        # without a step there would be no rows whose sizes could be known
        torch._check(count > 0, lambda: "a loop that appends to a list makes no step")

        def step(carry: Any, row: Any) -> Any:
            _, following, rows = self._step(list(carry[1:]), self._number(row), form)
            return (carry[0], *following), rows

        # an operator that scans wants something to carry
        nothing = aten.zeros.default([], dtype=torch.bool, device=_CPU)
        numbers = aten.arange.start(loop.step, loop.limit, dtype=torch.int64, device=_CPU)
        last, rows = scan(step, (nothing, *leaves), numbers)
        rows = list(rows)
        self.memory.mark([*last[1:], *rows])
        for container, growth in self.appended.values():
            self.heap.changes(container)
            container.rows = tuple(rows[:growth])
            del rows[:growth]
        return list(last[1:])

    def _number(self, counter: Any) -> Any:
        """The number of a step, from a tensor that has it."""
        number = counter.item()
        torch._check(number >= self.loop.step)
        if not isinstance(self.loop.limit, int) or self.loop.limit < _NO_LIMIT:
            torch._check(number < self.loop.limit)
        return number

    def _count(self, leaves: list[Any], form: Form) -> list[Any]:
        """A loop of a number of steps that varies. A tensor counts them, since gradients stop at numbers."""
        loop = self.loop

        def condition(counter: Any, *_: Any) -> Any:
            return counter < loop.limit

        def body(counter: Any, *carried: Any) -> Any:
            _, following, _ = self._step(list(carried), self._number(counter), form)
            return (counter + 1, *following)

        counter = aten.full.default([], loop.step, dtype=torch.int64, device=_CPU)
        return list(while_loop(condition, body, (counter, *leaves))[1:])

    def _while(self, leaves: list[Any], form: Form, limited: bool) -> list[Any]:
        """A loop that a step may end."""
        loop = self.loop

        def condition(number: Any, goes_on: Any, *_: Any) -> Any:
            return goes_on & (number < loop.limit) if limited else goes_on

        def body(number: Any, goes_on: Any, *carried: Any) -> Any:
            goes_on, following, _ = self._step(list(carried), number, form)
            return (number + 1, goes_on, *following)

        return list(while_loop(condition, body, (loop.step, loop.goes_on, *leaves))[2:])

    def _step(self, carried: list[Any], number: Any, form: Form) -> tuple[Any, list[Any], list[Any]]:
        """Run the body once, on values that stand for those of any step."""
        loop, heap = self.loop, self.heap
        entered = list(carried)
        heap.enter()
        try:
            values, places = put_together(form, carried, heap)
            self.changed.make(heap, places)
            for container, _ in self.appended.values():
                heap.changes(container)
                container.content, container.rows = [], APPENDING
            variables = list(loop.variables)
            for (position, _), value in zip(self._varying(), values, strict=True):
                if position in self.opened:
                    value.frozen = "a list that a recorded loop carries from step to step is changed in place"
                variables[position] = value
            loop.environment.update(zip(loop.body.inputs, (number, *variables), strict=True))
            try:
                goes_on, *given = self.interpreter.run_block(loop.body, loop.environment)
            except ScriptRaisedError as error:
                raise CaptureError(
                    f"every step of a recorded loop raises: {error.message}", location=user_location()
                ) from None
            rows = self._look()
            following = self._taken_apart(
                [value for position, value in enumerate(given) if not self.unchanged[position]], form
            )
            self.memory.look(entered, [*following, *rows])
            return goes_on, following, rows
        finally:
            heap.leave()

    def _look(self) -> list[Any]:
        """What the step has changed in containers that were there before; the rows that it appended."""
        rows: list[Any] = []
        news = False
        for container, (content, _) in self.heap.noted():
            if id(container) in self.appended:
                continue
            if isinstance(container, ScriptList) and _has_grown(container, content):
                self.appended[id(container)] = (container, len(container.content) - len(content))
                news = True
        if news or self.changed.look(self.heap, self.appended):
            raise _AgainError
        for container, growth in self.appended.values():
            if len(container.content) != growth or not all(isinstance(v, torch.Tensor) for v in container.content):
                raise CaptureError(
                    "a recorded loop appends something else than a fixed number of tensors to a list",
                    location=user_location(),
                )
            rows += container.content
        return rows

    def _taken_apart(self, following: list[Any], form: Form) -> list[Any]:
        places = self.changed.values()
        if shared_containers([*following, *places], self.heap):
            raise CaptureError(
                "a step of a recorded loop makes a list, dictionary or object, and gives it away twice",
                location=user_location(),
            )
        leaves: list[Any] = []
        given = take_apart((tuple(following), tuple(places)), leaves, self.heap)
        if given.is_like(form):
            return leaves
        for (position, value), before, after in zip(
            self._varying(), form.parts[0].parts, given.parts[0].parts, strict=True
        ):
            if before.kind == "same" and after.kind == "list" and isinstance(value, ScriptList):
                if position not in self.opened:
                    self.opened.add(position)
                    raise _AgainError
        for (position, value), after in zip(self._varying(), following, strict=True):
            filling = filling_for(after, self.heap) if value is UNINITIALIZED else None
            if filling is not None:
                self.missing[position] = filling
        if self.missing:
            raise _AgainError
        raise NotAlikeError(form, given)


def _has_grown(container: ScriptList, before: Any) -> bool:
    """Whether items were added at the end, and nothing else changed."""
    content = container.content
    return len(content) > len(before) and all(one is other for one, other in zip(content, before, strict=False))
