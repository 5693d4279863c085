"""``export_joint``: a model with a loss becomes one program that computes the loss, the outputs and all gradients."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype import tree
from tintype.errors import InvalidRequestError, raise_all
from tintype.export.call_spec import CallSpec
from tintype.export.exporting import capture_program
from tintype.export.learned import assert_learned, contract_in
from tintype.export.program import ExportedProgram, copy_program, verified_copy
from tintype.export.stage import Stage
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import graph_module, output_node, placeholders
from tintype.ir.signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from tintype.trace.state import StateEntry, named_modules
from tintype.trace.subclasses import gradient_parts
from tintype.trace.views_or_copies import NotedCalls
from tintype.transforms.functionalize import functionalize
from tintype.transforms.joint import JointCapture, joint_of, scalar_loss, tidy_joint_graph
from tintype.transforms.joint_layouts import settle_layouts, settle_views_or_copies
from tintype.transforms.working_copy import WorkingCopy
from tintype.tree.sparse import is_sparse

RESULT_KINDS = frozenset({OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT})


def export_joint(
    mod: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    *,
    loss_index: int = 0,
    dynamic_shapes: Any = None,
    strict: bool = False,
    control_flow: str = "auto",
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Capture a model whose outputs include a scalar loss, together with the gradients of that loss.

    Gradients are taken with respect to every parameter that requires one, and every input that does. A parameter that
    the loss does not depend on has none, as in eager mode, where its ``grad`` stays None; one with several names
    has its gradient under the first. ``loss_index`` is the position of the loss among the outputs.

    The signature names gradients by parameter (``backward_signature``). ``module()`` of the result returns the
    outputs, the gradients of parameters and those of inputs, both by name.

    Instead of a model, a program that was exported before can be given. What its model did about gradients by itself
    (hooks, ``torch.autograd.Function``) is not part of such a program any more.

    >>> import torch, tintype
    >>> class Model(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = torch.nn.Linear(3, 1)
    ...     def forward(self, x, target):
    ...         return torch.nn.functional.mse_loss(self.linear(x), target)
    >>> joint = tintype.export_joint(Model(), (torch.ones(4, 3), torch.zeros(4, 1)))
    >>> sorted(joint.graph_signature.backward_signature.gradients_to_parameters.values())
    ['linear.bias', 'linear.weight']
    >>> loss, gradients, _ = joint.module()(torch.ones(4, 3), torch.zeros(4, 1))
    >>> gradients["linear.weight"].shape
    torch.Size([1, 3])
    """
    if isinstance(mod, ExportedProgram):
        if args is not None or kwargs is not None or dynamic_shapes is not None:
            raise InvalidRequestError(
                "a program knows its inputs already: args, kwargs and dynamic_shapes belong to a model",
                remedy="call export_joint(program)",
            )
        return _joint_program(mod, loss_index)
    if _trains_sparse_tensors(mod):
        # by their values, which are parameters of a program, but none of the model
        program = capture_program(
            *(mod, args, kwargs, dynamic_shapes, Stage.TRAINING),
            complex_as_assertions=prefer_deferred_runtime_asserts_over_guards,
            strict=strict,
            control_flow=control_flow,
        )
        return _joint_program(program, loss_index)
    return capture_program(
        mod,
        args,
        kwargs,
        dynamic_shapes,
        Stage.FUNCTIONAL,
        complex_as_assertions=prefer_deferred_runtime_asserts_over_guards,
        capture_class=functools.partial(LossCapture, loss_index=loss_index),
        strict=strict,
        control_flow=control_flow,
        tidy=_tidy,
    )


def _tidy(graph: Graph) -> None:
    tidy_joint_graph(graph)
    settle_layouts(graph)


def _trains_sparse_tensors(mod: Any) -> bool:
    if not isinstance(mod, torch.nn.Module):
        return False
    tables = (module._parameters for _, module in named_modules(mod) if module._parameters)
    parameters = itertools.chain.from_iterable(table.values() for table in tables)
    return any(known is not None and known.requires_grad and is_sparse(known) for known in parameters)


_flag_of = torch._C.TensorBase.requires_grad.__get__  # type: ignore[attr-defined]


class LossCapture(JointCapture):
    """A capture of a program with the gradients of one of its outputs."""

    def __init__(self, *args: Any, loss_index: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self.loss_index = loss_index
        self.recorder.noted_calls = NotedCalls()
        self.gradient_specs: list[tuple[OutputKind, str]] = []

    def lift_constant(self, value: Any) -> Any:
        """A parameter of a module that is not registered (one in a list, or in a closure) has a gradient as well."""
        if not _is_parameter(value):
            return super().lift_constant(value)
        names = self.state.attribute_names(value)
        name = names[0] if names else self._new_constant_name()
        entry = StateEntry(InputKind.PARAMETER, name, value, None, True)
        self.state.entries.append(entry)
        self.state.by_id[id(value)] = entry
        for path in names or [name]:
            self.state.names[path] = (InputKind.PARAMETER, value, None)
        return self._add_state(InputKind.PARAMETER, name, value)

    def differentiate(self, outputs: Any) -> list[FakeTensor | None]:
        """Record the gradients of the loss."""
        leaves = tree.flatten(outputs)[0]
        _check_index(self.loss_index, len(leaves))
        loss = scalar_loss(leaves[self.loss_index])
        with torch._C.DisableTorchFunction():  # which would be asked for every one of them
            parameters = {
                entry.target: entry.value
                for entry in self.state.entries
                if entry.kind is InputKind.PARAMETER and _flag_of(entry.value)
            }
        parameters.update(
            {
                name: tensor
                for name, tensor in self.state.wrapped.items()
                if isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad
            }
        )
        sources = [*parameters.values(), *self.leaves.values()]
        found = self.recorder.differentiate([loss], [None], sources)
        gradients: list[FakeTensor | None] = []
        for (name, tensor), gradient in zip(parameters.items(), found, strict=False):
            for target, part in gradient_parts(self.recorder, name, tensor, gradient):
                self.gradient_specs.append((OutputKind.GRADIENT_TO_PARAMETER, target))
                gradients.append(part)
        self.gradient_specs += [(OutputKind.GRADIENT_TO_USER_INPUT, node.name) for node in self.leaves]
        return [*gradients, *found[len(parameters) :]]

    def _make_outputs(self, outputs: Any) -> Any:
        specs, out_spec = super()._make_outputs(outputs)
        specs[self.loss_index].kind = OutputKind.LOSS_OUTPUT
        gradients = [
            OutputSpec(kind, TensorArgument(gradient.node.name), target)
            for (kind, target), gradient in zip(self.gradient_specs, self.gradients, strict=True)
            if gradient is not None
        ]
        self.returned = [(given, (0, *place)) for given, place in self.returned]
        assert self.recorder.noted_calls is not None
        raise_all(settle_views_or_copies(self.graph, self.recorder.noted_calls.calls, self.recorder.context))
        return [*specs, *gradients], structure_with_gradients(out_spec, gradients)


def _is_parameter(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf


def _check_index(index: int, count: int) -> None:
    if not -count <= index < count:
        raise InvalidRequestError(f"loss_index is {index}, but the program has {count} outputs")


def structure_with_gradients(out_spec: tree.TreeSpec, gradients: list[OutputSpec]) -> tree.TreeSpec:
    """The structure of what a joint program returns: outputs, gradients of parameters, gradients of inputs."""
    by_kind: dict[OutputKind, dict[str | None, int]] = {
        OutputKind.GRADIENT_TO_PARAMETER: {},
        OutputKind.GRADIENT_TO_USER_INPUT: {},
    }
    for spec in gradients:
        by_kind[spec.kind][spec.target] = 0
    outputs = tree.unflatten([0] * out_spec.num_leaves, out_spec)
    return tree.flatten((outputs, *by_kind.values()))[1]


# --- from a program ------------------------------------------------------------------------------------------


def _joint_program(program: ExportedProgram, loss_index: int) -> ExportedProgram:
    """The joint program of a program that has none."""
    program = _with_all_parameters(program)
    copy = WorkingCopy(program.context)
    graph, signature = _functional_parts(program, copy)
    if any(spec.kind not in _FORWARD_KINDS for spec in signature.output_specs):
        raise InvalidRequestError("the program is a joint program already")
    results = [position for position, spec in enumerate(signature.output_specs) if spec.kind in RESULT_KINDS]
    _check_index(loss_index, len(results))
    position = results[loss_index]
    inputs = list(zip(placeholders(graph), signature.input_specs, strict=True))
    joint = joint_of(graph, copy.context, [_requires_grad(program, *pair) for pair in inputs], loss=position)
    gradients = []
    values: Any = output_node(joint.graph).args[0]
    for node, source in zip(values[joint.output_count :], joint.gradients, strict=True):
        spec = signature.input_specs[source]
        if spec.kind is InputKind.PARAMETER:
            gradients.append(OutputSpec(OutputKind.GRADIENT_TO_PARAMETER, TensorArgument(node.name), spec.target))
        else:
            gradients.append(OutputSpec(OutputKind.GRADIENT_TO_USER_INPUT, TensorArgument(node.name), spec.arg.name))
    outputs = [spec.named_after(node) for spec, node in zip(signature.output_specs, values, strict=False)]
    outputs[position].kind = OutputKind.LOSS_OUTPUT
    structure = program.call_spec
    contract = contract_in(copy, program)
    assert_learned(joint.graph, copy, contract["dynamic_sizes"])
    return verified_copy(
        program,
        graph_module(joint.graph, "Program"),
        graph_signature=ExportGraphSignature(signature.input_specs, [*outputs, *gradients]),
        call_spec=CallSpec(
            structure.in_spec,
            structure_with_gradients(structure.out_spec, gradients),
            tuple((given, (0, *place)) for given, place in structure.returned),
            structure.positional,
        ),
        stage=Stage.FUNCTIONAL,
        **contract,
    )


def _with_all_parameters(program: ExportedProgram) -> ExportedProgram:
    """A program in which parameters that are constants, since their module was not registered, are parameters."""
    lifted = {name: value for name, value in program.constants.items() if _is_parameter(value)}
    if not lifted:
        return program
    signature = program.graph_signature
    specs = [
        dataclasses.replace(spec, kind=InputKind.PARAMETER)
        if spec.kind is InputKind.CONSTANT_TENSOR and spec.target in lifted
        else spec
        for spec in signature.input_specs
    ]
    return copy_program(
        program,
        program.graph_module,
        graph_signature=ExportGraphSignature(specs, signature.output_specs),
        state_dict={**program.state_dict, **lifted},
        constants={name: value for name, value in program.constants.items() if name not in lifted},
    )


_FORWARD_KINDS = frozenset(
    {
        OutputKind.USER_OUTPUT,
        OutputKind.BUFFER_MUTATION,
        OutputKind.PARAMETER_MUTATION,
        OutputKind.USER_INPUT_MUTATION,
        OutputKind.TOKEN,
    }
)


def _functional_parts(program: ExportedProgram, copy: WorkingCopy) -> tuple[Graph, ExportGraphSignature]:
    signature = program.graph_signature
    if program.stage is not Stage.TRAINING:
        return (program.graph if copy.translation is None else copy.graph_of(program.graph)), signature
    graph = copy.graph_of(program.graph)
    mutations = functionalize(graph, copy.context, signature.input_specs)
    return graph, ExportGraphSignature(signature.input_specs, [*mutations, *signature.output_specs])


def _requires_grad(program: ExportedProgram, node: Node, spec: Any) -> bool:
    if spec.kind is InputKind.PARAMETER:
        return program.state_dict[spec.target].requires_grad
    value = node.meta.get("val")
    return spec.kind is InputKind.USER_INPUT and type(value) is FakeTensor and value.requires_grad
