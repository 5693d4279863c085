"""The decode step of a small GPT on a GPU: eager mode, tintype's CUDA graphs, torch.compile(mode="reduce-overhead").

    python -m benchmarks.cuda_decode [--layers 6] [--width 512] [--tokens 200] [--without-torch]
    python -m benchmarks.cuda_decode --stand-in      # the Python part alone, without a GPU

All three decode the same tokens from a cache that is state of the model, and must choose the same ones. What is
printed is the median time of a step, waited for; of tintype's also what it is made up of, and how each graph runs.
``--stand-in`` records nothing and replays nothing, so that what is left is what a call costs around the replay.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

import tintype
from tintype.compiler import cuda_graphs
from tintype.compiler.fast_runs import FastRun, WritingRun


class Attention(torch.nn.Module):
    """Attention over a cache of fixed length."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.register_buffer("keys", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, length, width // heads))

    def forward(self, x: torch.Tensor, position: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.view(1, 1, self.heads, -1).transpose(1, 2) for part in self.project(x).chunk(3, dim=-1)
        )
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        found = torch.nn.functional.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=mask)
        return self.out(found.transpose(1, 2).reshape(1, 1, -1))


class Layer(torch.nn.Module):
    """A layer of the model."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads, length)
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)])
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, position: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x), position, mask)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))


class Decoder(torch.nn.Module):
    """One token in, the next one out."""

    def __init__(self, layers: int, width: int, heads: int = 8, length: int = 256, vocabulary: int = 8192) -> None:
        super().__init__()
        self.length = length
        self.tokens, self.positions = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(length, width)
        self.layers = torch.nn.ModuleList([Layer(width, heads, length) for _ in range(layers)])
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        mask = (torch.arange(self.length, device=token.device) <= position)[None, None, None]
        x = self.tokens(token) + self.positions(position)[None]
        for layer in self.layers:
            x = layer(x, position, mask)
        return self.head(self.norm(x)).argmax(-1)


def decoded(
    step: Callable[..., torch.Tensor], model: Decoder, count: int, device: str
) -> tuple[list[int], list[float]]:
    """The tokens that are decoded, and the seconds of each step."""
    for layer in model.modules():
        if isinstance(layer, Attention):
            layer.keys.zero_()
            layer.values.zero_()
    token = torch.ones(1, 1, dtype=torch.int64, device=device)
    tokens, seconds = [], []
    for index in range(count):
        position = torch.tensor([index], device=device)
        wait(device)
        begin = time.perf_counter()
        token = step(token, position).clone()
        wait(device)
        seconds.append(time.perf_counter() - begin)
        tokens.append(int(token))
    return tokens, seconds


def wait(device: str) -> None:
    """For all that the GPU was given to do."""
    if device == "cuda":
        torch.cuda.synchronize()


# --- what a step is made up of -------------------------------------------------------------------------------------


def microseconds(function: Callable[[], Any], device: str = "", times: int = 100) -> float:
    """The median time of a call; waited for where a device is named."""
    seconds = []
    for _ in range(times):
        wait("cuda" if torch.cuda.is_available() else "")
        begin = time.perf_counter()
        function()
        wait(device)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds) * 1e6


def graphs_of(compiled: Any) -> Iterator[Any]:
    """The graphs of a compiled module."""
    for node in compiled._tintype_engine.program.nodes:
        yield from (item.graph for item in node.items if getattr(item, "graph", None) is not None)


def print_kernels(steps: dict[str, Any], times: int = 20) -> None:
    """How many kernels a step of each is, and how long the GPU computes."""
    token = torch.ones(1, 1, dtype=torch.int64, device="cuda")
    position = torch.zeros(1, dtype=torch.int64, device="cuda")
    for name, step in steps.items():
        step(token, position)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(times):
                step(token, position)
            torch.cuda.synchronize()
        events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        busy = sum(event.device_time_total for event in events)
        print(f"{name:32} {len(events) / times:8.0f} kernels, {busy / times:8.0f} us of the GPU", flush=True)


def print_breakdown(compiled: Any, device: str) -> None:
    """How the graphs of a compiled model run, and what a call of it is made up of."""
    token = torch.ones(1, 1, dtype=torch.int64, device=device)
    position = torch.zeros(1, dtype=torch.int64, device=device)
    compiled(token, position)
    whole = microseconds(lambda: compiled(token.clone(), position.clone()))
    copies = microseconds(lambda: (token.clone(), position.clone()))
    print(f"  a call, not waited for                      {whole - copies:8.1f} us; with arguments that were there "
          f"before {microseconds(lambda: compiled(token, position)):.1f} us, waited for "
          f"{microseconds(lambda: compiled(token, position), device):.1f} us")  # fmt: skip
    given: dict[FastRun, tuple[Any, ...]] = {}
    real = FastRun.__call__

    def noted(run: FastRun, *inputs: Any) -> Any:
        given[run] = inputs
        return real(run, *inputs)

    with mock.patch.object(FastRun, "__call__", noted):
        compiled(token, position)
    in_graphs = 0.0
    for number, graph in enumerate(graphs_of(compiled)):
        if graph.run in given:
            in_graphs += print_graph(number, graph, given[graph.run], device)
        else:
            print(f"  graph {number}: not a graph of aot, or not on the way of this call")
    print(f"  guards and the rest of the program           {whole - copies - in_graphs:8.1f} us")


def print_graph(number: int, graph: Any, inputs: tuple[Any, ...], device: str) -> float:
    """One graph of a compiled model; returns the microseconds of a call."""
    run = graph.run._run_for(inputs)
    spent = microseconds(lambda: graph.run(*inputs))
    why = f" (not a quicker one: {graph.run.why_slow})" if graph.run.why_slow else ""
    print(f"  graph {number}: {len(graph.calls)} calls, {len(inputs)} inputs, {len(graph.outputs)} outputs")
    print(f"    run by {type(run).__name__}{why}                {spent:8.1f} us")
    replay = run.replay if isinstance(run, WritingRun) else run if isinstance(run, cuda_graphs.Replay) else None
    if replay is None or replay.recorded is None:
        print(f"    not recorded as a CUDA graph: {getattr(replay, 'reason', 'it is none that can be')}")
        return spent
    recorded = replay.recorded
    print(f"    recorded: {len(recorded.copied)} inputs are copied, {len(recorded.written)} written to, "
          f"{len(recorded.given_to)} of those copied back, {len(recorded.results)} results copied; "
          f"{recorded.plan.left_out} of {len(recorded.plan.operators)} operators left out")  # fmt: skip
    parts: dict[str, Callable[[], Any]] = {
        "addresses of inputs": lambda: [tensor.data_ptr() for tensor in inputs],
        "input copies": lambda: recorded.copy_inputs(inputs),
        "replay, launched": recorded.graph.replay,
        "writes shown to autograd": lambda: recorded.show_writes(inputs),
        "output copies": lambda: recorded.copied_results(inputs),
    }
    for name, part in parts.items():
        print(f"    {name:40} {microseconds(part):8.1f} us")
    print(f"    {'replay, waited for':40} {microseconds(recorded.graph.replay, device):8.1f} us")
    return spent


class NothingRecorded:
    """Stands in for a CUDA graph."""

    def replay(self) -> None:
        """Do nothing."""


def stand_in(run: Callable[..., Any], inputs: Any, written: Any) -> tuple[NothingRecorded, Any, Any]:
    """In place of :func:`tintype.compiler.cuda_graphs.record`."""
    plan = cuda_graphs.first_run(run, inputs, written)
    return NothingRecorded(), plan.applied(run)(*inputs), plan


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--without-torch", action="store_true", help="leave torch.compile out")
    parser.add_argument("--stand-in", action="store_true", help="on the CPU, with nothing replayed")
    options = parser.parse_args()
    if options.stand_in:
        with (
            mock.patch.object(cuda_graphs, "DEVICE", "cpu"),
            mock.patch.object(cuda_graphs, "record", stand_in),
            mock.patch.object(cuda_graphs, "is_being_recorded", lambda: False),
        ):
            measure(options, "cpu")
    else:
        measure(options, "cuda")


def measure(options: argparse.Namespace, device: str) -> None:
    """Decode with each of them, and print what it took."""
    torch.manual_seed(0)
    model = Decoder(options.layers, options.width).to(device).eval()
    steps: dict[str, Any] = {
        "eager": model,
        "tintype, cudagraphs": tintype.compile(model, backend="cudagraphs"),
    }
    if not options.without_torch and not options.stand_in:
        steps["torch.compile, reduce-overhead"] = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        wanted: list[int] | None = None
        for name, step in steps.items():
            begin = time.perf_counter()
            decoded(step, model, 4, device)
            first = time.perf_counter() - begin
            tokens, seconds = decoded(step, model, options.tokens, device)
            wanted = wanted or tokens
            same = (
                ""
                if options.stand_in
                else f"; {sum(map(int.__eq__, tokens, wanted))} of {len(tokens)} as in eager mode"
            )
            print(
                f"{name:32} {statistics.median(seconds) * 1e6:8.0f} us a token; first 4 steps {first:6.2f} s{same}",
                flush=True,
            )
            if hasattr(step, "_tintype_engine"):
                print_breakdown(step, device)
                print(step.explain())
        if device == "cuda":
            print_kernels(steps)


if __name__ == "__main__":
    main()
