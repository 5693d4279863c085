"""What is held from the forward to the backward pass: tintype's partitioners against torch's min-cut partitioner.

    python -m benchmarks.saved_memory [--cases bert,gpt2] [--write]

Each model of the corpus that is marked for joint graphs is differentiated with respect to its parameters. The
forward graphs run, and the memory of what they return for the backward graph is counted: each piece once, without
what belongs to parameters and inputs.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Iterable
from typing import Any

import torch
import torch.utils._pytree as pytree

import tintype
from benchmarks.model_corpus import add_corpus_argument, corpus_folder, load_cases
from benchmarks.report import add_write_argument, markdown_table, publish

BUDGETS = (1.0, 0.5, 0.0)
HEAD = (
    "model",
    "torch min-cut kB",
    "tintype default kB",
    *(f"min-cut, budget {budget:g} kB" for budget in BUDGETS),
    "tintype / torch",
    "min-cut s",
    "torch's s",
)


class Loss(torch.nn.Module):
    """A model with a scalar made of all its outputs."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        outputs = self.model(*args, **kwargs)
        return (sum(o.square().mean() for o in outputs if o.is_floating_point()),)


def memory(values: Iterable[Any]) -> dict[int, int]:
    """The pieces of memory behind tensors, with their sizes."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}


def held(saved: Iterable[Any], inputs: Iterable[Any]) -> int:
    """How many bytes saved values hold besides inputs."""
    known = memory(inputs)
    return sum(size for piece, size in memory(saved).items() if piece not in known)


def by_tintype(loss: torch.nn.Module, args: Any, kwargs: Any, **options: Any) -> tuple[int, float]:
    """The bytes that a partition of tintype's holds, and the seconds it took to make it."""
    found: list[int] = []

    def compiler(graph_module: Any, examples: Any) -> Any:
        def run(*inputs: Any) -> Any:
            results = graph_module(*inputs)
            found.append(held(results[compiled.partitions[0].output_count :], inputs))
            return results

        return run

    compiled = tintype.aot.module(loss, fw_compiler=compiler, bw_compiler=lambda module, examples: module, **options)
    start = time.perf_counter()
    compiled._compiled.prepare(*args, **kwargs)
    seconds = time.perf_counter() - start
    compiled(*args, **kwargs)
    return found[0], seconds


def by_torch(loss: torch.nn.Module, args: Any, kwargs: Any) -> tuple[int, float]:
    """The bytes that torch's min-cut partitioner holds, and the seconds the whole took."""
    from torch._export.utils import _compiling_state_context
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    found: list[int] = []
    counts: list[int] = []

    def partition(joint: Any, inputs: Any, *, num_fwd_outputs: int, **options: Any) -> Any:
        counts.append(num_fwd_outputs)
        return min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)

    def compiler(gm: Any, example_inputs: Any) -> Any:
        def run(*inputs: Any) -> Any:
            results = gm(*inputs)
            found.append(held(results[counts[0] :], inputs))
            return results

        return run

    state = {**dict(loss.named_parameters()), **dict(loss.named_buffers())}
    flat, spec = pytree.tree_flatten((args, kwargs))

    def function(state: Any, flat: Any) -> Any:
        call_args, call_kwargs = pytree.tree_unflatten(list(flat), spec)
        return torch.func.functional_call(loss, state, call_args, call_kwargs)

    compiled = aot_function(
        function, fw_compiler=compiler, bw_compiler=lambda gm, example_inputs: gm, partition_fn=partition
    )
    start = time.perf_counter()
    with _compiling_state_context():
        compiled(state, flat)
    return found[0], time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", help="comma-separated; default: those marked for joint graphs")
    add_corpus_argument(parser)
    add_write_argument(parser)
    options = parser.parse_args()
    folder = corpus_folder(options.corpus)
    if folder is None:
        raise SystemExit("the model corpus is not on this machine")
    cases = load_cases(folder)
    names = options.cases.split(",") if options.cases else [name for name, case in cases.items() if case.joint]
    rows = []
    for name in names:
        with warnings.catch_warnings(), contextlib.redirect_stderr(None):
            warnings.simplefilter("ignore")
            rows.append(measure(name, cases[name]))
    publish("saved memory", markdown_table(HEAD, rows), options.write)


def measure(name: str, case: Any) -> list[str]:
    """One row of the table."""
    model, args, kwargs = case.build()
    loss = Loss(model)
    default, _ = by_tintype(loss, args, kwargs)
    cuts = [by_tintype(loss, args, kwargs, partitioner="min_cut", memory_budget=budget) for budget in BUDGETS]
    expected, seconds = by_torch(loss, args, kwargs)
    sizes = [expected, default, *(size for size, _ in cuts)]
    ratio = f"{cuts[0][0] / expected:.2f}" if expected else "-"
    return [name, *(f"{size / 1000:.1f}" for size in sizes), ratio, f"{cuts[0][1]:.2f}", f"{seconds:.2f}"]


if __name__ == "__main__":
    main()
