"""``run_decompositions``: from one program to another in terms of simpler operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from tintype.errors import CaptureError, InvalidRequestError
from tintype.export.advice import warn_of_narrowed_contract
from tintype.export.default_dtype import default_dtype_observation
from tintype.export.learned import assert_learned, contract_in
from tintype.export.module_calls import put_signatures, root_signature, take_signatures, with_signatures
from tintype.export.program import ExportedProgram, verified_copy
from tintype.export.stage import Stage
from tintype.ir.graph import graph_module, output_node, placeholders
from tintype.ir.names import free_name
from tintype.ir.node_sources import note_sources
from tintype.ir.operator_facts import facts_of
from tintype.ir.process_switches import collector_paused, compiling
from tintype.ir.signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    TensorArgument,
)
from tintype.symbolic.environment import Guard
from tintype.trace.buffer_assignments import replaced_buffers
from tintype.transforms.checked_decompositions import is_torchs
from tintype.transforms.core_decompositions import composite_kernel, default_decompositions
from tintype.transforms.decompose import decompose_graph
from tintype.transforms.functionalize import functionalize
from tintype.transforms.memory import writes
from tintype.transforms.working_copy import WorkingCopy


def _by_overload(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """A user's table with an entry per overload; an operator without one stands for all of its overloads."""
    if not isinstance(table, Mapping):
        raise InvalidRequestError(
            f"decomp_table is a dictionary of decompositions by operator, but got {type(table).__name__}",
            remedy="leave it out for core ATen, or take tintype.default_decompositions() and change entries of it",
        )
    result: dict[Any, Callable[..., Any]] = {}
    for operator, decomposition in table.items():
        if isinstance(operator, torch._ops.OpOverloadPacket):
            result.update({getattr(operator, name): decomposition for name in operator.overloads()})
        elif isinstance(operator, torch._ops.OperatorBase):
            result[operator] = decomposition
        else:
            raise InvalidRequestError(
                f"{operator!r} is not an operator overload", remedy="name one, such as torch.ops.aten.relu.default"
            )
        if not callable(decomposition):
            raise InvalidRequestError(f"the decomposition of {operator} is {decomposition!r}, which can't be called")
    return {operator: _ours(operator, decomposition) for operator, decomposition in result.items()}


def _ours(operator: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition of a table, or our own where it says that a composite operator consists of what it calls, as
    torch's tables do."""
    whole = isinstance(decomposition, functools.partial) and decomposition.keywords.get("kernel") is operator
    if whole and is_torchs(decomposition) and facts_of(operator).may_stay_composite:
        return composite_kernel(operator)
    return decomposition


class InvalidPreservationError(InvalidRequestError, CaptureError):
    """An operator that can't be preserved when a program is decomposed.

    >>> import torch, tintype
    >>> program = tintype.export(torch.nn.ReLU(), (torch.ones(2),))
    >>> try:
    ...     program.run_decompositions(preserve=[torch.ops.aten.relu_.default])
    ... except tintype.InvalidPreservationError as error:
    ...     print(error.id)
    invalid-preservation
    """

    id = "invalid-preservation"


def decompose_program(
    program: ExportedProgram, table: Mapping[Any, Callable[..., Any]] | None, preserve: Sequence[Any]
) -> ExportedProgram:
    """A decomposed copy of a program; the program itself stays as it is."""
    for operator in preserve:
        _check_preservable(operator)
    learned: list[Guard] = []
    made = _decomposed_by(program, table, preserve, learned)
    note_sources(program.graph, made.graph, "run_decompositions")
    if learned:
        warn_of_narrowed_contract(made, learned)
    return made


def _decomposed_by(
    program: ExportedProgram,
    table: Mapping[Any, Callable[..., Any]] | None,
    preserve: Sequence[Any],
    learned: list[Guard],
) -> ExportedProgram:
    if table is None:
        with collector_paused():
            return _decompose(program, None, preserve, learned=learned)
    chosen = _by_overload(table)
    defaults = default_decompositions()
    of_user = frozenset(operator for operator, given in chosen.items() if defaults.get(operator) is not given)
    with collector_paused():
        if not of_user and len(chosen) == len(defaults):
            return _decompose(program, None, preserve)
        chosen = {
            operator: _as_in_a_capture(given) if operator in of_user and not is_torchs(given) else given
            for operator, given in chosen.items()
        }
        return _decompose(program, chosen, preserve, of_user=of_user, learned=learned)


def _as_in_a_capture(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A user's decomposition that runs as a model does while it is captured: ``torch.cond`` and its kin record their
    functions there, where torch's compiler would be asked otherwise."""

    @functools.wraps(decomposition)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        with compiling():
            return decomposition(*args, **kwargs)

    return decompose


def decompose_partly(
    program: ExportedProgram, table: Mapping[Any, Callable[..., Any]], preserve: frozenset[Any]
) -> ExportedProgram:
    """A copy of a program in which the operators of a table are decomposed, and which is otherwise as it was: also
    in the stage that it is in, but for one of core operators."""
    with collector_paused():
        return _decompose(program, table, preserve, Stage.TRAINING if program.stage is Stage.TRAINING else None)


def decompose_for(
    program: ExportedProgram, table: Mapping[Any, Callable[..., Any]] | None, kept: Collection[Any]
) -> ExportedProgram:
    """A functional copy of a program for somebody who has his own forms of some operators: those are kept as they
    are, whatever the table says of them."""
    with collector_paused():
        return _decompose(program, table, kept)


def _decompose(
    program: ExportedProgram,
    table: Mapping[Any, Callable[..., Any]] | None,
    preserve: Collection[Any],
    stage: Stage | None = None,
    of_user: frozenset[Any] | None = None,
    learned: list[Guard] | None = None,
) -> ExportedProgram:
    """``learned`` is given what the decomposition needs of sizes and the program did not."""
    graph = program.graph
    signature = program.graph_signature
    copy = WorkingCopy(program.context)
    context, translation = copy.context, copy.translation
    preserved = any(entry.signature is not None for entry in program.module_call_graph[1:])
    if program.stage is Stage.TRAINING or preserved:
        graph, translation = copy.graph_of(graph), None
        put_signatures(graph, program.module_call_graph)
    if program.stage is Stage.TRAINING and stage is not Stage.TRAINING:
        mutations = functionalize(graph, context, signature.input_specs, replaced_buffers(graph))
        signature = ExportGraphSignature(signature.input_specs, [*mutations, *signature.output_specs])
    # not signature.user_inputs, which has the values of constants among the names
    user_inputs = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    taken = {name.partition(".")[0] for name in _paths(program)}
    kept = frozenset(preserve)
    graph, lifted = decompose_graph(graph, context, table, kept, user_inputs, translation, taken, of_user)
    signature, constants = _with_constants(signature, lifted, program)
    if stage is not Stage.TRAINING and writes(graph):
        functionalize(graph, context, signature.input_specs)
    contract = contract_in(copy, program)
    of_dtype = default_dtype_observation(program.graph)
    if of_dtype is not None and of_dtype.key not in {seen.key for seen in contract["observations"]}:
        contract["observations"] = [*contract["observations"], of_dtype]
    assert_learned(graph, copy, contract["dynamic_sizes"])
    if learned is not None:
        learned += copy.learned()
    signatures = take_signatures(graph)
    signature = _named_after(signature, graph)
    signatures[""] = root_signature(program.call_spec, signature)
    stage = stage or (Stage.CORE if table is None and not preserve else Stage.FUNCTIONAL)
    return verified_copy(
        program,
        graph_module(graph, "Program"),
        graph_signature=signature,
        constants=constants,
        stage=stage,
        module_call_graph=with_signatures(program.module_call_graph, signatures),
        **contract,
    )


def _with_constants(
    signature: ExportGraphSignature, lifted: Sequence[tuple[Node, torch.Tensor]], program: ExportedProgram
) -> tuple[ExportGraphSignature, dict[str, Any]]:
    """The signature and constants of a program to which a decomposition added tensors."""
    constants = program.constants
    if not lifted:
        return signature, constants
    taken = {name.partition(".")[0] for name in _paths(program)}
    targets: list[str] = []
    for node, _ in lifted:
        targets.append(free_name(node.name.removeprefix("c_"), {*taken, *targets}))
    specs = [
        InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), target)
        for (node, _), target in zip(lifted, targets, strict=True)
    ]
    state = [spec for spec in signature.input_specs if spec.kind is not InputKind.USER_INPUT]
    user = [spec for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    values = {target: value for (_, value), target in zip(lifted, targets, strict=True)}
    return ExportGraphSignature([*state, *specs, *user], signature.output_specs), {**constants, **values}


def _paths(program: ExportedProgram) -> Iterator[str]:
    """The names that a program has for its state, and for the modules of the model."""
    yield from program.state_dict
    yield from program.constants
    yield from (entry.fqn for entry in program.module_call_graph)


def _named_after(signature: ExportGraphSignature, graph: Any) -> ExportGraphSignature:
    """The signature with the names that inputs and outputs have in a new graph."""
    import dataclasses

    inputs = [
        dataclasses.replace(spec, arg=dataclasses.replace(spec.arg, name=node.name))
        for node, spec in zip(placeholders(graph), signature.input_specs, strict=True)
    ]
    outputs = []
    for result, spec in zip(output_node(graph).args[0], signature.output_specs, strict=True):  # type: ignore[arg-type]
        argument = spec.arg
        if isinstance(result, Node) and not isinstance(argument, ConstantArgument):
            argument = dataclasses.replace(argument, name=result.name)
        outputs.append(dataclasses.replace(spec, arg=argument))
    return ExportGraphSignature(inputs, outputs)


_METADATA_QUERIES = frozenset({"size", "stride", "numel", "dim", "storage_offset", "is_contiguous", "layout"})


def _check_preservable(operator: Any) -> None:
    """Refuse to preserve what would not be the same program."""
    if not isinstance(operator, torch._ops.OpOverload):
        raise InvalidPreservationError(
            f"{operator!r} is not an operator overload", remedy="name one, such as torch.ops.aten.linear.default"
        )
    facts = facts_of(operator)
    name = operator.overloadpacket.__name__
    if name.removeprefix("sym_") in _METADATA_QUERIES:
        raise InvalidPreservationError(f"{operator} is a metadata query function, not an operator of a program")
    if facts.hidden_writes:
        raise InvalidPreservationError(
            f"We can't detect {operator} as a functional op statically, so it can't be preserved"
        )
    if facts.aliases or facts.writes:
        raise InvalidPreservationError(
            f"{operator} is a mutating/aliasing op: it is part of no functional program",
            remedy="preserve only operators that compute new tensors",
        )
    if not facts.composite:
        raise InvalidPreservationError(
            f"{operator} is not CompositeImplicitAutograd op, so we will preserve it as long as there is no "
            "decomposition for it in the table",
            remedy="leave it out of the list, and out of the table of decompositions",
        )
