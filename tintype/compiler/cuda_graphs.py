"""Graphs that are recorded as CUDA graphs and replayed: one launch in place of one for each kernel.

Forward and backward graphs of ``aot`` write to nothing and return no views, so they can be done any number of
times. What they compute twice is recorded once (:mod:`tintype.compiler.once`). A recorded graph reads its inputs at
the addresses that they had. Inputs that come at the same address each time (parameters) are read where they are;
others are copied to memory of the graph's own first. Results lie in memory that the next replay writes to, so the
caller gets copies. Writes to inputs (a cache that is state of the model) are
part of the recording, see :mod:`tintype.compiler.fast_runs`.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from tintype.aot.function import as_it_is, function
from tintype.compiler.once import Noting, Plan

DEVICE = "cuda"


def with_cuda_graphs(graph_module: GraphModule) -> Callable[..., Any]:
    """A graph of torch's functions whose forward and backward are replayed where all of it is on one GPU."""
    return function(graph_module, fw_compiler=replayed)


def replayed(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """A functional graph, replayed; as it is where not all of its inputs are tensors on one GPU."""
    run = as_it_is(graph_module, example_inputs)
    devices = [value.device for value in example_inputs if isinstance(value, torch.Tensor)]
    if not devices or len(devices) != len(example_inputs) or len(set(devices)) > 1 or devices[0].type != DEVICE:
        return run
    return Replay(run)


def is_being_recorded() -> bool:
    """Whether somebody else records what this thread does on the GPU."""
    return torch.cuda.is_current_stream_capturing()


class Replay:
    """One graph: run as it is at first, then recorded, then replayed. ``written`` are positions of inputs that it
    writes to."""

    def __init__(self, run: Callable[..., Any], written: Sequence[int] = ()) -> None:
        self.run = run
        self.written = tuple(written)
        self.lock = threading.Lock()
        self.addresses: list[int] | None = None  # of the first call
        self.recorded: Recorded | None = None
        # why it can't be recorded: something in it waits for the GPU, or makes sizes of data
        self.reason: str | None = None

    def __call__(self, *inputs: Any) -> Any:
        return self.at([tensor.data_ptr() for tensor in inputs], inputs)

    def at(self, addresses: list[int], inputs: Sequence[Any]) -> Any:
        """Run it with inputs that lie at these addresses."""
        if self.reason is not None or is_being_recorded():
            return self.run(*inputs)
        with self.lock:  # the memory of the graph is there once
            if self.addresses is None:
                self.addresses = addresses
                return self.run(*inputs)
            if self.recorded is None or not self.recorded.fits(addresses):
                # what has moved since the first call will move again
                pairs = zip(self.addresses, addresses, strict=True)
                self.addresses = [before if before == now else -1 for before, now in pairs]
                try:
                    self.recorded = Recorded(self.run, inputs, self.addresses, self.written)
                except RuntimeError as error:
                    self.reason = str(error)
                    torch.cuda.synchronize()
                    return self.run(*inputs)
            return self.recorded.replay(inputs)


def _try_to_record(run: Callable[..., Any], inputs: Sequence[Any], device: torch.device) -> None:
    """Raise an error if a function can't be recorded. torch leaves the random generator of a failed recording where
    nobody can draw from it any more, so another one stands in its place meanwhile."""
    generator = torch.cuda.default_generators[device.index]
    real = generator.graphsafe_get_state()
    generator.graphsafe_set_state(generator.clone_state())
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            run(*inputs)
    finally:
        generator.graphsafe_set_state(real)


def record(run: Callable[..., Any], inputs: Sequence[torch.Tensor], written: Sequence[int]) -> tuple[Any, Any, Any]:
    """A graph that does what a function does with these very inputs, its results, and what it reads besides; nothing
    is computed yet, and nothing written."""
    device = inputs[0].device
    before = torch.cuda.get_rng_state(device)
    with torch.cuda.device(device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries get ready
            plan = first_run(run, inputs, written)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.set_rng_state(before, device)
        shortened = plan.applied(run)
        try:
            _try_to_record(shortened, inputs, device)
        except RuntimeError:  # nothing is left out then
            if plan.changes_nothing:
                raise
            torch.cuda.synchronize()
            plan = Plan([], {}, {}, {})
            shortened = plan.applied(run)
            _try_to_record(shortened, inputs, device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = shortened(*inputs)
    torch.cuda.set_rng_state(before, device)
    return graph, results, plan


def first_run(run: Callable[..., Any], inputs: Sequence[torch.Tensor], written: Sequence[int]) -> Plan:
    """Run a function without writing to inputs; what other runs of it need not compute."""
    given = [tensor.clone() if position in written else tensor for position, tensor in enumerate(inputs)]
    with Noting() as noting:
        run(*given)
    return noting.plan()


class Recorded:
    """A CUDA graph with its inputs and outputs. ``addresses`` are those of inputs that stay, -1 for others."""

    _staying: Callable[[Sequence[int]], Any]

    def __init__(
        self,
        run: Callable[..., Any],
        inputs: Sequence[torch.Tensor],
        addresses: list[int],
        written: Sequence[int] = (),
    ) -> None:
        self.copied = [position for position, address in enumerate(addresses) if address == -1]
        staying = [position for position, address in enumerate(addresses) if address != -1]
        # what stays is compared at each call: as one, since there are many parameters
        self._staying = operator.itemgetter(*staying) if staying else len
        self._expected = self._staying(addresses)
        self.written = tuple(written)
        # inputs that are written to in the graph's own memory, for those of the caller to get what is there
        self.given_to = [position for position in self.written if addresses[position] == -1]
        self.inputs = list(inputs)
        for position in self.copied:
            self.inputs[position] = inputs[position].detach().clone()
        self._own = [self.inputs[position] for position in self.copied]
        self.graph, results, self.plan = record(run, self.inputs, self.written)
        self.is_single = not isinstance(results, (list, tuple))
        self.results = [results] if self.is_single else list(results)
        places = {id(tensor): position for position, tensor in enumerate(self.inputs)}
        self.given_back = [places.get(id(result)) for result in self.results]
        # inputs that stay belong to the caller
        for position, address in enumerate(addresses):
            if address != -1:
                self.inputs[position] = self.inputs[position].new_empty(0)

    def fits(self, addresses: Sequence[int]) -> bool:
        """Whether what it reads at its own place is there."""
        return bool(self._staying(addresses) == self._expected)

    def replay(self, inputs: Sequence[torch.Tensor]) -> Any:
        """Run it; results are copies, or inputs that it gives back."""
        if self.copied:
            self.copy_inputs(inputs)
        self.graph.replay()
        if self.written:
            self.show_writes(inputs)
        results = self.copied_results(inputs)
        return results[0] if self.is_single else results

    def copy_inputs(self, inputs: Sequence[torch.Tensor]) -> None:
        """To memory of the graph's own."""
        torch._foreach_copy_(self._own, [inputs[position].detach() for position in self.copied])

    def copied_results(self, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Results that the next replay does not write to."""
        return tuple(
            inputs[position]
            if position is not None
            else result.clone()
            if isinstance(result, torch.Tensor)
            else result
            for result, position in zip(self.results, self.given_back, strict=True)
        )

    def show_writes(self, inputs: Sequence[torch.Tensor]) -> None:
        """The graph has written to memory: let the caller's tensors have it, and autograd know of it."""
        if self.given_to:
            with torch.no_grad():
                for position in self.given_to:
                    inputs[position].detach().copy_(self.inputs[position])
        torch.autograd.graph.increment_version([inputs[position] for position in self.written])
