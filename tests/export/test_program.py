"""The parts of an ExportedProgram, and what can be done with it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import assert_same, capture, keeps_tensors, targets
from tintype import InputKind, OutputKind, Stage


class Model(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("offset", torch.randn(4), persistent=False)
        self.table = torch.arange(4.0)

    def forward(self, value: torch.Tensor, scale: float, *, state: torch.Tensor) -> dict[str, Any]:
        state += 1
        hidden = self.norm(self.layer(value)) * scale + self.offset + self.table
        return {"hidden": hidden.relu(), "scale": scale, "state": state}


def inputs() -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(3, 4), 2.0), {"state": torch.zeros(4)}


def program_of(mode: str) -> tintype.ExportedProgram:
    args, kwargs = inputs()
    return capture(mode, Model(), args, kwargs)


def test_parts(mode: str) -> None:
    program = program_of(mode)
    assert isinstance(program, tintype.ExportedProgram)
    assert program.graph is program.graph_module.graph
    assert isinstance(program.graph_module, torch.fx.GraphModule)
    assert program.constants is program.tensor_constants
    assert program.range_constraints == {}
    expected = {"training": Stage.TRAINING, "decomposed": Stage.CORE}.get(
        mode.removeprefix("saved, "), Stage.FUNCTIONAL
    )
    assert program.stage is expected
    assert program.dialect == expected.value
    assert [entry.fqn for entry in program.module_call_graph] == ["", "layer", "norm"]
    root = program.module_call_graph[0].signature
    assert root is not None
    assert root.in_spec == program.call_spec.in_spec
    assert root.out_spec == program.call_spec.out_spec


@pytest.mark.direct("the program holds the model's own tensors")
def test_example_inputs(mode: str) -> None:
    args, kwargs = inputs()
    program = capture(mode, Model(), args, kwargs)
    assert program.example_inputs is not None
    if keeps_tensors(mode):
        assert program.example_inputs[0][0] is args[0]
        assert program.example_inputs[1]["state"] is kwargs["state"]
    assert_same(program.example_inputs, (args, kwargs))


def test_call_spec(mode: str) -> None:
    spec = program_of(mode).call_spec
    args, kwargs = inputs()
    assert spec.in_spec == torch.utils._pytree.tree_structure((args, kwargs))
    assert spec.out_spec == torch.utils._pytree.tree_structure({"hidden": 0, "scale": 0, "state": 0})


def test_state(mode: str) -> None:
    program = program_of(mode)
    assert set(program.state_dict) == {
        "layer.weight", "layer.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
        "norm.num_batches_tracked",
    }  # fmt: skip
    assert {"offset", "table"} <= set(program.constants)
    names = [name for name, _ in program.named_parameters()]
    assert names == ["layer.weight", "layer.bias", "norm.weight", "norm.bias"]
    assert [id(p) for p in program.parameters()] == [id(program.state_dict[name]) for name in names]
    buffers = dict(program.named_buffers())
    assert set(buffers) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "offset"}
    assert len(list(program.buffers())) == 4


def test_views_of_the_signature(mode: str) -> None:
    program = program_of(mode)
    signature = program.graph_signature
    assert signature.parameters == ("layer.weight", "layer.bias", "norm.weight", "norm.bias")
    assert signature.inputs_to_parameters["p_layer_weight"] == "layer.weight"
    assert signature.inputs_to_buffers["b_offset"] == "offset"
    assert signature.inputs_to_lifted_tensor_constants["c_table"] == "table"
    assert "offset" in signature.non_persistent_buffers
    assert "table" in signature.lifted_tensor_constants
    assert signature.lifted_custom_objs == []
    assert signature.inputs_to_lifted_custom_objs == {}
    assert signature.user_inputs == ("value", 2.0, "state")
    assert signature.backward_signature is None
    assert signature.assertion_dep_token is None
    assert signature.parameters_to_mutate == {}
    assert len(signature.user_outputs) == 3
    assert signature.user_outputs[1] == 2.0
    if not mode.endswith("training"):
        assert set(signature.buffers_to_mutate.values()) == {
            "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
        }  # fmt: skip
        assert list(signature.user_inputs_to_mutate.values()) == ["state"]
    else:
        assert signature.buffers_to_mutate == {}


def test_signature_matches_the_graph(mode: str) -> None:
    program = program_of(mode)
    signature = program.graph_signature
    inputs_of_graph = [node for node in program.graph.nodes if node.op == "placeholder"]
    assert [spec.arg.name for spec in signature.input_specs] == [node.name for node in inputs_of_graph]
    (output,) = program.graph.find_nodes(op="output")
    assert len(output.args[0]) == len(signature.output_specs)
    for result, spec in zip(output.args[0], signature.output_specs, strict=True):
        if isinstance(result, torch.fx.Node):
            assert result.name == spec.arg.name
    kinds = [spec.kind for spec in signature.output_specs]
    assert kinds == sorted(kinds, key=lambda kind: kind is OutputKind.USER_OUTPUT)
    assert str(signature).count("USER_INPUT") >= 3


def test_signature_objects() -> None:
    program = tintype.export(nn.Linear(2, 2), (torch.ones(1, 2),))
    spec = program.graph_signature.input_specs[0]
    assert isinstance(spec, tintype.InputSpec)
    assert spec.kind is InputKind.PARAMETER
    assert spec.target == "weight"
    assert spec.arg.name == "p_weight"
    assert isinstance(program.graph_signature, tintype.ExportGraphSignature)
    assert "p_weight" in str(spec)


def test_graph_module_runs_with_state_as_inputs(mode: str) -> None:
    """The graph takes the state as its first inputs and returns the mutations first."""
    value = torch.randn(3, 4)
    program = capture(mode, nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (value,))
    results = program.graph_module(*program.state_dict.values(), value)
    torch.testing.assert_close(results[0], program.module()(value))


def test_a_program_is_not_called_itself(mode: str) -> None:
    with pytest.raises(RuntimeError, match=r"Unable to call ExportedProgram directly. You should use"):
        program_of(mode)(torch.ones(3, 4))


def test_same_structure(mode: str) -> None:
    args, kwargs = inputs()
    first, second = capture(mode, Model(), args, kwargs), capture(mode, Model(), args, kwargs)
    assert first.same_structure(second)
    assert second.same_structure(first)
    other_args = (torch.randn(3, 5), 2.0)
    assert not first.same_structure(capture(mode, Model(5), other_args, kwargs))
    assert not first.same_structure(capture(mode, Model(), (args[0], 3.0), kwargs))


def test_same_structure_sees_the_operators() -> None:
    value = torch.randn(3)
    first = tintype.export(lambda v: v.sin() + 1, (value,))
    assert not first.same_structure(tintype.export(lambda v: v.cos() + 1, (value,)))
    assert not first.same_structure(tintype.export(lambda v: v.sin() + 2, (value,)))
    assert not first.same_structure(tintype.export(lambda v: [v.sin() + 1], (value,)))
    assert first.same_structure(tintype.export(lambda v: v.sin() + 1, (torch.zeros(3),)))


def test_same_structure_sees_sizes_and_dtypes_of_inputs() -> None:
    first = tintype.export(lambda v: v.sin(), (torch.randn(3),))
    assert not first.same_structure(tintype.export(lambda v: v.sin(), (torch.randn(4),)))
    assert not first.same_structure(tintype.export(lambda v: v.sin(), (torch.randn(3).double(),)))


def test_exporting_twice_gives_the_same_program(mode: str) -> None:
    model, (args, kwargs) = Model(), inputs()
    assert capture(mode, model, args, kwargs).code == capture(mode, model, args, kwargs).code


def test_repr_is_short(mode: str) -> None:
    text = repr(program_of(mode))
    assert text.startswith("<ExportedProgram")
    assert "3 inputs" in text
    assert "\n" not in text


def test_edited_graph_of_the_module(mode: str) -> None:
    value = torch.randn(3, 4)
    module = capture(mode, lambda v: v.sin() + 1, (value,)).module()
    torch.testing.assert_close(module(value), value.sin() + 1)
    for node in module.graph.nodes:
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.cos.default
    module.recompile()
    torch.testing.assert_close(module(value), value.cos() + 1)


def test_edited_graph_with_new_nodes(mode: str) -> None:
    value = torch.randn(3, 4)
    module = capture(mode, nn.Linear(4, 4), (value,)).module()
    before = module(value)
    (output,) = module.graph.find_nodes(op="output")
    with module.graph.inserting_before(output):
        doubled = module.graph.call_function(torch.mul, (output.args[0][0], 2))
        negated = module.graph.call_method("neg", (doubled,))
    output.args = ((negated,),)
    module.recompile()
    module.graph.lint()
    torch.testing.assert_close(module(value), before * -2)


def test_edited_graph_with_a_new_module(mode: str) -> None:
    value = torch.randn(3, 4)
    module = capture(mode, nn.Linear(4, 4), (value,)).module()
    before = module(value)
    module.add_module("extra", nn.Tanh())
    (output,) = module.graph.find_nodes(op="output")
    with module.graph.inserting_before(output):
        new = module.graph.call_module("extra", (output.args[0][0],))
    output.args = ((new,),)
    module.recompile()
    torch.testing.assert_close(module(value), before.tanh())


def test_edited_graph_of_the_program(mode: str) -> None:
    """A pass over ep.graph is seen by the modules made afterwards."""
    value = torch.randn(3, 4)
    program = capture(mode, lambda v: v.sin() + 1, (value,))
    for node in program.graph.nodes:
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.cos.default
    program.graph_module.recompile()
    program.validate()
    torch.testing.assert_close(program.module()(value), value.cos() + 1)
    assert "aten.cos.default" in program.code


def test_code_of_the_module(mode: str) -> None:
    module = capture(mode, nn.Linear(4, 4), (torch.randn(3, 4),)).module()
    assert "def forward(self, input" in module.code
    assert "aten" in module.code


def test_programs_can_be_copied(mode: str) -> None:
    value = torch.randn(3, 4)
    program = capture(mode, nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), (value,))
    copied = copy.deepcopy(program)
    assert targets(copied) == targets(program)
    assert copied.state_dict["0.weight"] is not program.state_dict["0.weight"]
    torch.testing.assert_close(copied.module()(value), program.module()(value))
    copied.validate()
    assert [n.meta.get("stack_trace") for n in copied.graph.nodes] == [
        n.meta.get("stack_trace") for n in program.graph.nodes
    ]


def test_programs_do_not_change_when_run(mode: str) -> None:
    program = program_of(mode)
    before = {name: tensor.clone() for name, tensor in program.state_dict.items()}
    text = program.code
    args, kwargs = inputs()
    program.module()(*args, **kwargs)
    program.run_decompositions()
    assert program.code == text
    assert_same(program.state_dict, before)


def test_names_of_the_package() -> None:
    for name in tintype.__all__:
        assert getattr(tintype, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        tintype.nothing


def test_state_without_data_is_refused() -> None:
    program = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    with pytest.raises(tintype.TintypeError, match="on the meta device"):
        program.with_state({name: value.to("meta") for name, value in program.state_dict.items()})
