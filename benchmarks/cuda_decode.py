"""The decode step of a small GPT on a GPU: eager mode, tintype's CUDA graphs, torch.compile(mode="reduce-overhead").

    python -m benchmarks.cuda_decode [--layers 6] [--width 512] [--tokens 200] [--without-torch]

All three decode the same tokens from a cache that is state of the model, and must choose the same ones. What is
printed is the median time of a step, waited for.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import tintype


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


def decoded(step: Callable[..., torch.Tensor], model: Decoder, count: int) -> tuple[list[int], list[float]]:
    """The tokens that are decoded, and the seconds of each step."""
    for layer in model.modules():
        if isinstance(layer, Attention):
            layer.keys.zero_()
            layer.values.zero_()
    token = torch.ones(1, 1, dtype=torch.int64, device="cuda")
    tokens, seconds = [], []
    for index in range(count):
        position = torch.tensor([index], device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        token = step(token, position).clone()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        tokens.append(int(token))
    return tokens, seconds


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--without-torch", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Decoder(options.layers, options.width).cuda().eval()
    steps: dict[str, Callable[..., torch.Tensor]] = {
        "eager": model,
        "tintype, cudagraphs": tintype.compile(model, backend="cudagraphs"),
    }
    if not options.without_torch:
        steps["torch.compile, reduce-overhead"] = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        wanted: list[int] | None = None
        for name, step in steps.items():
            begin = time.perf_counter()
            decoded(step, model, 4)
            first = time.perf_counter() - begin
            tokens, seconds = decoded(step, model, options.tokens)
            wanted = wanted or tokens
            same = sum(map(int.__eq__, tokens, wanted))
            print(
                f"{name:32} {statistics.median(seconds) * 1e6:8.0f} us a token; first four steps {first:6.2f} s; "
                f"{same} of {len(tokens)} tokens as in eager mode",
                flush=True,
            )
            if hasattr(step, "explain"):
                print(step.explain())


if __name__ == "__main__":
    main()
