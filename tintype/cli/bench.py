"""``tintype bench``: how long calls of a program take."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from tintype.cli.inputs import given_inputs, load_one
from tintype.comparison.sides import copies


def bench_program(
    path: Path, inputs: Sequence[str], *, entry: str | None, calls: int, threads: int | None, as_json: bool
) -> None:
    """Call a program on its example, or on inputs, and print the shortest, middle and longest time."""
    if threads is not None:
        torch.set_num_threads(threads)
    begin = time.perf_counter()
    program = load_one(path, entry)
    loading = time.perf_counter() - begin
    args, kwargs = given_inputs(program, inputs, example=True)
    module = program.module()
    taken = []
    with torch.no_grad():
        for _ in range(calls + 1):  # the first one compiles the entry
            given_args, given_kwargs = copies((args, kwargs))
            begin = time.perf_counter()
            module(*given_args, **given_kwargs)
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            taken.append((time.perf_counter() - begin) * 1e3)
    first, rest = taken[0], taken[1:]
    found = {
        "loading_ms": loading * 1e3,
        "first_call_ms": first,
        "calls": calls,
        "min_ms": min(rest),
        "median_ms": statistics.median(rest),
        "max_ms": max(rest),
        "threads": torch.get_num_threads(),
    }
    if as_json:
        print(json.dumps(found))
        return
    print(f"loading {found['loading_ms']:.4g} ms, first call {first:.4g} ms")
    print(
        f"{calls} calls on {found['threads']} threads: {found['min_ms']:.4g} ms at best, "
        f"{found['median_ms']:.4g} ms in the middle, {found['max_ms']:.4g} ms at worst"
    )
