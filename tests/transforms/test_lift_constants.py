"""What an edited graph fetches from its module becomes an input."""

from __future__ import annotations

import torch

import tintype
from tests.export.modes import assert_same, saved_and_loaded
from tintype.transforms.lift_constants import lift_constants


def edited_program() -> tintype.ExportedProgram:
    """x + x, whose second operand is fetched from the module instead, twice."""
    program = tintype.export(lambda x: x + x, (torch.ones(3),))
    (add,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    program.graph_module.inner = torch.nn.Module()
    program.graph_module.inner.table = torch.tensor([1.0, 2.0, 3.0])
    with program.graph.inserting_before(add):
        first = program.graph.get_attr("inner.table")
        second = program.graph.get_attr("inner.table")
        product = program.graph.call_function(torch.ops.aten.mul.Tensor, (first, second))
        product.meta["val"] = add.meta["val"]
    add.args = (add.args[0], product)
    return program


def test_a_fetched_tensor_becomes_one_input_before_the_users() -> None:
    program = edited_program()
    constants = lift_constants(program.graph_module, program.graph_signature, program.context)
    program.constants.update(constants)
    assert list(constants) == ["inner.table"]
    assert [node.name for node in program.graph.find_nodes(op="placeholder")] == ["c_inner_table", "x"]
    assert program.graph_signature.lifted_tensor_constants == ["inner.table"]
    assert not program.graph.find_nodes(op="get_attr")
    program.validate()
    expected = torch.tensor([2.0, 5.0, 10.0])
    assert_same(program.module()(torch.ones(3)), expected)
    assert_same(saved_and_loaded(program).module()(torch.ones(3)), expected)


def test_nothing_to_lift() -> None:
    program = tintype.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    before = program.code
    assert lift_constants(program.graph_module, program.graph_signature, program.context) == {}
    assert program.code == before


def test_objects_become_inputs_too() -> None:
    program = edited_program()
    program.graph_module.inner.table = thing = object()
    assert lift_constants(program.graph_module, program.graph_signature, program.context) == {"inner.table": thing}
    assert program.graph_signature.lifted_custom_objs == ["inner.table"]
