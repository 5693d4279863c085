"""Checks of memory that the inputs of a program share, where the program writes to it.

A functional program computes new values first and writes them when it is done, and it was captured with inputs that
don't share written memory. Called with tensors that do, it would miss writes that show in another tensor. The quick
test compares where memories begin and end; only if two of them meet are the tensors themselves looked at. (A program
of the training stage writes where the model does, so it needs no check.)
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph

from tintype.errors import InputMismatchError
from tintype.export.observed import StateOf
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import placeholders
from tintype.ir.signature import MUTATION_KINDS, ExportGraphSignature, InputKind, OutputKind, OutputSpec


class MemoryChecks:
    """Which inputs may share memory with which, and with the program's state."""

    def __init__(self, graph: Graph, signature: ExportGraphSignature) -> None:
        # positions of the inputs that are tensors, and of those that are written to
        self.inputs: list[int] = []
        self.written: set[int] = set()
        # the state by name, and what of it is written to
        self.state: list[str] = []
        self.written_state: set[str] = set()
        outputs = [spec for spec in signature.output_specs if spec.kind in MUTATION_KINDS]
        if outputs:
            self._collect(graph, signature, outputs)

    @classmethod
    def of(
        cls, inputs: Sequence[int], written: Sequence[int], state: Sequence[str], written_state: Sequence[str]
    ) -> MemoryChecks:
        """Checks of certain inputs and certain state."""
        checks = cls.__new__(cls)
        checks.inputs, checks.written = list(inputs), set(written)
        checks.state, checks.written_state = list(state), set(written_state)
        return checks

    def _collect(self, graph: Graph, signature: ExportGraphSignature, outputs: Sequence[OutputSpec]) -> None:
        mutated = {spec.target for spec in outputs if spec.kind is OutputKind.USER_INPUT_MUTATION}
        mutated_state = {spec.target for spec in outputs if spec.kind is not OutputKind.USER_INPUT_MUTATION}
        position = -1
        for node, spec in zip(placeholders(graph), signature.input_specs, strict=True):
            is_input = spec.kind is InputKind.USER_INPUT
            position += is_input
            if type(node.meta.get("val")) is not FakeTensor:
                continue
            if not is_input:
                self.state.append(str(spec.target))
            elif spec.arg.name in mutated:
                self.inputs.append(position)
                self.written.add(position)
            else:
                self.inputs.append(position)
        self.written_state = {name for name in self.state if name in mutated_state}

    @property
    def needed(self) -> bool:
        """Whether there is anything that must not overlap, if only with itself."""
        return bool(self.inputs) and bool(self.written or self.written_state)

    @property
    def state_that_matters(self) -> list[str]:
        """The state that inputs must not overlap with."""
        return self.state if self.written else list(self.written_state)

    def quick_test(self, state_of: StateOf) -> Callable[..., bool]:
        """A function of the inputs that are tensors: whether :meth:`check` has to look at them."""
        spans = sorted(_span(state_of(name)) for name in self.state_that_matters)
        starts, ends = [start for start, _ in spans], [end for _, end in spans]
        among_themselves = bool(self.written) and len(self.inputs) > 1
        written = [place for place, position in enumerate(self.inputs) if position in self.written]

        def may_overlap(*tensors: torch.Tensor) -> bool:
            for place in written:
                if not tensors[place].is_contiguous() and has_overlap(tensors[place]):
                    return True
            if not among_themselves and not starts:
                return False
            spans = [_span(tensor) for tensor in tensors]
            if starts:
                for start, end in spans:
                    before = bisect.bisect_left(starts, end)
                    if before and ends[before - 1] > start:
                        return True
            if among_themselves:
                spans.sort()
                last = 0
                for start, end in spans:
                    if start < last:
                        return True
                    last = end
            return False

        return may_overlap

    def check(self, leaves: Sequence[Any], names: Sequence[str], state_of: StateOf) -> None:
        """Raise for tensors that overlap, one of which is written to."""
        for position in self.written:
            if has_overlap(leaves[position]):
                raise InputMismatchError(
                    f"Expected {names[position]} to have memory for each of its elements, since the program writes "
                    "to it, but some of them share theirs, as after expand()",
                    remedy="pass a copy: x.clone()",
                )
        for place, first in enumerate(self.inputs):
            for second in self.inputs[place + 1 :]:
                if self.written.isdisjoint((first, second)) or not overlap(leaves[first], leaves[second]):
                    continue
                raise InputMismatchError(
                    f"Expected {names[first]} and {names[second]} to have memory of their own, but they overlap, and "
                    "the program writes to one of them",
                    remedy="pass a copy of one of them: x.clone()",
                )
        for name in self.state:
            for position in self.inputs if name in self.written_state else self.written:
                if overlap(leaves[position], state_of(name)):
                    raise InputMismatchError(
                        f"Expected {names[position]} to have memory of its own, but it overlaps with {name!r} of the "
                        "program, and one of them is written to",
                        remedy="pass a copy: x.clone()",
                    )


_WITH_MEMORY = (torch.Tensor, torch.nn.Parameter)


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor has memory of its own; a fake of torch's, say, has none."""
    return type(tensor) in _WITH_MEMORY or not torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Where the memory behind a tensor begins and ends; nowhere for a tensor without data."""
    if not _has_memory(tensor):
        return 0, 0
    memory = tensor.untyped_storage()
    start = memory.data_ptr()
    return (start, start + memory.nbytes()) if start else (0, 0)


class _Place:
    """Where a tensor lies: which memory, and the byte in it that its first element begins at."""

    def __init__(self, tensor: torch.Tensor) -> None:
        if type(tensor) is FakeTensor:
            info = tensor.info
            self.storage: Any = id(info.storage)
            self.start = info.offset * info.dtype.itemsize
            self.sizes: tuple[Any, ...] = info.sizes
            self.strides: tuple[Any, ...] = info.strides
        else:
            self.storage = tensor.device.index
            self.start = tensor.data_ptr()
            self.sizes, self.strides = tuple(tensor.size()), tuple(tensor.stride())
        self.width = tensor.dtype.itemsize

    def span(self) -> tuple[int, int]:
        """The first byte, and the one behind the last."""
        steps = sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))
        return self.start, self.start + steps * self.width + self.width

    def elements(self) -> torch.Tensor:
        """Where each element begins."""
        places = torch.tensor([self.start])
        for size, stride in zip(self.sizes, self.strides, strict=True):
            places = (places[:, None] + torch.arange(size) * (stride * self.width)).reshape(-1)
        return places


def has_overlap(tensor: Any) -> bool:
    """Whether elements of a tensor share memory with each other."""
    if not isinstance(tensor, torch.Tensor) or not _has_memory(tensor):
        return False
    place = _Place(tensor)
    if 0 in place.sizes:
        return False
    end = 0  # how far one can get from the first element by the dimensions so far, the densest ones first
    for stride, size in sorted((stride, size) for size, stride in zip(place.sizes, place.strides, strict=True)):
        if size > 1:
            if stride == 0:
                return True
            if stride <= end:
                break
            end += (size - 1) * stride
    else:
        return False
    if tensor.numel() > _MOST_ELEMENTS:
        return True
    with torch._C._DisableTorchDispatch():
        return bool(torch.unique(place.elements()).numel() < tensor.numel())


# beyond it, tensors that lie between each other's elements are taken for overlapping
_MOST_ELEMENTS = 1 << 24


def overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors have a byte in common."""
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return False
    if (type(first) is FakeTensor) is not (type(second) is FakeTensor):
        return False
    if type(first) is not FakeTensor and (0, 0) in (_span(first), _span(second)):
        return False
    one, other = _Place(first), _Place(second)
    if one.storage != other.storage or (type(first) is not FakeTensor and first.device != second.device):
        return False
    numbers = (*one.sizes, *other.sizes, *one.strides, *other.strides, one.start, other.start)
    if any(type(number) is not int for number in numbers):
        return True  # symbolic: one memory is enough
    if 0 in one.sizes or 0 in other.sizes:
        return False
    (start, end), (other_start, other_end) = one.span(), other.span()
    if end <= other_start or other_end <= start:
        return False
    if one.width != other.width or (one.start - other.start) % one.width:
        return True
    if max(first.numel(), second.numel()) > _MOST_ELEMENTS:
        return True
    with torch._C._DisableTorchDispatch():
        return bool(torch.isin(one.elements(), other.elements()).any())
