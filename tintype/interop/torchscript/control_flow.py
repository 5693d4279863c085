"""Branches: followed where the condition is known, else both sides are recorded as a ``cond``.

What a recorded side changes of lists, dictionaries and objects that were there before is taken back, and becomes a
result of the operator. Where the two sides give what one operator can't (an early return leaves variables without a
value on one side), the rest of the block is recorded in each of them. A side that raises is an assertion.
Loops are in :mod:`.loops`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import BranchMismatchError, CaptureError
from tintype.interop.torchscript.apart import Form, put_together, shared_containers, take_apart
from tintype.interop.torchscript.heap import Container, Heap, ScriptInstance, ScriptList
from tintype.interop.torchscript.values import UNINITIALIZED
from tintype.ops.cond import cond
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Expr
from tintype.symbolic.interruptions import Word
from tintype.symbolic.location import user_location
from tintype.trace.recorder import active_recorder

if TYPE_CHECKING:
    from tintype.interop.torchscript.interpreter import Environment, Interpreter, Then
    from tintype.interop.torchscript.reading import Block, Statement

# how often the rest of a block may be recorded twice in one run, before that is a program that grows without bound
MOST_SPLITS = 64


class ScriptRaisedError(Word):
    """The script raises: its exception, on the way to the condition that leads to it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotAlikeError(Word):
    """Two sides of a branch give what one operator can't."""

    def __init__(self, one: Any, other: Any) -> None:
        self.forms = (str(one), str(other))
        self.location = user_location()

    def as_refusal(self) -> BranchMismatchError:
        return BranchMismatchError(
            "the branches of an if on a value that is only known when the program runs give different things:\n"
            f"  if it holds:  {self.forms[0]}\n  if it doesn't: {self.forms[1]}",
            location=self.location,
            remedy="let both branches give tensors of one dtype and number of dimensions, in the same containers",
        )


class _Again(Word):
    """A side changed containers that nobody knew to be changed; everything is recorded again, now knowing it."""


class _SideRaised(Word):
    def __init__(self, side: int, error: ScriptRaisedError) -> None:
        self.side = side
        self.error = error


class Rest:
    """What follows a statement: the rest of its block, and what follows that."""

    def __init__(
        self, interpreter: Interpreter, block: Block, environment: Environment, start: int, then: Then | None
    ) -> None:
        self.interpreter = interpreter
        self.block = block
        self.environment = environment
        self.start = start
        self.then = then
        self.result: Any = None
        # whether the script's call has ended when all this has run: then nobody sees lists and objects any more, but
        # those that are returned
        self.is_last = interpreter.depth == 1 and (
            block is interpreter.outermost if then is None else getattr(then, "is_last", False)
        )

    def run(self, statement: Statement, values: list[Any]) -> Any:
        """Go on with what a statement gives."""
        self.environment.update(zip(statement.outputs, values, strict=True))
        return self.interpreter.run_block(self.block, self.environment, self.start, self.then)


class _Following:
    """What follows a statement, as a function of what that gives."""

    def __init__(self, rest: Rest, statement: Statement) -> None:
        self.rest = rest
        self.statement = statement
        self.is_last = rest.is_last

    def __call__(self, values: list[Any]) -> Any:
        return self.rest.run(self.statement, values)


def known_truth(value: Any) -> bool | None:
    """Whether a truth value is certain; None for one that is only known when the program runs."""
    if isinstance(value, bool):
        return value
    if isinstance(value, torch.SymBool):
        condition = from_torch(value)
        if not isinstance(condition, Expr):
            return bool(condition)
        recorder = active_recorder()
        assert recorder is not None
        return recorder.context.environment.known(condition)
    raise CaptureError(f"the script branches on a {type(value).__name__}", location=user_location())


def run_if(interpreter: Interpreter, statement: Statement, environment: Environment, rest: Rest) -> bool:
    """Run an if. True if all that follows it has been run too, and ``rest.result`` is what that gave."""
    interpreter.statement = statement
    predicate = environment[statement.inputs[0]]
    known = known_truth(predicate)
    if known is not None:
        results = interpreter.run_block(statement.blocks[0 if known else 1], environment)
        environment.update(zip(statement.outputs, results, strict=True))
        return False
    for position, block in enumerate(statement.blocks):
        if any(inner.kind == "prim::RaiseException" for inner in block.statements):
            return _assert(
                interpreter, statement, environment, position, _message_of(interpreter, block, environment)
            )

    # values that nobody takes, and those that are the same on both sides, are no results
    outside = [
        one == other for one, other in zip(statement.blocks[0].outputs, statement.blocks[1].outputs, strict=True)
    ]
    wanted = [
        position
        for position, unique in enumerate(statement.outputs)
        if statement.procedure.uses[unique] and not outside[position]
    ]

    def side(block: Block) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            results = interpreter.run_block(block, environment)
            return [results[position] for position in wanted]

        return run

    try:
        results = merged(
            interpreter, statement, predicate, (side(statement.blocks[0]), side(statement.blocks[1])), fill=False
        )
    except _SideRaised as raised:
        return _assert(interpreter, statement, environment, raised.side, raised.error.message)
    except NotAlikeError:
        return _split(interpreter, statement, predicate, rest)
    for position, unique in enumerate(statement.outputs):
        if outside[position]:
            environment[unique] = environment.get(statement.blocks[0].outputs[position])
    environment.update(zip([statement.outputs[position] for position in wanted], results, strict=True))
    return False


def _split(interpreter: Interpreter, statement: Statement, predicate: Any, rest: Rest) -> bool:
    """Record what follows an if in both of its sides."""
    interpreter.repeated += 1
    if interpreter.repeated > MOST_SPLITS:
        raise CaptureError(
            f"more than {MOST_SPLITS} branches of the script can't be joined again: early returns, or variables "
            "that are None or a tensor",
            location=user_location(),
            remedy="compute both results and choose with torch.where",
        )

    def side(block: Block) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            interpreter.statement = statement
            return list(interpreter.run_block(block, rest.environment, 0, _Following(rest, statement)))

        return run

    sides = (side(statement.blocks[0]), side(statement.blocks[1]))
    try:
        rest.result = merged(interpreter, statement, predicate, sides, fill=True, is_last=rest.is_last)
    except _SideRaised as raised:
        _require(interpreter, statement, predicate, raised.side, raised.error.message)
        rest.result = sides[1 - raised.side]()
    return True


def merged(
    interpreter: Interpreter,
    statement: Statement,
    predicate: Any,
    sides: tuple[Callable[[], list[Any]], Callable[[], list[Any]]],
    *,
    fill: bool,
    is_last: bool = False,
) -> list[Any]:
    """Record both sides as a ``cond``; returns what they give, and makes the changes that they make.

    With ``fill``, a value that one side does not have is anything of the other's form there: nobody looks at it. If
    the sides are the last that is done (``is_last``), nobody sees what they changed but what lasts from call to call.
    """
    heap = interpreter.heap
    changed = Changed(interpreter.lasting if is_last else None)
    fillings = Fillings(heap)
    while True:
        forms: list[Form] = []
        given: list[list[Any]] = []

        def recorded(
            position: int, forms: list[Form] = forms, given: list[list[Any]] = given
        ) -> Callable[[], list[Any]]:
            def filled() -> list[Any]:
                values = fillings.fill(sides[position]())
                given.append(values)
                return values

            def function() -> list[Any]:
                leaves, form = _record_side(heap, changed, filled, position, is_last)
                if forms and not forms[0].is_like(form):
                    if fill and fillings.look(*given):
                        raise _Again
                    raise NotAlikeError(forms[0], form)
                forms.append(form)
                return leaves

            return function

        interpreter.note_origin(statement, "cond")
        try:
            leaves = cond(predicate, recorded(0), recorded(1), ())
        except _Again:
            continue
        break
    interpreter.statement = statement
    values = put_together(forms[0], list(leaves), heap)
    changed.make(heap, values[1])
    return list(values[0])


def _record_side(
    heap: Heap, changed: Changed, side: Callable[[], list[Any]], position: int, is_last: bool
) -> tuple[list[Any], Form]:
    heap.enter()
    leaves: list[Any] = []
    try:
        values = side()
        is_news = changed.look(heap)
        if is_news and position:
            raise _Again
        slots = changed.values()
        if not is_last and shared_containers([*values, *slots], heap):
            raise CaptureError(
                "a branch that is only chosen when the program runs makes a list, dictionary or object, and gives it "
                "away twice",
                location=user_location(),
                remedy="make it before the if",
            )
        results = take_apart(tuple(values), leaves, heap, by_value=is_last)
        form = Form("tuple", tuple, (results, take_apart(tuple(slots), leaves, heap)))
    except ScriptRaisedError as error:
        raise _SideRaised(position, error) from None
    finally:
        heap.leave()
    return leaves, form


class Fillings:
    """What stands in for values that a side of a branch does not have: numbers, and tensors of zeros."""

    def __init__(self, heap: Heap) -> None:
        self.heap = heap
        self.made: dict[int, Any] = {}

    def look(self, one: list[Any], other: list[Any]) -> bool:
        """Find out what is missing on one of two sides; True if there was something new."""
        before = len(self.made)
        for position, (a, b) in enumerate(zip(one, other, strict=True)):
            if (a is UNINITIALIZED) != (b is UNINITIALIZED):
                filling = filling_for(b if a is UNINITIALIZED else a, self.heap)
                if filling is not None:
                    self.made.setdefault(position, filling)
        return len(self.made) > before

    def fill(self, values: list[Any]) -> list[Any]:
        return [
            self.made[position]() if value is UNINITIALIZED and position in self.made else value
            for position, value in enumerate(values)
        ]


def filling_for(value: Any, heap: Heap) -> Callable[[], Any] | None:
    """A function that makes a value like another one; None where that can't be made."""
    if isinstance(value, (tuple, ScriptList)):
        return _filling_for_items(value, heap)
    if isinstance(value, torch.Tensor):
        # sizes that only one side knows can't be had on the other
        sizes = [size if type(size) is int or _has_hint(size) else 0 for size in value.shape]
        dtype, device = value.dtype, value.device
        return lambda: torch.ops.aten.zeros.default(sizes, dtype=dtype, device=device)
    if isinstance(value, (bool, torch.SymBool)):
        return lambda: False
    if isinstance(value, (int, torch.SymInt)):
        return lambda: 0
    if isinstance(value, (float, torch.SymFloat)):
        return lambda: 0.0
    return (lambda: value) if value is None or isinstance(value, str) else None


def _filling_for_items(items: Any, heap: Heap) -> Callable[[], Any] | None:
    if isinstance(items, ScriptList) and items.rows:
        return None
    fillings = [filling_for(item, heap) for item in (items.content if isinstance(items, ScriptList) else items)]
    known = [filling for filling in fillings if filling is not None]
    if len(known) < len(fillings):
        return None
    if isinstance(items, ScriptList):
        return lambda: heap.list([make() for make in known])
    kind = type(items)
    return lambda: kind(*[make() for make in known]) if hasattr(kind, "_fields") else tuple(make() for make in known)


def _has_hint(size: Any) -> bool:
    recorder = active_recorder()
    return recorder is not None and recorder.context.environment.hint(from_torch(size)) is not None


_ALL = object()


class Changed:
    """The places in containers that recorded blocks change: items and attributes, or a container as a whole."""

    def __init__(self, lasting: Callable[[], set[int]] | None = None) -> None:
        self.places: dict[tuple[int, Any], tuple[Container, Any]] = {}
        # gives the only containers that anybody will look at; None for all
        self.lasting = lasting

    def look(self, heap: Heap, apart: Any = ()) -> bool:
        """Note what the block that is being recorded has changed; True if there was something new. Containers that
        somebody else looks after are ``apart``."""
        before = len(self.places)
        lasting = None if self.lasting is None else self.lasting()
        for container, (content, rows) in heap.noted():
            if id(container) in apart or (lasting is not None and id(container) not in lasting):
                continue
            for place in _differences(container, content, rows):
                self.places.setdefault((id(container), place), (container, place))
        return len(self.places) > before

    def values(self) -> list[Any]:
        """What is in those places now."""
        return [_value_in(container, place) for container, place in self.places.values()]

    def make(self, heap: Heap, values: Any) -> None:
        """Put values into the places."""
        for (container, place), value in zip(self.places.values(), values, strict=True):
            heap.changes(container)
            if place is not _ALL:
                container.content[place] = value
            elif isinstance(container, ScriptList):
                container.content = list(value)
            else:
                container.content = dict(zip(value[0], value[1], strict=True))


def _differences(container: Container, before: Any, rows: Any) -> list[Any]:
    content = container.content
    if isinstance(container, ScriptList):
        if container.rows != rows:
            raise CaptureError(
                "a branch changes a list that a loop over a size that varies has appended to",
                location=user_location(),
            )
        if len(before) != len(content):
            return [_ALL]
        return [position for position, item in enumerate(content) if item is not before[position]]
    missing = _MISSING
    if isinstance(container, ScriptInstance):  # attributes that were not read before are not there before
        return [name for name, value in content.items() if value is not before.get(name, missing)]
    if list(before) != list(content):
        return [_ALL]
    return [key for key, value in content.items() if value is not before[key]]


_MISSING = object()


def _value_in(container: Container, place: Any) -> Any:
    if isinstance(container, ScriptInstance):
        return container.get(place)
    if place is not _ALL:
        return container.content[place]
    if isinstance(container, ScriptList):
        return tuple(container.content)
    return tuple(container.content), tuple(container.content.values())


# --- assertions ------------------------------------------------------------------------------------------


# what messages are made of; none of it leaves a trace in a program
_PARTS_OF_MESSAGES = frozenset(
    {
        *("prim::Constant", "prim::dtype", "prim::device", "prim::ListConstruct", "prim::TupleConstruct"),
        *("aten::format", "aten::percentFormat", "aten::add", "aten::str", "aten::size", "aten::dim", "aten::len"),
    }
)


def _message_of(interpreter: Interpreter, block: Block, environment: Environment) -> str:
    """What a block that raises says, where that can be found out without running the rest of the block."""
    raising = next(inner for inner in block.statements if inner.kind == "prim::RaiseException")
    before = block.statements[: block.statements.index(raising)]
    if any(inner.kind not in _PARTS_OF_MESSAGES for inner in before):
        return "the script raises an exception"
    try:
        interpreter.run_block(block, environment)
    except ScriptRaisedError as error:
        return error.message
    raise AssertionError("an exception was not raised")


def _require(interpreter: Interpreter, statement: Statement, predicate: Any, side: int, message: str) -> None:
    """Assert that a side that raises is not taken."""
    interpreter.statement = statement
    interpreter.note_origin(statement, "_assert_scalar")
    recorder = active_recorder()
    assert recorder is not None
    condition = from_torch(torch.sym_not(predicate) if side == 0 else predicate)
    recorder.context.environment.require(condition, message)


def _assert(
    interpreter: Interpreter, statement: Statement, environment: Environment, side: int, message: str
) -> bool:
    _require(interpreter, statement, environment[statement.inputs[0]], side, message)
    results = interpreter.run_block(statement.blocks[1 - side], environment)
    environment.update(zip(statement.outputs, results, strict=True))
    return False


def run_loop(interpreter: Interpreter, statement: Statement, environment: Environment) -> list[Any]:
    from tintype.interop.torchscript.loops import Loop

    return Loop(interpreter, statement, environment).run()
