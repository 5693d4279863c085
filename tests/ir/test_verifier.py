"""A program that breaks the rules of its stage is found out, and the fault is shown with its neighbours."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import Node

import tintype
from tests.export.modes import capture
from tintype import OutputKind, OutputSpec
from tintype.errors import VerificationError
from tintype.ir.signature import ConstantArgument, TensorArgument

aten = torch.ops.aten


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, value: torch.Tensor) -> tuple[torch.Tensor, int]:
        self.count += 1
        return self.layer(value).sin().cos() * self.count, 5


def make(mode: str) -> tintype.ExportedProgram:
    return capture(mode, Model(), (torch.randn(3, 4),))


def node_of(program: tintype.ExportedProgram, name: str) -> Node:
    return next(node for node in program.graph.nodes if node.name == name)


def output_of(program: tintype.ExportedProgram) -> Node:
    return next(iter(program.graph.find_nodes(op="output")))


def fault(program: tintype.ExportedProgram) -> str:
    with pytest.raises(VerificationError) as caught:
        program.validate()
    assert caught.value.id == "verification"
    return str(caught.value)


def test_valid_programs_pass(mode: str) -> None:
    make(mode).validate()


# --- structure -------------------------------------------------------------------------------------------------


def test_use_before_definition(mode: str) -> None:
    program = make(mode)
    sin, cos = node_of(program, "sin"), node_of(program, "cos")
    sin.prepend(cos)
    message = fault(program)
    assert "'cos' uses 'sin', which is not defined before it" in message
    assert "-> cos = torch.ops.aten.cos.default(sin)" in message
    assert "   sin = " in message


def test_node_of_another_graph(mode: str) -> None:
    program, other = make(mode), make(mode)
    node_of(program, "cos").args = (node_of(other, "sin"),)
    assert "'cos' uses 'sin'" in fault(program)


def test_method_and_module_calls(mode: str) -> None:
    program = make(mode)
    cos = node_of(program, "cos")
    with program.graph.inserting_after(cos):
        new = program.graph.call_method("neg", (cos,))
    new.meta["val"] = cos.meta["val"]
    message = fault(program)
    assert "call_method" in message
    assert "->" in message


def test_input_after_a_call(mode: str) -> None:
    program = make(mode)
    node_of(program, "sin").append(node_of(program, "value"))
    assert "'value'" in fault(program)


def test_missing_output(mode: str) -> None:
    program = make(mode)
    program.graph.erase_node(output_of(program))
    assert "output" in fault(program)


def test_call_after_the_output(mode: str) -> None:
    program = make(mode)
    output_of(program).append(node_of(program, "cos"))
    fault(program)


def test_neighbourhood_is_two_lines_either_side(mode: str) -> None:
    program = make(mode)
    cos = node_of(program, "cos")
    cos.target = len
    lines = fault(program).splitlines()
    marked = [line for line in lines if line.startswith("-> ")]
    assert len(marked) == 1
    assert marked[0].startswith("-> cos = ")
    shown = [line for line in lines if " = " in line]
    assert 3 <= len(shown) <= 5


# --- signature -------------------------------------------------------------------------------------------------


def test_input_that_the_signature_does_not_name(mode: str) -> None:
    program = make(mode)
    del program.graph_signature.input_specs[0]
    assert "inputs are" in fault(program)


def test_renamed_input(mode: str) -> None:
    program = make(mode)
    spec = program.graph_signature.input_specs[0]
    program.graph_signature.input_specs[0] = dataclasses.replace(spec, arg=TensorArgument("other"))
    assert "'other'" in fault(program)


def test_output_that_the_signature_does_not_name(mode: str) -> None:
    program = make(mode)
    program.graph_signature.output_specs.pop()
    assert "outputs" in fault(program)


def test_renamed_output(mode: str) -> None:
    program = make(mode)
    specs = program.graph_signature.output_specs
    specs[-2] = dataclasses.replace(specs[-2], arg=TensorArgument("other"))
    assert "'other'" in fault(program)


def test_output_that_is_a_constant_in_the_signature(mode: str) -> None:
    program = make(mode)
    specs = program.graph_signature.output_specs
    specs[-2] = dataclasses.replace(specs[-2], arg=ConstantArgument("", 3))
    assert "constant" in fault(program)


def test_mutation_of_nothing(mode: str) -> None:
    program = make(mode)
    results = list(output_of(program).args[0])  # type: ignore[arg-type]
    cos = node_of(program, "cos")
    output_of(program).args = ((cos, *results),)
    spec = OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument("cos"), "nothing")
    program.graph_signature.output_specs.insert(0, spec)
    assert "'nothing'" in fault(program)


def test_state_that_is_missing(mode: str) -> None:
    program = make(mode)
    del program.state_dict["layer.weight"]
    assert "layer.weight" in fault(program)


# --- operators ---------------------------------------------------------------------------------------------------


def test_function_that_is_no_operator(mode: str) -> None:
    program = make(mode)
    node_of(program, "cos").target = Model.forward
    message = fault(program)
    assert "forward" in message
    assert "-> cos" in message


def test_node_without_value(mode: str) -> None:
    program = make(mode)
    del node_of(program, "cos").meta["val"]
    assert "'cos' does not say what its value is" in fault(program)


@pytest.mark.parametrize("mode", ["export", "decomposed", "retraced"])
def test_mutation_in_a_functional_program(mode: str) -> None:
    program = make(mode)
    node_of(program, "cos").target = aten.cos_.default
    message = fault(program)
    assert "aten.cos_.default writes to its arguments" in message
    assert "-> cos = torch.ops.aten.cos_.default(sin)" in message


def test_mutation_in_a_training_program_is_allowed() -> None:
    program = make("training")
    node_of(program, "cos").target = aten.cos_.default
    program.validate()


def test_composite_operator_in_a_core_program() -> None:
    program = tintype.export(lambda v: v.relu(), (torch.randn(3, 4),)).run_decompositions()
    node = node_of(program, "relu")
    node.target = aten.relu6.default
    assert "composite" in fault(program)


def test_composite_operator_in_a_functional_program_is_allowed() -> None:
    program = tintype.export(nn.Linear(4, 4), (torch.randn(3, 4),))
    program.validate()
    assert any(node.target is aten.linear.default for node in program.graph.nodes)


def test_wrong_number_of_arguments(mode: str) -> None:
    program = make(mode)
    node_of(program, "cos").args = ()
    fault(program)


def test_unknown_keyword_argument(mode: str) -> None:
    program = make(mode)
    node_of(program, "cos").kwargs = {"nothing": 3}
    fault(program)


BREAKAGES: dict[str, Callable[[tintype.ExportedProgram], Any]] = {
    "order": lambda p: node_of(p, "sin").prepend(node_of(p, "cos")),
    "target": lambda p: setattr(node_of(p, "cos"), "target", print),
    "value": lambda p: node_of(p, "cos").meta.pop("val"),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_copies_and_decompositions_of_valid_programs_stay_valid(name: str, mode: str) -> None:
    """Breaking one program does not touch those made from it before."""
    program = make(mode)
    decomposed, module = program.run_decompositions(), program.module()
    BREAKAGES[name](program)
    fault(program)
    decomposed.validate()
    assert module(torch.randn(3, 4))[0].shape == (3, 4)
