"""Values that a loop carries from one step to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.errors import BranchMismatchError, CaptureError
from tintype.fake.info import TensorInfo, fresh
from tintype.fake.tensor import FakeTensor
from tintype.ops.subgraphs import SYMBOLIC, Body, described, keeping_history, kind_of, next_number
from tintype.symbolic import eq, evaluate
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Expr, Size, Symbol
from tintype.symbolic.location import user_location
from tintype.symbolic.ranges import INFINITY, Range
from tintype.trace.recorder import Recorder

aten = torch.ops.aten


class Carry:
    """The carried values of one loop: tensors, contiguous in memory, and numbers.

    What is known of them must hold in every step. A size that the first step changes is a number that is only known
    when the program runs; the loop is recorded again with it.
    """

    def __init__(self, recorder: Recorder, values: Sequence[Any], operator: str) -> None:
        self.recorder = recorder
        self.operator = operator
        self.environment = recorder.context.environment
        self.initial = [self._contiguous(value) for value in values]
        self.inside: list[Any] = [self._describe(value) for value in self.initial]
        # sizes that a step changes, but not in the example: the size before and after
        self._same_in_example: dict[Symbol, tuple[Size, Size]] = {}

    def __len__(self) -> int:
        return len(self.initial)

    def _contiguous(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        fake = self.recorder.as_fake(value)
        if fake.info.is_contiguous() and not fake.info.conjugate and not fake.info.negative:
            return fake
        with keeping_history(self.recorder):
            return self.recorder.resumed(
                lambda: aten.clone.default(value.resolve_conj().resolve_neg(), memory_format=torch.contiguous_format)
            )

    def _describe(self, value: Any) -> Any:
        if type(value) is FakeTensor:
            info = fresh(value.info.sizes, value.info.dtype, value.info.device)
            info.requires_grad = value.info.requires_grad
            return info
        number = from_torch(value) if isinstance(value, SYMBOLIC) else value
        if not isinstance(number, (Expr, int, float, bool)):
            raise BranchMismatchError(
                f"{self.operator} carries tensors and numbers, but got a {type(value).__name__}",
                location=user_location(),
            )
        return next_number(self.environment, kind_of(number))

    def enter(self, body: Body) -> list[Any]:
        """Inputs of a graph for the carried values."""
        values = []
        for position, value in enumerate(self.inside):
            given = self.initial[position]
            if isinstance(value, TensorInfo):
                name = "carried" if given.node is None else given.node.name
                values.append(body.inner.add_tensor(_again(value), name))
            else:
                values.append(body.inner.add_number(value, "carried"))
        return values

    def refuse_gradient(self) -> None:
        """Raise for carried values that a gradient could not go back through."""
        numbers = [value for value in self.inside if not isinstance(value, TensorInfo)]
        if numbers or self._own():
            what = "a number" if numbers else "a tensor whose size changes"
            raise CaptureError(
                f"{self.operator} carries {what}, and its gradient in a joint graph needs the value of every step",
                location=user_location(),
                remedy="carry a tensor without dimensions in place of a number, and tensors of one size",
            )

    def widen(self, results: Sequence[Any], conditions: Sequence[Expr]) -> bool:
        """Take back what a step showed not to hold in every step; True if there was something. ``conditions`` are
        those that the step rests on."""
        if self._keep_as_in_example(conditions):
            return True
        changed = False
        for position, result in enumerate(results):
            before = self.inside[position]
            if not isinstance(before, TensorInfo):
                continue
            sizes = tuple(self._wider(a, b) for a, b in zip(before.sizes, result.info.sizes, strict=True))
            requires_grad = before.requires_grad or result.info.requires_grad
            if sizes != before.sizes or requires_grad != before.requires_grad:
                after = fresh(sizes, before.dtype, before.device)
                after.requires_grad = requires_grad
                self.inside[position] = after
                changed = True
        return changed

    def _wider(self, before: Size, after: Size) -> Size:
        if before == after or self.environment.known(eq(before, after)) is True:
            return before
        if isinstance(before, Expr) and before in self._own():
            return before
        size = next_number(self.environment, "int", Range(0, INFINITY))
        example = self.environment.hint(before)
        if example is not None and example == self.environment.hint(after):
            self._same_in_example[size] = before, after
        return size

    def _keep_as_in_example(self, conditions: Sequence[Expr]) -> bool:
        """Let sizes be those at the loop's beginning that stay what they were in the example, where a step that takes
        others asserts of them what is not so in the example; True if there are such sizes."""
        examples = {size: self.environment.hint(before) for size, (before, _) in self._same_in_example.items()}
        kept = [size for size in examples if any(_fails(condition, size, examples) for condition in conditions)]
        for size in kept:
            before, after = self._same_in_example.pop(size)
            self.environment.guard(eq(before, after))
            self.inside = [_with_size(value, size, before) for value in self.inside]
        return bool(kept)

    def _own(self) -> set[Any]:
        """The sizes inside of the loop that are not those at its beginning."""
        found: set[Any] = set()
        for given, value in zip(self.initial, self.inside, strict=True):
            if isinstance(value, TensorInfo):
                found |= {a for a, b in zip(value.sizes, given.info.sizes, strict=True) if a != b}
        return found

    def lay_out(self, body: Body) -> None:
        """Let a step return its carried values as it takes them: contiguous."""
        for position, value in enumerate(self.inside):
            if isinstance(value, TensorInfo):
                body.lay_out(position)

    def results(self) -> list[Any]:
        """The values after the last step."""
        own = self._own()
        sizes: dict[Any, Any] = {}
        return [self._after(value, own, sizes) for value in self.inside]

    def _after(self, value: Any, own: set[Any], sizes: dict[Any, Any]) -> Any:
        if not isinstance(value, TensorInfo):
            return next_number(self.environment, value.kind)
        result = _again(value)
        for size in value.sizes:
            if size in own and size not in sizes:
                sizes[size] = next_number(self.environment, "int", Range(0, INFINITY))
        if own:
            result = fresh(tuple(sizes.get(size, size) for size in value.sizes), value.dtype, value.device)
            result.requires_grad = value.requires_grad
        return result


def _with_size(value: Any, old: Size, new: Size) -> Any:
    if not isinstance(value, TensorInfo) or old not in value.sizes:
        return value
    result = fresh(tuple(new if size is old else size for size in value.sizes), value.dtype, value.device)
    result.requires_grad = value.requires_grad
    return result


def _fails(condition: Expr, size: Symbol, examples: dict[Symbol, int]) -> bool:
    """Whether a condition on a size is known not to hold for the example."""
    if size not in condition.symbols:
        return False
    values = {symbol: examples.get(symbol, symbol.hint) for symbol in condition.symbols}
    return None not in values.values() and not evaluate(condition, values)


def _again(info: TensorInfo) -> TensorInfo:
    """The same description for another tensor."""
    new = fresh(info.sizes, info.dtype, info.device)
    new.requires_grad = info.requires_grad
    return new


def check_carry(carry: Carry, body: Body, results: Sequence[Any]) -> None:
    """Refuse a step that returns something else than it takes."""
    if len(results) != len(carry):
        raise BranchMismatchError(
            f"{body.title} of {carry.operator} takes {len(carry)} carried values, but returns {len(results)}",
            location=user_location(),
        )
    for position, (value, result) in enumerate(zip(carry.inside, results, strict=True)):
        if isinstance(value, TensorInfo):
            fits = type(result) is FakeTensor and (value.dtype, value.device, value.dim) == (
                result.info.dtype,
                result.info.device,
                result.info.dim,
            )
        else:
            number = from_torch(result) if isinstance(result, SYMBOLIC) else result
            fits = isinstance(number, (Expr, int, float, bool)) and kind_of(number) == value.kind
        if not fits:
            raise BranchMismatchError(
                f"{body.title} of {carry.operator} takes {described(carry.initial[position])} as carried value "
                f"{position}, but returns {described(result)} for the next step",
                location=user_location(),
                remedy="return carried values with the dtype, device and number of dimensions that they began with",
            )
