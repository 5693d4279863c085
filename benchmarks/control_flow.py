"""What a branch on data costs an export: models in plain Python, with and without one.

    python -m benchmarks.control_flow [--layers 12] [--rounds 7] [--write]

A program that meets a branch which the data decide is captured again and interpreted. The models are blocks of
attention; in those with a branch a block is left out where the data say so: the first one, the last one, or any.
Processor time, the least of rounds in which the models take turns.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch
from torch import nn

import tintype
from benchmarks.report import add_write_argument, markdown_table, publish

WIDTH, HEADS = 32, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        mixed = self.mixed(self.before(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = (part.transpose(1, 2) for part in mixed.unbind(2))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


class Model(nn.Module):
    """Blocks; those with the given numbers are left out where the data say so."""

    def __init__(self, layers: int, skipped: frozenset[int]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.skipped = skipped

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, block in enumerate(self.blocks):
            if number not in self.skipped or x.sum() > 0:
                x = block(x)
        return x


def models(layers: int) -> dict[str, Model]:
    every = range(layers)
    branches = {
        "no branch": (),
        "a branch in the first block": (0,),
        "in the last one": (layers - 1,),
        "in all": every,
    }
    return {name: Model(layers, frozenset(found)).eval() for name, found in branches.items()}


def measure(contenders: dict[str, Model], rounds: int) -> dict[str, tuple[float, int]]:
    """Seconds of an export and the nodes of its program, by model."""
    x = torch.randn(2, 8, WIDTH)
    best: dict[str, float] = {}
    programs: dict[str, Any] = {name: tintype.export(model, (x,)) for name, model in contenders.items()}
    for _ in range(rounds):
        for name, model in contenders.items():
            start = time.process_time()
            tintype.export(model, (x,))
            seconds = time.process_time() - start
            best[name] = min(best.get(name, seconds), seconds)
    return {name: (best[name], _nodes(program.graph_module)) for name, program in programs.items()}


def _nodes(module: Any) -> int:
    return sum(len(inner.graph.nodes) for inner in module.modules() if isinstance(inner, torch.fx.GraphModule))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_write_argument(parser)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=7, help="the best of so many rounds counts")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    measured = measure(models(options.layers), options.rounds)
    plain, nodes_of_plain = measured["no branch"]
    rows = [
        [name, f"{seconds * 1e3:.1f}", f"{seconds / plain:.2f}", str(nodes), f"{nodes / nodes_of_plain:.2f}"]
        for name, (seconds, nodes) in measured.items()
    ]
    publish("control flow", markdown_table(["model", "export ms", "factor", "nodes", "factor"], rows), options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
