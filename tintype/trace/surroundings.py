"""Functions that tell a program about its surroundings or change them, watched while a program is captured.

What the program asks (is a gradient wanted? is autocast on?) is noted; what it changes for good, and random numbers
that no operator draws, is refused.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

import torch
from torch.backends import ContextProp

from tintype.errors import CaptureError
from tintype.fake.tensor import FakeTensor
from tintype.ir.observations import GROUP_RANK, GROUP_SIZE, SURROUNDINGS
from tintype.ir.process_switches import CountedSwitch, replaced_names
from tintype.symbolic.location import program_caller, standing_in, user_location, users_caller
from tintype.trace.function_mode import tensor_of
from tintype.trace.operator_questions import asking_operators
from tintype.trace.places import is_memory
from tintype.trace.recorder import Recorder, active_recorder

# What changes torch for everything that runs afterwards, by name; each with where it is found.
_SETTERS: dict[str, ModuleType] = {
    "cuda.manual_seed": torch.cuda,
    "cuda.manual_seed_all": torch.cuda,
    "cuda.get_rng_state": torch.cuda,
    "cuda.set_rng_state": torch.cuda,
    "get_rng_state": torch,
    "manual_seed": torch,
    "random.fork_rng": torch.random,
    "random.get_rng_state": torch.random,
    "random.manual_seed": torch.random,
    "random.seed": torch.random,
    "random.set_rng_state": torch.random,
    "seed": torch,
    "set_autocast_dtype": torch,
    "set_autocast_enabled": torch,
    "set_default_device": torch,
    "set_default_dtype": torch,
    "set_default_tensor_type": torch,
    "set_rng_state": torch,
    "use_deterministic_algorithms": torch,
}
_set_gradients = torch.set_grad_enabled.__init__


def _asking_recorder() -> Recorder | None:
    """The recorder of the program whose own code called the caller; None if torch did, or nothing is captured."""
    if users_caller(2) is None:
        return None
    recorder = active_recorder()
    return recorder if recorder is not None and recorder.is_recording else None


def _watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def ask(*args: Any, **kwargs: Any) -> Any:
        answer = function(*args, **kwargs)
        recorder = _asking_recorder()
        if recorder is None:
            return answer
        if type(answer) is bool and _makes_no_difference(users_caller(1), program_caller(1)):
            return answer
        return recorder.observer.asked_surroundings(recorder, name, (*args, *kwargs.values()), answer)

    return functools.update_wrapper(ask, function)


def _makes_no_difference(user: FrameType | None, caller: FrameType | None) -> bool:
    """Whether the user's code asked by itself, and goes on in the same way whatever it is told."""
    if user is None or caller is None or user.f_code is not caller.f_code:
        return False
    from tintype.trace.idle_answers import makes_no_difference  # few programs ask

    return makes_no_difference(user)


def _watched_group(fact: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.distributed.get_rank`` and ``get_world_size``: what is asked of a group, by its name."""

    def ask(group: Any = None) -> Any:
        answer = function(group)
        recorder = _asking_recorder()
        if recorder is not None and torch.distributed.is_initialized():
            known: Any = torch.distributed.group.WORLD if group is None else group
            recorder.observer.surroundings(recorder, fact, (known.group_name,), answer)
        return answer

    return functools.update_wrapper(ask, function)


def _refused(name: str, remedy: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if _asking_recorder() is not None:
            raise CaptureError(
                f"the program calls {name}, whose effect can't be captured", location=user_location(), remedy=remedy
            )
        result = function(*args, **kwargs)
        if name.endswith("et_rng_state"):
            recorder = active_recorder()
            if recorder is not None:  # torch.utils.checkpoint does that, to draw the same numbers again
                state = (args[0] if args else kwargs["new_state"]) if ".set_" in name else result
                device = "cuda" if ".cuda." in name else "cpu"
                event = (recorder.graph._root.prev, device, state, ".set_" in name)
                recorder.observer.generator_states.append(event)
        return result

    return refuse


_BEFORE = (
    "call it before the program; for numbers that are random in the same way every time, make them once and keep "
    "them in a buffer"
)
_WITH_TORCH = "draw with torch's operators (torch.rand, torch.randint, ...): what is drawn in Python is drawn once"


def _watched_gradients(self: Any, mode: bool) -> None:
    recorder = _asking_recorder()
    if recorder is not None:
        recorder.observer.switched_gradients = user_location()
    _set_gradients(self, mode)


@functools.cache
def _drawing_functions(with_arrays: bool) -> list[tuple[ModuleType, str]]:
    """The functions that draw random numbers which no operator draws: those of Python's and NumPy's one generator."""
    generators: list[tuple[ModuleType, Any]] = [(random, random._inst)]
    if with_arrays:
        import numpy

        generators.append((numpy.random, numpy.random.mtrand._rand))
    drawing = [
        (module, name)
        for module, generator in generators
        for name, function in list(vars(module).items())
        if getattr(function, "__self__", None) is generator and callable(function)
    ]
    return [*drawing, *((module, "seed") for module, _ in generators[1:])]  # a function around a method of NumPy's


def _places() -> Iterator[tuple[Any, str, str]]:
    """Where the functions that tell of the surroundings are found: what has them, their name there, and ours.

    torch binds some by several names, and its flags (``torch.backends.mkldnn.enabled``) hold the functions that they
    ask. Tables are copied before they are gone through: other threads import modules."""
    names = {function: name for name, function in SURROUNDINGS.items()}
    kinds = {type(function) for function in names}
    backends = [module for name, module in list(sys.modules.items()) if name.startswith("torch.backends.")]
    flags = [flag for module in backends for flag in vars(type(module)).values() if isinstance(flag, ContextProp)]
    inner = [vars(module).get("m", module) for module in backends]  # flags are attributes of a module around it
    for holder in (torch, torch._C, torch.cuda, torch.xpu, torch.accelerator, *inner, *flags):
        for name, value in list(vars(holder).items()):
            if type(value) in kinds and value in names:
                yield holder, name, names[value]


def _asking_method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch's that asks what a method of tensors does: those of ours hear it."""

    def ask(tensor: Any) -> Any:
        return getattr(tensor, name)() if type(tensor) is FakeTensor else function(tensor)

    return functools.update_wrapper(standing_in(ask), function)


_MAY_VARY = (list, tuple, torch.SymInt, torch.SymFloat, torch.SymBool)


def _tensor_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.tensor`` and its kin: what Python's floats become is a constant of the program, and the default dtype
    decides which."""

    def make(data: Any, *args: Any, **kwargs: Any) -> Any:
        result = NotImplemented
        if _holds_objects(data):
            data, dtype = _as_numbers(data)
            kwargs = {"dtype": dtype, **kwargs} if dtype is not None else kwargs
        if isinstance(data, _MAY_VARY) and not args and _asking_recorder() is not None:
            result = tensor_of(data, **kwargs)
        if result is NotImplemented:
            with _making_tensor_of(data):
                result = function(data, *args, **kwargs)
        if kwargs.get("dtype") is None and not args and not hasattr(data, "dtype"):
            recorder = _asking_recorder() if result.dtype.is_floating_point or result.dtype.is_complex else None
            if recorder is not None:
                recorder.observer.surroundings(recorder, "get_default_dtype", (), torch.get_default_dtype())
        return result

    return functools.update_wrapper(make, function)


def _from_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.from_numpy`` of an array of numbers that vary, which NumPy keeps as objects."""

    def make(array: Any) -> Any:
        numbers, dtype = _as_numbers(array) if _holds_objects(array) else (array, None)
        if dtype is not None:
            return tensor_of(numbers, dtype=dtype)
        with _making_tensor_of(numbers):
            return function(numbers)

    return functools.update_wrapper(make, function)


def _making_tensor_of(data: Any) -> contextlib.AbstractContextManager[None]:
    """A tensor is made of an array, which it may share memory with."""
    recorder = active_recorder() if is_memory(type(data)) else None
    return contextlib.nullcontext() if recorder is None else recorder.context.arrays.making_tensor_of(data)


def _holds_objects(value: Any) -> bool:
    """Whether a program that is captured has an array of objects."""
    recorder = active_recorder() if getattr(getattr(value, "dtype", None), "kind", "") == "O" else None
    return recorder is not None and recorder.is_recording


def _as_numbers(array: Any) -> tuple[Any, torch.dtype | None]:
    """An array that NumPy keeps as objects, since numbers that vary are or were among them: a list and the dtype that
    NumPy would have them in, if they still are; an array of plain numbers otherwise."""
    import numpy

    items = array.ravel().tolist()
    kinds = {type(item) for item in items}
    if kinds & {torch.SymInt, torch.SymBool, torch.SymFloat}:
        dtype = torch.bool if kinds <= {bool, torch.SymBool} else torch.int64
        floats = any(issubclass(kind, (float, torch.SymFloat)) for kind in kinds)
        return array.tolist(), torch.float64 if floats else dtype
    plain = numpy.array(items, dtype=None if items else numpy.int64)
    return (array if plain.dtype.kind not in "biufc" else plain.reshape(array.shape)), None


def _asserted(function: Callable[..., Any]) -> Callable[..., Any]:
    """``torch._assert`` of what only a run can tell, which the program asserts when it runs."""

    def check(condition: Any, message: Any) -> None:
        if type(condition) is FakeTensor and condition.dim() == 0 and _asking_recorder() is not None:
            torch.ops.aten._assert_async.msg(condition, str(message))
        elif isinstance(condition, torch.SymBool):
            torch._check(condition, lambda: str(message))
        else:
            function(condition, message)

    return functools.update_wrapper(check, function)


def _makers(with_arrays: bool) -> dict[Any, dict[str, Callable[[Any], Any]]]:
    """By module (or what else has names) and name, what makes the stand-in for a function from what is there."""
    makers: dict[Any, dict[str, Callable[[Any], Any]]] = {}
    for holder, name, known_as in _places():
        makers.setdefault(holder, {})[name] = functools.partial(_watched, known_as)
    for name in ("is_conj", "is_inference", "is_neg"):
        makers[torch][name] = functools.partial(_asking_method, name)
    for name in ("tensor", "as_tensor", "asarray"):
        makers[torch][name] = _tensor_of
    makers[torch]["from_numpy"] = _from_numpy
    makers[torch]["_assert"] = _asserted
    for holder, name, maker in asking_operators():
        makers.setdefault(holder, {})[name] = maker
    if torch.distributed.is_available():
        makers[torch.distributed] = {
            "get_rank": functools.partial(_watched_group, GROUP_RANK),
            "get_world_size": functools.partial(_watched_group, GROUP_SIZE),
        }
    for name, module in _SETTERS.items():
        makers.setdefault(module, {})[name.rpartition(".")[2]] = functools.partial(_refused, f"torch.{name}", _BEFORE)
    for name in ("trace", "trace_module"):
        traced = functools.partial(_refused, f"torch.jit.{name}", "trace before, or call the function itself")
        makers.setdefault(torch.jit, {})[name] = traced
    for module, name in ((os, "urandom"), (random, "_urandom")):  # secrets, uuid4, and NumPy's seeds for want of any
        makers.setdefault(module, {})[name] = functools.partial(_refused, "os.urandom", _WITH_TORCH)
    for module, name in _drawing_functions(with_arrays):
        makers.setdefault(module, {})[name] = functools.partial(_refused, f"{module.__name__}.{name}", _WITH_TORCH)
    return makers


class _Names:
    """Some names of a module, and what stands in for what they name, made once: exports of small models are quick."""

    def __init__(self, holder: Any, makers: dict[str, Callable[[Any], Any]]) -> None:
        self.names = vars(holder)
        self.makers = makers
        self.values_of = operator.itemgetter(*makers)
        self.seen: Any = None
        self.there: dict[str, Any] = {}
        self.stand_ins: dict[str, Any] = {}

    def put_stand_ins(self) -> None:
        values = self.values_of(self.names)
        if values != self.seen:
            self.seen = values
            self.there = {name: self.names[name] for name in self.makers}
            self.stand_ins = {name: make(self.there[name]) for name, make in self.makers.items()}
            _by_function.update((self.there[name], stand_in) for name, stand_in in self.stand_ins.items())
        self.names.update(self.stand_ins)

    def put_back(self) -> None:
        self.names.update(self.there)


class _Name:
    """One name of a module, and what stands in for what it names: many modules have only one."""

    __slots__ = ("make", "name", "names", "stand_in", "there")

    def __init__(self, holder: Any, name: str, make: Callable[[Any], Any]) -> None:
        self.names, self.name, self.make = vars(holder), name, make
        self.there: Any = _NOTHING
        self.stand_in: Any = None


_NOTHING = object()


@functools.cache
def _watched_names(with_arrays: bool) -> tuple[list[_Names], list[_Name]]:
    makers = _makers(with_arrays)
    several = [_Names(holder, named) for holder, named in makers.items() if len(named) > 1]
    single = [_Name(holder, *next(iter(named.items()))) for holder, named in makers.items() if len(named) == 1]
    return several, single


# By each function what stands in for it, for who holds the function itself.
_by_function: dict[Any, Callable[..., Any]] = {}


def stand_ins() -> dict[Any, Callable[..., Any]]:
    """By each function that is watched what stands in for it while a program is captured."""
    if not _by_function:
        with watching_surroundings():
            pass
    return _by_function


def _watch() -> tuple[list[_Names], list[_Name]]:
    several, single = watched = _watched_names("numpy" in sys.modules)
    for names in several:
        names.put_stand_ins()
    for one in single:
        there = one.names[one.name]
        if there is not one.there:
            one.there, one.stand_in = there, one.make(there)
            _by_function[there] = one.stand_in
        one.names[one.name] = one.stand_in
    torch.set_grad_enabled.__init__ = _watched_gradients  # type: ignore[method-assign]
    return watched


def _stop_watching(watched: tuple[list[_Names], list[_Name]]) -> None:
    torch.set_grad_enabled.__init__ = _set_gradients  # type: ignore[method-assign]
    several, single = watched
    for names in several:
        names.put_back()
    for one in single:
        one.names[one.name] = one.there


# While a program is captured, these functions of torch's tell the capture that its program calls them.
watching_surroundings = CountedSwitch(_watch, _stop_watching)
replaced_names.append(watching_surroundings.put_aside)


def refuse_changed_seed(before: int) -> None:
    """Raise if a program that has run left another seed behind."""
    if SURROUNDINGS["initial_seed"]() != before:
        raise CaptureError(
            "the program sets the seed of torch's random numbers (torch.default_generator), which can't be captured",
            remedy="set the seed before the program, and draw with torch's operators alone",
        )


def refuse_changed_gradient_mode(recorder: Recorder) -> None:
    """Raise if a program that has run leaves gradients switched on or off for what comes after it."""
    if torch.is_grad_enabled() is not recorder.modes.grad:
        raise CaptureError(
            "the program switches gradients on or off (torch.set_grad_enabled) and leaves them so, which can't be "
            "captured",
            location=recorder.observer.switched_gradients,
            remedy="use it as a statement: with torch.set_grad_enabled(...):",
        )
