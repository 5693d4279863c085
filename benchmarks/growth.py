"""How export and decomposition grow with the graph: chains of 256, 1,024 and 4,096 linear + relu layers.

    python -m benchmarks.growth [--layers 256,1024,4096] [--rounds 5] [--write]

The factor is against the shortest chain. Processor time, the least of rounds in which the chains take turns. Beside
them a plain fx graph of the same calls, built with nothing but torch.fx, shows what the memory hierarchy alone does
to a graph that grows. Then the same once more with Python's garbage collector running: it looks once through all that
a capture made, when the capture is over, and that costs more per object where the objects don't fit into the caches.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.fx import Graph

import tintype
from benchmarks.report import add_write_argument, markdown_table, publish

WIDTH = 8
aten = torch.ops.aten


def chain(layers: int) -> nn.Module:
    """`layers` times linear + relu, one after the other."""
    steps = [step for _ in range(layers) for step in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*steps).eval()


def plain_graph(layers: int) -> Graph:
    """The decomposed chain as a graph that torch.fx builds by itself, with a value per node."""
    graph = Graph()
    value = graph.placeholder("x")
    for layer in range(layers):
        weight, bias = graph.placeholder(f"weight_{layer}"), graph.placeholder(f"bias_{layer}")
        transposed = graph.call_function(aten.permute.default, (weight, [1, 0]))
        product = graph.call_function(aten.addmm.default, (bias, value, transposed))
        value = graph.call_function(aten.relu.default, (product,))
        for node in (weight, bias, transposed, product, value):
            node.meta = {"val": torch.empty(2, WIDTH, device="meta")}
    graph.output(value)
    return graph


def tasks(layers: int) -> dict[str, Callable[[], Any]]:
    """What is timed for one chain, by name."""
    module, inputs = chain(layers), (torch.randn(2, WIDTH),)
    program = tintype.export(module, inputs)
    return {
        "export": lambda: tintype.export(module, inputs),
        "decompose": program.run_decompositions,
        "plain fx": lambda: plain_graph(layers),
    }


def processor_time(function: Callable[[], Any], collector: bool) -> float:
    """Seconds of one call, and of the collection that follows it where Python's collector is on."""
    gc.collect()
    if not collector:
        gc.disable()
    try:
        start = time.process_time()
        result = function()
        held: list[Any] = [[], []]  # the collector starts with the next container that is made
        seconds = time.process_time() - start
        del result, held
        return seconds
    finally:
        gc.enable()


def measure(lengths: list[int], rounds: int, collector: bool) -> dict[tuple[str, int], float]:
    """The least time of every task of every chain."""
    chains = {length: tasks(length) for length in lengths}
    best: dict[tuple[str, int], float] = {}
    for _ in range(rounds):
        for length, timed in chains.items():
            for name, function in timed.items():
                for _ in range(max(1, lengths[-1] // (4 * length))):  # short runs are noisy: more of them
                    seconds = processor_time(function, collector)
                    best[name, length] = min(best.get((name, length), seconds), seconds)
    return best


def table(lengths: list[int], measured: Mapping[bool, Mapping[tuple[str, int], float]]) -> str:
    names = ("export", "decompose", "plain fx")
    head = [
        "collector",
        "layers",
        "factor",
        *(cell for name in names for cell in (f"{name} s", "factor", "us / layer")),
    ]
    rows = []
    for collector, times in measured.items():
        for length in lengths:
            cells = ["on" if collector else "off", f"{length:,}", f"{length / lengths[0]:.1f}"]
            for name in names:
                seconds = times[name, length]
                factor = seconds / times[name, lengths[0]]
                cells += [f"{seconds:.3f}", f"{factor:.1f}", f"{seconds / length * 1e6:.0f}"]
            rows.append(cells)
    return markdown_table(head, rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_write_argument(parser)
    parser.add_argument("--layers", default="256,1024,4096", help="lengths of the chain, with commas")
    parser.add_argument("--rounds", type=int, default=5, help="the best of so many rounds counts")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    lengths = sorted(int(text) for text in options.layers.split(","))
    for function in tasks(lengths[0]).values():
        function()  # the first export of a process also loads modules and fills caches
    measured = {collector: measure(lengths, options.rounds, collector) for collector in (False, True)}
    publish("growth", table(lengths, measured), options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
