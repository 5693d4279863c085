"""Export of a 70-billion-parameter decoder on a small machine: memory follows the graph, not the weights.

    python -m benchmarks.big_model [--layers 80] [--write]

The model has the shape of Llama 70B and lives on the meta device: no weight is ever allocated.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tintype
from benchmarks.report import add_write_argument, markdown_table, publish


@dataclass(frozen=True)
class Shape:
    """The decoder's sizes; the defaults are those of Llama 70B."""

    layers: int = 80
    hidden: int = 8192
    heads: int = 64
    kv_heads: int = 8
    feed_forward: int = 28672
    vocabulary: int = 128256

    @property
    def head_width(self) -> int:
        return self.hidden // self.heads


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary position embedding of (batch, heads, tokens, width)."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class Attention(nn.Module):
    """Causal attention in which several query heads share one key and value head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_width, self.groups = shape.head_width, shape.heads // shape.kv_heads
        kv_width = shape.kv_heads * shape.head_width
        self.query = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.key = nn.Linear(shape.hidden, kv_width, bias=False)
        self.value = nn.Linear(shape.hidden, kv_width, bias=False)
        self.output = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        query = rotate(self.split(self.query(x)), cosine, sine)
        key = rotate(self.split(self.key(x)), cosine, sine).repeat_interleave(self.groups, dim=1)
        value = self.split(self.value(x)).repeat_interleave(self.groups, dim=1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return joined


class FeedForward(nn.Module):
    """The gated feed-forward layer (SwiGLU)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.up = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        narrowed: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return narrowed


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and around a residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.hidden, eps=1e-5)
        self.attention = Attention(shape)
        self.feed_forward_norm = nn.RMSNorm(shape.hidden, eps=1e-5)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        mixed: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return mixed


class Decoder(nn.Module):
    """Token ids in, logits out."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_width = shape.head_width
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=1e-5)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def rotation(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        steps = torch.arange(0, self.head_width, 2, device=tokens.device) / self.head_width
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        angles = torch.outer(positions, 500000.0**-steps).repeat(1, 2)
        return angles.cos().to(self.embedding.weight.dtype), angles.sin().to(self.embedding.weight.dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        cosine, sine = self.rotation(tokens)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        logits: Tensor = self.head(self.norm(x))
        return logits


def build(shape: Shape) -> Decoder:
    """The decoder on the meta device, in bfloat16."""
    with torch.device("meta"):
        return Decoder(shape).to(torch.bfloat16).eval()


def peak_megabytes() -> float:
    """The largest resident size this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def measure(shape: Shape, tokens: int) -> list[str]:
    """A line of the table: what was exported, what it took."""
    module = build(shape)
    inputs = (torch.zeros(1, tokens, dtype=torch.long, device="meta"),)
    before = peak_megabytes()
    start = time.perf_counter()
    program = tintype.export(module, inputs)
    taken = time.perf_counter() - start
    after = peak_megabytes()
    parameters = sum(p.numel() for p in module.parameters())
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    return [
        f"{shape.layers} layers of {shape.hidden}, {tokens} tokens",
        f"{parameters / 1e9:.1f}",
        f"{weights / 1e9:.0f}",
        f"{len(program.graph_module.graph.nodes):,}",
        f"{taken:.2f}",
        f"{before:.0f}",
        f"{after:.0f}",
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_write_argument(parser)
    default = Shape()
    parser.add_argument("--layers", type=int, default=default.layers)
    parser.add_argument("--hidden", type=int, default=default.hidden)
    parser.add_argument("--heads", type=int, default=default.heads)
    parser.add_argument("--kv-heads", type=int, default=default.kv_heads)
    parser.add_argument("--feed-forward", type=int, default=default.feed_forward)
    parser.add_argument("--vocabulary", type=int, default=default.vocabulary)
    parser.add_argument("--tokens", type=int, default=128)
    options = vars(parser.parse_args(arguments))
    write, tokens = options.pop("write"), options.pop("tokens")
    head = (
        "model",
        "parameters (10^9)",
        "weights GB",
        "nodes",
        "export s",
        "peak RSS before MB",
        "peak RSS after MB",
    )
    publish("big model", markdown_table(head, [measure(Shape(**options), tokens)]), write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
