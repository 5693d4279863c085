"""Which functions may compare two truth values, or two tensors, with ``is``.

Nothing hears such a comparison. An answer about sizes that varies is no object of Python's. So where a function
of the model's may make one, all that is asked of sizes is answered at once, and fewer sizes vary. That must not be
for the sake of ``type(x) is Class`` or ``mode is Mode.FAST``, which nearly every library has somewhere: a comparison
one of whose sides can't be a truth value is false, whatever the other one is. A conversion that changes nothing
(``x.float()``) is its argument in eager mode, and another tensor in a program that may be moved: where tensors may be
compared, it is its argument.
"""

from __future__ import annotations

import builtins
import dis
import enum
import inspect
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from tintype.trace.users_code import UsersCode, found_once, found_once_for_all

# ``x is True`` is heard; not from Python 3.13 on (tintype.trace.object_questions)
_TRUE_IS_HEARD = sys.version_info < (3, 13)
_NO_TRUTHS = frozenset({"__class__", "__func__", "__self__", "__code__", "__dict__", "__wrapped__"})
_MAKE_NO_TRUTHS = frozenset({"type", "id", "len", "tuple", "list", "dict", "object", "super"})


class _Named(NamedTuple):
    """A global, or a variable of an outer function, and the attributes of it that code fetches."""

    is_global: bool
    names: tuple[str, ...]


class _Called(NamedTuple):
    """The object that a method is called on."""


def is_called_on(code: CodeType, name: str) -> bool:
    """Whether a variable is the object that a method is called on: ``self`` in a function of a class."""
    owner = code.co_qualname.rpartition(".")[0]
    if name != "self" or not owner or owner.endswith("<locals>") or code.co_varnames[:1] != ("self",):
        return False
    return code.co_argcount > 0 and "self" not in _assigned(code)


@found_once
def _assigned(code: CodeType) -> frozenset[str]:
    """The variables that code assigns or deletes."""
    steps = (step for step in dis.get_instructions(code) if step.opname.startswith(("STORE_FAST", "DELETE_FAST")))
    return frozenset(
        name for step in steps for name in (step.argval if isinstance(step.argval, tuple) else (step.argval,))
    )


def compares_truths(code: UsersCode) -> bool:
    """Whether some function may compare two truth values with ``is``."""
    return any(_compares(code.functions[place], (bool, torch.SymBool)) for place in _comparing(code.codes))


def compares_tensors(code: UsersCode) -> bool:
    """Whether some function may compare two tensors with ``is`` or by ``id()``."""
    return bool(code.named(("id",))) or any(
        _compares(code.functions[place], (torch.Tensor,)) for place in _comparing(code.codes)
    )


@found_once_for_all
def _comparing(codes: list[CodeType]) -> list[int]:
    """Which functions have something to look at."""
    return [place for place, code in enumerate(codes) if _comparisons_of_unknown(code)]


def _compares(function: FunctionType, kinds: tuple[type, ...]) -> bool:
    return any(
        all(side is None or _may_be(function, side, kinds) for side in sides)
        for sides in _comparisons_of_unknown(function.__code__)
    )


@found_once
def _comparisons_of_unknown(code: CodeType) -> tuple[tuple[_Named | _Called | None, ...], ...]:
    """Both sides of each ``is`` that may have truth values, or tensors, on both: where to look for one, None for
    anything."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "EXTENDED_ARG")]
    found: list[tuple[_Named | _Called | None, ...]] = []
    for place, step in enumerate(steps):
        if step.opname == "IS_OP":
            right = _start_of(steps, place)
            left = _start_of(steps, right) if right is not None else None
            sides = (_side(code, steps, left, right), _side(code, steps, right, place, is_right=True))
            if False not in sides:
                found.append(sides)
    for value in code.co_consts:
        if isinstance(value, CodeType):
            inner = _comparisons_of_unknown(value)
            found += [tuple(_seen_from(code, side) for side in sides) for sides in inner]
    return tuple(found)


def _seen_from(outer: CodeType, side: Any) -> _Named | _Called | None:
    """What a function inside of another one fetches: variables of the outer one are anything."""
    if side is None or isinstance(side, _Called) or side.is_global or side.names[0] in outer.co_freevars:
        return side
    return None


def _start_of(steps: list[dis.Instruction], end: int) -> int | None:
    """Where the code of the value begins that is on the stack before an instruction; None where that takes jumps."""
    missing, place = 1, end
    while missing > 0 and place > 0:
        if steps[place].is_jump_target:
            return None
        place -= 1
        step = steps[place]
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return None
        missing -= dis.stack_effect(step.opcode, step.arg)
    return place if missing == 0 else None


def _side(
    code: CodeType, steps: list[dis.Instruction], start: int | None, end: int | None, *, is_right: bool = False
) -> Any:
    """What one side of a comparison is: False if it is neither a truth value nor a tensor, a name to look for or the
    object of a method, None for anything."""
    if start is None:
        return None
    *first, last = steps[start:end]
    if not first and last.opname.startswith("LOAD_FAST") and is_called_on(code, last.argval):
        return _Called()
    if last.opname == "LOAD_CONST":
        return False if not isinstance(last.argval, bool) or (is_right and _TRUE_IS_HEARD) else None
    if last.opname.startswith("CALL") and any(_is_global(step, _MAKE_NO_TRUTHS) for step in first[:2]):
        return False
    names: list[str] = []
    for step in reversed([*first, last]):
        if step.opname in ("LOAD_GLOBAL", "LOAD_DEREF"):
            return _Named(step.opname == "LOAD_GLOBAL", (step.argval, *reversed(names)))
        if step.opname != "LOAD_ATTR":
            return None
        if step.argval in _NO_TRUTHS:
            return False
        names.append(step.argval)
    return None


def _is_global(step: dis.Instruction, names: frozenset[str]) -> bool:
    return step.opname == "LOAD_GLOBAL" and step.argval in names


def _may_be(function: FunctionType, side: _Named | _Called, kinds: tuple[type, ...]) -> bool:
    """Whether what a function fetches may be of some class when it runs; what is None now may become one."""
    if isinstance(side, _Called):
        return _may_be_called_on(function, kinds)
    name, *attributes = side.names
    value = _variable(function, side.is_global, name)
    for attribute in attributes:
        if isinstance(value, enum.EnumMeta) and attribute in value.__members__:
            return False
        if not isinstance(value, (ModuleType, type)):
            return True
        value = inspect.getattr_static(value, attribute, None)
        if not isinstance(value, (type, FunctionType)) and hasattr(type(value), "__get__"):
            return True
    return value is None or isinstance(value, kinds)


def _may_be_called_on(function: FunctionType, kinds: tuple[type, ...]) -> bool:
    """Whether a method may be called on an object of some class, as far as its name leads to the class it is of."""
    outermost, *inner = function.__code__.co_qualname.split(".")[:-1]
    owner = function.__globals__.get(outermost)
    for name in inner:
        owner = vars(owner).get(name) if isinstance(owner, type) else None
    return not isinstance(owner, type) or issubclass(owner, kinds)


def _variable(function: FunctionType, is_global: bool, name: str) -> Any:
    if is_global:
        return function.__globals__.get(name, getattr(builtins, name, None))
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    try:
        return cells[name].cell_contents
    except (KeyError, ValueError):  # one of its own; nothing is in it yet
        return None
