"""What the inputs and outputs of a program's graph stand for.

The graph of a program is a pure function: parameters, buffers and constants come in as arguments, and new
values of mutated buffers and inputs go out as results. The signature says which is which.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch.fx import Node


@dataclasses.dataclass(frozen=True)
class TensorArgument:
    """A tensor, by the name of its graph node."""

    name: str


@dataclasses.dataclass(frozen=True)
class SymIntArgument:
    """A symbolic integer, by the name of its graph node."""

    name: str


@dataclasses.dataclass(frozen=True)
class SymFloatArgument:
    """A symbolic float, by the name of its graph node."""

    name: str


@dataclasses.dataclass(frozen=True)
class SymBoolArgument:
    """A symbolic boolean, by the name of its graph node."""

    name: str


@dataclasses.dataclass(frozen=True)
class ConstantArgument:
    """A Python value the program was specialised on."""

    name: str
    value: int | float | bool | str | complex | Any | None


@dataclasses.dataclass(frozen=True)
class CustomObjArgument:
    """A custom object (a TorchBind class), by the name of its graph node."""

    name: str
    class_fqn: str


ArgumentSpec = (
    TensorArgument | SymIntArgument | SymFloatArgument | SymBoolArgument | ConstantArgument | CustomObjArgument
)


class InputKind(enum.Enum):
    """What a graph input stands for.

    >>> import torch, tintype
    >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> [spec.kind.name for spec in ep.graph_signature.input_specs]
    ['PARAMETER', 'PARAMETER', 'USER_INPUT']
    """

    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()
    CUSTOM_OBJ = enum.auto()
    TOKEN = enum.auto()

    __hash__ = object.__hash__  # each is one object, and tables of state are asked for every parameter


class OutputKind(enum.Enum):
    """What a graph output stands for.

    >>> import torch, tintype
    >>> ep = tintype.export(lambda x: x.add_(1), (torch.ones(4),))
    >>> [spec.kind.name for spec in ep.graph_signature.output_specs]
    ['USER_INPUT_MUTATION', 'USER_OUTPUT']
    """

    USER_OUTPUT = enum.auto()
    LOSS_OUTPUT = enum.auto()
    BUFFER_MUTATION = enum.auto()
    PARAMETER_MUTATION = enum.auto()
    GRADIENT_TO_PARAMETER = enum.auto()
    GRADIENT_TO_USER_INPUT = enum.auto()
    USER_INPUT_MUTATION = enum.auto()
    TOKEN = enum.auto()


class StateWrite(enum.Enum):
    """How state gets its new value, which is what autograd sees of it."""

    IN_PLACE = enum.auto()
    # in place, but not a mutation to autograd: the running statistics of batch norm
    UNTRACKED = enum.auto()
    # the module holds another tensor from then on: ``self.buffer = tensor``
    REPLACED = enum.auto()
    # in place, after it was detached in place: what it was computed from has no part in it from then on
    DETACHED = enum.auto()


STATE_KINDS = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ})


# outputs that are no results but new values of inputs
MUTATION_KINDS = frozenset(
    {OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION}
)


@dataclasses.dataclass
class InputSpec:
    """One graph input. ``target`` is the fully qualified name of the state it stands for, if it is state.

    >>> import torch, tintype
    >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> print(ep.graph_signature.input_specs[0])
    p_weight: PARAMETER target='weight'
    """

    kind: InputKind
    arg: ArgumentSpec
    target: str | None = None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = f" target={self.target!r}" if self.target is not None else ""
        persistent = f" persistent={self.persistent}" if self.kind is InputKind.BUFFER else ""
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclasses.dataclass
class OutputSpec:
    """One graph output. ``target`` names the state or input that a mutation or gradient belongs to.

    >>> import torch, tintype
    >>> ep = tintype.export(lambda x: x.add_(1), (torch.ones(4),))
    >>> print(ep.graph_signature.output_specs[0])
    add: USER_INPUT_MUTATION target='x'
    """

    kind: OutputKind
    arg: ArgumentSpec
    target: str | None = None
    # how the state gets the new value
    write: StateWrite = StateWrite.IN_PLACE

    def named_after(self, result: Any) -> OutputSpec:
        """The spec of a result that is another node now; of a constant, the same."""
        if not isinstance(result, Node):
            return self
        arg = self.arg if self.arg.name == result.name else dataclasses.replace(self.arg, name=result.name)
        return OutputSpec(self.kind, arg, self.target, self.write)

    def __str__(self) -> str:
        target = f" target={self.target!r}" if self.target is not None else ""
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclasses.dataclass
class ExportBackwardSignature:
    """Which outputs of a joint graph are gradients, and of what."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclasses.dataclass
class ExportGraphSignature:
    """All inputs and outputs of a graph, in order, with the views on them that callers ask for.

    >>> import torch, tintype
    >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> ep.graph_signature.inputs_to_parameters
    {'p_weight': 'weight', 'p_bias': 'bias'}
    """

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple(s.target for s in self.input_specs if s.kind is kind and s.target is not None)

    def _inputs_to_targets(self, kind: InputKind) -> Mapping[str, str]:
        return {s.arg.name: s.target for s in self.input_specs if s.kind is kind and s.target is not None}

    def _outputs_to_targets(self, kind: OutputKind) -> Mapping[str, str]:
        return {s.arg.name: s.target for s in self.output_specs if s.kind is kind and s.target is not None}

    @property
    def parameters(self) -> tuple[str, ...]:
        """Fully qualified names of the parameters that are inputs."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        """Fully qualified names of the buffers that are inputs."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """Fully qualified names of the buffers that are not part of the state dict."""
        return tuple(
            s.target
            for s in self.input_specs
            if s.kind is InputKind.BUFFER and s.persistent is False and s.target is not None
        )

    @property
    def lifted_tensor_constants(self) -> list[str]:
        """Names of the tensor constants that are inputs."""
        return list(self._targets(InputKind.CONSTANT_TENSOR))

    @property
    def lifted_custom_objs(self) -> list[str]:
        """Names of the custom objects that are inputs."""
        return list(self._targets(InputKind.CUSTOM_OBJ))

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """Names of the user's inputs (the value, for inputs the program was specialised on)."""
        return tuple(_name_or_value(s.arg) for s in self.input_specs if s.kind is InputKind.USER_INPUT)

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        """Names of the user's outputs (the value, for constant outputs)."""
        kinds = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        return tuple(_name_or_value(s.arg) for s in self.output_specs if s.kind in kinds)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """Graph input name -> parameter name."""
        return self._inputs_to_targets(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """Graph input name -> buffer name."""
        return self._inputs_to_targets(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """Graph input name -> constant name."""
        return self._inputs_to_targets(InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self) -> Mapping[str, str]:
        """Graph input name -> custom object name."""
        return self._inputs_to_targets(InputKind.CUSTOM_OBJ)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """Graph output name -> buffer that gets this value."""
        return self._outputs_to_targets(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        """Graph output name -> parameter that gets this value."""
        return self._outputs_to_targets(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """Graph output name -> user input that gets this value."""
        return self._outputs_to_targets(OutputKind.USER_INPUT_MUTATION)

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        """The gradients among the outputs, or None for a graph without a loss."""
        losses = [s.arg.name for s in self.output_specs if s.kind is OutputKind.LOSS_OUTPUT]
        if not losses:
            return None
        return ExportBackwardSignature(
            gradients_to_parameters=dict(self._outputs_to_targets(OutputKind.GRADIENT_TO_PARAMETER)),
            gradients_to_user_inputs=dict(self._outputs_to_targets(OutputKind.GRADIENT_TO_USER_INPUT)),
            loss_output=losses[0],
        )

    @property
    def assertion_dep_token(self) -> None:
        """Always None: assertions are ordered by the graph itself."""
        return None

    @property
    def written_state(self) -> frozenset[str]:
        """The state that gets new values. (:attr:`buffers_to_mutate` has one entry per output: two buffers that get
        the same value are one entry there.)"""
        kinds = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
        return frozenset(s.target for s in self.output_specs if s.kind in kinds and s.target is not None)

    def renamed(self, names: Mapping[str, str]) -> ExportGraphSignature:
        """The same signature with graph nodes renamed."""

        def rename(arg: ArgumentSpec) -> ArgumentSpec:
            return dataclasses.replace(arg, name=names.get(arg.name, arg.name))

        return ExportGraphSignature(
            [dataclasses.replace(s, arg=rename(s.arg)) for s in self.input_specs],
            [dataclasses.replace(s, arg=rename(s.arg)) for s in self.output_specs],
        )

    def __str__(self) -> str:
        def block(title: str, specs: Iterable[object]) -> Iterator[str]:
            yield f"# {title}"
            yield from (str(spec) for spec in specs)

        return "\n".join([*block("inputs", self.input_specs), "", *block("outputs", self.output_specs)])


def belongs_to_user_input(output: OutputSpec) -> bool:
    """Whether what an output is the new value or the gradient of is an input of the user's, and no state."""
    return output.kind in _ABOUT_USER_INPUTS


_ABOUT_USER_INPUTS = frozenset({OutputKind.USER_INPUT_MUTATION, OutputKind.GRADIENT_TO_USER_INPUT})


def positions_of_inputs(specs: Iterable[InputSpec]) -> dict[tuple[bool, str], int]:
    """The position of each input, by whether it is the user's and by what outputs call it.

    The target of an output is the name of state or of one of the user's inputs: two kinds of names, which may be the
    same (a buffer ``x`` and an argument ``x``), so it means nothing without the kind.
    """
    found: dict[tuple[bool, str], int] = {}
    for position, spec in enumerate(specs):
        if spec.kind is InputKind.USER_INPUT:
            found[True, spec.arg.name] = position
        elif spec.target is not None:
            found[False, spec.target] = position
    return found


def _name_or_value(arg: ArgumentSpec) -> Any:
    return arg.value if isinstance(arg, ConstantArgument) else arg.name
