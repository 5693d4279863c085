"""Questions that no object hears of: ``type(x)``, ``id(x)``, ``x is y``, ``x is True``.

``type`` of a tensor without data is not what the program would see when it runs. So in the user's functions that call
``type`` or ``id``, as far as they can be found from the model, those calls go to functions of ours while the program
is captured: an instruction that fetches a builtin fetches a constant instead, and the function gets its own code back
afterwards. ``x is y`` can't be replaced. A function that compares two of its variables so may be comparing inputs;
then which of the inputs are one object becomes part of the contract. ``(size > 3) is True`` is asked of a truth value
that varies and is no object of Python's: it becomes ``in`` something of ours, which takes as much room. Where two
of them may be compared, sizes are compared for good.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import math
import opcode
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType
from typing import Any

import torch

from tintype.errors import Location
from tintype.fake.tensor import FakeTensor
from tintype.ir.observations import NO_SUCH_ATTRIBUTE
from tintype.symbolic import bridge
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.expression import Expr, as_int
from tintype.symbolic.location import is_internal, standing_in
from tintype.trace.extremes import largest_of, smallest_of
from tintype.trace.number_methods import class_of_number
from tintype.trace.python_sequences import ORIGINALS, length_of
from tintype.trace.surroundings import stand_ins
from tintype.trace.truths_compared import compares_tensors, compares_truths, is_called_on
from tintype.trace.users_code import UsersCode, contents_of, found_once, found_once_for_all, names_in

_LOAD_GLOBAL, _LOAD_CONST = dis.opmap["LOAD_GLOBAL"], dis.opmap["LOAD_CONST"]
_PUSH_NULL, _NOP, _EXTENDED = dis.opmap["PUSH_NULL"], dis.opmap["NOP"], dis.opmap["EXTENDED_ARG"]
_CONTAINS = dis.opmap["CONTAINS_OP"]
# from Python 3.13 on it has room for the interpreter's own use behind it, which ``is`` has not
_CONTAINS_NEEDS_MORE_ROOM = sys.version_info >= (3, 13)
_TWO_VARIABLES = frozenset({"LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"})
_VARIABLES = frozenset({"LOAD_FAST", "LOAD_DEREF", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"})


def _type_of(*arguments: Any) -> Any:
    """``type``."""
    if len(arguments) == 1 and type(arguments[0]) is FakeTensor:
        session = arguments[0].context.session
        if session is not None and not arguments[0].is_own_parameter:
            return session.class_of(arguments[0])
        return torch.nn.Parameter if arguments[0].is_own_parameter else torch.Tensor
    if len(arguments) == 1 and type(arguments[0]) in _SYMBOLIC:
        return class_of_number(arguments[0])
    return type(*arguments)


def _id_of(value: Any) -> int:
    """``id``."""
    if type(value) is FakeTensor and value.context.session is not None:
        value.refuse_if_undecided()
        value.context.session.compares_objects()
    return id(value)


def _is_unknown(value: Any, name: Any) -> bool:
    """Whether an attribute is one that only a tensor's user may have given it; ours are none of the program's."""
    if type(value) is not FakeTensor or value.context.session is None or not isinstance(name, str):
        return False
    return name in _OUR_ATTRIBUTES or not (name in vars(value) or hasattr(FakeTensor, name))


_OUR_ATTRIBUTES = (
    frozenset(name for kind in (FakeTensor, *FakeTensor.__bases__) for name in (*vars(kind), *kind.__annotations__))
    - frozenset(dir(torch.Tensor))
    - {"_is_param", "_is_buffer"}
)


def _asked_for(value: FakeTensor, name: str) -> Any:
    """The value that somebody gave an attribute, or NO_SUCH_ATTRIBUTE."""
    session: Any = value.context.session  # a recorder
    if session is None or not session.is_recording:
        return NO_SUCH_ATTRIBUTE
    return session.observer.attribute(session, value, name)


@standing_in
def _has_attribute(value: Any, name: str) -> bool:
    """``hasattr``."""
    if not _is_unknown(value, name):
        return hasattr(value, name)
    return _asked_for(value, name) is not NO_SUCH_ATTRIBUTE


@standing_in
def _attribute_of(value: Any, name: str, *default: Any) -> Any:
    """``getattr``."""
    if not _is_unknown(value, name):
        return getattr(value, name, *default)
    found = _asked_for(value, name)
    if found is not NO_SUCH_ATTRIBUTE:
        return found
    if default:
        return default[0]
    raise AttributeError(f"'Tensor' object has no attribute {name!r}")


class _UsersAttribute:
    """An attribute that some tensor was given by its user, on all tensors without data: asked for as by ``getattr``.

    What the program itself assigns is found first: an object that can only be read gives way to it."""

    def __init__(self, name: str) -> None:
        self.name = name

    @standing_in
    def __get__(self, value: Any, owner: type) -> Any:
        if value is None:
            return self
        found = _asked_for(value, self.name)
        if found is NO_SUCH_ATTRIBUTE:
            raise AttributeError(f"'Tensor' object has no attribute {self.name!r}")
        return found


# What torch notes on tensors for its compiler (mark_dynamic and its kin).
_MARKS_FOR_COMPILERS = ("_dynamo_", "_specialize_on", "_has_symbolic_sizes_strides")


def hear_attributes(example: torch.Tensor) -> None:
    """Have tensors without data ask for the attributes that an example input was given by its user."""
    for name in vars(example):
        if not hasattr(FakeTensor, name) and not name.startswith(_MARKS_FOR_COMPILERS):
            setattr(FakeTensor, name, _UsersAttribute(name))


def _int_of(*arguments: Any, **options: Any) -> Any:
    """``int``: of a number that varies or that data decide it is one too; of a size it is the way to fix it."""
    number = _number_in(arguments)
    if number is None and len(arguments) == 1 and type(arguments[0]) in _SYMBOLIC:
        expression = from_torch(arguments[0])
        number = arguments[0] if isinstance(expression, Expr) and expression.has_unbacked else None
    if type(number) is torch.SymFloat:
        return math.trunc(number)
    if number is not None:
        return to_torch(as_int(from_torch(number)))
    return int(*arguments, **options)


def _float_of(*arguments: Any) -> Any:
    """``float``."""
    number = _number_in(arguments)
    if number is not None:
        return torch.sym_float(number)
    if arguments and type(arguments[0]) in _SYMBOLIC:
        return torch.sym_float(arguments[0])
    return float(*arguments)


def _number_in(arguments: tuple[Any, ...]) -> Any:
    """The number that a tensor holds, or a float that varies; None for anything else."""
    value = arguments[0] if len(arguments) == 1 else None
    # a buffer is a tensor of the model's own, whose data are no part of the program either
    if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.dtype.is_complex:
        number = value.item()
        return number if isinstance(number, _SYMBOLIC) else None
    return value if type(value) is torch.SymFloat else None


def _power_of(*arguments: Any, **options: Any) -> Any:
    """``pow``, whose third argument no symbolic number knows."""
    if len(arguments) == 3 and any(type(argument) in _SYMBOLIC for argument in arguments):
        base, exponent, modulus = arguments
        if exponent >= 0 and modulus != 0:
            return base**exponent % modulus
        return pow(*map(int, arguments))
    return pow(*arguments, **options)


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "float": _float_of,
    "getattr": _attribute_of,
    "hasattr": _has_attribute,
    "id": _id_of,
    "int": _int_of,
    "len": length_of,
    "max": largest_of,
    "min": smallest_of,
    "pow": _power_of,
    "type": _type_of,
}


# --- code ------------------------------------------------------------------------------------------------


@found_once
def _replaced(code: CodeType) -> CodeType:
    """Code in which calls of the builtins go to the functions here; the same code if it has none."""
    constants = tuple(_replaced(value) if isinstance(value, CodeType) else value for value in code.co_consts)
    changed = any(new is not old for new, old in zip(constants, code.co_consts, strict=True))
    places = [place for name in _REPLACEMENTS if name in code.co_names for place in _calls_of(code, name)]
    truths = _truth_comparisons(code)
    if not places and not truths:
        return code.replace(co_consts=constants) if changed else code
    text = bytearray(code.co_code)
    for offset, value in truths:
        if len(constants) < 256:
            constants = (*constants, _Only(value))
            text[offset + 1], text[offset + 2] = len(constants) - 1, _CONTAINS
    for offset, name in places:
        constants = (*constants, _REPLACEMENTS[name])
        number = len(constants) - 1
        load = [_EXTENDED, number >> 8, _LOAD_CONST, number & 255] if number > 255 else [_LOAD_CONST, number]
        # what calls a function expects nothing beside it on the stack, from Python 3.13 on above it
        both = [*load, _PUSH_NULL, 0] if sys.version_info >= (3, 13) else [_PUSH_NULL, 0, *load]
        room = 2 + 2 * _caches()
        assert len(both) <= room and number < 1 << 16
        text[offset : offset + room] = bytes(both + [_NOP, 0] * ((room - len(both)) // 2))
    return code.replace(co_code=bytes(text), co_consts=constants)


class _Only:
    """What holds one truth value and nothing else: ``x in _Only(True)`` is ``x is True``."""

    def __init__(self, value: bool) -> None:
        self.value = value

    def __contains__(self, given: Any) -> bool:
        return (bool(given) if type(given) is torch.SymBool else given) is self.value


def _truth_comparisons(code: CodeType) -> list[tuple[int, bool]]:
    """Where code fetches a truth value to compare something with it by ``is``."""
    if not any(value is True or value is False for value in code.co_consts) or _CONTAINS_NEEDS_MORE_ROOM:
        return []
    instructions = list(dis.get_instructions(code))
    return [
        (instruction.offset, instruction.argval)
        for before, instruction, after in zip([None, *instructions], instructions, instructions[1:])
        if instruction.opcode == _LOAD_CONST
        and (instruction.argval is True or instruction.argval is False)
        and after.opname == "IS_OP"
        and (before is None or before.opcode != _EXTENDED)
    ]


@contextmanager
def truths_compared(code: UsersCode) -> Iterator[None]:
    """Within it, where a function may compare truth values with ``is``, what the program asks of sizes is answered
    at once: an answer that varies is no object of Python's, and can't be told from another one."""
    before = bridge.answers_at_once
    if compares_truths(code):
        bridge.answers_at_once = lambda asking: not is_internal(asking.co_filename)
    try:
        yield
    finally:
        bridge.answers_at_once = before


def _calls_of(code: CodeType, name: str) -> list[tuple[int, str]]:
    """Where code fetches a builtin to call it."""
    instructions = list(dis.get_instructions(code))
    return [
        (instruction.offset, name)
        for before, instruction in zip([None, *instructions], instructions)
        if instruction.opcode == _LOAD_GLOBAL
        and instruction.argval == name
        and instruction.arg is not None
        and instruction.arg & 1
        and (before is None or before.opcode != _EXTENDED)
    ]


@functools.cache
def _caches() -> int:
    """How many units of code follow the instruction that fetches a global, for the interpreter's own use."""
    entries: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]
    return entries["LOAD_GLOBAL"] if isinstance(entries, dict) else entries[_LOAD_GLOBAL]


@found_once
def _comparisons(code: CodeType) -> tuple[tuple[Location, str], ...]:
    """The lines on which code compares a variable with ``is``: with another variable, or with an attribute, whose
    name is there then."""
    instructions = list(dis.get_instructions(code))
    found = []
    for place, instruction in enumerate(instructions):
        if instruction.opname == "IS_OP" and (attribute := _compared(code, instructions, place)) is not None:
            where = instruction.positions
            line = where.lineno if where is not None and where.lineno is not None else code.co_firstlineno
            found.append((Location(code.co_filename, line, code.co_name), attribute))
    inner = [_comparisons(value) for value in code.co_consts if isinstance(value, CodeType)]
    return (*found, *(entry for entries in inner for entry in entries))


def _compared(code: CodeType, instructions: list[dis.Instruction], place: int) -> str | None:
    """The attribute that a comparison compares a variable with, "" for another variable, None for anything else, such
    as the object that a method is called on."""
    attribute = ""
    operands = 0  # from right to left
    while operands < 2 and place > 0:
        place -= 1
        name = instructions[place].opname
        if name == "LOAD_ATTR" and not (attribute and operands):
            attribute = attribute or instructions[place].argval
            while place > 0 and instructions[place].opname == "LOAD_ATTR":
                place -= 1
            name = instructions[place].opname
        elif name in _VARIABLES and is_called_on(code, instructions[place].argval):
            return None
        operands += 1 if name in _VARIABLES else 2 if name in _TWO_VARIABLES else 3
    return attribute if operands == 2 else None


# --- functions -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Comparisons:
    """Where a program compares objects with ``is``."""

    # a line that compares two variables, which may be inputs
    of_variables: Location | None
    # by name the attributes that some line compares, or that a variable may have been read from: they may be state
    of_attributes: dict[str, Location]
    # whether some line may compare tensors that it computes
    of_tensors: bool


def comparisons_in(code: UsersCode) -> Comparisons:
    """The lines of functions that compare a variable with another one, or with an attribute."""
    of_variables, of_attributes = _lines_that_compare(code.codes)
    return Comparisons(of_variables, of_attributes, compares_tensors(code))


@found_once_for_all
def _lines_that_compare(codes: list[CodeType]) -> tuple[Location | None, dict[str, Location]]:
    of_variables: Location | None = None
    of_attributes: dict[str, Location] = {}
    for code in codes:
        for line, attribute in _comparisons(code):
            of_variables = of_variables or (None if attribute else line)
            for name in (attribute,) if attribute else names_in(code):
                of_attributes.setdefault(name, line)
    return of_variables, of_attributes


_FUNCTIONS = frozenset({FunctionType, BuiltinFunctionType, MethodType})
# A function of torch's that the user's code holds itself (``from torch import is_grad_enabled``): the variables or
# the cell that it is in, and its name there.
Held = tuple[dict[str, Any] | CellType, str, Any]


def _held_by(functions: Iterable[FunctionType]) -> Iterator[Held]:
    """The functions of torch's that functions hold and that have stand-ins."""
    watched = stand_ins()
    names: dict[int, tuple[dict[str, Any], dict[str, None]]] = {}  # those that are looked up in each table of globals
    for function in functions:
        for cell in function.__closure__ or ():
            if type(value := contents_of(cell)) in _FUNCTIONS and value in watched:
                yield cell, "", value
        surroundings = function.__globals__
        if id(surroundings) not in names:
            names[id(surroundings)] = (surroundings, {})
        names[id(surroundings)][1].update(_names_as_keys(function.__code__))
    for surroundings, used in names.values():
        kinds = map(type, map(surroundings.get, used))
        for name in compress(used, map(_FUNCTIONS.__contains__, kinds)):
            if (value := surroundings[name]) in watched:
                yield surroundings, name, value


@found_once
def _names_as_keys(code: CodeType) -> dict[str, None]:
    return dict.fromkeys(names_in(code))


def _put(holder: dict[str, Any] | CellType, name: str, function: Any) -> None:
    if isinstance(holder, dict):
        holder[name] = function
    else:
        holder.cell_contents = function


@found_once_for_all
def _replacing(codes: list[CodeType]) -> list[int]:
    """Which functions get other code."""
    return [place for place, code in enumerate(codes) if _replaced(code) is not code]


@contextmanager
def questions_heard(code: UsersCode, of_torch: Sequence[FunctionType] = ()) -> Iterator[None]:
    """Within it, calls of ``type``, ``id`` and the like in the functions go to those here, and functions of torch's
    that they hold are their stand-ins. ``of_torch`` are functions of torch's of which the same holds."""
    before: list[tuple[FunctionType, CodeType]] = []
    held = list(_held_by([*code.functions, *of_torch]))
    try:
        for function in (*map(code.functions.__getitem__, _replacing(code.codes)), *of_torch):
            there = function.__code__
            new = _replaced(there)
            if new is not there:
                ORIGINALS[new] = there
                before.append((function, there))
                function.__code__ = new
        for holder, name, value in held:
            _put(holder, name, stand_ins()[value])
        yield
    finally:
        for function, there in before:
            function.__code__ = there
        for holder, name, value in held:
            _put(holder, name, value)
