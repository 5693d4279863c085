"""What a pass learned about a program's sizes: asserted in the program that it makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch.fx import Graph

from tintype.export.constraints import DynamicSize, complex_guards
from tintype.export.program import ExportedProgram
from tintype.ir.runtime_assertions import NEEDED_AT
from tintype.symbolic.environment import Guard
from tintype.symbolic.evaluation import Translation
from tintype.transforms.assertions import AssertionWriter
from tintype.transforms.working_copy import WorkingCopy


def contract_in(copy: WorkingCopy, program: ExportedProgram) -> dict[str, Any]:
    """The parts of a program that speak of sizes, in terms of a copy's symbols."""
    sizes, observations = program.dynamic_sizes, program.observations
    translation = copy.translation
    if translation is not None:
        sizes = [dataclasses.replace(size, expression=translation(size.expression)) for size in sizes]
        observations = [dataclasses.replace(seen, answer=_answer(seen.answer, translation)) for seen in observations]
    return {"context": copy.context, "dynamic_sizes": sizes, "observations": observations}


def _answer(answer: Any, translation: Translation) -> Any:
    return tuple(map(translation, answer)) if isinstance(answer, tuple) else translation(answer)


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
    text = f"Runtime assertion failed for expression {guard.condition}"
    return text if guard.location is None else text + NEEDED_AT.format(guard.location)
