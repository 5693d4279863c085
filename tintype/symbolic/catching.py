"""Who would catch what is raised somewhere in a program.

``except`` catches, whatever it names; ``finally`` does if it leaves by itself; a ``with`` block does if the manager's
``__exit__`` may answer True, which is read from its code.
"""

from __future__ import annotations

import dis
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import _GeneratorContextManager
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeVar

from tintype.errors import TintypeError

from .location import caller_of, program_generator

_OWN = os.path.dirname(os.path.abspath(TintypeError.__init__.__code__.co_filename)) + os.sep
# functions whose callers, of Python or torch, take some exceptions for answers
_PROTOCOLS: dict[str, tuple[type[BaseException], ...]] = {
    "__getitem__": (IndexError, KeyError),
    "__index__": (TypeError,),
    "__len__": (TypeError,),
    "__length_hint__": (TypeError,),
    "__missing__": (KeyError,),
}
ANSWERS = (StopIteration, StopAsyncIteration, AttributeError)  # of any function: of a property, say
# packages whose managers pass exceptions on, though that is not seen in their code
_PASS_ON = ("torch", "tintype", "threading", "_thread")
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLASSDEREF")
_NOTHING = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "COPY_FREE_VARS", "RESUME"})
_UNKNOWN: Any = object()
_begins: dict[int, CodeType] = {}  # by their ids: to hash code takes longer than to look at a frame
_F = TypeVar("_F", bound=Callable[..., Any])


def begins_program(function: _F) -> _F:
    """Marks a function that calls a program: who called that one is no part of the program."""
    _begins[id(function.__code__)] = function.__code__
    return function


def is_caught_by_callers(frame: FrameType, error: BaseException | None = None) -> bool:
    """Whether a caller of a frame of the program may catch what that one raises; ``error`` where it is known."""
    answers = error is not None and isinstance(error, _PROTOCOLS.get(frame.f_code.co_name, ()))
    caller = caller_of(frame)
    while caller is not None and id(caller.f_code) not in _begins:
        if not caller.f_code.co_filename.startswith(_OWN):
            if answers or isinstance(error, ANSWERS) or is_caught(caller, caller.f_lasti):
                return True
            answers = error is not None and isinstance(error, _PROTOCOLS.get(caller.f_code.co_name, ()))
        caller = caller_of(caller)
    return False


def goes_on_after(
    frame: FrameType, error: type[BaseException], calls: Mapping[Any, Any], known: dict[Any, bool]
) -> bool:
    """Whether a frame of the program, or one that called it, may go on after an error of a class raised now.

    ``calls`` are calls that run by their frames, objects of which there is one for each. What is around them stands
    still meanwhile: the answers for that are kept in ``known``."""
    at: FrameType | None = frame
    passed: list[Any] = []
    answer: bool | None = None
    while answer is None:
        if at is None or id(code := at.f_code) in _begins:
            answer = False
            break
        if (call := calls.get(at)) is not None:
            place = call, at.f_lasti, error
            if (answer := known.get(place)) is not None:
                break
            passed.append(place)
        if code.co_exceptiontable and _is_guarded(code, at.f_lasti) and not code.co_filename.startswith(_OWN):
            if _takes(at, at.f_lasti, error):
                answer = True
        at = caller_of(at)
    known.update(dict.fromkeys(passed, answer))
    return answer


def _is_guarded(code: CodeType, offset: int) -> bool:
    """Whether there are handlers for what is raised at an offset. Asked of all callers of a view, again and again, so
    that it is remembered by the code's id."""
    known = _guarded.get(id(code))
    if known is None:
        if len(_guarded) >= 1024:
            _guarded.clear()
        known = _guarded[id(code)] = code, {}  # what is held keeps its address to itself
    answers = known[1]
    answer = answers.get(offset)
    if answer is None:
        answer = answers[offset] = _handler_at(code, offset) is not None
    return answer


_guarded: dict[int, tuple[CodeType, dict[int, bool]]] = {}


def _takes(frame: FrameType, offset: int, error: type[BaseException]) -> bool:
    """Whether a frame may catch an error of a class that is raised at an offset of its code."""
    seen: set[int] = set()
    while (found := _handler_at(frame.f_code, offset)) is not None and found.begin not in seen:
        seen.add(found.begin)
        offset = found.again
        if found.kind == "with":
            if _may_swallow(_manager(frame, found)):
                return True
        elif found.kind == "except":
            behind = _behind_clauses(frame, found.begin, error)
            if behind is None:
                return True
            offset = behind
    return False


def _behind_clauses(frame: FrameType, target: int, error: type[BaseException]) -> int | None:
    """Where an error is raised again that no ``except`` of a handler names; None if one names it, or may."""
    steps = _instructions(frame.f_code)
    places = {step.offset: index for index, step in enumerate(steps)}
    index = next((index for index, step in enumerate(steps) if step.offset >= target), len(steps))
    named: list[Any] = []
    while index < len(steps):
        step = steps[index]
        index += 1
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            tables = (frame.f_globals, *_builtins(frame.f_globals))
            named.append(next((table[step.argval] for table in tables if step.argval in table), _UNKNOWN))
        elif step.opname == "LOAD_ATTR" and named:
            named[-1] = _attribute(named[-1], step.argval)
        elif step.opname == "BUILD_TUPLE" and len(named) >= step.argval > 0:
            named[-step.argval :] = [tuple(named[-step.argval :])]
        elif step.opname == "CHECK_EXC_MATCH" and named:
            kinds = named.pop()
            kinds = kinds if type(kinds) is tuple else (kinds,)
            if not all(isinstance(kind, type) for kind in kinds) or issubclass(error, kinds):
                return None
            index = places.get(steps[index].argval, len(steps))  # where the next one is tried
        elif step.opname == "RERAISE":
            return step.offset
        elif step.opname != "PUSH_EXC_INFO":
            return None
    return None


@functools.lru_cache(maxsize=1024)
def may_catch(code: CodeType) -> bool:
    """Whether there is an ``except`` or a ``with`` in code, or in the functions that are written in it."""
    inner = (value for value in code.co_consts if isinstance(value, CodeType))
    return any(_look_at(code, entry.target)[0] != "finally" for entry in _table(code)) or any(map(may_catch, inner))


@functools.lru_cache(maxsize=1024)
def _table(code: CodeType) -> tuple[Any, ...]:
    return tuple(dis._parse_exception_table(code))  # type: ignore[attr-defined]


def is_caught(frame: FrameType, offset: int) -> bool:
    """Whether a frame may catch what is raised at an offset of its code."""
    return any(
        handler.kind == "except" or (handler.kind == "with" and _may_swallow(_manager(frame, handler)))
        for handler in _handlers(frame.f_code, offset)
    )


class Handler(NamedTuple):
    """Where an exception goes: ``except``, ``with`` or ``finally``."""

    kind: str
    depth: int  # of the stack, below which what it needs lies
    item: int  # of ``with``: the offset where the block is entered
    begin: int
    again: int  # where it raises the exception again


@functools.lru_cache(maxsize=4096)
def _handlers(code: CodeType, offset: int) -> tuple[Handler, ...]:
    """The handlers that an exception passes which is raised at an offset, from the inside out, as far as none of them
    is sure to catch it."""
    found: list[Handler] = []
    seen: set[int] = set()
    while (handler := _handler_at(code, offset)) is not None and handler.begin not in seen:
        seen.add(handler.begin)
        found.append(handler)
        offset = handler.again
        if handler.kind == "except":
            break
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def _handler_at(code: CodeType, offset: int) -> Handler | None:
    """Where an exception goes first that is raised at an offset."""
    entries = _table(code)
    entry = next((entry for entry in entries if entry.start <= offset < entry.end), None)
    if entry is None:
        return None
    kind, again = _look_at(code, entry.target)
    block = min(other.start for other in entries if other.target == entry.target)
    return Handler(kind, entry.depth, _entered_before(code, block) if kind == "with" else -1, entry.target, again)


@functools.lru_cache(maxsize=4096)
def _look_at(code: CodeType, target: int) -> tuple[str, int]:
    """The kind of a handler, and where it raises the exception again."""
    kind = "finally"
    for step in _instructions(code):
        if step.offset < target:
            continue
        name = step.opname
        if name == "WITH_EXCEPT_START":
            kind = "with"
        elif name == "RERAISE":
            return kind, step.offset
        elif kind == "finally" and name.startswith(("CHECK_E", "POP_EXCEPT", "RETURN")):
            if name != "POP_EXCEPT" or not _is_cleanup(code, target):
                return "except", step.offset
    return "except", target


def _is_cleanup(code: CodeType, target: int) -> bool:
    """Whether a handler only sees to the handling of exceptions itself: COPY, POP_EXCEPT, RERAISE."""
    names = [step.opname for step in _instructions(code) if step.offset >= target][:3]
    return names == ["COPY", "POP_EXCEPT", "RERAISE"]


def _entered_before(code: CodeType, offset: int) -> int:
    entered = (step.offset for step in _instructions(code) if step.opname == "BEFORE_WITH")
    return max((item for item in entered if item < offset), default=-1)


@functools.lru_cache(maxsize=1024)
def _instructions(code: CodeType) -> tuple[dis.Instruction, ...]:
    return tuple(step for step in dis.get_instructions(code) if step.opname not in _NOTHING)


# --- managers ------------------------------------------------------------------------------------------------------


def _manager(frame: Any, handler: Handler) -> Any:
    """The manager of a ``with`` block, or in a tuple what is called to make it; ``_UNKNOWN`` if it can't be told."""
    interpreted = getattr(frame, "frame", None)
    if interpreted is not None:  # the stack of a frame that is interpreted can be looked at
        leave = interpreted.stack[handler.depth - 1]
        return getattr(leave, "__self__", _UNKNOWN)
    return _written(frame.f_code, handler.item, frame.f_locals, frame.f_globals)


def _written(code: CodeType, item: int, names: Mapping[str, Any], more: Mapping[str, Any]) -> Any:
    """What stands behind ``with``: read from the code, as far as nothing has to be called for it."""
    steps = _instructions(code)
    last = next((index for index, step in enumerate(steps) if step.offset == item), 0)
    span = steps[last].positions
    first = last
    while first and _is_within(steps[first - 1].positions, span):
        first -= 1
    if steps[first].opname not in _LOADS:
        return _UNKNOWN
    name = steps[first].argval
    value = next((place[name] for place in (names, more, *_builtins(more)) if name in place), _UNKNOWN)
    index = first + 1
    while steps[index].opname in ("LOAD_ATTR", "LOAD_METHOD"):
        value = _attribute(value, steps[index].argval)
        index += 1
    return value if value is _UNKNOWN or index == last else (value,)


def _is_within(inner: Any, outer: Any) -> bool:
    if inner is None or outer is None or None in inner or None in outer:
        return False
    begins = (outer.lineno, outer.col_offset) <= (inner.lineno, inner.col_offset)
    return begins and (inner.end_lineno, inner.end_col_offset) <= (outer.end_lineno, outer.end_col_offset)


def _builtins(names: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    found = names.get("__builtins__", {})
    yield vars(found) if isinstance(found, ModuleType) else found


def _attribute(owner: Any, name: str) -> Any:
    """An attribute that is found without running anything."""
    if isinstance(owner, ModuleType):
        return vars(owner).get(name, _UNKNOWN)
    if owner is _UNKNOWN:
        return _UNKNOWN
    own = getattr(owner, "__dict__", None)
    if isinstance(own, Mapping) and name in own:
        found = own[name]
    else:
        kinds = (owner if isinstance(owner, type) else type(owner)).__mro__
        found = next((vars(kind)[name] for kind in kinds if name in vars(kind)), _UNKNOWN)
    found = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
    return _UNKNOWN if isinstance(found, property) or type(found).__name__ == "member_descriptor" else found


def _may_swallow(manager: Any) -> bool:
    """Whether the block of a manager, or of one that a callable makes, may end well though something was raised."""
    if manager is _UNKNOWN:
        return True
    if isinstance(manager, _GeneratorContextManager):
        running = program_generator(manager.gen)  # type: ignore[arg-type]
        return running is None or _generator_may_swallow(*running)
    if type(manager) is not tuple:
        return _exit_may_swallow(type(manager))
    (maker,) = manager
    maker = maker.__func__ if isinstance(maker, MethodType) else maker
    if isinstance(maker, type):
        return _exit_may_swallow(maker)
    if not isinstance(maker, FunctionType):
        return True
    if maker.__module__.partition(".")[0] in _PASS_ON:
        return False
    generator = getattr(maker, "__wrapped__", None)
    is_manager = maker.__code__.co_filename == _GeneratorContextManager.__enter__.__code__.co_filename
    if not is_manager or not isinstance(generator, FunctionType):
        return True
    return _generator_may_swallow(generator.__code__, generator.__globals__)


def _exit_may_swallow(kind: type) -> bool:
    if kind.__module__.partition(".")[0] in _PASS_ON:
        return False
    leave = next((vars(base)["__exit__"] for base in kind.__mro__ if "__exit__" in vars(base)), None)
    return isinstance(leave, FunctionType) and not _answers_no(leave.__code__)


@functools.lru_cache(maxsize=256)
def _answers_no(code: CodeType) -> bool:
    """Whether what a function returns is None or False, wherever it does."""
    steps = _instructions(code)
    for before, step in zip((None, *steps), steps, strict=False):
        if step.opname == "RETURN_CONST" and step.argval:
            return False
        if step.opname == "RETURN_VALUE" and (before is None or before.opname != "LOAD_CONST" or before.argval):
            return False
    return True


def _generator_may_swallow(code: CodeType, names: Mapping[str, Any]) -> bool:
    """Whether a manager made of a generator catches what is raised where it yields."""
    if str(names.get("__name__")).partition(".")[0] in _PASS_ON:
        return False
    for step in _instructions(code):
        for handler in _handlers(code, step.offset) if step.opname == "YIELD_VALUE" else ():
            if handler.kind == "except":
                return True
            if handler.kind == "with" and _may_swallow(_written(code, handler.item, {}, names)):
                return True
    return False
