"""Our symbolic numbers as those of torch's shape environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.symbol import SymT, make_symbol
from torch.utils._sympy.value_ranges import ValueRanges

from tintype.errors import InvalidRequestError
from tintype.interop.hints import examples
from tintype.symbolic import Expr, Range
from tintype.symbolic.environment import Environment
from tintype.symbolic.evaluation import evaluate
from tintype.symbolic.expression import Symbol
from tintype.symbolic.text import sides

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "times": sympy.Mul,
    "floordiv": functions.FloorDiv,
    "mod": functions.PythonMod,
    "min": functions.Min,
    "max": functions.Max,
    "abs": sympy.Abs,
    "pow": functions.PowByNatural,
    "choose": functions.Where,
    "and": sympy.And,
    "or": sympy.Or,
    "not": sympy.Not,
    "bit_and": functions.BitwiseFn_bitwise_and,
    "bit_or": functions.BitwiseFn_bitwise_or,
    "bit_xor": functions.BitwiseFn_bitwise_xor,
    "bit_rshift": functions.RShift,
    "to_float": functions.ToFloat,
    "int_truediv": functions.IntTrueDiv,
    "float_add": sympy.Add,
    "float_sub": lambda left, right: left - right,
    "float_mul": sympy.Mul,
    "float_truediv": functions.FloatTrueDiv,
    "float_pow": functions.FloatPow,
    "float_neg": lambda value: -value,
    "float_abs": sympy.Abs,
    "float_min": functions.Min,
    "float_max": functions.Max,
    "float_eq": sympy.Eq,
    "float_lt": sympy.Lt,
    "float_le": sympy.Le,
    "floor": functions.FloorToInt,
    "ceil": functions.CeilToInt,
    "trunc": functions.TruncToInt,
    "round": functions.RoundToInt,
    "round_digits": functions.RoundDecimal,
    "sqrt": functions.OpaqueUnaryFn_sqrt,
}
_RELATIONS = {"eq": sympy.Eq, "ne": sympy.Ne, "<=": sympy.Le, "<": sympy.Lt, ">=": sympy.Ge}


class NumberTranslation:
    """Makes torch's symbolic numbers over one shape environment."""

    def __init__(self, environment: Environment, sizes: Iterable[Expr] = ()) -> None:
        """``sizes`` are all that tensors of the program have."""
        self.environment = environment
        self.examples = examples(environment, sizes)
        self.shape_env = ShapeEnv(assume_static_by_default=True)
        self.symbols: dict[Symbol, Any] = {}
        self.unbacked: set[Any] = set()
        self._expressions: dict[Expr, Any] = {}
        self._numbers: dict[Expr, Any] = {}

    def number(self, value: Any) -> Any:
        """A number as a torch.SymInt, SymFloat or SymBool; plain where it is one number."""
        if not isinstance(value, Expr):
            return value
        known = self._numbers.get(value)
        if known is None:
            known = self._numbers[value] = self._number(value)
        return known

    def _number(self, value: Expr) -> Any:
        expression = self.expression(value)
        if expression in (sympy.true, sympy.false):
            return bool(expression)
        if value.kind == "bool":
            return self.shape_env.create_symboolnode(expression)
        hint = self._example(value)
        if value.kind == "float":
            return self.shape_env.create_symfloatnode(expression, hint=hint)
        if expression.is_Integer:
            return int(expression)
        return self.shape_env.create_symintnode(expression, hint=hint)

    def _example(self, value: Expr) -> Any:
        """What a number is in the example, None where data decide it."""
        value = self.environment.simplify(value)
        if not isinstance(value, Expr):
            return value
        if value.has_unbacked:
            return None
        try:
            return evaluate(value, self.examples)
        except ZeroDivisionError:
            return None

    def expression(self, value: Any) -> Any:
        """An expression for sympy, with torch's own functions."""
        if isinstance(value, bool):
            return sympy.true if value else sympy.false
        if not isinstance(value, Expr):
            return sympy.Integer(value) if isinstance(value, int) else sympy.Float(value)
        known = self._expressions.get(value)
        if known is None:
            reduced = value if value.kind == "bool" else self.environment.simplify(value)
            known = self._translated(reduced) if isinstance(reduced, Expr) else self.expression(reduced)
            self._expressions[value] = known
        return known

    def _translated(self, value: Expr) -> Any:
        if isinstance(value, Symbol):
            return self._symbol(value)
        if value.operation == "sum":
            terms = (coefficient * self.expression(part) for part, coefficient in value.terms.items())
            return sympy.Add(*terms, sympy.Integer(value.constant))
        if value.operation == "product":
            return sympy.Mul(*(self.expression(factor) for factor in value.factors))
        if value.operation in ("eq", "ne", "le"):
            left, right, sign = sides(value.arguments[0], ordered=value.operation == "le")
            relation = _RELATIONS[sign if value.operation == "le" else value.operation]
            return relation(self.expression(left), self.expression(right))
        build = _OPERATIONS.get(value.operation)
        if build is None:
            raise InvalidRequestError(
                f"torch has no counterpart of the symbolic number {value}",
                remedy="compute the number in another way, or export without varying this size",
            )
        return build(*(self.expression(argument) for argument in value.arguments))

    def _symbol(self, symbol: Symbol) -> Any:
        known = self.symbols.get(symbol)
        if known is None:
            known = self.symbols[symbol] = self._make(symbol)
        return known

    def _make(self, symbol: Symbol) -> Any:
        environment = self.shape_env
        if symbol.kind == "bool":  # torch has such a number as the question whether an integer is 1
            integer = self._unbacked_integer(Range(0, 1))
            return sympy.Eq(integer, 1)
        if symbol.kind == "float":
            made = make_symbol(SymT.UNBACKED_FLOAT, environment.unbacked_symfloat_counter, real=True)
            environment.unbacked_symfloat_counter += 1
            self._register(made, None)
            return made
        bounds = self.environment.range(symbol)
        if symbol.hint is None:
            return self._unbacked_integer(bounds)
        count = sum(other.hint is not None for other in self.symbols)
        made = make_symbol(SymT.SIZE, count, integer=True, positive=bounds.lower >= 1 or None, nonnegative=True)
        environment.add_backed_var_to_val(made, self.examples[symbol])
        self._register(made, bounds)
        return made

    def _unbacked_integer(self, bounds: Range) -> Any:
        made = make_symbol(SymT.UNBACKED_INT, self.shape_env.unbacked_symint_counter, integer=True)
        self.shape_env.unbacked_symint_counter += 1
        self._register(made, bounds)
        return made

    def _register(self, made: Any, bounds: Range | None) -> None:
        environment = self.shape_env
        if bounds is not None:
            limits = value_ranges(bounds)
            environment.constrain_symbol_range(made, compiler_min=limits.lower, compiler_max=limits.upper)
        else:
            environment.var_to_range[made] = ValueRanges.unknown()
        environment.var_to_stack[made] = torch.utils._traceback.CapturedTraceback.extract(skip=1)
        if not made.name.startswith("s"):
            self.unbacked.add(made)


def value_ranges(bounds: Range) -> ValueRanges[Any]:
    """A range as torch writes it."""
    lower = -int_oo if bounds.lower == -float("inf") else int(bounds.lower)
    upper = int_oo if bounds.upper == float("inf") else int(bounds.upper)
    return ValueRanges(lower, upper)
