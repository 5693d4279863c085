"""Proofs that what a program checks implies what its capture relied on.

While a program is captured, guards are recorded: what the example did and the program rests on. What the finished
program checks is in two places: the input checks of ``module()``, and assertions in the graph. Here both are read off
the finished program, translated to z3, and each guard, range and relation of the capture is proved from them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import z3  # type: ignore[import-untyped]
from torch.fx import Node

import tintype
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import placeholders
from tintype.ir.signature import InputKind
from tintype.symbolic import Expr
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Symbol

MILLISECONDS = 4000  # for one proof


class Untranslatable(Exception):
    """Something that these proofs have no words for: floats, numbers from data."""


@dataclass
class Proofs:
    """What came of the guards of one program."""

    proved: list[str] = field(default_factory=list)
    refuted: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)


# --- integers in z3 ------------------------------------------------------------------------------------------


def floor_division(left: Any, right: Any) -> Any:
    """z3 rounds so that the remainder is not negative, which is floor for positive divisors."""
    return z3.If(right > 0, left / right, (-left) / (-right))


def remainder(left: Any, right: Any) -> Any:
    return left - right * floor_division(left, right)


_ATOMS: dict[str, Callable[..., Any]] = {
    "floordiv": floor_division,
    "mod": remainder,
    "times": operator.mul,
    "abs": lambda a: z3.If(a >= 0, a, -a),
    "choose": z3.If,
    "not": z3.Not,
    "and": z3.And,
    "or": z3.Or,
    "eq": lambda difference: difference == 0,
    "ne": lambda difference: difference != 0,
    "le": lambda difference: difference <= 0,
}


def smallest(*values: Any) -> Any:
    result = values[0]
    for value in values[1:]:
        result = z3.If(value < result, value, result)
    return result


def largest(*values: Any) -> Any:
    result = values[0]
    for value in values[1:]:
        result = z3.If(value > result, value, result)
    return result


def from_expression(expression: Any, symbols: Callable[[Symbol], Any]) -> Any:
    """An expression of tintype's in z3."""
    if isinstance(expression, bool):
        return z3.BoolVal(expression)
    if isinstance(expression, int):
        return z3.IntVal(expression)
    if not isinstance(expression, Expr) or expression.kind == "float":
        raise Untranslatable(str(expression))
    if isinstance(expression, Symbol):
        return symbols(expression)
    operation = expression.operation
    if operation == "sum":
        result: Any = z3.IntVal(expression.constant)
        for monomial, coefficient in expression.terms.items():
            result = result + coefficient * from_expression(monomial, symbols)
        return result
    if operation == "product":
        result = z3.IntVal(1)
        for factor in expression.factors:
            result = result * from_expression(factor, symbols)
        return result
    arguments = [from_expression(argument, symbols) for argument in expression.arguments]
    if operation in ("min", "max"):
        return (smallest if operation == "min" else largest)(*arguments)
    if operation == "pow" and isinstance(expression.arguments[1], int) and expression.arguments[1] >= 0:
        result = z3.IntVal(1)
        for _ in range(expression.arguments[1]):
            result = result * arguments[0]
        return result
    if operation not in _ATOMS:
        raise Untranslatable(operation)
    return _ATOMS[operation](*arguments)


# --- nodes in z3, without a look at the expressions that they came from ---------------------------------------

_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    operator.add: operator.add,
    operator.sub: operator.sub,
    operator.mul: operator.mul,
    operator.neg: operator.neg,
    operator.floordiv: floor_division,
    operator.mod: remainder,
    operator.eq: operator.eq,
    operator.ne: operator.ne,
    operator.le: operator.le,
    operator.lt: operator.lt,
    operator.ge: operator.ge,
    operator.gt: operator.gt,
    operator.and_: z3.And,
    operator.or_: z3.Or,
    torch.sym_min: smallest,
    torch.sym_max: largest,
    torch.sym_not: z3.Not,
    torch.sym_ite: z3.If,
    operator.abs: _ATOMS["abs"],
}


class Checks:
    """What a finished program makes sure of, over one variable per size of an input."""

    def __init__(self, program: tintype.ExportedProgram) -> None:
        self.conditions: list[Any] = []
        self.sizes: dict[tuple[str, int | None], Any] = {}
        nodes = [
            node
            for node, spec in zip(placeholders(program.graph), program.graph_signature.input_specs, strict=True)
            if spec.kind is InputKind.USER_INPUT
        ]
        self._read_inputs(program, nodes)
        for node in program.graph.nodes:
            if node.target is torch.ops.aten._assert_scalar.default:
                try:
                    self.conditions.append(self._value(node.args[0]))
                except Untranslatable:
                    continue  # an assertion on data says nothing about sizes

    def _read_inputs(self, program: tintype.ExportedProgram, nodes: list[Node]) -> None:
        own = lambda symbol: z3.Int(f"checked_{symbol}")  # noqa: E731
        for node, expectation in zip(nodes, program.module()._checks.expectations, strict=True):
            number = isinstance(expectation.value, Expr)
            sizes = (expectation.value,) if number else expectation.sizes
            ranges = expectation.ranges
            for dimension, size in enumerate(sizes):
                if number and size.kind != "int":
                    continue
                variable = self.size(node.name, None if number else dimension)
                self.conditions.append(variable == from_expression(size, own))
                if not number:
                    self.conditions.append(variable >= 0)
                bounds = ranges[dimension]
                if bounds is not None and bounds.lower > -float("inf"):
                    self.conditions.append(variable >= int(bounds.lower))
                if bounds is not None and bounds.upper < float("inf"):
                    self.conditions.append(variable <= int(bounds.upper))

    def size(self, name: str, dimension: int | None) -> Any:
        """The variable for a size of an input, or for an input that is a number."""
        key = name, dimension
        if key not in self.sizes:
            self.sizes[key] = z3.Int(name if dimension is None else f"{name}.shape[{dimension}]")
        return self.sizes[key]

    def _value(self, argument: Any) -> Any:
        if not isinstance(argument, Node):
            if isinstance(argument, float):
                raise Untranslatable(str(argument))
            return argument
        if argument.op == "placeholder" and isinstance(argument.meta["val"], torch.SymInt):
            return self.size(argument.name, None)
        if argument.target is torch.ops.aten.sym_size.int and argument.args[0].op == "placeholder":  # type: ignore[union-attr]
            source, dimension = argument.args
            return self.size(source.name, dimension)  # type: ignore[union-attr, arg-type]
        function = _FUNCTIONS.get(argument.target)
        if function is None:
            raise Untranslatable(str(argument.target))
        return function(*(self._value(value) for value in argument.args))


# --- the proofs ----------------------------------------------------------------------------------------------


def prove_guards(program: tintype.ExportedProgram) -> Proofs:
    """Prove all that the capture of a program relied on from what the program checks."""
    checks = Checks(program)
    environment = program.context.environment
    proofs = Proofs()
    for text, goal in _obligations(program, environment, checks):
        solver = z3.Solver()
        solver.set("timeout", MILLISECONDS)
        solver.add(*checks.conditions, z3.Not(goal))
        answer = solver.check()
        known = proofs.refuted if answer == z3.sat else proofs.undecided
        (proofs.proved if answer == z3.unsat else known).append(text)
    return proofs


def _obligations(program: tintype.ExportedProgram, environment: Any, checks: Checks) -> list[tuple[str, Any]]:
    """What must hold: sizes are what the capture took them for, within the ranges it declared, and each guard."""
    values: dict[Symbol, Any] = {}
    goals: list[tuple[str, Any]] = []
    described = list(_described_sizes(program, checks))
    # a symbol is what makes the first size of the form a*symbol + b right; that it does, is to be proved too
    for variable, size in sorted(described, key=lambda pair: not isinstance(pair[1], Symbol)):
        (symbol, *others) = size.symbols
        coefficient = size.terms.get(symbol)
        if not others and coefficient and symbol not in values:
            values[symbol] = floor_division(variable - size.constant, z3.IntVal(coefficient))

    def value(symbol: Symbol) -> Any:
        if symbol not in values:
            raise Untranslatable(str(symbol))
        return values[symbol]

    for variable, size in described:
        goals.append((f"{variable} == {size}", variable == from_expression(size, value)))
    for symbol in values:
        lower, upper = symbol.declared
        if lower > -float("inf"):
            goals.append((f"{symbol} >= {lower}", value(symbol) >= int(lower)))
        if upper < float("inf"):
            goals.append((f"{symbol} <= {upper}", value(symbol) <= int(upper)))
    for guard in [*environment.guards, *environment.assertions]:
        try:
            goals.append((str(guard.condition), from_expression(guard.condition, value)))
        except Untranslatable:
            continue  # on data: the program asserts it when it runs, or it is about floats
    return goals


def _described_sizes(program: tintype.ExportedProgram, checks: Checks) -> Any:
    for node, spec in zip(placeholders(program.graph), program.graph_signature.input_specs, strict=True):
        if spec.kind is not InputKind.USER_INPUT:
            continue
        value = node.meta["val"]
        if type(value) is FakeTensor:
            for dimension, size in enumerate(value.info.sizes):
                if isinstance(size, Expr):
                    yield checks.size(node.name, dimension), size
        elif isinstance(value, torch.SymInt):
            number = from_torch(value)
            if isinstance(number, Expr):
                yield checks.size(node.name, None), number
