"""Comparing programs with control flow to eager mode, at every stage."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

import tintype

STAGES = ("export", "training", "decomposed", "retraced", "copied")


def at_stage(stage: str, model: Any, args: tuple[Any, ...], **options: Any) -> tintype.ExportedProgram:
    """A program as it is after one of the things that can be done with it."""
    if stage == "training":
        program = tintype.export_for_training(model, args, **options)
    else:
        program = tintype.export(model, args, **options)
    if stage == "decomposed":
        program = program.run_decompositions()
    elif stage == "retraced":
        program = tintype.export(program.module(), args, **options)
    elif stage == "copied":
        program = copy.deepcopy(program)
    program.validate()
    return program


def assert_like_eager(
    model: Any,
    examples: Sequence[tuple[Any, ...]],
    *,
    stages: Sequence[str] = STAGES,
    gradients: bool = True,
    **options: Any,
) -> None:
    """Export with the first example; compare values, mutated inputs, state and gradients on all of them."""
    for stage in stages:
        program = at_stage(stage, model, examples[0], **options).module()
        eager = copy.deepcopy(model)
        for example in examples:
            compare(program, eager, example, stage, gradients=gradients)
        if isinstance(eager, torch.nn.Module):
            ours, theirs = program.state_dict(), eager.state_dict()
            for name, value in theirs.items():
                torch.testing.assert_close(ours[name], value, msg=f"{stage}: {name}")


def compare(
    program: Callable[..., Any], eager: Callable[..., Any], args: tuple[Any, ...], stage: str, *, gradients: bool
) -> None:
    """One call of each."""
    ours, theirs = _arguments(args), _arguments(args)
    got, expected = program(*ours), eager(*theirs)
    torch.testing.assert_close(got, expected, msg=lambda text: f"{stage}: {text}")
    torch.testing.assert_close(
        [a.detach() for a in ours if isinstance(a, torch.Tensor)],
        [a.detach() for a in theirs if isinstance(a, torch.Tensor)],
        msg=lambda text: f"{stage}, inputs: {text}",
    )
    if gradients:
        torch.testing.assert_close(_gradients(got, ours), _gradients(expected, theirs), msg=f"{stage}: gradients")


def _arguments(args: tuple[Any, ...]) -> list[Any]:
    return [
        a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else copy.deepcopy(a)
        for a in args
    ]


def _gradients(results: Any, args: Sequence[Any]) -> list[Any]:
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
    total = sum((leaf * leaf).sum() for leaf in leaves if leaf.requires_grad)
    inputs = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    if not inputs or not isinstance(total, torch.Tensor):
        return []
    return list(torch.autograd.grad(total, inputs, allow_unused=True))
