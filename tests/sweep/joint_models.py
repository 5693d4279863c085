"""Gradients of real models in joint graphs, before and after decomposition, against eager autograd.

    python -m tests.sweep.joint_models [--cases bert,gpt2]

Every decomposition that the joint graphs of the corpus's models meet is used here between operators and their own
backward operators; a decomposition that returns something else than its operator shows in the gradients. Exits with 1
if one differs.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch

import tintype
from benchmarks.model_corpus import add_corpus_argument, corpus_folder, load_cases

LARGEST = 1e-4  # of a gradient's own size
# Gradients that are zero but for rounding, such as those of the biases of attention's keys, are held against this
# part of the model's largest gradient instead.
NOTHING = 1e-3


class Loss(torch.nn.Module):
    """A model with one number to differentiate."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        outputs = torch.utils._pytree.tree_leaves(self.model(*args, **kwargs))
        tensors = [output for output in outputs if isinstance(output, torch.Tensor) and output.is_floating_point()]
        return sum(tensor.square().mean() for tensor in tensors)


def largest(tensor: torch.Tensor) -> float:
    """The largest absolute value."""
    return float(tensor.abs().max())


def differences(model: Loss, args: Any, kwargs: Any) -> dict[str, float]:
    """The largest difference of a gradient, relative to the gradient, by what was done to the joint graph."""
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    loss = model(*args, **kwargs)
    expected = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
    floor = NOTHING * max(map(largest, expected))
    joint = tintype.export_joint(model, args, kwargs)
    found = {}
    for way, program in {"joint": joint, "decomposed": joint.run_decompositions()}.items():
        with torch.no_grad():
            _, gradients, _ = program.module()(*args, **kwargs)
        found[way] = max(
            largest(gradients.get(name, torch.zeros_like(want)) - want) / max(largest(want), floor)
            for name, want in zip(parameters, expected, strict=True)
        )
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_corpus_argument(parser)
    parser.add_argument("--cases", help="models, with commas (default: those of the corpus marked for joint graphs)")
    options = parser.parse_args(arguments)
    folder = corpus_folder(options.corpus)
    if folder is None:
        print("The model corpus is not on this machine (see --corpus): nothing to compare.", file=sys.stderr)
        return 1
    torch.set_num_threads(1)
    cases = load_cases(folder)
    chosen = [case for case in cases.values() if case.joint and case.split == "open"]
    if options.cases:
        chosen = [cases[name] for name in options.cases.split(",")]
    wrong = 0
    for case in chosen:
        model, args, kwargs = case.build()
        found = differences(Loss(model), args, kwargs)
        wrong += max(found.values()) > LARGEST
        print(case.name, ", ".join(f"{way} {value:.1e}" for way, value in found.items()), flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} models have the gradients of eager mode")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
