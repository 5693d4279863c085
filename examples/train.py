"""Train a small transformer for 50 steps, once in eager mode and once as compiled graphs, and compare the losses.

python examples/train.py              or, on a GPU:  python examples/train.py --device cuda
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import tintype
from small_transformer import SmallTransformer

STEPS = 50
TOLERANCE = 1e-5


class LanguageModel(nn.Module):
    """A transformer with dropout that predicts the next token, and the loss of its predictions."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = SmallTransformer()
        self.dropout = nn.Dropout(0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.dropout(self.transformer(tokens[:, :-1]))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def batches(device: str) -> list[Tensor]:
    """Sequences that count upwards from a random token: something that can be learnt."""
    generator = torch.Generator().manual_seed(1)
    starts = torch.randint(0, 100, (STEPS, 8, 1), generator=generator)
    return list((starts + torch.arange(17)).remainder(128).to(device))


def train(model: Callable[..., Tensor], parameters: Any, data: list[Tensor]) -> tuple[list[float], float]:
    """The losses of all steps, and the seconds that they took."""
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    torch.manual_seed(2)
    losses = []
    start = time.perf_counter()
    for tokens in data:
        loss = model(tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    torch.manual_seed(0)
    model = LanguageModel().to(device)
    same = copy.deepcopy(model)
    data = batches(device)

    compiled = tintype.aot.module(same, partitioner="min_cut")
    expected, eager_seconds = train(model, model.parameters(), data)
    losses, compiled_seconds = train(compiled, compiled.parameters(), data)

    worst = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
    partition = compiled.partitions[0]
    print(f"eager mode       first loss {expected[0]:.4f}, last {expected[-1]:.4f}, {eager_seconds:.2f} s")
    print(f"compiled graphs  first loss {losses[0]:.4f}, last {losses[-1]:.4f}, {compiled_seconds:.2f} s")
    print(f"largest difference of a loss: {worst:.1e}")
    print(f"saved for the backward graph: {partition.saved_bytes - partition.input_bytes:,} bytes besides inputs")
    return 0 if worst < TOLERANCE and losses[-1] < losses[0] else 1


if __name__ == "__main__":
    raise SystemExit(main())
