"""``program.transform``: edits that give new programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tintype.errors import InvalidRequestError

aten = torch.ops.aten


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu() * 2


def _program() -> tintype.ExportedProgram:
    shapes = {"x": {0: tintype.Dim("batch", min=1)}}
    return tintype.export(Model(), (torch.ones(4, 3),), dynamic_shapes=shapes)


def _to_gelu(module: Any) -> None:
    for node in module.graph.nodes:
        if node.target is aten.relu.default:
            node.target = aten.gelu.default


def test_an_operator_is_replaced() -> None:
    program = _program()
    made = program.transform(_to_gelu)
    x = torch.randn(7, 3)
    layer = torch.nn.functional.linear(x, program.state_dict["layer.weight"], program.state_dict["layer.bias"])
    assert torch.equal(made.module()(x), torch.nn.functional.gelu(layer) * 2)
    assert torch.equal(program.module()(x), layer.relu() * 2)  # this one stays as it was
    assert str(made.contract()) == str(program.contract())
    assert torch.equal(tintype.unflatten(made)(x), made.module()(x))
    (node,) = [node for node in made.graph.nodes if node.target is aten.linear.default]
    assert "in forward" in node.meta["stack_trace"]


def test_values_of_new_nodes_are_inferred() -> None:
    def observe(module: Any) -> None:
        (node,) = [node for node in module.graph.nodes if node.target is aten.relu.default]
        with module.graph.inserting_after(node):
            doubled = module.graph.call_function(aten.cat.default, ([node, node],))
        for user in [user for user in node.users if user is not doubled]:
            user.replace_input_with(node, doubled)

    made = _program().transform(observe)
    assert '"f32[2*batch, 2]" = torch.ops.aten.cat.default' in str(made)
    assert made.module()(torch.ones(5, 3)).shape == (10, 2)


def test_torchs_own_replacement_of_patterns() -> None:
    def edit(module: Any) -> None:
        torch.fx.replace_pattern(module, lambda x: aten.relu.default(x), lambda x: aten.silu.default(x))

    made = _program().transform(edit)
    assert [node.name for node in made.graph.nodes if node.target is aten.silu.default]


def test_an_edit_that_breaks_a_promise_is_refused() -> None:
    def fix_the_size(module: Any) -> None:
        (node,) = [node for node in module.graph.nodes if node.target is aten.relu.default]
        with module.graph.inserting_after(node):
            node.replace_all_uses_with(
                fixed := module.graph.call_function(aten.reshape.default, (node, [4, 2])),
                lambda user: user is not fixed,
            )

    with pytest.raises(tintype.TintypeError):
        _program().transform(fix_the_size).module()(torch.ones(5, 3))


def test_what_is_no_edit_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="returned int"):
        _program().transform(lambda module: 3)
    with pytest.raises(InvalidRequestError, match="before run_decompositions"):
        _program().run_decompositions().transform(_to_gelu)
