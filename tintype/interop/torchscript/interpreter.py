"""The interpreter: runs a script's statements one after the other, on whatever values it is given.

On fakes, inside of an ordinary capture, that records the program. What a statement does is looked up in tables by its
kind (:mod:`.containers`, :mod:`.numbers`, :mod:`.tensors`, :mod:`.objects`), branches and loops are in
:mod:`.control_flow`, and everything else is an operator of torch's (:mod:`.operators`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tintype.errors import Location
from tintype.interop.torchscript import control_flow, kept
from tintype.interop.torchscript.heap import LASTING, Container, Heap, ScriptInstance
from tintype.interop.torchscript.mirror import Mirror, Mirroring
from tintype.interop.torchscript.reading import Block, Procedure, Statement
from tintype.interop.torchscript.tables import HANDLERS, Handler
from tintype.ir.node_info import NodeMeta, Origin
from tintype.symbolic.location import replaying
from tintype.trace.recorder import active_recorder

Environment = dict[int, Any]
Then = Callable[[list[Any]], Any]


class Interpreter:
    """Runs the methods of one script."""

    def __init__(self) -> None:
        self.heap = Heap()
        self.mirroring = Mirroring(self)
        self.statement: Statement | None = None
        # the attributes of modules in this run
        self.attributes: dict[int, tuple[Mirror, ScriptInstance]] = {}
        # attributes that this run wrote to before anybody had read them
        self.set_anew: set[tuple[int, str]] = set()
        self.was_read: set[tuple[int, str]] = set()
        # how many calls are running, and the block of the first
        self.depth = 0
        self.outermost: Block | None = None
        self.environments: list[Environment] = []
        # memory that a variable may be after a recorded loop, with the loop's line; see memory.py
        self.not_to_be_written: list[Any] = []
        # the tensors that the script was called with
        self.given: list[Any] = []
        # attributes as they were when the run began, which somebody has asked for
        self.loaded: dict[tuple[int, str], Any] = {}
        # the items of lists and dictionaries in attributes, as they were; see kept.py
        self.kept_items: dict[tuple[int, str], list[Any]] = {}
        self.root: torch.nn.Module | None = None
        # what runs a method of a module that is called from outside of the script; see inside.py
        self.from_outside: Callable[[Mirror, str], Callable[..., Any]] | None = None
        # tensors that traced programs make of numbers, with those numbers
        self.numbers: dict[int, tuple[torch.Tensor, Any]] = {}
        # statements that are recorded a second time because branches don't agree; see control_flow
        self.repeated = 0

    # --- a run -----------------------------------------------------------------------------------------------

    def run(self, call: Callable[[], Any]) -> Any:
        """Everything that one call of the script does."""
        self.heap = Heap()
        self.attributes, self.numbers = {}, {}
        self.set_anew, self.was_read = set(), set()
        self.loaded, self.kept_items = {}, {}
        self.depth, self.environments, self.given, self.not_to_be_written = 0, [], [], []
        self.repeated = 0
        recorder = active_recorder()
        try:
            with replaying(self._location):
                return call()
        finally:
            self.statement = None
            if recorder is not None:
                recorder.replayed = None

    def _location(self) -> Location | None:
        return None if self.statement is None else self.statement.location()

    def run_method(self, mirror: Mirror, name: str, args: Sequence[Any]) -> Any:
        """Call a method of a module."""
        return self.run_procedure(mirror.method(name), [mirror, *args])

    def run_procedure(self, procedure: Procedure, args: Sequence[Any]) -> Any:
        """Call a method or function with values of a script."""
        environment = dict(zip(procedure.block.inputs, args, strict=True))
        if not self.depth:
            self.outermost = procedure.block
        self.depth += 1
        self.environments.append(environment)
        try:
            results = self.run_block(procedure.block, environment)
        except control_flow.NotAlikeError as error:
            raise error.as_refusal() from None
        finally:
            self.depth -= 1
            self.environments.pop()
        return results[0] if len(results) == 1 else tuple(results)

    def run_block(self, block: Block, environment: Environment, start: int = 0, then: Then | None = None) -> Any:
        """Run the statements of a block, from ``start`` on; returns what the block gives, or what ``then`` makes of
        it."""
        statements = block.statements
        for position in range(start, len(statements)):
            statement = statements[position]
            kind = statement.kind
            if kind == "prim::If":
                rest = control_flow.Rest(self, block, environment, position + 1, then)
                if control_flow.run_if(self, statement, environment, rest):
                    return rest.result
                continue
            if kind == "prim::Loop":
                self.statement = statement
                results = control_flow.run_loop(self, statement, environment)
                environment.update(zip(statement.outputs, results, strict=True))
                continue
            if kind == "prim::Constant":
                environment[statement.outputs[0]] = self.constant(statement)
                continue
            args = [environment[unique] for unique in statement.inputs]
            result = self.execute(statement, args)
            outputs = statement.outputs
            if len(outputs) == 1:
                environment[outputs[0]] = result
            elif outputs:
                environment.update(zip(outputs, result, strict=True))
        results = [environment[unique] for unique in block.outputs]
        return results if then is None else then(results)

    def constant(self, statement: Statement) -> Any:
        value = statement.value
        return self.heap.adopt(value) if isinstance(value, (list, dict, tuple)) else value

    def execute(self, statement: Statement, args: list[Any]) -> Any:
        """One statement without blocks."""
        self.statement = statement
        handler: Handler | None = statement.handler
        if handler is None:
            handler = statement.handler = handler_of(statement)
        return handler(self, statement, args)

    # --- origins ---------------------------------------------------------------------------------------------

    def note_origin(self, statement: Statement, function: str) -> None:
        """What is recorded next comes from this statement."""
        recorder = active_recorder()
        if recorder is None:
            return
        origin = recorder.origins.origin(0, function)
        recorder.replayed = NodeMeta(origin=Origin(origin.call, statement.frames(), function, origin.serial))

    # --- attributes ------------------------------------------------------------------------------------------

    def attributes_of(self, mirror: Mirror) -> ScriptInstance:
        """The attributes of a module that this run has written."""
        known = self.attributes.get(id(mirror))
        if known is None:
            instance = ScriptInstance({}, 0, load=lambda name: self._load(mirror, name))
            known = self.attributes[id(mirror)] = (mirror, instance)
        return known[1]

    def lasting(self) -> set[int]:
        """What a script's next call sees: attributes of modules, and containers and objects in them."""
        seen: set[int] = set()
        stack: list[Any] = [instance for _, instance in self.attributes.values()]
        stack += self.loaded.values()
        while stack:
            value = stack.pop()
            if isinstance(value, Container) and id(value) not in seen:
                seen.add(id(value))
                stack += value.content if isinstance(value.content, list) else value.content.values()
            elif isinstance(value, tuple):
                stack += value
        return seen

    def read(self, mirror: Mirror, name: str) -> Any:
        """An attribute of a module."""
        child = mirror._modules.get(name)
        if child is not None:
            return child
        instance = self.attributes_of(mirror)
        if name not in instance.content:
            self.was_read.add((id(mirror), name))
        return instance.get(name)

    def _load(self, mirror: Mirror, name: str) -> Any:
        """An attribute as it is when the run begins. Lists and the like are made once, so that all see the same."""
        key = (id(mirror), name)
        if key not in self.loaded:
            is_kept = name in mirror.kept
            self.loaded[key] = kept.load(self, mirror, name) if is_kept else self._adopted(mirror.attribute(name))
        return self.loaded[key]

    def _adopted(self, value: Any) -> Any:
        """A value that lasts from call to call, as one of a script."""
        if isinstance(value, (torch.jit.RecursiveScriptClass, torch.ScriptObject)):
            return self._instance(value)
        return self.heap.adopt(self.mirroring.registered(value), LASTING)

    def _instance(self, value: Any) -> Any:
        """An object of a TorchScript class. Those of classes written in C++ are what they are."""
        handle = value._c if isinstance(value, torch.jit.RecursiveScriptClass) else value
        kind = handle._type()
        if kind.qualified_name().startswith("__torch__.torch.classes."):
            return handle
        attributes: dict[str, Any] = {}

        def load(name: str) -> Any:
            if name not in attributes:
                attributes[name] = self._adopted(getattr(value, name))
            return attributes[name]

        return ScriptInstance({}, LASTING, kind, load)

    def write(self, mirror: Mirror, name: str, value: Any) -> None:
        """Give an attribute of a module another value."""
        instance = self.attributes_of(mirror)
        key = (id(mirror), name)
        if key not in self.was_read and self.heap.is_outermost:
            self.set_anew.add(key)
        self.heap.changes(instance)
        instance.content[name] = value

    def call_method(self, mirror: Mirror, name: str, args: list[Any]) -> Any:
        """Call a method of a module; ``forward`` as modules call each other, so that the call is seen."""
        if name == "forward" and mirror is not self.root:
            return mirror(*args)
        return self.run_method(mirror, name, args)


def handler_of(statement: Statement) -> Handler:
    """What runs a statement."""
    from tintype.interop.torchscript.operators import UnsupportedStatementError, call_operator, is_supported

    handler = HANDLERS.get(statement.operator) or HANDLERS.get(statement.kind)
    if handler is None and not is_supported(statement):
        raise UnsupportedStatementError(statement)
    return handler or call_operator
