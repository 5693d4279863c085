"""The ways in which a program is run: as exported, decomposed, saved, and so on."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

import tintype
from tests.fuzz_programs.running import Outcome, Runnable, seed, total_of

aten = torch.ops.aten


def _sigmoid(x: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp(-x))


def _silu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


def _addmm(bias: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
    return bias * beta + (x @ y) * alpha


def _sum(x: torch.Tensor, *, dtype: Any = None) -> torch.Tensor:
    # a branch on a size, which holds for a part of the sizes
    if x.dim() == 1 and x.shape[0] > 3:
        return torch.sum(x.flip(0), 0, dtype=dtype)
    return torch.sum(x.reshape(-1), 0, dtype=dtype)


USER_TABLE: dict[Any, Callable[..., Any]] = {
    aten.sigmoid.default: _sigmoid,
    aten.silu.default: _silu,
    aten.addmm.default: _addmm,
    aten.sum.default: _sum,
}


class Exported:
    """A program that was exported, and what its variants are made from."""

    def __init__(self, runnable: Runnable, program: tintype.ExportedProgram, example: tuple[Any, ...]) -> None:
        self.runnable = runnable
        self.program = program
        self.example = example
        self.dynamic_shapes = runnable.dynamic_shapes()


def saved(program: tintype.ExportedProgram) -> tintype.ExportedProgram:
    """A program through a file."""
    file = io.BytesIO()
    tintype.save(program, file)
    file.seek(0)
    return tintype.load(file)


def _training(exported: Exported) -> Any:
    model = exported.runnable.model()
    return tintype.export_for_training(model, exported.example, dynamic_shapes=exported.dynamic_shapes)


def _retraced(exported: Exported) -> Any:
    module = exported.program.module()
    return tintype.export(module, exported.example, dynamic_shapes=exported.dynamic_shapes)


def _checked(program: tintype.ExportedProgram) -> Any:
    program.validate()
    return program.module()


MAKERS: dict[str, Callable[[Exported], Any]] = {
    "module": lambda exported: _checked(exported.program),
    "decomposed": lambda exported: _checked(exported.program.run_decompositions()),
    "decomposed by an empty table": lambda exported: _checked(exported.program.run_decompositions({})),
    "decomposed by a table": lambda exported: _checked(exported.program.run_decompositions(USER_TABLE)),
    "saved": lambda exported: saved(exported.program).module(),
    "decomposed and saved": lambda exported: saved(exported.program.run_decompositions()).module(),
    "unflattened": lambda exported: tintype.unflatten(exported.program),
    "retraced": lambda exported: _checked(_retraced(exported)),
    "training": lambda exported: _checked(_training(exported)),
    "training and saved": lambda exported: saved(_training(exported)).module(),
    "aot": lambda exported: tintype.aot.module(exported.runnable.model()),
}

JOINT = "joint"
BY_TABLE = "decomposed by a table"
NAMES = [*MAKERS, JOINT]
# Those that compute with other operators than eager mode does.
OTHER_KERNELS = {"decomposed", "decomposed by an empty table", BY_TABLE, "decomposed and saved", "aot", JOINT}
# Those that make a graph for each kind of arguments: they take every size.
ANY_SIZES = {"aot"}
# Those that may refuse a program that export takes.
MAY_REFUSE = {"aot", JOINT}


class WithLoss(torch.nn.Module):
    """A model that returns a loss in front of its results."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *arguments: Any) -> Any:
        result = self.model(*arguments)
        return total_of(result), result


def joint_program(runnable: Runnable, example: tuple[Any, ...]) -> tintype.ExportedProgram:
    """The program with its gradients."""
    shapes = runnable.dynamic_shapes()
    if isinstance(shapes, tuple):
        shapes = (shapes,)
    return tintype.export_joint(WithLoss(runnable.model()), example, dynamic_shapes=shapes)


def run_joint(module: Any, runnable: Runnable, case: Any) -> Outcome:
    """Call a joint program; gradients are among its results."""
    from tests.fuzz_programs import operators
    from tests.fuzz_programs.running import copied

    outcome = Outcome()
    arguments, leaves = runnable.arguments(case)
    before = len(operators.LOG)
    seed(5)
    try:
        with torch.no_grad():
            (_, result), parameters, inputs = module(*arguments)
    except Exception as error:
        outcome.error = error
        del operators.LOG[before:]
        return outcome
    outcome.results = [copied(result)]
    outcome.arguments = copied(list(arguments))
    outcome.log = operators.LOG[before:]
    del operators.LOG[before:]
    found = pytree.tree_leaves(inputs)
    names = list(inputs)
    by_position = {int(name.rpartition("_")[2]): value for name, value in zip(names, found, strict=True)}
    tensors = [i for i, value in enumerate(arguments) if any(value is leaf for leaf in leaves)]
    outcome.gradients = [by_position.get(i) for i in tensors]
    outcome.parameter_gradients = {name.removeprefix("model."): value for name, value in parameters.items()}
    return outcome


def deep_copy(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of a model with state of its own."""
    return copy.deepcopy(model)
