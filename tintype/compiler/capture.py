"""A run of a function that is noted down while it happens.

The function runs for real, on real tensors, interpreted: its results, effects and exceptions are eager mode's. What
it reads becomes guards, functions of torch's and steps become calls, writes to what was there before become effects.
What can't be noted ends the noting, never the run (:meth:`Capture.give_up`).

A run may also continue one that a recorded program began: ``given`` are the results of the calls that were done
already, which are not done again (see :mod:`tintype.compiler.program`).
"""

from __future__ import annotations

import collections
import enum
import functools
import types
import weakref
from contextvars import ContextVar
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

from tintype.compiler import known
from tintype.compiler.calls import (
    canonical,
    name_of,
    passes_on,
    result_may_be_none,
    shallow_copy,
    source_of_value,
    without_modes,
)
from tintype.compiler.making import NotMadeError, expression_of_new
from tintype.compiler.sources import Guard, Raised, Source, description, item_of
from tintype.compiler.trace import Call, Effect, Expression, Segment, expression_key, flattened
from tintype.errors import Location
from tintype.interpret import Frame, Machine
from tintype.ir.call_values import PLAIN, is_library
from tintype.symbolic.location import is_internal

LARGEST_CONTAINER = 4096
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_ITSELF = (
    type,
    ModuleType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    ContextVar,
    type(functools.lru_cache(len)),
)


class Capture:
    """What was noted of one run."""

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, whole_graphs: bool, given: list[Any] | None = None
    ) -> None:
        self.args, self.kwargs = args, kwargs
        # whether graphs go to a backend that may rest on all of their inputs' metadata
        self.whole_graphs = whole_graphs
        self.given = [] if given is None else given
        # answers of questions about tensors in the part that was done already, in order
        self.given_answers: dict[Any, collections.deque[Any]] = {}
        self.machine: Machine | None = None
        self.heard = 0  # how many functions torch told of
        self.segments = [Segment()]
        self.calls: list[Call] = []
        self.results: list[Any] = []  # kept only where a backend wants to see them
        # tensors that calls gave: what the program lets go of can be let go of in every run
        self._tensors: dict[int, weakref.ref[Any]] = {}
        self.reason: tuple[str, Location | None] | None = None  # why nothing is noted any more
        self.sources: dict[int, Source] = {}  # of objects that were there before, by identity
        self.values: dict[int, Expression] = {}  # tensors and objects that calls gave
        self.kept: list[Any] = []  # so that identities stay what they are
        self.originals: dict[int, Any] = {}  # containers before the first write to them
        self.written: set[tuple[int, Any]] = set()
        self.unsettled: set[int] = set()  # tensors whose metadata may not be what it was at the start
        self.has_writes = False
        self._state_set: dict[Any, Any] = {}  # modes that the program set, by who is asked for them
        self._seen: set[Any] = set()
        self._looked_into: set[int] = set()
        self._gone: list[int] = []
        self.is_over = False  # what dies now is no business of the program's
        self._making: set[int] = set()
        self._shares = False
        self._tokens: dict[int, int] = {}
        # new objects that went into an effect or a step, and what they were then
        self._given_away: list[tuple[Any, Expression, Any, int]] = []
        self._steps_done = 0
        # context variables that the program set and has not set back: by token, the variable and its number
        self._tokens_of_context: dict[int, tuple[Any, int]] = {}
        self._count_of_tokens = 0

    # --- giving up -----------------------------------------------------------------------------------------------

    @property
    def is_noting(self) -> bool:
        return self.reason is None

    def give_up(self, reason: str) -> None:
        """Note nothing further; the run goes on."""
        if self.reason is None:
            self.reason = (reason, self.location())

    def location(self) -> Location | None:
        """The user's line that is being interpreted."""
        frame: Frame | None = None if self.machine is None else self.machine.frame
        while frame is not None:
            if not is_internal(frame.code.co_filename):
                return Location(frame.code.co_filename, frame.line, frame.code.co_name)
            frame = frame.back
        return None

    # --- the state of the thread ---------------------------------------------------------------------------------

    def state_read(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """The program asks for a mode; what it set itself is known."""
        key = (function.__name__, arguments)
        if key in self._state_set:
            return self._state_set[key]
        given = self.given_answers.get(key) if len(self.calls) < len(self.given) else None
        answer = given[0] if given else function(*arguments)
        self.guard("state", Source("constant", function), (function, arguments, answer))
        return answer

    def _note_state(self, function: Any, args: Any) -> None:
        reader = known.READ_BY.get(getattr(function, "__name__", ""))
        if reader is not None:
            self._state_set[(reader, tuple(args[:-1]))] = args[-1]

    # --- guards --------------------------------------------------------------------------------------------------

    def guard(self, kind: str, source: Source, expected: Any, inline: bool = False) -> None:
        """Let the recorded program rest on an answer."""
        if self.reason is not None:
            return
        guard = Guard(kind, source, expected, inline or source.root.kind == "value")
        if guard.inline:
            if kind != "answer" and guard.key in self._seen:
                return
            self.segments.append(Segment())
        elif guard.key in self._seen:
            return
        self._seen.add(guard.key)
        self.segments[-1].guards.append(guard)

    def read(self, source: Source, value: Any) -> Any:
        """A value that the program got from a place; gives it back."""
        if self.reason is not None:
            return value
        kind = type(value)
        if kind in PLAIN or value is ... or value is NotImplemented:
            if kind in PLAIN:
                self.guard("value", source, value)
            else:
                self.guard("is", source, value)
            return value
        identity = id(value)
        if identity in self.values:
            return value
        found = self.sources.get(identity)
        if found is not None:
            if found is not source and found.path != source.path:
                self.guard("same", source, found)
            return value
        self.register(source, value)
        self._guard_object(source, value, kind)
        return value

    def register(self, source: Source, value: Any) -> None:
        self.sources[id(value)] = source
        self.kept.append(value)

    def _guard_object(self, source: Source, value: Any, kind: type) -> None:
        if isinstance(value, torch.Tensor):
            self._guard_tensor(source, value, kind)
        elif kind is FunctionType:
            self._guard_function(source, value)
        elif isinstance(value, (*_ITSELF, enum.Enum)):
            self.guard("is", source, value)
        elif kind is MethodType:
            self.guard("type", source, kind)
            self.read(Source("attribute", "__func__", source), value.__func__)
            self.read(Source("attribute", "__self__", source), value.__self__)
        elif kind is functools.partial:
            self.guard("type", source, kind)
            self.read(Source("attribute", "func", source), value.func)
            for name in ("args", "keywords"):
                part = getattr(value, name)
                self.read(Source("attribute", name, source), part)
                self.look_into(part)
        elif isinstance(value, (staticmethod, classmethod, property)):
            self.guard("is", source, value)
            for name in ("__func__", "fget", "fset"):
                function = getattr(value, name, None)
                if type(function) is FunctionType:
                    self.register_parts(Source("attribute", name, source), function)
        else:
            self.guard("type", source, kind)

    def _guard_tensor(self, source: Source, value: torch.Tensor, kind: type) -> None:
        if kind not in _TENSORS:
            self.give_up(f"a tensor of the class {kind.__name__}")
        elif self.whole_graphs:
            self.guard("tensor", source, without_modes(description, (value,), {}))
        else:
            self.guard("type", source, kind)

    def _guard_function(self, source: Source, value: FunctionType) -> None:
        if is_library(value.__module__) and not value.__closure__:
            self.guard("is", source, value)
            return
        expected = (value.__code__, value.__defaults__, value.__kwdefaults__, value.__globals__)
        self.guard("code", source, expected)
        self.register_parts(source, value)

    def register_parts(self, source: Source, value: FunctionType) -> None:
        """The cells and defaults of a function that was there before."""
        for position, cell in enumerate(value.__closure__ or ()):
            place = Source("attribute", "__closure__", source)
            if id(cell) not in self.sources:
                self.register(Source("item", position, place), cell)
        for position, default in enumerate(value.__defaults__ or ()):
            if type(default) not in PLAIN and id(default) not in self.sources:
                self.register(Source("item", position, Source("attribute", "__defaults__", source)), default)
        for name, default in (value.__kwdefaults__ or {}).items():
            if type(default) not in PLAIN and id(default) not in self.sources:
                self.register(Source("item", name, Source("attribute", "__kwdefaults__", source)), default)

    def source_of(self, value: Any) -> Source | None:
        """Where an object was found; classes, modules and functions are found anywhere."""
        found = self.sources.get(id(value))
        if found is None and (isinstance(value, (type, ModuleType)) or type(value) is FunctionType):
            found = Source("constant", value)
            self.register(found, value)
        return found

    def look_into(self, container: Any) -> None:
        """The program may see all that a container holds."""
        identity = id(container)
        source = self.sources.get(identity)
        if source is None or identity in self._looked_into or self.reason is not None:
            return
        self._looked_into.add(identity)
        content = self.originals.get(identity, container)
        if any(isinstance(getattr(type(content), name), FunctionType) for name in ("__iter__", "__len__")):
            self.give_up(f"a {type(container).__name__} is looked into, which has its own methods for that")
        elif len(content) > LARGEST_CONTAINER:
            self.give_up(f"a {type(container).__name__} of {len(content)} items is looked into")
        elif isinstance(content, dict):
            if not all(type(key) in PLAIN for key in content):
                self.give_up("a dictionary whose keys are no plain values is looked into")
                return
            self.guard("keys", source, tuple(content))
            for key, item in dict.items(content):
                self.read(item_of(container, key, source), item)
        elif isinstance(content, (list, tuple)):
            self.guard("length", source, len(content))
            for position, item in enumerate(content):
                self.read(Source("item", position, source), item)
        elif isinstance(content, (set, frozenset)) and all(type(item) in PLAIN for item in content):
            self.guard("value", source, frozenset(content)) if isinstance(content, frozenset) else self.guard(
                "answer", source, ("copy", (), set(content))
            )
        else:
            self.give_up(f"a {type(container).__name__} is looked into")

    # --- expressions ---------------------------------------------------------------------------------------------

    def expression(self, value: Any) -> Expression:
        """How to make a value again; raises NotMadeError."""
        kind = type(value)
        if kind in PLAIN or value is ... or value is NotImplemented:
            return ("constant", value)
        identity = id(value)
        found = self.values.get(identity)
        if found is not None:
            return found
        source = self.sources.get(identity)
        if source is not None:
            return ("source", source)
        if isinstance(value, torch.Tensor):
            raise NotMadeError("a tensor that comes from nowhere that was seen")
        if isinstance(value, (*_ITSELF, enum.Enum)) or (kind in known.PLAIN_OWNERS and kind is not tuple):
            return ("constant", value)
        if kind is FunctionType and is_library(value.__module__) and not value.__closure__:
            return ("constant", value)
        if identity in self._making:
            raise NotMadeError(f"a {kind.__name__} that holds itself")
        self._making.add(identity)
        try:
            expression = expression_of_new(value, self.expression)
        finally:
            self._making.discard(identity)
        if not self._shares or kind is tuple:
            return expression
        if identity not in self._tokens:
            self._tokens[identity] = len(self._tokens)
            self.kept.append(value)
        return (*expression, self._tokens[identity])

    def shared_expression(self, value: Any) -> Expression:
        """The same where it matters that an object is one and the same in several places."""
        before, self._shares = self._shares, True
        try:
            return self.expression(value)
        finally:
            self._shares = before

    def expression_given_away(self, value: Any, place: Any = None) -> Expression:
        """The same for what others keep: what the program does to it later would be lost.

        Where ``place`` gets another value before anybody could look, it does not matter what was there."""
        expression = self.shared_expression(value)
        if place is not None:
            self._given_away = [
                given for given in self._given_away if given[2] != place or given[3] != self._steps_done
            ]
        if expression[0] == "make":
            self._given_away.append((value, expression, place, self._steps_done))
        return expression

    def check_given_away(self) -> None:
        """New objects that went into effects have to be what they were then."""
        for value, expression, _, _ in self._given_away:
            try:
                if expression_key(self.shared_expression(value)) == expression_key(expression):
                    continue
            except NotMadeError:
                pass
            self.give_up(f"a new {type(value).__name__} is changed after it was stored")

    # --- calls ---------------------------------------------------------------------------------------------------

    def torch_call(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A function of torch's that the program called."""
        self.heard += 1
        if self.reason is not None:
            return function(*args, **kwargs)
        name = function.__name__
        if name == "__get__":
            attribute = function.__self__.__name__
            if attribute in known.METADATA_ATTRIBUTES:
                return self._metadata("." + attribute, function, args, kwargs)
        elif name in known.METADATA_METHODS and args and isinstance(args[0], torch.Tensor):
            if all(type(value) in PLAIN for value in args[1:]) and not kwargs:
                return self._metadata(name, function, args, kwargs)
        return self.call(canonical(function), args, kwargs)

    def _metadata(self, read: str, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        tensor = args[0]
        source = self.sources.get(id(tensor))
        inline = source is None or id(tensor) in self.unsettled
        inline = inline or (self.has_writes and read[1:] in known.HISTORY)
        if source is None:
            expression = self.values.get(id(tensor))
            if expression is None:
                self.give_up("a tensor that comes from nowhere that was seen is looked at")
                return function(*args, **kwargs)
            source = source_of_value(expression)
        arguments = tuple(args[1:])
        given = self.given_answers.get((read, arguments, source.path)) if len(self.calls) < len(self.given) else None
        answer = given.popleft() if given else function(*args, **kwargs)
        if not self.whole_graphs or inline:  # else all of the tensor's metadata is checked
            self.guard("answer", source, (read, arguments, answer), inline)
        return answer

    def call(
        self, function: Any, args: Any, kwargs: dict[str, Any], step: str | None = None, done_by: Any = None
    ) -> Any:
        """Do a call, or take its result from what was done already, and note it.

        ``done_by`` does it where it isn't the function as it is."""
        perform = function if done_by is None else done_by
        if self.reason is not None:
            return perform(*args, **kwargs)
        number = len(self.calls)
        make = self.expression if step is None else self.expression_given_away
        try:
            callee = self._callee(function)
            arguments = tuple(map(make, args))
            keywords = {name: make(value) for name, value in kwargs.items()}
        except NotMadeError as error:
            self.give_up(f"{error} is given to {name_of(function)}")
            return perform(*args, **kwargs)
        call = Call(number, callee, arguments, keywords, self._is_caught(), self.location(), step)
        if number < len(self.given):
            result, self.given[number] = self.given[number], None
        else:
            try:
                result = perform(*args, **kwargs)
            except Exception as error:
                result = Raised(error)
        call.frees, self._gone = self._gone, []
        self.calls.append(call)
        if self.whole_graphs:
            self.results.append(result)
        self.segments[-1].body.append(call)
        if type(result) is Raised:
            call.step = call.step or f"{name_of(function)} raises an exception"
            self.read(Source("attribute", "error", Source("value", number)), result.error)
            raise result.error
        if call.careful:
            self.guard("returned", Source("value", number), None)
        self._note_writes(function, args, kwargs)
        self._note_state(function, args)
        may_be_missing = type(function) is types.MethodWrapperType and result_may_be_none(function)
        self._note_result(number, result, "" if may_be_missing and step is None else step)
        return result

    def _callee(self, function: Any) -> Expression:
        owner = getattr(function, "__self__", None)
        if isinstance(function, types.BuiltinFunctionType) and owner is not None and id(function) not in self.sources:
            if not isinstance(owner, (type, ModuleType)):
                return ("method", self.expression(owner), function.__name__)
        if type(function) is MethodType:
            return ("method", self.expression(function.__self__), function.__name__)
        source = self.sources.get(id(function))
        if source is not None and type(function) is FunctionType and function.__closure__:
            return ("source", source)
        if id(function) in self.values:
            return self.values[id(function)]
        if source is not None and not isinstance(function, _ITSELF) and type(function) is not FunctionType:
            return ("source", source)
        return ("constant", function)

    def _is_caught(self) -> bool:
        frame = None if self.machine is None else self.machine.frame
        while frame is not None:
            entry = frame.decoded.handler_of(frame.pc) if frame.pc >= 0 else None
            while entry is not None:
                if not passes_on(frame, entry):
                    return True
                entry = frame.decoded.handler_of(entry.handler)  # who catches what is raised again there
            frame = frame.back
        return False

    def _note_writes(self, function: Any, args: Any, kwargs: dict[str, Any]) -> None:
        name = getattr(function, "__name__", "")
        if name.endswith("_") or name in ("__set__", "backward") or "out" in kwargs:
            self.has_writes = True
            for value in (*args, *kwargs.values()):
                if isinstance(value, torch.Tensor):
                    self.unsettled.add(id(value))
                elif isinstance(value, (list, tuple)):
                    self.unsettled.update(id(item) for item in value if isinstance(item, torch.Tensor))

    def _note_result(self, number: int, result: Any, step: str | None) -> None:
        if step is not None:
            self._steps_done += 1
            self._note_step(number, result)
        elif isinstance(result, torch.Tensor):
            found = self.values.get(id(result))
            if found is not None and found[0] == "value":
                self.calls[number].same_as = found[1]
            self.calls[number].gives_tensor = True
            if found is not None or id(result) in self.sources:
                self.calls[number].alias = self.expression(result)
            self._note_value(("value", number), result)
        elif type(result) in (list, tuple) or isinstance(result, tuple):
            self._note_parts(("value", number), Source("value", number), result)
        elif result is not None:
            if type(result) in PLAIN:
                self.calls[number].step = f"{self._said(number)} gives a {type(result).__name__}, which is looked at"
            self.read(Source("value", number), result)
            if type(result) not in PLAIN:
                self._note_value(("value", number), result)

    def _said(self, number: int) -> str:
        return name_of(self.calls[number].function[1]) if self.calls[number].function[0] == "constant" else "a call"

    def _note_step(self, number: int, result: Any) -> None:
        source = Source("value", number)
        if isinstance(result, torch.Tensor) and id(result) not in self.sources and id(result) not in self.values:
            self.guard("type", source, type(result))
            if type(result) not in _TENSORS:
                self.give_up(f"a tensor of the class {type(result).__name__}")
            self._note_value(("value", number), result)
        else:
            self.read(source, result)

    def _note_value(self, expression: Expression, value: Any) -> None:
        identity = id(value)
        if identity in self.values or identity in self.sources:
            return
        self.values[identity] = expression
        if not isinstance(value, torch.Tensor):
            self.kept.append(value)
            return

        def died(_: Any) -> None:
            if self.is_over:
                return
            self.values.pop(identity, None)
            self.unsettled.discard(identity)
            del self._tensors[identity]
            if expression[0] == "value":
                self._let_go(expression[1])

        self._tensors[identity] = weakref.ref(value, died)

    def _let_go(self, number: int) -> None:
        body = self.segments[-1].body
        if body and body[-1] is self.calls[-1]:
            self.calls[-1].frees.append(number)
        else:  # something may have looked at it since the last call
            self._gone.append(number)

    def _note_parts(self, expression: Expression, source: Source, values: Any) -> None:
        if isinstance(values, tuple):
            self._note_value(expression, values)
        for position, value in enumerate(values):
            part = ("part", expression, position)
            place = Source("item", position, source)
            if isinstance(value, torch.Tensor):
                self._note_value(part, value)
            elif type(value) in (list, tuple):
                self._note_parts(part, place, value)
            elif value is not None:
                self.read(place, value)

    # --- effects -------------------------------------------------------------------------------------------------

    def effect(self, kind: str, owner: Any, name: Any, values: tuple[Any, ...], deletes: bool = False) -> None:
        """Note a write to something that was there before."""
        if self.reason is not None:
            return
        try:
            place = self.expression(owner)
            at = (kind, id(owner), name) if kind in ("attribute", "cell") else None
            made = tuple(self.expression_given_away(value, at) for value in values)
            named = self.expression(name) if kind == "item" else name
        except NotMadeError as error:
            self.give_up(f"{error} is stored")
            return
        self.segments[-1].body.append(Effect(kind, place, named, made, deletes))

    def is_set_in_context(self, variable: Any) -> bool:
        """Whether the program has set a context variable, and not set it back."""
        return any(found is variable for found, _ in self._tokens_of_context.values())

    def set_in_context(self, variable: Any, value: Any) -> Any:
        """``ContextVar.set``: done each time, and the token kept for ``reset``."""
        number = self._count_of_tokens
        self._count_of_tokens += 1
        self.effect("context", variable, number, (value,))
        token = variable.set(value)
        self._tokens_of_context[id(token)] = (variable, number)
        self.kept.append(token)
        return token

    def reset_context(self, variable: Any, token: Any) -> None:
        """``ContextVar.reset``."""
        found = self._tokens_of_context.pop(id(token), None)
        if found is None:
            self.give_up("a context variable is set back to what another call made of it")
        else:
            self.effect("context", variable, found[1], (), deletes=True)
            # nobody sees any more what it was set to
            value = variable.get(None)
            self._given_away = [
                given for given in self._given_away if given[0] is not value or given[3] != self._steps_done
            ]
        variable.reset(token)

    def keep_original(self, container: Any) -> None:
        """A container is about to be written to: guards speak of what it was."""
        if id(container) not in self.originals and id(container) in self.sources:
            self.originals[id(container)] = shallow_copy(container)

    def value_of(self, expression: Expression) -> Any:
        """What an expression was in this run: a source, or the result of a call."""
        match expression[0]:
            case "value":
                return self.results[expression[1]]
            case "part":
                return self.value_of(expression[1])[expression[2]]
        return expression[1].fetch(self.args, self.kwargs, self.results)

    def items(self) -> list[Any]:
        return flattened(self.segments)
