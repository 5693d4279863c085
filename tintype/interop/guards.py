"""What a program asks of its inputs besides their sizes, as torch's programs check it: a line of Python each.

``L['flat_args'][0]`` is the first input; a module of torch's program asserts all lines when it is called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tintype.errors import InvalidRequestError
from tintype.export import ExportedProgram, Stage
from tintype.export.sharing import MemoryChecks
from tintype.ir.observations import FACTS, Observation
from tintype.symbolic import Expr, python_source
from tintype.symbolic.expression import Symbol


def input_source(position: int) -> str:
    """An input in a line."""
    return f"L['flat_args'][{position}]"


def observation_guards(observations: Sequence[Observation], sources: Mapping[Symbol, str]) -> list[str]:
    """The questions that a program asked; ``sources`` says where sizes come from."""
    return [f"{_question(observation)} == {_answer(observation.answer, sources)}" for observation in observations]


def _question(observation: Observation) -> str:
    subject, fact, arguments = observation.key
    spelled = ", ".join(_answer(argument, {}) for argument in arguments)
    if isinstance(subject, str):
        raise InvalidRequestError(
            f"the program asks for {fact} of {subject!r} of its own state, which torch's programs have no check for",
            remedy="don't ask in the program, or keep it in tintype",
        )
    if subject is None:
        return f"torch.{fact}({spelled})"
    source = input_source(subject)
    if fact == "is":
        return f"({source} is {input_source(arguments[0])})"
    if fact == "tensor_class":
        return f"(type({source}).__module__ + '.' + type({source}).__qualname__)"
    if fact == "is_plain":
        return f"(type({source}) in (torch.Tensor, torch.nn.Parameter))"
    if fact == "is_contiguous" and spelled:
        spelled = f"memory_format={spelled}"
    return f"{source}.{fact}({spelled})" if FACTS[fact] else f"{source}.{fact}"


def _answer(answer: Any, sources: Mapping[Symbol, str]) -> str:
    if isinstance(answer, tuple):
        return f"({''.join(f'{_answer(item, sources)}, ' for item in answer)})"
    if isinstance(answer, Expr):
        return python_source(answer, sources)
    if isinstance(answer, (torch.dtype, torch.layout, torch.memory_format)):
        return str(answer)
    return repr(answer)


_OTHERS = {
    int: "isinstance({0}, (bool, float))",
    float: "isinstance({0}, int)",
    bool: "(isinstance({0}, (int, float)) and not isinstance({0}, bool))",
}


def constant_guards(values: Sequence[Any]) -> list[str]:
    """Numbers that a program was made for: torch takes 1.0 and True for 1, and -0.0 for 0.0."""
    lines = []
    for position, value in enumerate(values):
        source = input_source(position)
        # when torch captures its program again, numbers are symbolic: those are none of the wrong types
        if type(value) in _OTHERS:
            lines.append(f"not {_OTHERS[type(value)].format(source)}")
        if type(value) is float and value == 0:
            lines.append(f"math.copysign(1, {source}) == {math.copysign(1, value)}")
    return lines


def memory_guards(program: ExportedProgram) -> list[str]:
    """Inputs that must not overlap, since one of them is written to."""
    if program.stage is Stage.TRAINING:
        return []
    memory = MemoryChecks(program.graph, program.graph_signature)
    return [
        f"not torch._C._overlaps({input_source(first)}, {input_source(second)})"
        for place, first in enumerate(memory.inputs)
        for second in memory.inputs[place + 1 :]
        if not memory.written.isdisjoint((first, second))
    ]
