"""Graphs of ``aot`` inside of compiled functions, without asking again what guards have asked.

The guards of a compiled function tell dtype, sizes, strides, device, history and the thread's modes of all that a
graph gets from outside. So one call's graphs are the next call's. What comes from calls before the graph is described
anew each time. Graphs that write to inputs look where these lie in memory, which no guard tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tintype import tree
from tintype.aot.function import CachedGraphs, CompiledFunction
from tintype.aot.runtime import CompiledFunctionNode, StateAccess
from tintype.compiler.cuda_graphs import Replay
from tintype.compiler.reads import TENSORS
from tintype.compiler.sources import description
from tintype.ir.call_description import Offsets
from tintype.ir.signature import StateWrite

# how many kinds of inputs are known by their descriptions
MOST_KINDS = 64


class FastRun:
    """Runs a compiled function on tensors; ``unchecked`` are positions of inputs that guards say nothing about."""

    def __init__(self, function: CompiledFunction, unchecked: Sequence[int]) -> None:
        self.function = function
        self.unchecked = tuple(unchecked)
        self._known: dict[Any, Callable[..., Any]] = {}
        self._only: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        run = self._only
        if run is None:
            run = self._run_for(inputs)
        found = run(*inputs)
        return self.function(*inputs) if found is NotImplemented else found

    def _run_for(self, inputs: tuple[Any, ...]) -> Callable[..., Any]:
        key = tuple(_described(inputs[position]) for position in self.unchecked)
        run = self._known.get(key)
        if run is None:
            run = self._find(inputs)
            if len(self._known) >= MOST_KINDS:
                self._known.clear()
            self._known[key] = run
            if not self.unchecked:
                self._only = run
        return run

    def prepare(self, inputs: Sequence[Any]) -> None:
        """Make the graphs for inputs like these."""
        self.function.prepare(*inputs)

    def _find(self, inputs: tuple[Any, ...]) -> Callable[..., Any]:
        leaves, spec = tree.flatten((inputs, {}))
        entry, state = self.function._find(leaves, spec, tree.call_labels(inputs, {}))
        # a tensor that is given twice is one input of the graphs
        is_each_once = len({id(leaf) for leaf in leaves}) == len(inputs)
        fast = None if state or not is_each_once else simple_run(entry, inputs)
        return self.function if fast is None else fast


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return description(value)
    return tuple(map(_described, value)) if isinstance(value, (tuple, list)) else value


def simple_run(entry: CachedGraphs, inputs: Sequence[Any]) -> Callable[..., Any] | None:
    """The graphs themselves, where nothing is to be done before and after them but writes; else None."""
    compiled, recording = entry.compiled, entry.compiled.recording
    has_more = (
        entry.merged,
        entry.questions,
        isinstance(entry.key[-1], Offsets),
        compiled.changes_arguments,
        compiled.returned,
        recording.new_leaves,
        recording.detached_first,
        recording.detached,
        recording.geometry_changes,
        recording.backward_error is not None,
        recording.gradients_read,
        compiled.epilogue.number_count,
        torch.is_grad_enabled() != recording.grad_enabled_after,
        torch._C._is_any_autocast_enabled(),
    )
    has_backward = compiled.backward is not None
    if any(has_more) or not all(_is_plain(plan, has_backward) for plan in recording.plans):
        return None
    if has_backward and not torch.is_grad_enabled():
        return None
    differentiable = set(recording.tangents)
    if has_backward and any(plan.requires_grad != (plan.value in differentiable) for plan in recording.plans):
        return None
    if recording.writes:
        return None if has_backward or not _can_write(recording, inputs) else WritingRun(compiled, inputs)
    return _outputs_of(compiled, recording, has_backward, inputs)


def _is_plain(plan: Any, has_backward: bool) -> bool:
    if plan.kind != "result" or plan.history is not None or plan.is_parameter or plan.is_cut_off:
        return False
    return plan.is_leaf != plan.requires_grad and (has_backward or not plan.requires_grad)


def _records_history(inputs: Sequence[Any]) -> bool:
    """Whether autograd would see what a graph without a backward does."""
    return torch.is_grad_enabled() and any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in inputs
    )


def _outputs_of(compiled: Any, recording: Any, has_backward: bool, inputs: Sequence[Any]) -> Callable[..., Any]:
    positions = [plan.value for plan in recording.plans]
    is_flat = all(child.is_leaf() for child in recording.out_spec.children())
    forward, apply, unflatten = compiled.forward, CompiledFunctionNode.apply, compiled._unflatten
    if not has_backward and _records_history(inputs):
        forward = _without_history(forward)
    if not has_backward and is_flat and positions == list(range(compiled.value_count)):
        run: Callable[..., Any] = forward
        return run

    def outputs(*inputs: Any) -> Any:
        values = apply(compiled, *inputs) if has_backward else forward(*inputs)
        found = [values[position] for position in positions]
        return found if is_flat else unflatten(found)

    return outputs


def _without_history(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*inputs: Any) -> Any:
        with torch.no_grad():
            return forward(*inputs)

    return run


# --- graphs that write to their inputs -----------------------------------------------------------------------


def _can_write(recording: Any, inputs: Sequence[Any]) -> bool:
    """Whether writes go to the memory of plain tensors, without autograd having a part in it."""
    if any(write.how is not StateWrite.IN_PLACE for write in recording.writes) or _records_history(inputs):
        return False
    return all(type(value) in TENSORS and value.layout is torch.strided for value in inputs)


class WritingRun:
    """A graph without gradients that writes to inputs; each of those has its memory for itself.

    Sizes and strides are what guards say, so the memory of a tensor is where it begins. Where that is elsewhere than
    at the call before, it is compared with the memory that is written to. A call in which tensors share such memory
    is given to ``aot``, which knows what to do (see :attr:`FastRun.function`)."""

    def __init__(self, compiled: Any, inputs: Sequence[torch.Tensor]) -> None:
        self.compiled = compiled
        self.recording = compiled.recording
        self.written = [write.position for write in self.recording.writes]
        self.lengths = [_length_in_memory(tensor) for tensor in inputs]
        self.positions = [plan.value for plan in self.recording.plans]
        self.addresses: list[int] | None = None
        self.spans: list[tuple[int, int, int]] = []  # of what is written to: start, end, position
        self.forward = compiled.forward
        self._state = StateAccess(None)
        is_flat = all(child.is_leaf() for child in self.recording.out_spec.children())
        self.unflatten = None if is_flat else compiled._unflatten
        self.run: Callable[..., Any] = self.forward_and_write
        if isinstance(self.forward, Replay):
            self.forward = self.forward.run
            self.run = Replay(self.forward_and_write, self.written)

    def __call__(self, *inputs: Any) -> Any:
        addresses = [tensor.data_ptr() for tensor in inputs]
        if addresses != self.addresses and not self.has_own_memory(addresses):
            return NotImplemented
        found = self.run(*inputs)
        return found if self.unflatten is None else self.unflatten(found)

    def forward_and_write(self, *inputs: Any) -> Any:
        """The results of the graph, after what it writes was written."""
        with torch.no_grad():
            values = tuple(self.forward(*inputs))
        self.compiled.epilogue.run(inputs, values, self._state)
        count = len(self.written)
        return [values[count + position] for position in self.positions]

    def has_own_memory(self, addresses: list[int]) -> bool:
        """Whether no other input lies where one lies that is written to."""
        before = self.addresses
        if before is None or any(addresses[position] != before[position] for position in self.written):
            self.spans = [
                (addresses[position], addresses[position] + self.lengths[position], position)
                for position in self.written
                if self.lengths[position]
            ]
            before = [-1] * len(addresses)
        for position, address in enumerate(addresses):
            if address != before[position] and self.lengths[position]:
                end = address + self.lengths[position]
                for first, last, other in self.spans:
                    if address < last and first < end and other != position:
                        return False
        self.addresses = addresses
        return True


def _length_in_memory(tensor: torch.Tensor) -> int:
    """How many bytes there are from the start of a tensor to its end."""
    if not tensor.numel():
        return 0
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()
