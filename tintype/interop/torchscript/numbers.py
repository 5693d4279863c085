"""Statements on numbers and texts. Known ones are TorchScript's own operators; this is for numbers that vary."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import CaptureError
from tintype.interop.torchscript.heap import ScriptList, plain
from tintype.interop.torchscript.operators import NUMBERS, call_operator
from tintype.interop.torchscript.tables import computes, handles
from tintype.interop.torchscript.values import UnknownText, is_symbolic
from tintype.symbolic.location import user_location

if TYPE_CHECKING:
    from tintype.interop.torchscript.interpreter import Interpreter
    from tintype.interop.torchscript.reading import Statement


_CPU = torch.device("cpu")


def _power(base: Any, exponent: Any) -> Any:
    return torch.sym_float(base) ** exponent


def _and(one: Any, other: Any) -> Any:
    for value, rest in ((one, other), (other, one)):
        if isinstance(value, bool):
            return rest if value else False
    return one & other


def _or(one: Any, other: Any) -> Any:
    for value, rest in ((one, other), (other, one)):
        if isinstance(value, bool):
            return True if value else rest
    return one | other


def _not_equal(one: Any, other: Any) -> Any:
    return torch.sym_not(_equal(one, other))


def _equal(one: Any, other: Any) -> Any:
    if isinstance(one, (bool, torch.SymBool)) and isinstance(other, (bool, torch.SymBool)):
        return _or(_and(one, other), _and(torch.sym_not(one), torch.sym_not(other)))
    return one == other


def _through_tensor(name: str) -> Callable[[Any], Any]:
    """A function of one number, computed by the operator of that name: the same function of C++, which says what
    log(0) is where Python raises."""
    function = getattr(torch.ops.aten, name).default

    def compute(number: Any) -> Any:
        tensor = torch.ops.aten.scalar_tensor.default(torch.sym_float(number), dtype=torch.float64, device=_CPU)
        return function(tensor).item()

    return compute


def _range_length(start: Any, stop: Any, step: Any) -> Any:
    if is_symbolic(step):
        raise CaptureError("the step of a range varies", location=user_location())
    distance = stop - start if step > 0 else start - stop
    return torch.sym_max(0, (distance + abs(step) - 1) // abs(step))


_TABLE: dict[str, Callable[..., Any]] = {
    "aten::add": operator.add,
    "aten::sub": operator.sub,
    "aten::mul": operator.mul,
    "aten::div": operator.truediv,
    "aten::floordiv": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::neg": operator.neg,
    "aten::pow": _power,
    "aten::pow.int_to_int": operator.pow,
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
    "aten::eq": _equal,
    "aten::ne": _not_equal,
    "aten::__and__.bool": _and,
    "aten::__or__.bool": _or,
    "aten::__xor__.bool": _not_equal,
    "aten::floor.float": math.floor,
    "aten::ceil.float": math.ceil,
    "aten::floor.int": lambda number: number,
    "aten::ceil.int": lambda number: number,
    "aten::Float": torch.sym_float,
    "aten::Int": torch.sym_int,
    "aten::Bool.int": lambda number: number != 0,
    "aten::Bool.float": lambda number: number != 0,
    "aten::sqrt": lambda number: torch.sym_sqrt(torch.sym_float(number)),
    "prim::max": torch.sym_max,
    "prim::min": torch.sym_min,
    "prim::abs": abs,
    "aten::fabs": lambda number: abs(torch.sym_float(number)),
    "aten::__range_length": _range_length,
    "aten::__derive_index": lambda index, start, step: start + index * step,
}
NUMBERS.update(_TABLE)
_ELEMENTARY = "exp expm1 log log1p log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc round"
NUMBERS.update({f"aten::{name}": _through_tensor(name) for name in _ELEMENTARY.split()})


@handles("aten::Bool.Tensor")
def _bool_of_tensor(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    value = item(interpreter, statement, args[0])
    if isinstance(value, (bool, torch.SymBool)):
        return value
    return value != 0


@handles("aten::Int.Tensor", "aten::IntImplicit")
def _int_of_tensor(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return as_int(item(interpreter, statement, args[0]))


@handles("aten::Float.Tensor", "aten::FloatImplicit")
def _float_of_tensor(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    value = item(interpreter, statement, args[0])
    if isinstance(value, torch.SymBool):
        value = as_int(value)
    return torch.sym_float(value) if isinstance(value, (torch.SymInt, torch.SymFloat)) else float(value)


@handles("aten::item", "aten::ScalarImplicit")
def _item(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return item(interpreter, statement, args[0])


def as_int(value: Any) -> Any:
    """A number as an integer, cut off towards zero."""
    if isinstance(value, torch.SymBool):
        return torch.sym_ite(value, 1, 0)
    return torch.sym_int(value) if isinstance(value, torch.SymFloat) else value if is_symbolic(value) else int(value)


def item(interpreter: Interpreter, statement: Statement, tensor: Any) -> Any:
    """The number in a tensor: the one that it was made of, the value of a constant, else one that is known when the
    program runs."""
    known = interpreter.numbers.get(id(tensor))
    if known is not None:
        return known[1]
    interpreter.note_origin(statement, "item")
    return tensor.item()


@computes("aten::__not__")
def _not(value: Any) -> Any:
    return torch.sym_not(value) if isinstance(value, torch.SymBool) else not value


@handles("prim::NumToTensor")
def _number_to_tensor(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    number = args[0]
    interpreter.note_origin(statement, "scalar_tensor")
    if isinstance(number, (bool, torch.SymBool)):
        dtype = torch.bool
    elif isinstance(number, (int, torch.SymInt)):
        dtype = torch.int64
    else:
        dtype = torch.complex128 if isinstance(number, complex) else torch.float64
    tensor = torch.ops.aten.scalar_tensor.default(number, dtype=dtype, device=torch.device("cpu"))
    interpreter.numbers[id(tensor)] = (tensor, number)
    return tensor


# --- comparisons of sizes --------------------------------------------------------------------------------


@handles("aten::eq.int_list", "aten::ne.int_list")
def _compare_lists(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    one, other = args[0].known(), args[1].known()
    equal: Any = len(one) == len(other)
    if equal:
        equal = functools.reduce(_and, (a == b for a, b in zip(one, other, strict=True)), True)
    if statement.kind == "aten::eq":
        return equal
    return torch.sym_not(equal) if isinstance(equal, torch.SymBool) else not equal


def _extreme(kind: str, function: Callable[..., Any]) -> None:
    @handles(f"prim::{kind}.self_int", f"prim::{kind}.self_float")
    def choose(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
        if not is_symbolic(args[0]):
            return call_operator(interpreter, statement, args)
        return functools.reduce(function, args[0].known())


_extreme("max", torch.sym_max)
_extreme("min", torch.sym_min)


@handles("aten::sum.int", "aten::sum.float", "aten::sum.bool", "aten::sum.complex")
def _sum(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    if not is_symbolic(args[0]):
        return call_operator(interpreter, statement, args)
    return functools.reduce(operator.add, args[0].known())


@computes("aten::__contains__.int_list")
def _contains(items: ScriptList, value: Any) -> Any:
    return functools.reduce(_or, (_equal(one, value) for one in items.known()), False)


# --- texts -----------------------------------------------------------------------------------------------


@handles("aten::format", "aten::percentFormat", "aten::str")
def _format(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    """Texts that are certain to be those of TorchScript, which writes floats otherwise than Python; else such that
    are good for messages only."""
    if statement.kind != "aten::percentFormat" and all(_has_one_text(value) for value in args):
        return _filled_in(args)
    return UnknownText(_filled_in(args))


def _has_one_text(value: Any) -> bool:
    if isinstance(value, ScriptList):
        return not value.rows and all(type(item) is int for item in value.content)
    return value is None or type(value) in (bool, int, str)


def _filled_in(args: list[Any]) -> str:
    text, *rest = [value.text if isinstance(value, UnknownText) else str(_shown(value)) for value in args]
    for value in rest:
        text = text.replace("{}", value, 1) if "{}" in text else f"{text} {value}"
    return text


def _shown(value: Any) -> Any:
    return value.content if isinstance(value, ScriptList) else plain(value)


@handles("aten::add.str")
def _add_texts(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    if any(isinstance(value, UnknownText) for value in args):
        return UnknownText("".join(v.text if isinstance(v, UnknownText) else v for v in args))
    return args[0] + args[1]
