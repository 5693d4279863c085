"""What is checked of the arguments of a program, from the values that its graph has for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tintype import tree
from tintype.export.checks import Expectation, InputChecks, ObjectOf
from tintype.export.dimensions import Dim
from tintype.export.sharing import MemoryChecks
from tintype.export.stage import Stage
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import placeholders
from tintype.ir.signature import CustomObjArgument, InputKind
from tintype.symbolic import Expr, Range, Size
from tintype.symbolic.bridge import from_torch
from tintype.transforms.doubts import asserted_layouts

if TYPE_CHECKING:
    from tintype.export.program import ExportedProgram


def input_checks_of(program: ExportedProgram) -> InputChecks:
    """The checks of a program's arguments."""
    specs = program.graph_signature.input_specs
    taken = [
        (node, spec.arg)
        for node, spec in zip(placeholders(program.graph), specs, strict=True)
        if spec.kind is InputKind.USER_INPUT
    ]
    inputs = [node for node, _ in taken]
    values = [
        ObjectOf(argument.class_fqn) if isinstance(argument, CustomObjArgument) else node.meta["val"]
        for node, argument in taken
    ]
    call_spec = program.call_spec
    # containers are made of values like those they had: some look at what they are made of
    example = tree.unflatten(values, call_spec.in_spec)
    paths = [path for path, _ in tree.flatten_with_paths(example)[0]]
    accepted = _AcceptedSizes(program)
    expectations = [accepted.expectation(path, value) for path, value in zip(paths, values, strict=True)]
    for node, strides, line in asserted_layouts(program.graph):
        if node in inputs:
            expectation = expectations[inputs.index(node)]
            expectation.strides, expectation.because = accepted.sizes(strides)[0], line
    memory = None if program.stage is Stage.TRAINING else MemoryChecks(program.graph, program.graph_signature)
    return InputChecks(
        expectations, call_spec.in_spec, program.observations, memory, program.argument_names, call_spec.positional
    )


class _AcceptedSizes:
    """The sizes that a program takes."""

    def __init__(self, program: ExportedProgram) -> None:
        self.environment = program.context.environment
        self.promised = {
            size.expression: size.dimension for size in program.dynamic_sizes if isinstance(size.dimension, Dim)
        }

    def expectation(self, path: tree.KeyPath, value: Any) -> Expectation:
        """What is expected of one input."""
        if type(value) is FakeTensor:
            return Expectation(path, value.info, *self.sizes(value.info.sizes))
        number = from_torch(value) if isinstance(value, (torch.SymInt, torch.SymFloat)) else value
        if not isinstance(number, Expr):
            return Expectation(path, number)
        (number,), ranges = self.sizes((number,))
        return Expectation(path, number, (), ranges)

    def sizes(self, numbers: Sequence[Size]) -> tuple[tuple[Size, ...], list[Range | None]]:
        """Sizes as they are checked, and the bounds of those that vary."""
        sizes: list[Size] = []
        ranges: list[Range | None] = []
        for size in numbers:
            dimension = self.promised.get(size) if isinstance(size, Expr) else None
            if dimension is not None:  # what was promised is what is checked; more is asserted by the graph
                sizes.append(size)
                ranges.append(Range(dimension.min, dimension.max))
            else:
                size = self.environment.simplify(size)
                sizes.append(size)
                ranges.append(self.environment.range(size) if isinstance(size, Expr) else None)
        return tuple(sizes), ranges
