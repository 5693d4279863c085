"""What a ``for`` goes through whose number of steps varies: rows, ranges, ``zip`` and ``enumerate`` of them.

Calls of these builtins are the machine's here; native code that is handed such a sequence gets Python's own, which
fixes the number of steps to the example's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tintype.errors import CaptureError
from tintype.fake.tensor import FakeTensor
from tintype.interpret import Frame
from tintype.interpret.policy import Caller, Outcome
from tintype.symbolic import RequirementError, ge
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.sizes import require
from tintype.trace.python_sequences import SymbolicSequence, length_of, symbolic_list, symbolic_range
from tintype.trace.tensor_rows import TensorRows

# For a step: the rows of the tensors that the loop goes through, and the number of the step.
Rows = Iterator[Any]


class Elements:
    """Elements of which a step has one, whatever its number."""

    count: Any  # of elements; a number, or None for as many as there are steps
    is_numbered = False  # whether elements are made of the number of the step

    def tensors(self, count: Any) -> list[torch.Tensor]:
        """The tensors whose first rows, as many as steps, a step has one each of."""
        return []

    def element(self, rows: Rows, number: Callable[[], Any]) -> Any:
        """The element of a step."""
        raise NotImplementedError

    def first(self) -> Any:
        """The first one."""
        raise NotImplementedError

    def rest(self) -> Elements:
        """Those that follow it."""
        raise NotImplementedError


class RowElements(Elements):
    """The rows of a tensor."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.count = tensor.shape[0]

    def tensors(self, count: Any) -> list[torch.Tensor]:
        return [self.tensor if count is self.count else self.tensor[:count]]

    def element(self, rows: Rows, number: Callable[[], Any]) -> Any:
        return next(rows)

    def first(self) -> Any:
        return self.tensor[0]

    def rest(self) -> Elements:
        return RowElements(self.tensor[1:])


class NumberElements(Elements):
    """``start + step*i``."""

    is_numbered = True

    def __init__(self, start: Any, step: Any, count: Any) -> None:
        self.start = start
        self.step = step
        self.count = count

    def element(self, rows: Rows, number: Callable[[], Any]) -> Any:
        return self.start + self.step * number()

    def first(self) -> Any:
        return self.start

    def rest(self) -> Elements:
        return NumberElements(self.start + self.step, self.step, None if self.count is None else self.count - 1)

    def backwards(self) -> NumberElements:
        return NumberElements(self.start + self.step * (self.count - 1), -self.step, self.count)


class TupleElements(Elements):
    """Tuples of elements, one of each."""

    def __init__(self, parts: Sequence[Elements]) -> None:
        self.parts = parts
        self.is_numbered = any(part.is_numbered for part in parts)
        counts = [part.count for part in parts if part.count is not None]
        self.count = counts[0]
        for count in counts[1:]:
            if count is not self.count:
                self.count = torch.sym_min(self.count, count)

    def tensors(self, count: Any) -> list[torch.Tensor]:
        return [tensor for part in self.parts for tensor in part.tensors(count)]

    def element(self, rows: Rows, number: Callable[[], Any]) -> Any:
        return tuple(part.element(rows, number) for part in self.parts)

    def first(self) -> Any:
        return tuple(part.first() for part in self.parts)

    def rest(self) -> Elements:
        return TupleElements([part.rest() for part in self.parts])


class VaryingIterator:
    """The iterator of a loop whose number of steps varies; ``plain`` makes Python's own."""

    def __init__(self, elements: Elements, plain: Callable[[], Iterator[Any]]) -> None:
        self.elements = elements
        self._plain = plain
        self._native: Iterator[Any] | None = None
        self.has_taken_first = False

    def take_first(self) -> Any:
        """The first element, which there must be; the loop goes through the others."""
        try:
            require(ge(from_torch(self.elements.count), 1), "the loop makes at least one step")
        except RequirementError as error:
            raise CaptureError(
                "a variable of the loop has another kind of value before its first step (a number, None or nothing) "
                "than after it, so the program asserts that there is a step, and the example has none",
                location=error.location,
                remedy="export with an example for which the loop makes a step, or begin with a tensor",
            ) from error
        first, self.elements, self.has_taken_first = self.elements.first(), self.elements.rest(), True
        return first

    def become(self, native: Iterator[Any]) -> None:
        """A loop went through it: this is what is left. What the elements are of is held no longer."""
        self._native = native
        self._plain = lambda: native

    def __iter__(self) -> VaryingIterator:
        self._begun()
        return self

    def __next__(self) -> Any:
        return next(self._begun())

    def _begun(self) -> Iterator[Any]:
        if self._native is None:
            self._native = iter(self._plain())
        return self._native

    @property
    def is_begun(self) -> bool:
        """Whether somebody has taken elements: it is Python's own iterator from then on."""
        return self._native is not None


def elements_of(value: Any) -> Elements | None:
    """What a loop over a value goes through; None where that is Python's affair."""
    kind = type(value)
    if kind is FakeTensor:
        return RowElements(value) if value.dim() else None
    if kind is TensorRows and value.tensor is not None:
        return RowElements(value.in_order())
    if kind is SymbolicSequence and not value.is_plain:
        return NumberElements(value.start, value.step, value.length())
    if kind is range:
        return NumberElements(value.start, value.step, len(value))
    if kind is VaryingIterator and not value.is_begun:
        found: Elements = value.elements
        return found
    return None


def varies(elements: Elements | None) -> bool:
    return elements is not None and type(elements.count) is torch.SymInt


# --- builtins ------------------------------------------------------------------------------------------------------


def _make(function: Callable[..., Any]) -> Caller:
    """A builtin that is done by a function, which gives NotImplemented for what is Python's affair."""

    def call(frame: Frame, builtin: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> Outcome:
        value = function(*arguments, **(keywords or {})) if _fits(builtin, arguments, keywords) else NotImplemented
        if value is NotImplemented:
            return frame.machine.call_native(frame, builtin, arguments, keywords)
        frame.stack.append(value)
        frame.machine.policy.on_create(frame, value)
        return None

    return call


_MOST_ARGUMENTS = {range: 3, list: 1, len: 1, reversed: 1, enumerate: 2}


def _fits(builtin: Any, arguments: list[Any], keywords: dict[str, Any] | None) -> bool:
    """Whether a call may be one of ours, by its arguments' number and names."""
    if not arguments or len(arguments) > _MOST_ARGUMENTS.get(builtin, len(arguments)):
        return False
    return not keywords or (builtin is enumerate and keywords.keys() == {"start"} and len(arguments) == 1)


def _zip(*values: Any) -> Any:
    parts = [elements_of(value) for value in values]
    if not any(map(varies, parts)) or None in parts:
        return NotImplemented
    return VaryingIterator(TupleElements([part for part in parts if part is not None]), lambda: zip(*values))


def _enumerate(values: Any, start: Any = 0) -> Any:
    part = elements_of(values)
    if part is None or not varies(part):
        return NotImplemented
    numbered = TupleElements([NumberElements(start, 1, None), part])
    return VaryingIterator(numbered, lambda: enumerate(values, start))


def _reversed(values: Any) -> Any:
    if type(values) is TensorRows and values.tensor is not None:
        backwards = TensorRows(values.tensor, backwards=not values.is_backwards)
        return VaryingIterator(RowElements(backwards.in_order()), lambda: reversed(values))
    part = elements_of(values)
    if type(values) is not SymbolicSequence or not isinstance(part, NumberElements):
        return NotImplemented
    return VaryingIterator(part.backwards(), lambda: reversed(values))


def _range(*arguments: Any) -> Any:
    found = symbolic_range(*arguments)
    return found if type(found) is SymbolicSequence else NotImplemented


def _list(values: Any) -> Any:
    return symbolic_list(values) if type(values) in (FakeTensor, SymbolicSequence) else NotImplemented


def _len(values: Any) -> Any:
    return length_of(values) if type(values) in (FakeTensor, SymbolicSequence, TensorRows) else NotImplemented


SEQUENCES: dict[Any, Caller] = {
    zip: _make(_zip),
    enumerate: _make(_enumerate),
    reversed: _make(_reversed),
    range: _make(_range),
    list: _make(_list),
    len: _make(_len),
}
