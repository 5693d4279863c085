"""A run of a function that is noted down while it happens.

The function runs for real, on real tensors, interpreted: its results, effects and exceptions are eager mode's. What
it reads becomes guards, functions of torch's and steps become calls, writes to what was there before become effects.
What can't be noted ends the noting, never the run (:meth:`Capture.give_up`).

A run may also continue one that a recorded program began: ``given`` are the results of the calls that were done
already, which are not done again (see :mod:`tintype.compiler.program`).
"""

from __future__ import annotations

import enum
import math
import types
import weakref
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

from tintype.compiler import known
from tintype.compiler.calls import (
    base_method,
    canonical,
    handlers_at,
    name_of,
    result_may_be_none,
    sets_a_mode_back,
    shallow_copy,
    source_of_value,
    without_modes,
)
from tintype.compiler.expressions import Expression, evaluated, expression_key
from tintype.compiler.making import NotMadeError, expression_of_new
from tintype.compiler.numbers import Number, copied, holds_number, number, settled
from tintype.compiler.plain_again import PlainAgain
from tintype.compiler.reading_again import ReadingAgain
from tintype.compiler.reads import ITSELF, TENSORS, Reads
from tintype.compiler.sources import Guard, Raised, Source
from tintype.compiler.trace import Call, Effect, flattened
from tintype.ir.call_values import PLAIN, is_library

# reads of sizes, as attributes and methods
SIZES = frozenset({".shape", "size", "numel", "nelement", "__len__"})


class Capture(Reads):
    """What was noted of one run."""

    # --- expressions ---------------------------------------------------------------------------------------------

    def expression(self, value: Any) -> Expression:
        """How to make a value again; raises NotMadeError."""
        kind = type(value)
        if kind in PLAIN or value is ... or value is NotImplemented:
            return ("constant", value)
        if isinstance(value, Number):
            return value.expression
        if self.has_numbers and kind in (torch.Size, slice) and holds_number(value):
            if kind is slice:
                return expression_of_new(value, self.expression)
            return ("make", torch.Size, (("make", "tuple", tuple(map(self.expression, value))),))
        identity = id(value)
        found = self.values.get(identity)
        if found is not None:
            return found
        source = self.sources.get(identity)
        if source is not None:
            return ("source", source)
        if isinstance(value, torch.Tensor):
            raise NotMadeError("a tensor that comes from nowhere that was seen")
        if isinstance(value, (*ITSELF, enum.Enum)) or (kind in known.PLAIN_OWNERS and kind is not tuple):
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
        if type(value) not in PLAIN and not isinstance(value, torch.Tensor):
            self.handed_on.append(value)
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
        name = function.__name__
        self.heard = self.heard or name
        if self.reason is not None:
            return function(*args, **kwargs)
        if name == "__get__":
            attribute = function.__self__.__name__
            if attribute in known.METADATA_ATTRIBUTES:
                return self._metadata("." + attribute, function, args, kwargs)
        elif name in known.METADATA_METHODS and args and isinstance(args[0], torch.Tensor):
            if all(type(value) in PLAIN for value in args[1:]) and not kwargs:
                found = self._metadata(name, function, args, kwargs)
                return settled(found) if name == "__len__" else found  # len() makes a plain number of it
        return self.call(canonical(function), args, kwargs)

    def length_of(self, tensor: torch.Tensor) -> Any:
        """``len(tensor)``, which may vary."""
        return without_modes(self._metadata, ("__len__", torch.Tensor.__len__, (tensor,), {}), {})

    def _metadata(self, read: str, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        tensor = args[0]
        source = self.sources.get(id(tensor))
        inline = source is None or id(tensor) in self.unsettled
        inline = inline or self.has_reshaped or (self.has_writes and read[1:] in known.HISTORY)
        if source is None:
            expression = self.values.get(id(tensor))
            if expression is None:
                self.give_up("a tensor that comes from nowhere that was seen is looked at")
                return function(*args, **kwargs)
            source = source_of_value(expression)
        arguments = tuple(args[1:])
        given = self._given_answer((read, arguments, source.path))
        if not inline or (source.root.kind == "value" and id(tensor) not in self.unsettled):
            # what was done already has rested on the answer, and goes on to do so
            if given is None and read in SIZES and self._vary(tensor, source):
                found = self._sizes(read, arguments, tensor, source)
                if found is not NotImplemented:
                    return found
        try:
            answer = given[0] if given else function(*args, **kwargs)
        except Exception:
            self._note_refused(tensor)
            raise
        made = source.root.kind == "value" and id(tensor) not in self.unsettled
        if self.whole_graphs and made and self.follows and not (self.has_writes and read[1:] in known.HISTORY):
            self.guard("assumed", source, (read, arguments, answer, len(self.calls)))
        elif not self.whole_graphs or inline or self._is_untold(read.lstrip("."), source):  # else it is checked
            self.guard("answer", source, (read, arguments, answer), inline)
        return answer

    def _note_refused(self, tensor: torch.Tensor) -> None:
        """A question about a tensor raises an exception, as for all of so many dimensions and such a layout."""
        self._metadata("dim", torch.Tensor.dim, (tensor,), {})
        self._metadata(".layout", vars(torch._C.TensorBase)["layout"].__get__, (tensor,), {})

    def _vary(self, tensor: torch.Tensor, source: Source) -> bool:
        """Whether some sizes of a tensor may."""
        if not self.whole_graphs:
            return self.varying.any_size(tensor)
        made = source.root.kind == "value" and bool(self.of_free_sizes) and self.varying.any_size(tensor)
        return made or source.path in self.of_free_sizes

    def _is_untold(self, read: str, source: Source) -> bool:
        """Whether the guard of a tensor that graphs get says nothing about some metadata."""
        return read in known.NOT_DESCRIBED or (source.path in self.of_free_sizes and read in known.BY_SIZES)

    def _sizes(self, read: str, arguments: tuple[Any, ...], tensor: torch.Tensor, source: Source) -> Any:
        """Sizes of a tensor, of which some vary; NotImplemented: it has no such size."""
        place = Source("attribute", "shape", source)
        given = self.given_shapes.get(place.path) if len(self.calls) < len(self.given) else None
        shape = without_modes(getattr, (tensor, "shape"), {}) if given is None else given
        made = source.root.kind == "value"
        self.guard("length", place, len(shape))
        asked = 0 if read == "__len__" else arguments[0] if arguments else -1
        if (arguments or read == "__len__") and not -len(shape) <= asked < len(shape):
            return NotImplemented
        sizes = []
        for dim, size in enumerate(shape):
            item = Source("item", dim, place)
            if self.varying.size(tensor, place, dim, made):
                self.guard("type", item, int)  # in the place where another run rests on the size
                sizes.append(number(self, size, ("source", item)))
            else:
                self.guard("value", item, size)
                sizes.append(size)
        if read in ("numel", "nelement"):
            return math.prod(sizes)
        if read == "__len__":
            return sizes[0]
        return sizes[arguments[0]] if arguments else torch.Size(sizes)

    def call(
        self, function: Any, args: Any, kwargs: dict[str, Any], step: str | None = None, done_by: Any = None
    ) -> Any:
        """Do a call, or take its result from what was done already, and note it.

        ``done_by`` does it where it isn't the function as it is."""
        perform, number = function if done_by is None else done_by, len(self.calls)
        if self.reason is not None:
            return self.perform(perform, args, kwargs)
        make: Callable[[Any], Expression] = self._argument if step is None else self.expression_given_away
        try:
            callee = self._callee(function)
            arguments = tuple(map(make, args))
            keywords = {name: make(value) for name, value in kwargs.items()}
        except NotMadeError as error:
            self.give_up(f"{error} is given to {name_of(function)}")
            return self.perform(perform, args, kwargs)
        varies = self.has_numbers and (holds_number(args) or holds_number(kwargs))
        if varies:
            args, kwargs = copied(tuple(args)), copied(kwargs)
        caught = self._is_caught()
        call = Call(number, callee, arguments, keywords, caught is not None, self.location(), step)
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
            self.results.append(without_modes(_kept, (result,), {}))
            call.has_history, call.makes_leaf = without_modes(_history, (result, self.sources), {})
            self.follows = self.follows and step is None and not varies and known.gives_sizes_by_sizes(function, args)
        self.segments[-1].body.append(call)
        if type(result) is Raised:
            call.step = call.step or f"{name_of(function)} raises an exception"
            self.read(Source("attribute", "error", Source("value", number)), result.error)
            raise result.error
        if call.careful:
            returned = Source("value", number)
            if caught:
                self.guard("returned", returned, None)
            else:  # a run in which it raises ends with that: nothing goes on from there
                self.segments[-1].body.append(Guard("returned", returned, None, True))
        self._note_writes(function, args, kwargs)
        self._note_state(function, args)
        may_be_missing = type(function) is types.MethodWrapperType and result_may_be_none(function)
        if step is None and may_be_missing:
            step = ""
        is_given_back = known.gives_back(function, args, kwargs) or (self.whole_graphs and self.follows)
        return self._note_result(number, result, step, is_given_back)

    def perform(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The call that made the noting end."""
        if self.has_numbers:
            args, kwargs = PlainAgain(self.sources).value((tuple(args), kwargs))
        return function(*args, **kwargs)

    def _argument(self, value: Any) -> Expression:
        """How to make an argument of a call again. A tuple of plain values, such as the sizes that a layer normalizes
        over, is part of a backend's graph, as long as it was not seen to vary."""
        if self.whole_graphs and type(value) is tuple and all(type(item) in PLAIN for item in value):
            source = self.sources.get(id(value))
            if source is not None and source.root.kind != "value" and not source.is_now:
                if not self.varying.is_seen(source):
                    self.guard("value", source, value)
                    return expression_of_new(value, self.expression)
        return self.expression(value)

    def _callee(self, function: Any) -> Expression:
        owner = getattr(function, "__self__", None)
        if isinstance(function, types.BuiltinFunctionType) and owner is not None and id(function) not in self.sources:
            if not isinstance(owner, (type, ModuleType)):
                method = base_method(type(owner), function.__name__)
                if method is not None:
                    return ("make", MethodType, (("constant", method), self.expression(owner)))
                return ("method", self.expression(owner), function.__name__)
        if type(function) is MethodType:
            return ("method", self.expression(function.__self__), function.__name__)
        source = self.sources.get(id(function))
        if source is not None and type(function) is FunctionType and function.__closure__:
            return ("source", source)
        if id(function) in self.values:
            return self.values[id(function)]
        if source is not None and not isinstance(function, ITSELF) and type(function) is not FunctionType:
            return ("source", source)
        return ("constant", function)

    def _is_caught(self) -> bool | None:
        """Whether somebody would catch what a call raises; False: some code cleans up, and lets it pass; None: no."""
        found: bool | None = None
        frame = None if self.machine is None else self.machine.frame
        while frame is not None:
            place = (frame.decoded, frame.pc)
            handlers = self._handlers.get(place)
            if handlers is None:
                handlers = self._handlers[place] = handlers_at(frame.decoded, frame.pc)
            for handler in handlers:
                if not sets_a_mode_back(frame, handler):
                    if not handler.cleans_up:
                        return True
                    found = False
            frame = frame.back
        return found

    def _note_writes(self, function: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if known.writes(function) or "out" in kwargs:
            self.has_writes = self.calls[-1].writes = True
            self.has_reshaped = self.has_reshaped or known.reshapes(function) or "out" in kwargs
            for value in (*args, *kwargs.values()):
                if isinstance(value, torch.Tensor):
                    self.unsettled.add(id(value))
                elif isinstance(value, (list, tuple)):
                    self.unsettled.update(id(item) for item in value if isinstance(item, torch.Tensor))

    def _note_result(self, number: int, result: Any, step: str | None, is_given_back: bool) -> Any:
        """``is_given_back``: that the result is what went in, if it is, needs no guard."""
        if step is not None:
            self._steps_done += 1
            return self._note_step(number, result)
        if isinstance(result, torch.Tensor):
            found = self.values.get(id(result))
            if found is not None and found[0] == "value":
                self.calls[number].same_as = found[1]
            self.calls[number].gives_tensor = True
            if found is not None or id(result) in self.sources:
                self.calls[number].alias = self.expression(result)
                if not is_given_back:
                    self._guard_sameness(Source("value", number), result)
            self._note_value(("value", number), result)
        elif type(result) in (list, tuple) or isinstance(result, tuple):
            if isinstance(result, tuple) and all(type(item) is torch.Tensor for item in result):
                if not any(id(item) in self.values or id(item) in self.sources for item in result):
                    self.calls[number].tensors = len(result)
            self._note_parts(("value", number), Source("value", number), result, is_given_back)
        elif result is not None:
            if type(result) in PLAIN:
                self.calls[number].step = f"{self._said(number)} gives a {type(result).__name__}, which is looked at"
                if not self._said(number).rpartition(".")[2].startswith("__"):  # else C wants a plain number
                    return self.read_number(Source("value", number), result)
            self.read(Source("value", number), result)
            if type(result) not in PLAIN:
                self._note_value(("value", number), result)
        return result

    def _said(self, number: int) -> str:
        return name_of(self.calls[number].function[1]) if self.calls[number].function[0] == "constant" else "a call"

    def _note_step(self, number: int, result: Any) -> Any:
        source = Source("value", number)
        if isinstance(result, torch.Tensor) and id(result) not in self.sources and id(result) not in self.values:
            self.guard("type", source, type(result))
            if type(result) not in TENSORS:
                self.give_up(f"a tensor of the class {type(result).__name__}")
            self._note_value(("value", number), result)
            return result
        return self.read_number(source, result)

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

    def _guard_sameness(self, source: Source, value: Any) -> None:
        """A result is a tensor that was there already."""
        known_as = self.sources.get(id(value)) or source_of_value(self.values[id(value)])
        self.guard("same", source, known_as)

    def _note_parts(self, expression: Expression, source: Source, values: Any, is_given_back: bool) -> None:
        if isinstance(values, tuple):
            self._note_value(expression, values)
        is_told = self.whole_graphs and self.follows
        if type(values) in (tuple, list) and not is_told and id(self.calls[-1].function[1]) not in known.FIXED_COUNT:
            self.guard("length", source, len(values))
        for position, value in enumerate(values):
            part = ("part", expression, position)
            place = Source("item", position, source)
            if isinstance(value, torch.Tensor):
                if not is_given_back and (id(value) in self.values or id(value) in self.sources):
                    self._guard_sameness(place, value)
                self._note_value(part, value)
            elif type(value) in (list, tuple):
                self._note_parts(part, place, value, is_given_back)
            elif value is not None:
                self.read(place, value)

    # --- effects -------------------------------------------------------------------------------------------------

    def effect(self, kind: str, owner: Any, name: Any, values: tuple[Any, ...], deletes: bool = False) -> None:
        """Note a write to something that was there before."""
        if self.reason is not None:
            return
        self.known_reads.clear()
        self.identities.written(owner)
        try:
            place = self.expression(owner)
            at = (kind, id(owner), name) if kind.endswith("attribute") or kind == "cell" else None
            made = tuple(self.expression_given_away(value, at) for value in values)
            named = self.expression(name) if kind == "item" else name
        except NotMadeError as error:
            self.handed_on.extend(values)
            self.give_up(f"{error} is stored")
            return
        self.segments[-1].body.append(Effect(kind, place, named, made, deletes))
        self.again.note_write(kind, owner, name)
        frame = None if self.machine is None else self.machine.frame
        self.last_write = None if frame is None else (frame, frame.pc)

    def nothing_is_written(self) -> None:
        """The write that was noted last has raised an exception, as it will in every run with these guards."""
        if self.reason is None:
            self.segments[-1].body.pop()
            self.last_write = None

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
        if expression[0] == "number":
            return evaluated(expression, self.args, self.kwargs, self.results)
        match expression[0]:
            case "value":
                return self.results[expression[1]]
            case "part":
                return self.value_of(expression[1])[expression[2]]
        return expression[1].fetch(self.args, self.kwargs, self.results)

    def without_numbers(self, result: Any) -> Any:
        """The result as others get it, and what the program stored elsewhere: with plain numbers."""
        plain = PlainAgain(self.sources)
        plain.value(self.handed_on)
        return plain.value(result)

    def let_go(self) -> None:
        """Keep nothing of the program's alive: policies and machines hold on to each other, and to this."""
        self.args, self.kwargs = (), {}
        self.machine = None
        for held in (self.kept, self.results, self.given, self.handed_on, self._given_away):
            held.clear()
        for table in (self.sources, self.values, self.originals, self.shadows, self.known_reads):
            table.clear()
        self.last_write, self.again = None, ReadingAgain()

    def items(self) -> list[Any]:
        return flattened(self.segments)


def _history(result: Any, sources: Mapping[int, Any]) -> tuple[bool, bool]:
    """Whether a result has a history, and whether it is a new leaf of autograd's graph: gradients end there."""
    tensors = [item for item in _leaves(result) if isinstance(item, torch.Tensor) and item.requires_grad]
    return bool(tensors), any(tensor.is_leaf and id(tensor) not in sources for tensor in tensors)


def _leaves(result: Any) -> list[Any]:
    return [leaf for item in result for leaf in _leaves(item)] if isinstance(result, (tuple, list)) else [result]


def _kept(result: Any) -> Any:
    """A result as an example for backends; the program's own object may go when the program lets go of it."""
    if isinstance(result, torch.Tensor):
        kept = result.detach()
        return kept.requires_grad_() if result.requires_grad and not result.is_inference() else kept
    if type(result) in (tuple, list):
        return [_kept(item) for item in result]
    return tuple(map(_kept, result)) if isinstance(result, tuple) else result
