"""What a call of `ep.module()` costs over eager: a program of three operators, and models of the corpus.

    python -m benchmarks.call_overhead [--torch] [--cases distilbert,gpt2] [--write]

Microseconds per call under no_grad on one thread. The contenders take turns within a round; the minimum over the
rounds is shown, and the ratio is the median of the rounds' ratios, in which the machine's noise cancels out. --torch
adds torch.export's module to the first program (on a model its cost is lost in the work).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import tintype
from benchmarks.model_corpus import add_corpus_argument, corpus_folder, load_cases
from benchmarks.report import add_write_argument, markdown_table, number, publish
from benchmarks.timing import interleaved

Program = tuple[str, nn.Module, tuple[Any, ...], dict[str, Any]]
Contenders = dict[str, Callable[[], Any]]


class ThreeOperators(nn.Module):
    """As little work as a call can have around it."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + y) * 2.0


def programs(options: argparse.Namespace) -> Iterator[Program]:
    yield "3 operators", ThreeOperators().eval(), (torch.randn(4, 4), torch.randn(4, 4)), {}
    folder = corpus_folder(options.corpus)
    if folder is None:
        print("The model corpus is not on this machine (see --corpus): 3 operators only.", file=sys.stderr)
        return
    cases = load_cases(folder)
    chosen = cases if options.cases is None else filter(None, options.cases.split(","))
    for name in chosen:
        yield (name, *cases[name].build())


def contenders(program: Program, with_torch: bool) -> Contenders:
    """What is timed, by label: eager, tintype and, if asked, torch."""
    _, module, args, kwargs = program
    ours = tintype.export(module, args, kwargs).module()
    found: Contenders = {
        "eager": lambda: module(*args, **kwargs),
        "tintype": lambda: ours(*args, **kwargs),
    }
    if with_torch:
        theirs = torch.export.export(module, args, kwargs).module()
        found["torch"] = lambda: theirs(*args, **kwargs)
    return found


def row(name: str, samples: dict[str, list[float]]) -> list[str]:
    best = {label: min(times) for label, times in samples.items()}
    ratio = statistics.median(ours / eager for ours, eager in zip(samples["tintype"], samples["eager"]))
    eager, ours, theirs = best["eager"], best["tintype"], best.get("torch")
    cells = [name, f"{eager:.1f}", f"{ours:.1f}", f"{ours - eager:.1f}", f"{ratio:.3f}"]
    over = theirs - eager if theirs is not None else None
    return [*cells, number(theirs, ".1f"), number(over, ".1f")]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_corpus_argument(parser)
    add_write_argument(parser)
    parser.add_argument("--cases", help="models of the corpus, with commas (default: all of them); '' for none")
    parser.add_argument("--torch", action="store_true", help="also time torch.export's module")
    parser.add_argument("--seconds", type=float, default=0.15, help="length of one turn")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    head = ("program", "eager us", "tintype us", "over eager us", "ratio", "torch us", "over eager us")
    rows: list[list[str]] = []
    with torch.no_grad():
        for program in programs(options):
            timed = contenders(program, options.torch and not rows)
            rows.append(row(program[0], interleaved(timed, options.seconds, options.rounds)))
    publish("call overhead", markdown_table(head, rows), options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
