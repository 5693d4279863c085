"""Export a small transformer for batches and sequences of any size, look at the program, run it, decompose it, save
and load it; compare each with eager.

make demo            or, with tintype installed:  python examples/demo.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

import tintype
from small_transformer import SmallTransformer

TOLERANCE = 1e-5


def largest_difference(what: str, got: Tensor, expected: Tensor) -> float:
    """Print how far the program's answer is from eager's."""
    difference = (got - expected).abs().max().item() if got.shape == expected.shape else float("inf")
    print(f"{what:24} max abs difference from eager: {difference:.1e}")
    return difference


def main() -> int:
    torch.manual_seed(0)
    model = SmallTransformer().eval()
    tokens, other_tokens = torch.randint(0, 128, (2, 16)), torch.randint(0, 128, (5, 9))
    sizes = {"tokens": {0: tintype.Dim("batch"), 1: tintype.Dim("length", max=64)}}

    with torch.no_grad():
        start = time.perf_counter()
        program = tintype.export(model, (tokens,), dynamic_shapes=sizes)
        export_seconds = time.perf_counter() - start
        print(program)
        print(program.contract())

        start = time.perf_counter()
        core = program.run_decompositions()
        decompose_seconds = time.perf_counter() - start

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "transformer.tt"
            start = time.perf_counter()
            tintype.save(program, path)
            save_seconds = time.perf_counter() - start
            start = time.perf_counter()
            loaded = tintype.load(path)
            load_seconds = time.perf_counter() - start
            size = path.stat().st_size

        runnable, runnable_core = program.module(), core.module()
        differences = [
            largest_difference("exported", runnable(tokens), model(tokens)),
            largest_difference("exported, other sizes", runnable(other_tokens), model(other_tokens)),
            largest_difference("decomposed", runnable_core(other_tokens), model(other_tokens)),
            largest_difference("saved and loaded", loaded.module()(other_tokens), model(other_tokens)),
        ]

    print(f"{'export':24} {len(program.graph.nodes)} nodes in {export_seconds * 1e3:.0f} ms")
    print(f"{'save, load':24} {size} bytes in {save_seconds * 1e3:.0f} ms, {load_seconds * 1e3:.0f} ms")
    print(f"{'run_decompositions':24} {len(core.graph.nodes)} nodes in {decompose_seconds * 1e3:.0f} ms")
    if not all(difference <= TOLERANCE for difference in differences):
        print(f"The program differs from eager by more than {TOLERANCE:.0e}.", file=sys.stderr)
        return 1
    print("The program agrees with eager.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
