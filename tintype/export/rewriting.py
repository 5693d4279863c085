"""``program.transform``: another program by an edit of the graph.

The edited graph is captured again, from the program's own example and with its own promises about sizes: so every new
node gets its value from the rules of its operator, what an edit needs of sizes is held against what was promised, the
nodes that stay keep their origins, and the result is verified like any export.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tintype.errors import InvalidRequestError
from tintype.export.dimensions import Dim, DimHint
from tintype.export.module import ProgramModule
from tintype.export.program import ExportedProgram
from tintype.export.shape_spec import bound_arguments
from tintype.export.spec_matching import is_number, spec_like
from tintype.export.stage import Stage
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import placeholders
from tintype.ir.signature import InputKind
from tintype.symbolic import Expr
from tintype.symbolic.bridge import from_torch


def transform_program(program: ExportedProgram, edit: Callable[[ProgramModule], Any]) -> ExportedProgram:
    """See :meth:`tintype.ExportedProgram.transform`."""
    from tintype.export.exporting import capture_program

    if program.example_inputs is None:
        raise InvalidRequestError(
            "the program has no example inputs, from which the values of an edited graph could be inferred",
            remedy="transform it before it is saved without them, or after attach_weights of one that has them",
        )
    if program.stage is Stage.CORE:
        raise InvalidRequestError(
            "a program of the core stage can't be transformed: what is captured again is a functional program",
            remedy="transform the program before run_decompositions()",
        )
    module = program.module()
    result = edit(module)
    edited = module if result is None else result
    if not isinstance(edited, ProgramModule):
        raise InvalidRequestError(
            f"a transformation edits the module that it is given, but this one returned {type(result).__name__}",
            remedy="end the function without a return statement",
        )
    edited.graph.lint()
    edited.recompile()
    args, kwargs = program.example_inputs
    shapes = _promises(program, edited, args, kwargs)
    return capture_program(edited, args, kwargs, shapes, program.stage, complex_as_assertions=True)


def _promises(program: ExportedProgram, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """The ``dynamic_shapes`` that the program was exported with."""
    if not program._dynamic_sizes:
        return None
    dimensions = {size.expression: size.dimension for size in program._dynamic_sizes}
    nodes = zip(placeholders(program.graph), program.graph_signature.input_specs, strict=True)
    values = iter([node.meta["val"] for node, spec in nodes if spec.kind is InputKind.USER_INPUT])

    def entries(leaf: Any) -> Any:
        value = next(values)
        if type(value) is FakeTensor:
            return tuple(_entry(size, dimensions) for size in value.info.sizes)
        number = from_torch(value) if isinstance(value, (torch.SymInt, torch.SymFloat)) else value
        return _entry(number, dimensions) if is_number(leaf) else None

    shaped_args, shaped_kwargs = spec_like((args, kwargs), entries)
    return bound_arguments(module, shaped_args, shaped_kwargs)


def _entry(size: Any, dimensions: dict[Expr, Dim | DimHint]) -> Any:
    return dimensions.get(size, Dim.AUTO) if isinstance(size, Expr) else None


__all__ = ["transform_program"]
