"""Joint graphs for compilers: graph modules and signatures instead of programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from tintype.errors import InvalidRequestError
from tintype.export.exporting import export
from tintype.export.joint import export_joint
from tintype.ir.graph import graph_module
from tintype.ir.signature import MUTATION_KINDS, ExportGraphSignature, InputKind
from tintype.transforms.joint import joint_of
from tintype.transforms.working_copy import WorkingCopy


def export_module(
    model: torch.nn.Module,
    args: Sequence[Any],
    *,
    joint: bool = False,
    loss_index: int = 0,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> tuple[GraphModule, ExportGraphSignature]:
    """The graph of a model with its state as inputs, and its signature; with ``joint`` also the gradients of a loss.

    >>> import torch, tintype
    >>> graph_module, signature = tintype.aot.export_module(torch.nn.Linear(3, 1), (torch.ones(1, 3),), joint=True)
    >>> list(signature.backward_signature.gradients_to_parameters.values())
    ['weight', 'bias']
    """
    program = export_joint(model, tuple(args), loss_index=loss_index) if joint else export(model, tuple(args))
    if decompositions is not None:
        program = program.run_decompositions(dict(decompositions))
    return program.graph_module, program.graph_signature


def export_joint_simple(
    function: Callable[..., Any], args: Sequence[torch.Tensor], *, trace_joint: bool = True
) -> GraphModule:
    """The graph of a function of tensors that has neither state nor effects.

    With ``trace_joint`` it takes the inputs, then a tangent per differentiable output, and returns the outputs,
    then a gradient per input that requires one (None where there is none); without it is the graph of the outputs
    alone.

    >>> import torch, tintype
    >>> joint = tintype.aot.export_joint_simple(lambda x: (x.sin(),), (torch.ones(2, requires_grad=True),))
    >>> joint(torch.zeros(2), torch.ones(2))
    (tensor([0., 0.]), tensor([1., 1.]))
    """
    program = export(function, tuple(args))
    if any(spec.kind in MUTATION_KINDS for spec in program.graph_signature.output_specs):
        raise InvalidRequestError("the function writes to its inputs or state", remedy="use tintype.aot.function")
    inputs = program.graph_signature.input_specs
    if any(spec.kind is not InputKind.USER_INPUT for spec in inputs):
        raise InvalidRequestError(
            "the function uses tensors that are not among its arguments", remedy="use tintype.aot.export_module"
        )
    if not trace_joint:
        return program.graph_module
    wanted = [isinstance(value, torch.Tensor) and value.requires_grad for value in args]
    joint = joint_of(program.graph, WorkingCopy(program.context).context, wanted)
    output: Any = next(iter(joint.graph.find_nodes(op="output")))
    outputs, gradients = output.args[0][: joint.output_count], output.args[0][joint.output_count :]
    by_input = dict(zip(joint.gradients, gradients, strict=True))
    output.args = ((*outputs, *(by_input.get(i) for i, is_wanted in enumerate(wanted) if is_wanted)),)
    return graph_module(joint.graph, "JointGraph")
