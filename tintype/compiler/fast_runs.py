"""Graphs of ``aot`` inside of compiled functions, without asking again what guards have asked.

The guards of a compiled function tell dtype, sizes, strides, device, history and the thread's modes of all that a
graph gets from outside. So one call's graphs are the next call's. What comes from calls before the graph is described
anew each time. Graphs that write to inputs look where these lie in memory, which no guard tells.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from tintype import tree
from tintype.aot.function import CachedGraphs, CompiledFunction
from tintype.aot.runtime import CompiledFunctionNode, CompiledGraphs, StateAccess
from tintype.aot.sizes import SizesThatVary
from tintype.aot.varying import graphs_for_sizes
from tintype.compiler.cuda_graphs import Replay
from tintype.compiler.reads import TENSORS
from tintype.compiler.sources import contiguous_strides, description
from tintype.errors import TintypeError
from tintype.ir.call_description import Offsets
from tintype.ir.signature import StateWrite

# how many kinds of inputs are known by their descriptions
MOST_KINDS = 64
# how many graphs with symbols for sizes are made, and calls remembered to find out which sizes vary
MOST_SIZES = 4
# the hooks that hear what autograd keeps
_hooks_of_kept = torch._C._autograd._top_saved_tensors_default_hooks


class FastRun:
    """Runs a compiled function on tensors; ``unchecked`` are positions of inputs that guards say nothing about, or
    nothing about some of their sizes. ``sizes_vary``: it will be called with several sizes.

    Graphs are made for the sizes of a call. When others come, graphs are made in which those that changed are
    symbols, for all sizes that the function treats alike."""

    def __init__(self, function: CompiledFunction, unchecked: Sequence[int], sizes_vary: bool = False) -> None:
        self.function = function
        # the calls one by one; a call of a graph's module would print where an exception came from
        calls = function._function
        self.one_by_one: Callable[..., Any] = calls.forward if isinstance(calls, torch.nn.Module) else calls
        self.unchecked = tuple(unchecked)
        self.sizes_vary = sizes_vary
        self._known: dict[Any, Callable[..., Any]] = {}
        self._only: Callable[..., Any] | None = None
        # the kinds of inputs for which there are graphs of one size, and graphs for several sizes
        self._fixed: list[Any] = []
        self._varying: list[tuple[Any, SizesThatVary, Callable[..., Any]]] = []
        # what there is to be done beside the graphs, where the function has to do it
        self.why_slow: str | None = None

    def __call__(self, *inputs: Any) -> Any:
        run = self._only
        if run is None:
            run = self._run_for(inputs)
        found = run(*inputs)
        return self._by_aot(*inputs) if found is NotImplemented else found

    def _by_aot(self, *inputs: Any) -> Any:
        """A call in which there is more to be done than to run graphs. One of which no graphs can be made is done as
        the program wrote it: it raises what eager mode raises, if anything, after the writes that came before."""
        try:
            ready = self.function.ready(inputs, {})
        except Exception as error:  # only tensors without data were computed with so far
            self.why_slow = str(error)
            return self.one_by_one(*inputs)
        return ready()

    def _run_for(self, inputs: tuple[Any, ...]) -> Callable[..., Any]:
        key = tuple(_described(inputs[position]) for position in self.unchecked)
        run = self._known.get(key)
        if run is None:
            run = self._run_for_sizes(key, inputs) or self._found(inputs)
            if _records_history(inputs):
                run = unless_hooks(run, self.one_by_one)
            if len(self._known) >= MOST_KINDS:
                self._known.clear()
            self._known[key] = run
            if not self.unchecked:
                self._only = run
        return run

    def _run_for_sizes(self, key: tuple[Any, ...], inputs: tuple[Any, ...]) -> Callable[..., Any] | None:
        """Graphs for several sizes, if there are or can be some that fit."""
        kind = tuple(map(_without_sizes, key))
        for other, sizes, run in self._varying:
            if other == kind and sizes.fit(inputs):
                return run
        dims = self._dims_that_vary(key, kind)
        self._fixed = [*self._fixed[-MOST_SIZES:], key]
        if not dims or len(self._varying) >= MOST_SIZES or not self._is_simple(inputs):
            return None
        try:
            found = graphs_for_sizes(self.function, inputs, dims)
        except (TintypeError, RuntimeError):  # a function that can't be recorded so may be for each size
            return None
        if found is None:
            return None
        entry, symbols = found
        made = simple_run(self.one_by_one, entry, inputs)
        if isinstance(made, str):
            self.why_slow = made
            return None
        self._varying.append((kind, symbols, made))
        return made

    def _dims_that_vary(self, key: tuple[Any, ...], kind: tuple[Any, ...]) -> dict[int, set[int]]:
        """Dimensions that are other than at a call before; all, where it is known that sizes vary."""
        found: dict[int, set[int]] = {}
        before = [known for known in self._fixed if tuple(map(_without_sizes, known)) == kind]
        for number, position in enumerate(self.unchecked):
            if not _is_description(key[number]):
                continue
            shape = key[number][2]
            chosen = {dim for known in before for dim, size in enumerate(shape) if known[number][2][dim] != size}
            if self.sizes_vary:
                chosen = set(range(len(shape)))
            if chosen:
                found[position] = chosen
        return found

    def _is_simple(self, inputs: tuple[Any, ...]) -> bool:
        """Whether each input is a tensor of its own."""
        is_each_once = len({id(value) for value in inputs}) == len(inputs)
        return is_each_once and all(type(value) in TENSORS and value.layout is torch.strided for value in inputs)

    def prepare(self, inputs: Sequence[Any]) -> None:
        """Make the graphs for inputs like these."""
        self.function.prepare(*inputs)

    def _found(self, inputs: tuple[Any, ...]) -> Callable[..., Any]:
        """The graphs for inputs like these, or the calls of the program where there can be none."""
        try:
            return self._find(inputs)
        except Exception as error:
            self.why_slow = str(error)
            return self.one_by_one

    def _find(self, inputs: tuple[Any, ...]) -> Callable[..., Any]:
        leaves, spec = tree.flatten((inputs, {}))
        entry, state = self.function._find(leaves, spec, tree.call_labels(inputs, {}))
        # a tensor that is given twice is one input of the graphs
        is_each_once = len({id(leaf) for leaf in leaves}) == len(inputs)
        fast: Callable[..., Any] | str = "an input that is given twice, or a container of tensors"
        if is_each_once and not state:
            fast = simple_run(self.one_by_one, entry, inputs)
        if isinstance(fast, str):
            self.why_slow = fast
            return self._by_aot
        return fast


def _is_description(described: Any) -> bool:
    return isinstance(described, tuple) and len(described) > 2 and isinstance(described[2], torch.Size)


def _without_sizes(described: Any) -> Any:
    """What is said of a tensor but for its sizes, and how it lies in memory if that follows from them."""
    if not _is_description(described):
        return described
    shape, strides = described[2], described[3]
    is_contiguous = strides == contiguous_strides(shape)
    return (*described[:2], len(shape), None if is_contiguous else (shape, strides), *described[4:])


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return description(value)
    return tuple(map(_described, value)) if isinstance(value, (tuple, list)) else value


def simple_run(function: Any, entry: CachedGraphs, inputs: Sequence[Any]) -> Callable[..., Any] | str:
    """The graphs themselves, where nothing is to be done before and after them but writes; else what there is to be
    done. ``function`` is what the graphs were made of."""
    compiled, recording = entry.compiled, entry.compiled.recording
    has_more = {
        "inputs that share memory": entry.merged,
        "questions that no guard asks": entry.questions,
        "the place of inputs in their memory": isinstance(entry.key[-1], Offsets),
        "containers that are changed": compiled.changes_arguments or compiled.returned,
        "inputs whose history changes": recording.new_leaves or recording.detached_first or recording.detached,
        "inputs whose gradients are kept": recording.kept_gradients,
        "inputs that get another geometry": recording.geometry_changes,
        "a backward that eager mode refuses": recording.backward_error is not None,
        "gradients that are read": recording.gradients_read,
        "numbers that make views of results": compiled.epilogue.number_count,
        "a gradient mode that is changed": torch.is_grad_enabled() != recording.grad_enabled_after,
        "autocast": torch._C._is_any_autocast_enabled(),
    }
    for reason, is_so in has_more.items():
        if is_so:
            return reason
    has_backward = compiled.backward is not None
    differentiable = set(recording.tangents)
    more_of_results = {
        "results that are views, inputs, or have another history than the graph's": not all(
            _is_plain(plan, has_backward) for plan in recording.plans
        ),
        "gradients that are recorded in a part of it": has_backward and not torch.is_grad_enabled(),
        "results without gradients": has_backward
        and any(plan.requires_grad != (plan.value in differentiable) for plan in recording.plans),
    }
    for reason, is_so in more_of_results.items():
        if is_so:
            return reason if recording.writes else _whole_run(compiled, inputs) or reason
    if recording.writes:
        if has_backward or not _can_write(recording, inputs):
            return "writes that autograd sees, or to what is no plain tensor"
        return WritingRun(function, compiled, inputs)
    return _outputs_of(compiled, recording, has_backward, inputs)


def unless_hooks(run: Callable[..., Any], one_by_one: Callable[..., Any]) -> Callable[..., Any]:
    """Graphs keep other tensors for their backward than the calls that they are made of. Where somebody hears what is
    kept, as a checkpoint that computes all of it again and compares, the calls are done."""

    def minding(*inputs: Any) -> Any:
        return run(*inputs) if _hooks_of_kept(False) is None else one_by_one(*inputs)

    return minding


def _whole_run(compiled: CompiledGraphs, inputs: Sequence[Any]) -> Callable[..., Any] | None:
    """All that ``aot`` does in a call of graphs that write to nothing, without finding the graphs by their inputs."""
    if not all(type(value) in TENSORS for value in inputs):
        return None
    run, state = compiled.run, StateAccess(None)

    def whole(*inputs: Any) -> Any:
        return run(inputs, inputs, state)

    return whole


def _is_plain(plan: Any, has_backward: bool) -> bool:
    if (
        plan.kind != "result"
        or plan.history is not None
        or plan.is_parameter
        or plan.is_cut_off
        or plan.keeps_gradient
    ):
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
    forward, apply, unflatten = compiled.forward, CompiledFunctionNode.apply, compiled.unflatten
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
    is given to ``aot``, which knows what to do (see :attr:`FastRun.function`).

    What is recorded as a CUDA graph is ``function``, which writes where the program writes; graphs of ``aot`` compute
    new values of whole inputs, and copy them."""

    def __init__(self, function: Callable[..., Any], compiled: Any, inputs: Sequence[torch.Tensor]) -> None:
        self.function = function
        self.compiled = compiled
        self.recording = compiled.recording
        self.written = [write.position for write in self.recording.writes]
        self.lengths = [_length_in_memory(tensor) for tensor in inputs]
        self.positions = [plan.value for plan in self.recording.plans]
        self.places: Places | None = None
        self.forward = compiled.forward
        self._state = StateAccess(None)
        is_flat = all(child.is_leaf() for child in self.recording.out_spec.children())
        self.unflatten = None if is_flat else compiled.unflatten
        self.replay = Replay(self.as_written, self.written) if isinstance(self.forward, Replay) else None

    def __call__(self, *inputs: Any) -> Any:
        addresses = [tensor.data_ptr() for tensor in inputs]
        if not self.has_own_memory(addresses):
            return NotImplemented
        found = self.forward_and_write(*inputs) if self.replay is None else self.replay.at(addresses, inputs)
        return found if self.unflatten is None else self.unflatten(found)

    def forward_and_write(self, *inputs: Any) -> Any:
        """The results of the graph, after what it writes was written."""
        try:
            with torch.no_grad():
                values = tuple(self.forward(*inputs))
        except Exception:  # nothing is written yet, where the program may have written before it raises this
            return self.as_written(*inputs)
        self.compiled.epilogue.run(inputs, values, self._state)
        count = len(self.written)
        return [values[count + position] for position in self.positions]

    def as_written(self, *inputs: Any) -> Any:
        """The same, done by the calls of the program."""
        with torch.no_grad():
            return tree.flatten(self.function(*inputs))[0]

    def has_own_memory(self, addresses: list[int]) -> bool:
        """Whether no other input lies where one lies that is written to."""
        places = self.places  # another thread may have others meanwhile
        if places is not None and places.staying(addresses) == places.expected:
            return all(places.is_apart(addresses[position], self.lengths[position]) for position in places.moving)
        moving: set[int] = set()
        if places is not None:
            pairs = zip(places.addresses, addresses, strict=True)
            moved = {position for position, (before, now) in enumerate(pairs) if before != now}
            moving = moved.union(places.moving).difference(self.written)
        places = Places(addresses, self.lengths, self.written, moving)
        if not places.are_apart:
            return False
        self.places = places
        return True


class Places:
    """Where the inputs of a graph lie that writes to some of them. ``moving`` are positions of those that come from
    elsewhere at each call, such as arguments beside parameters."""

    staying: Callable[[list[int]], Any]

    def __init__(
        self, addresses: list[int], lengths: Sequence[int], written: Sequence[int], moving: Iterable[int]
    ) -> None:
        self.addresses = addresses
        self.moving = sorted(moving)
        others = set(range(len(addresses))).difference(self.moving)
        self.staying = operator.itemgetter(*sorted(others))
        self.expected = self.staying(addresses)
        spans = sorted((addresses[position], addresses[position] + lengths[position]) for position in written)
        spans = [(first, last) for first, last in spans if first < last]
        self.starts = [first for first, _ in spans]
        self.ends = [last for _, last in spans]
        self.are_apart = all(map(operator.le, self.ends, self.starts[1:])) and all(
            self.is_apart(addresses[position], lengths[position])
            for position in range(len(addresses))
            if position not in written
        )

    def is_apart(self, address: int, length: int) -> bool:
        """Whether memory is none of what is written to, whose pieces are apart themselves."""
        nearest = bisect.bisect_left(self.starts, address + length) - 1  # the last one that begins before its end
        return not length or nearest < 0 or self.ends[nearest] <= address


def _length_in_memory(tensor: torch.Tensor) -> int:
    """How many bytes there are from the start of a tensor to its end."""
    if not tensor.numel():
        return 0
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()
