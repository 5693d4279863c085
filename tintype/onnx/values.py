"""A value of an ONNX graph that is being built: arithmetic on it makes nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tintype.onnx.libraries import ir

if TYPE_CHECKING:
    from tintype.onnx.builder import Builder


class Value(ir.Value):
    """A value that knows its builder, so that ``a * b`` is a Mul node.

    ``array`` has the elements of a small constant, for folding; ``made_by`` names the operator that makes it.
    """

    def __init__(self, builder: Builder, name: str | None = None) -> None:
        super().__init__(name=name)
        self.builder = builder
        self.array: Any = None

    @property
    def rank(self) -> int | None:
        """The number of dimensions, where it is known."""
        return None if self.shape is None else len(self.shape)

    def _binary(self, operation: str, left: Any, right: Any) -> Any:
        """A node of both: in the graph that sees both, where one is inside of that of the other."""
        other = right if left is self else left
        inside = isinstance(other, Value) and other.builder.is_inside(self.builder)
        return (other if inside else self).builder.emit(operation, left, right)

    def __add__(self, other: Any) -> Any:
        return self._binary("Add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("Add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._binary("Sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("Sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._binary("Mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("Mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._binary("Div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary("Div", other, self)

    def __matmul__(self, other: Any) -> Any:
        return self._binary("MatMul", self, other)

    def __pow__(self, other: Any) -> Any:
        return self._binary("Pow", self, other)

    def __mod__(self, other: Any) -> Any:
        fmod = 1 if self.dtype is not None and self.dtype.is_floating_point() else 0
        inside = isinstance(other, Value) and other.builder.is_inside(self.builder)
        return (other if inside else self).builder.emit("Mod", self, other, fmod=fmod)

    def __neg__(self) -> Any:
        return self.builder.emit("Neg", self)

    def __lt__(self, other: Any) -> Any:
        return self._binary("Less", self, other)

    def __le__(self, other: Any) -> Any:
        return self._binary("LessOrEqual", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._binary("Greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return self._binary("GreaterOrEqual", self, other)

    def __ne__(self, other: Any) -> Any:
        # `is` and dictionaries still go by identity: equality is not asked by name anywhere in the lowerings
        same = self._binary("Equal", self, other)
        return same.builder.emit("Not", same)

    def __hash__(self) -> int:
        return id(self)
