"""What an export warns of though nothing is wrong: programs that are right, and often not what was meant."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node

from tintype.errors import RefusedSizesWarning, TrainingModeWarning
from tintype.export.asserted import refused_promises
from tintype.export.constraints import narrowing
from tintype.export.module import ProgramModule
from tintype.ir.graph import called_functions, calls_of, location_of, subgraphs
from tintype.symbolic.environment import Guard
from tintype.symbolic.location import levels_to_the_user

if TYPE_CHECKING:
    from tintype.export.program import ExportedProgram


def warn_of_training_mode(model: Any, graph_module: GraphModule) -> None:
    """Say where a model's program drops elements or normalizes by the batch, as models do in training."""
    if not isinstance(model, torch.nn.Module) or isinstance(model, ProgramModule):
        return
    found = dict.fromkeys(_named(node) for node in _as_in_training(graph_module))
    if not found:
        return
    if model.training:
        fact = "the model is in training mode, and so is its program"
        remedy = "call model.eval() before exporting"
    else:
        fact = "the model is in evaluation mode, but parts of its program are as in training"
        remedy = "call functions with training=self.training (F.dropout's is True by default), and submodules' eval()"
    lines = "".join(f"\n  - {name}" for name in found)
    warnings.warn(
        f"[{TrainingModeWarning.id}] {fact}:{lines}\n  What to do: {remedy}; nothing if that is meant "
        "(tintype.export_for_training and tintype.export_joint are for programs to train, and don't warn)",
        TrainingModeWarning,
        stacklevel=levels_to_the_user(),
    )


def warn_of_refused_sizes(program: ExportedProgram) -> None:
    """Say which of the promised sizes a program refuses."""
    refused = refused_promises(program.context.environment, program.dynamic_sizes)
    if not refused:
        return
    lines = "".join(f"\n  - it needs {text}" + (f"  # {line}" if line else "") for text, line in refused)
    warnings.warn(
        f"[{RefusedSizesWarning.id}] the program refuses some of the sizes that dynamic_shapes promises, for which "
        f"the model fails too:{lines}\n  What to do: promise what the model takes, by Dim(name, min=..., max=...) or "
        "a multiple of a Dim; or nothing, since calls of other sizes are refused",
        RefusedSizesWarning,
        stacklevel=levels_to_the_user(),
    )


def warn_of_narrowed_contract(program: ExportedProgram, learned: Sequence[Guard]) -> None:
    """Say which sizes a decomposed program refuses that the program took before."""
    refused = narrowing(program.context.environment, program.dynamic_sizes, learned)
    if not refused:
        return
    lines = "".join(f"\n  - it needs {text}" + (f"  # {line}" if line else "") for text, line in refused)
    warnings.warn(
        f"[{RefusedSizesWarning.id}] the decomposed program refuses sizes that the program took:{lines}\n"
        "  What to do: keep the operator whole, run_decompositions(preserve=[...]), or give another decomposition of "
        "it; or nothing, since calls of other sizes are refused",
        RefusedSizesWarning,
        stacklevel=levels_to_the_user(),
    )


def _as_in_training(graph_module: GraphModule) -> Iterator[Node]:
    for inner in subgraphs(graph_module):
        flags = {target: place for target in called_functions(inner.graph) if (place := _flag_of(target)) is not None}
        calls = [
            node for target, place in flags.items() for node in calls_of(inner.graph, target) if _is_set(node, *place)
        ]
        yield from sorted(calls)


@functools.cache
def _flag_of(target: Any) -> tuple[tuple[int, str], tuple[int, str] | None] | None:
    """Which argument of an operator says that it is as in training, and which one how much it drops."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    places = {argument.name: position for position, argument in enumerate(target._schema.arguments)}
    flag = next((name for name in ("train", "training", "dropout_p") if name in places), None)
    if flag is None:
        return None
    amount = next((name for name in ("p", "dropout") if name in places), None)
    return (places[flag], flag), None if amount is None else (places[amount], amount)


def _is_set(node: Node, flag: tuple[int, str], amount: tuple[int, str] | None) -> bool:
    return bool(_given(node, flag, False)) and (amount is None or bool(_given(node, amount, True)))


def _given(node: Node, place: tuple[int, str], default: Any) -> Any:
    position, name = place
    value = node.args[position] if position < len(node.args) else node.kwargs.get(name, default)
    return default if isinstance(value, Node) else value


def _named(node: Node) -> str:
    """The operator of a node, in which module, and the line."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next((path for path, _ in reversed(list(stack.values())) if path), "")
    name = str(node.target).removeprefix("aten.").partition(".")[0]
    line = location_of(node)
    return name + (f" in {path}" if path else "") + (f"  # {line}" if line else "")
