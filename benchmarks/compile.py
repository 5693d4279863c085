"""Compiled functions beside torch.compile with the same backend, in one run.

    python -m benchmarks.compile [--parts first,calls,guards,recompiles,inductor] [--write]

First calls: the time of the first call of a fresh function or module, and of the first two, after each side has
compiled something else (imports are not counted); the best of several. Calls: microseconds over eager mode,
contenders in turn. Guards: what a compiled BERT asks of all that it reads. Recompiles: one function captured 64
times. Inductor: the time of all calls until the compiled code runs, and of a call from then on, with empty caches.
"""

from __future__ import annotations

import argparse
import copy
import functools
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import tintype
from benchmarks.report import REPOSITORY, machine, markdown_table, number, replace_section
from benchmarks.timing import interleaved
from tintype.compiler import history
from tintype.compiler.program import Program
from tintype.compiler.saving import paths_of
from tintype.compiler.sources import Guard
from tintype.compiler.trace import Return

PARTS = ("first", "calls", "guards", "recompiles", "inductor")
Row = list[str]


def three_operators(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x + y) * 2.0


def eight_tensors(*tensors: torch.Tensor) -> torch.Tensor:
    a, b, c, d, e, f, g, h = tensors
    return ((a + b) * (c + d)) - ((e + f) * (g + h))


def small_bert() -> tuple[nn.Module, tuple[Any, ...]]:
    """A BERT with 12 layers and about 200 parameters, small enough that Python is what takes time."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=64, intermediate_size=128, num_attention_heads=4, num_hidden_layers=12, vocab_size=1000
    )
    return BertModel(config).eval(), (torch.randint(0, 1000, (1, 16)),)


def fresh(function: Any) -> Any:
    """The same function or module again, which nobody has compiled."""
    if isinstance(function, nn.Module):
        return copy.deepcopy(function)
    namespace = dict(function.__globals__)
    return type(function)(function.__code__.replace(co_name=f"{function.__name__}_{time.time_ns()}"), namespace)


def seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def by_torch(function: Any, backend: str) -> Any:
    return torch.compile(function, backend=backend, dynamic=False)


def by_us(function: Any, backend: str) -> Any:
    return tintype.compile(function, backend=backend)


# --- parts -----------------------------------------------------------------------------------------------------


def first_calls() -> Iterator[Row]:
    bert, ids = small_bert()
    programs = {
        "3 operators": (three_operators, (torch.randn(4, 4), torch.randn(4, 4))),
        "BERT, 12 layers": (bert, ids),
    }
    for backend in ("eager", "aot_eager"):
        for name, (function, args) in programs.items():
            best: dict[str, list[float]] = {}
            for label, compiler in (("tintype", by_us), ("torch", by_torch)):
                compiler(fresh(three_operators), backend)(torch.ones(2), torch.ones(2))
                times = []
                for _ in range(5):
                    torch.compiler.reset()
                    call = functools.partial(compiler(fresh(function), backend), *args)
                    first, second = seconds(call), seconds(call)
                    times.append((first, first + second))
                best[label] = [min(column) * 1000 for column in zip(*times, strict=True)]
            # two calls, too, since the first one of tintype's leaves code and graphs to the second
            for position, calls_made in enumerate(("first call", "first two calls")):
                ours, theirs = best["tintype"][position], best["torch"][position]
                row = [f"{calls_made}, {backend}: {name} (ms)", number(None), number(ours, ".1f")]
                yield [*row, number(theirs, ".1f"), f"{theirs / ours:.0f}x"]


def calls() -> Iterator[Row]:
    bert, ids = small_bert()
    programs: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "3 operators": (three_operators, (torch.randn(4, 4), torch.randn(4, 4))),
        "8 tensors": (eight_tensors, tuple(torch.randn(4) for _ in range(8))),
        "BERT, 12 layers": (bert, ids),
    }
    for backend in ("eager", "aot_eager"):
        for name, (function, args) in programs.items():
            torch.compiler.reset()
            ours, theirs = by_us(fresh(function), backend), by_torch(fresh(function), backend)
            contenders = {
                "eager": functools.partial(function, *args),
                "tintype": functools.partial(ours, *args),
                "torch": functools.partial(theirs, *args),
            }
            best = {label: min(times) for label, times in interleaved(contenders, 0.05, 15).items()}
            over = [f"{best[label]:.1f} ({best[label] - best['eager']:+.1f})" for label in ("tintype", "torch")]
            yield [f"call, {backend}: {name} (us)", number(best["eager"], ".1f"), *over, ""]


def guards_alone(engine: Any) -> Callable[..., Any]:
    """All guards of a run but those about results of calls, as a program of their own."""
    (items,) = paths_of(engine.program.root)[-1:]
    asked = [item for item in items if isinstance(item, Guard) and item.source.root.kind != "value"]
    program = Program({"_miss": lambda *_: 1 / 0, "_eagerly": lambda *_: None})
    program.insert([*asked, Return(("constant", None))])
    return program.compiled()


def guards() -> Iterator[Row]:
    bert, ids = small_bert()
    for backend in ("eager", "aot_eager"):
        compiled = by_us(bert, backend)
        compiled(*ids)
        check = guards_alone(compiled._tintype_engine)
        times = interleaved({"guards": functools.partial(check, ids, {})}, 0.05, 15)["guards"]
        parameters = len(list(bert.parameters()))
        yield [f"guards, {backend}: BERT, {parameters} parameters (us)", "", number(min(times), ".1f"), "", ""]


def recompiles() -> Iterator[Row]:
    def keyed(x: torch.Tensor, key: str) -> torch.Tensor:
        return x * len(key) + 1 if key else x

    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000
    free, history.LEAST_CAPTURES = history.LEAST_CAPTURES, 1000
    found = {}
    for label, compiler in (("tintype", by_us), ("torch", by_torch)):
        compiled = compiler(fresh(keyed), "eager")
        x = torch.ones(2)
        found[label] = [seconds(functools.partial(compiled, x, "a" * n)) for n in range(1, 65)]
    history.LEAST_CAPTURES = free
    total = [number(sum(found[label]) * 1000, ".0f") for label in ("tintype", "torch")]
    yield ["64 recompiles (ms)", "", *total, f"{sum(found['torch']) / sum(found['tintype']):.0f}x"]
    growth = [f"{min(found[label][-8:]) / min(found[label][1:9]):.1f}x" for label in ("tintype", "torch")]
    yield ["64 recompiles: one of the last / one of the first", "", *growth, ""]


def inductor() -> Iterator[Row]:
    """Each side in processes of its own: the second one in a process would find loaded what the first one uses."""
    found: dict[str, list[tuple[float, float, float]]] = {"tintype": [], "torch": []}
    for _ in range(3):
        for label, times in found.items():  # in turn
            command = [sys.executable, "-m", "benchmarks.compile", "--one-side", label]
            output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY).stdout
            eager, first, steady = map(float, output.split())
            times.append((eager, first, steady))
    best = {label: [min(column) for column in zip(*times, strict=True)] for label, times in found.items()}
    (eager, *ours), (also_eager, *theirs) = best["tintype"], best["torch"]
    firsts = [number(ours[0], ".0f"), number(theirs[0], ".0f")]
    yield ["inductor: first three calls (ms)", "", *firsts, f"{theirs[0] / ours[0]:.2f}x"]
    calls = [number(time, ".1f") for time in (min(eager, also_eager), ours[1], theirs[1])]
    yield ["inductor: call, MLP of 256 (us)", *calls, f"{theirs[1] / ours[1]:.2f}x"]


def inductor_of_one_side(label: str) -> tuple[float, float, float]:
    """Microseconds of a call in eager mode, milliseconds of the first three calls, microseconds of a call from then
    on, after something else was compiled."""
    from torch._inductor.utils import fresh_cache

    compiler = {"tintype": by_us, "torch": by_torch}[label]
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256), nn.LayerNorm(256)).eval()
    x = torch.randn(64, 256)
    with fresh_cache():  # else what another process has compiled would be found
        ready = compiler(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "inductor")
        for _ in range(3):
            ready(torch.ones(2, 4))
        compiled = compiler(model, "inductor")
        call = functools.partial(compiled, x)
        first = sum(seconds(call) for _ in range(3))
    contenders = {"eager": functools.partial(model, x), "compiled": call}
    best = {name: min(times) for name, times in interleaved(contenders, 0.05, 15).items()}
    return best["eager"], first * 1000, best["compiled"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--one-side", help=argparse.SUPPRESS)  # a process of the part about inductor
    parser.add_argument("--write", action="store_true", help="also put the table into docs/compile.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.one_side:
        with torch.no_grad():
            print(*inductor_of_one_side(options.one_side))
        return
    functions = dict(zip(PARTS, (first_calls, calls, guards, recompiles, inductor), strict=True))
    with torch.no_grad():
        rows = [row for part in options.parts.split(",") for row in functions[part]()]
    table = markdown_table(["", "eager", "tintype", "torch.compile", "ratio"], rows)
    print(table)
    if options.write:
        replace_section(REPOSITORY / "docs" / "compile.md", "benchmark", f"{table}\n\n{machine()}")


if __name__ == "__main__":
    main()
