"""What a program asks of its inputs besides their sizes, as torch's programs check it: a line of Python each.

``L['flat_args'][0]`` is the first input; a module of torch's program asserts all lines when it is called.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from tintype.errors import InvalidRequestError
from tintype.export import ExportedProgram, Stage
from tintype.export.sharing import MemoryChecks
from tintype.interop.torch_names import UNWRITABLE
from tintype.ir.observations import (
    FACTS,
    GROUP_RANK,
    GROUP_SIZE,
    KEYS,
    NO_SUCH_ATTRIBUTE,
    OF_ATTRIBUTES,
    OF_CONTAINERS,
    Observation,
)
from tintype.ir.signature import ConstantArgument, InputKind, OutputKind
from tintype.symbolic import Expr, python_source
from tintype.symbolic.expression import Symbol
from tintype.tree import Path, TreeSpec

# how torch is asked about a process group
_GROUP = "torch.distributed.distributed_c10d._resolve_process_group({})"
_OF_GROUPS = {GROUP_SIZE: f"{_GROUP}.size()", GROUP_RANK: f"{_GROUP}.rank()"}


def input_source(position: int) -> str:
    """An input in a line."""
    return f"L['flat_args'][{position}]"


def observation_guards(observations: Sequence[Observation], sources: Mapping[Symbol, str]) -> list[str]:
    """The questions that a program asked; ``sources`` says where sizes come from.

    Not those of containers: a program of torch's is given its inputs in its own order, whatever the caller's was."""
    return [
        f"{_question(observation)} == {_answer(observation.answer, sources)}"
        for observation in observations
        if observation.fact not in (KEYS, *OF_CONTAINERS)
    ]


def left_out(program: ExportedProgram) -> list[str]:
    """What modules of the program do or check, and those of torch's program don't."""
    found = [
        f"the order of the keys of {observation.arguments[0]} is not checked, which the program goes by"
        for observation in program.observations
        if observation.fact == KEYS
    ]
    inputs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    outputs = [spec.arg for spec in program.graph_signature.output_specs if spec.kind in _RESULTS]
    spec = program.call_spec
    arguments = [argument for side in spec.in_spec.children() for argument in side.children()]
    found += [
        f"a {_name_of(spec.out_spec, place)} that the program is given, changes and returns is not the caller's"
        for given, place in spec.returned
        if _leaves_at(arguments, inputs, given) != _leaves_at([spec.out_spec], outputs, (0, *place))
    ]
    if any(
        getattr(node.target, "__name__", "") == "associative_scan" and len(node.args[1]) > 1
        for node in program.graph.nodes
        if node.op == "call_function"
    ):
        found.append("torch's own associative_scan has wrong gradients where several tensors are scanned together")
    found += [
        f"{argument.name} is not checked, which must be {argument.value!r}"
        for argument in inputs
        if isinstance(argument, ConstantArgument) and isinstance(argument.value, bytes)
    ]
    return list(dict.fromkeys(found))


_RESULTS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)


def _leaves_at(specs: Sequence[TreeSpec], leaves: Sequence[Any], path: Path) -> list[str]:
    """The names of the leaves at a place, with the values of constants."""
    start = 0
    found: TreeSpec | None = None
    for number in path:
        start += sum(spec.num_leaves for spec in specs[:number])
        found = specs[number]
        specs = found.children()
    count = 0 if found is None else found.num_leaves
    return [str(getattr(leaf, "value", leaf.name)) for leaf in leaves[start : start + count]]


def _name_of(spec: TreeSpec, path: Path) -> str:
    for number in path:
        spec = spec.children()[number]
    return str(spec.type.__name__)


def _question(observation: Observation) -> str:
    subject, fact, arguments = observation.key
    spelled = ", ".join(_answer(argument, {}) for argument in arguments)
    of_state = arguments[0] if fact == "is" and isinstance(arguments[0], str) else subject
    if isinstance(of_state, str):
        raise InvalidRequestError(
            f"the program asks for {fact} of {of_state!r} of its own state, which torch's programs have no check for",
            remedy="don't ask in the program, or keep it in tintype",
        )
    if subject is None:
        asked = _OF_GROUPS[fact].format(spelled) if fact in _OF_GROUPS else f"torch.{fact}({spelled})"
        kind = type(observation.answer)  # of an enumeration, a device or a list
        return f"{kind.__name__}({asked})" if kind in (str, tuple) else asked
    source = input_source(subject)
    if fact in OF_ATTRIBUTES:
        return f"{fact}({source}, {spelled}" + (")" if fact == "hasattr" else f", {NO_SUCH_ATTRIBUTE!r})")
    if fact == "_is_buffer":
        return f"getattr({source}, '_is_buffer', False)"
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


def constant_guards(program: ExportedProgram) -> Iterator[str]:
    """Checks of the inputs that a program was specialised on: torch itself compares with ``==``, for some types."""
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    for position, spec in enumerate(specs):
        if isinstance(spec.arg, ConstantArgument):
            yield from _value_guards(input_source(position), spec.arg.value, spec.arg.name)


def _value_guards(source: str, value: Any, name: str) -> Sequence[str]:
    if value is None:
        return [f"{source} is None"]
    if isinstance(value, str) and (UNWRITABLE.search(value) or "'" in value):
        raise InvalidRequestError(
            f"a program of torch's can't have been specialised on the text {value!r} (input {name!r}): torch writes "
            "it into code without quoting it",
            remedy="export the model with the text as a constant of its own",
        )
    kind = type(value)
    if kind in _SYMBOLIC:  # when torch captures its program again, numbers are symbolic
        types = f"type({source}) in ({kind.__name__}, {_SYMBOLIC[kind]})"
        is_zero = kind is float and value == 0
        return [types, f"math.copysign(1, {source}) == {math.copysign(1, value)}"] if is_zero else [types]
    if kind is str:
        return [f"type({source}) is str"]
    if kind is complex and value - value == 0:
        return [f"type({source}) is complex", f"str({source}) == '{value}'"]
    if kind.__module__ == "torch":  # dtypes, devices, layouts, memory formats
        return [f"str({source}) == '{value}'"]
    return ()


_SYMBOLIC = {int: "torch.SymInt", float: "torch.SymFloat", bool: "torch.SymBool"}


def small_bounds(program: ExportedProgram) -> Iterator[str]:
    """Lower bounds of sizes up to 2, which torch takes for granted and does not check."""
    for position, expectation in enumerate(program.input_checks().expectations):
        for dimension, bounds in enumerate(expectation.ranges if expectation.dtype is not None else ()):
            if bounds is not None and 0 < bounds.lower <= 2:
                yield f"{input_source(position)}.size()[{dimension}] >= {bounds.lower}"


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
