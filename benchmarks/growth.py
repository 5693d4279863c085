"""How export and decomposition grow with the graph: chains of 256, 1,024 and 4,096 linear + relu layers.

    python -m benchmarks.growth [--layers 256,1024,4096] [--write]

Linear growth shows as a constant time per layer; the factor is against the shortest chain.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import torch
from torch import nn

import tintype
from benchmarks.report import add_write_argument, markdown_table, publish
from benchmarks.timing import best_of

WIDTH = 8


@dataclass(frozen=True)
class Measurement:
    """One chain; times in seconds."""

    layers: int
    export: float
    decompose: float


def chain(layers: int) -> nn.Module:
    """`layers` times linear + relu, one after the other."""
    steps = [step for _ in range(layers) for step in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*steps).eval()


def measure(layers: int, repeat: int) -> Measurement:
    module, inputs = chain(layers), (torch.randn(2, WIDTH),)
    export_time, program = best_of(lambda: tintype.export(module, inputs), repeat)
    decompose_time, _ = best_of(program.run_decompositions, repeat)
    return Measurement(layers, export_time, decompose_time)


def table(measurements: list[Measurement]) -> str:
    first = measurements[0]
    head = ("layers", "factor", "export s", "factor", "us / layer", "decompose s", "factor", "us / layer")
    rows = []
    for m in measurements:
        cells = [f"{m.layers:,}", f"{m.layers / first.layers:.1f}"]
        for now, then in ((m.export, first.export), (m.decompose, first.decompose)):
            cells += [f"{now:.3f}", f"{now / then:.1f}", f"{now / m.layers * 1e6:.0f}"]
        rows.append(cells)
    return markdown_table(head, rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_write_argument(parser)
    parser.add_argument("--layers", default="256,1024,4096", help="lengths of the chain, with commas")
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many calls counts")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    lengths = sorted(int(text) for text in options.layers.split(","))
    measure(lengths[0], 1)  # the first export of a process also loads modules and fills caches
    publish("growth", table([measure(length, options.repeat) for length in lengths]), options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
