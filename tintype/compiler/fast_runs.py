"""Graphs of ``aot`` inside of compiled functions, without asking again what guards have asked.

The guards of a compiled function tell dtype, sizes, strides, device, history and the thread's modes of all that a
graph gets from outside. So one call's graphs are the next call's. What comes from calls before the graph is described
anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tintype import tree
from tintype.aot.function import CachedGraphs, CompiledFunction
from tintype.aot.runtime import CompiledFunctionNode
from tintype.compiler.sources import description
from tintype.ir.call_description import Offsets

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
        if self._only is not None:
            return self._only(*inputs)
        key = tuple(_described(inputs[position]) for position in self.unchecked)
        run = self._known.get(key)
        if run is None:
            run = self._find(inputs)
            if len(self._known) >= MOST_KINDS:
                self._known.clear()
            self._known[key] = run
            if not self.unchecked:
                self._only = run
        return run(*inputs)

    def prepare(self, inputs: Sequence[Any]) -> None:
        """Make the graphs for inputs like these."""
        self.function.prepare(*inputs)

    def _find(self, inputs: tuple[Any, ...]) -> Callable[..., Any]:
        leaves, spec = tree.flatten((inputs, {}))
        entry, state = self.function._find(leaves, spec, tree.call_labels(inputs, {}))
        # a tensor that is given twice is one input of the graphs
        is_each_once = len({id(leaf) for leaf in leaves}) == len(inputs)
        fast = None if state or not is_each_once else simple_run(entry)
        return self.function if fast is None else fast


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return description(value)
    return tuple(map(_described, value)) if isinstance(value, (tuple, list)) else value


def simple_run(entry: CachedGraphs) -> Callable[..., Any] | None:
    """The graphs themselves, where nothing is to be done before and after them; else None."""
    compiled, recording = entry.compiled, entry.compiled.recording
    has_more = (
        entry.merged,
        entry.questions,
        isinstance(entry.key[-1], Offsets),
        compiled.changes_arguments,
        compiled.returned,
        recording.writes,
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
    return _outputs_of(compiled, recording, has_backward)


def _is_plain(plan: Any, has_backward: bool) -> bool:
    if plan.kind != "result" or plan.history is not None or plan.is_parameter or plan.is_cut_off:
        return False
    return plan.is_leaf != plan.requires_grad and (has_backward or not plan.requires_grad)


def _outputs_of(compiled: Any, recording: Any, has_backward: bool) -> Callable[..., Any]:
    positions = [plan.value for plan in recording.plans]
    is_flat = all(child.is_leaf() for child in recording.out_spec.children())
    forward, apply, unflatten = compiled.forward, CompiledFunctionNode.apply, compiled._unflatten
    if not has_backward and is_flat and positions == list(range(compiled.value_count)):
        run: Callable[..., Any] = forward
        return run

    def outputs(*inputs: Any) -> Any:
        values = apply(compiled, *inputs) if has_backward else forward(*inputs)
        found = [values[position] for position in positions]
        return found if is_flat else unflatten(found)

    return outputs
