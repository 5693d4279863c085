"""What a pass learned about a program's sizes: asserted in the program that it makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torch.fx import Graph

from tintype.export.constraints import DynamicSize, complex_guards
from tintype.symbolic.environment import Guard
from tintype.transforms.assertions import AssertionWriter
from tintype.transforms.working_copy import WorkingCopy


def sizes_in(copy: WorkingCopy, sizes: Sequence[DynamicSize]) -> list[DynamicSize]:
    """The sizes that were to vary, in terms of a copy's symbols."""
    translation = copy.translation
    if translation is None:
        return list(sizes)
    return [dataclasses.replace(size, expression=translation(size.expression)) for size in sizes]


def assert_learned(graph: Graph, copy: WorkingCopy, sizes: Sequence[DynamicSize]) -> None:
    """Let a graph assert what was decided while it was made and does not follow from the checks of its inputs."""
    learned = set(copy.learned())
    if not learned:
        return
    environment = copy.context.environment
    conditions = [
        (guard.condition, assertion_text(guard)) for guard in complex_guards(environment, sizes) if guard in learned
    ]
    AssertionWriter(graph, environment).write_conditions(conditions)


def assertion_text(guard: Guard) -> str:
    """What a program says when a condition that it rests on does not hold."""
    return f"Runtime assertion failed for expression {guard.condition}"
