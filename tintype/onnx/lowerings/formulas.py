"""Formulas in Python's own notation: ``(x * 2 + 1).sqrt()`` makes the nodes of one builder.

Values of a graph know the builder that made them; inside of a loop's body, nodes have to be made by the body's own.
A formula says which builder that is, and numbers in it take the dtype of what they stand beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir

DOUBLE = ir.DataType.DOUBLE
INT64, BOOL = ir.DataType.INT64, ir.DataType.BOOL


class Formula:
    """A value, and the builder that makes nodes of what is done with it."""

    def __init__(self, op: Builder, value: Any, dtype: ir.DataType | None = None) -> None:
        self.op = op
        self.value = value if dtype is None else op.cast(value, dtype)

    @property
    def dtype(self) -> ir.DataType:
        """The dtype of the value."""
        dtype: ir.DataType = self.value.dtype
        return dtype

    def _other(self, other: Any) -> Any:
        if isinstance(other, Formula):
            return other.value
        return other if isinstance(other, ir.Value) else self.op.constant(other, self.dtype)

    def _made(self, operation: str, *args: Any, **attributes: Any) -> Formula:
        return Formula(self.op, self.op.emit(operation, *args, **attributes))

    def _binary(self, operation: str, other: Any) -> Formula:
        return self._made(operation, self.value, self._other(other))

    def _turned(self, operation: str, other: Any) -> Formula:
        return self._made(operation, self._other(other), self.value)

    def __add__(self, other: Any) -> Formula:
        return self._binary("Add", other)

    def __sub__(self, other: Any) -> Formula:
        return self._binary("Sub", other)

    def __mul__(self, other: Any) -> Formula:
        return self._binary("Mul", other)

    def __truediv__(self, other: Any) -> Formula:
        return self._binary("Div", other)

    def __matmul__(self, other: Any) -> Formula:
        return self._binary("MatMul", other)

    def __pow__(self, other: Any) -> Formula:
        return self._binary("Pow", other)

    def __radd__(self, other: Any) -> Formula:
        return self._turned("Add", other)

    def __rsub__(self, other: Any) -> Formula:
        return self._turned("Sub", other)

    def __rmul__(self, other: Any) -> Formula:
        return self._turned("Mul", other)

    def __rtruediv__(self, other: Any) -> Formula:
        return self._turned("Div", other)

    def __neg__(self) -> Formula:
        return self._made("Neg", self.value)

    def __lt__(self, other: Any) -> Formula:
        return self._binary("Less", other)

    def __le__(self, other: Any) -> Formula:
        return self._binary("LessOrEqual", other)

    def __gt__(self, other: Any) -> Formula:
        return self._binary("Greater", other)

    def __ge__(self, other: Any) -> Formula:
        return self._binary("GreaterOrEqual", other)

    def __and__(self, other: Any) -> Formula:
        return self._binary("And", other)

    def __or__(self, other: Any) -> Formula:
        return self._binary("Or", other)

    def __invert__(self) -> Formula:
        return self._made("Not", self.value)

    def equals(self, other: Any) -> Formula:
        """Where two are the same number."""
        return self._binary("Equal", other)

    def __getattr__(self, name: str) -> Any:
        if not name[:1].isupper():
            raise AttributeError(name)
        return lambda *args, **attributes: self._made(
            name, self.value, *(each.value if isinstance(each, Formula) else each for each in args), **attributes
        )

    def cast(self, dtype: ir.DataType) -> Formula:
        """In another dtype."""
        return Formula(self.op, self.value, dtype)

    def else_where(self, condition: Formula, other: Any) -> Formula:
        """Another value where a condition holds."""
        return Formula(self.op, self.op.Where(condition.value, self._other(other), self.value))

    def sum(self, axis: int, keep: bool = True) -> Formula:
        """The sum along a dimension."""
        return self._made("ReduceSum", self.value, [axis], keepdims=int(keep))

    def transposed(self, rank: int) -> Formula:
        """With its last two of ``rank`` dimensions exchanged."""
        return self._made("Transpose", self.value, perm=[*range(rank - 2), rank - 1, rank - 2])


def polynomial(x: Formula, coefficients: Sequence[float]) -> Formula:
    """A polynomial by Horner's rule, its highest coefficient first."""
    total: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        total = x * total + coefficient
    return total


def chebyshev_series(t: Formula, coefficients: Sequence[float]) -> Formula:
    """A sum of Chebyshev polynomials by Clenshaw's rule, its lowest coefficient first; ``t`` lies in [-1, 1]."""
    twice = t + t
    following: Any = coefficients[-1]
    after: Any = 0.0
    for coefficient in reversed(coefficients[1:-1]):
        following, after = twice * following - after + coefficient, following
    return t * following - after + coefficients[0]
