"""``program.transform``: edits that give new programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as functional

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
    assert '"f32[2*batch, 2]" = torch.ops.aten.cat.default' in made.code
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


# --- rewrite -------------------------------------------------------------------------------------------------


def _names(program: Any) -> list[str]:
    return [node.name for node in program.graph.nodes if node.op == "call_function"]


def _layers() -> Any:
    layers = [torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4), torch.nn.ReLU()]
    shapes = {"input": {0: tintype.Dim("batch")}}
    return tintype.export(torch.nn.Sequential(*layers), (torch.ones(5, 3),), dynamic_shapes=shapes)


def test_an_operator_is_rewritten_everywhere_or_where_it_is_asked_for() -> None:
    program = _layers()
    gelu = torch.nn.functional.gelu
    assert _names(program.rewrite(aten.relu.default, gelu)) == ["linear", "gelu", "linear_1", "gelu_1"]
    assert _names(program.rewrite(aten.relu, gelu)) == ["linear", "gelu", "linear_1", "gelu_1"]
    assert _names(program.rewrite(aten.relu.default, gelu, where="3")) == ["linear", "relu", "linear_1", "gelu"]
    chosen = program.rewrite(aten.relu.default, gelu, where=lambda node: node.name == "relu")
    assert _names(chosen) == ["linear", "gelu", "linear_1", "relu"]
    assert _names(program) == ["linear", "relu", "linear_1", "relu_1"]
    assert str(chosen.contract()) == str(program.contract())


def test_a_pattern_of_several_operators() -> None:
    program = _layers()
    linear = torch.nn.functional.linear
    made = program.rewrite(
        lambda x, weight, bias: torch.relu(linear(x, weight, bias)),
        lambda x, weight, bias: (x @ weight.mT + bias).clamp(min=0),
    )
    assert "linear" not in _names(made) and "clamp_1" in _names(made)
    x = torch.randn(7, 3)
    torch.testing.assert_close(made.module()(x), program.module()(x))
    calls = [node for node in made.graph.nodes if node.op == "call_function"]
    assert [node.meta["nn_module_stack"].popitem()[0] for node in calls] == ["1"] * 4 + ["3"] * 4


def test_what_others_use_of_a_pattern_stays() -> None:
    def model(x: torch.Tensor) -> Any:
        y = x + 1
        return y.relu(), y

    program = tintype.export(model, (torch.randn(3),))
    made = program.rewrite(lambda x: (x + 1).relu(), lambda x: torch.clamp(x + 1, min=0))
    x = torch.randn(3)
    for mine, theirs in zip(made.module()(x), model(x)):
        assert torch.equal(mine, theirs)


def test_what_a_pattern_says_of_arguments_counts() -> None:
    program = tintype.export(lambda x: torch.add(x, x, alpha=2).sum(0) + x.sum(1), (torch.ones(3, 3),))
    with pytest.raises(InvalidRequestError, match="occurs nowhere"):
        program.rewrite(lambda x: torch.add(x, x), torch.neg)
    with pytest.raises(InvalidRequestError, match="occurs nowhere"):
        program.rewrite(lambda x, y: torch.add(x, y.sum(0)), lambda x, y: x)
    assert "neg" in _names(program.rewrite(lambda x: torch.add(x, x, alpha=2), torch.neg))
    assert "amax" in _names(program.rewrite(lambda x: x.sum([1]), lambda x: x.amax(1)))
    with pytest.raises(InvalidRequestError, match="occurs nowhere"):  # not the same x
        tintype.export(lambda x, y: x * y, (torch.ones(2), torch.ones(2))).rewrite(lambda x: x * x, torch.neg)


def test_one_of_several_results() -> None:
    program = tintype.export(lambda x: torch.topk(x, 2)[0] + 1, (torch.randn(5),))
    made = program.rewrite(lambda x: aten.topk.default(x, 2)[0], lambda x: x.sort(descending=True).values[:2])
    x = torch.randn(5)
    torch.testing.assert_close(made.module()(x), program.module()(x))


def test_rewrites_that_are_refused() -> None:
    program = _layers()
    for pattern, message in (
        (lambda x: x, "returns one tensor"),
        (lambda x: x.unheard_of(), "calls unheard_of, which is no operator"),
        (3, "a pattern is an operator or a function"),
        (aten.gelu.default, "occurs nowhere"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            program.rewrite(pattern, torch.neg)
    with pytest.raises(InvalidRequestError, match="a replacement is an operator"):
        program.rewrite(aten.relu.default, 3)
    with pytest.raises(tintype.ConstraintViolationError):
        program.rewrite(aten.relu.default, lambda x: x.reshape(5, 4))
    training = tintype.export_for_training(torch.nn.ReLU(), (torch.ones(2),))
    with pytest.raises(InvalidRequestError, match="training stage"):
        training.rewrite(aten.relu.default, torch.neg)


def test_where_nodes_come_from() -> None:
    program = _layers()
    assert "from_node" not in next(node for node in program.graph.nodes if node.name == "linear").meta
    made = program.rewrite(aten.relu.default, torch.nn.functional.silu).run_decompositions()
    found = {node.name: node.meta["from_node"] for node in made.graph.nodes if node.op == "call_function"}
    (source,) = found["addmm_1"]
    assert (source.name, source.target, source.pass_name) == ("linear_1", "aten.linear.default", "run_decompositions")
    (source,) = found["sigmoid"]
    assert source.name == "silu" and source.from_node[0].name == "relu" and source.from_node[0].pass_name == "rewrite"
    assert "from_node" in dict(next(node for node in made.graph.nodes if node.name == "addmm").meta)


def test_programs_with_sources_are_saved_and_handed_on(tmp_path: Any) -> None:
    made = _layers().run_decompositions()
    for node in made.graph.nodes:
        node.meta.get("from_node")
    tintype.save(made, tmp_path / "model.tt")
    assert tintype.load(tmp_path / "model.tt").same_structure(made)
    torch.export.save(tintype.interop.to_torch(made), tmp_path / "model.pt2")


def test_an_edited_graph_for_other_inputs() -> None:
    program = tintype.export(lambda x: x.reshape(2, 8).sum(1), (torch.ones(16),))

    def longer(module: Any) -> None:
        (node,) = [node for node in module.graph.nodes if node.target is aten.reshape.default]
        node.args = (node.args[0], [2, -1])

    made = program.transform(longer, args=(torch.ones(32),))
    assert made.module()(torch.ones(32)).tolist() == [16, 16]
    shapes = {"x": {0: 2 * tintype.Dim("half", max=64)}}
    varying = program.transform(longer, args=(torch.ones(32),), dynamic_shapes=shapes)
    assert varying.module()(torch.ones(48)).tolist() == [24, 24]
    with pytest.raises(RuntimeError):
        program.transform(lambda module: None, args=(torch.ones(32),))
    with pytest.raises(InvalidRequestError, match="belong to other inputs"):
        program.transform(longer, dynamic_shapes=shapes)
    with pytest.raises(tintype.InputMismatchError, match="dtype"):
        program.transform(longer, args=(torch.ones(32, dtype=torch.int64),))


# --- to ------------------------------------------------------------------------------------------------------


def test_another_dtype() -> None:
    program = _layers()
    made = program.to(torch.float64)
    x = torch.randn(7, 3, dtype=torch.float64)
    torch.testing.assert_close(made.module()(x), program.module()(x.float()).double(), rtol=1e-5, atol=1e-5)
    assert (
        made.state_dict["0.weight"].dtype is torch.float64 and program.state_dict["0.weight"].dtype is torch.float32
    )
    assert str(made.contract()) == str(program.contract())
    made.validate()
    with pytest.raises(tintype.InputMismatchError):
        made.module()(x.float())
    with pytest.raises(InvalidRequestError, match="floating point dtype"):
        program.to(torch.int8)
    with pytest.raises(InvalidRequestError, match="takes a device and a dtype"):
        program.to(object())


def test_another_device() -> None:
    def model(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + torch.arange(3, device=x.device) + torch.zeros(3)

    program = tintype.export(model, (torch.ones(2, 3), 4))
    made = program.to("meta")
    assert made.module()(torch.ones(2, 3, device="meta"), 4).is_meta
    both = _layers().to("meta", torch.bfloat16)
    assert both.state_dict["0.weight"].is_meta and both.state_dict["0.weight"].dtype is torch.bfloat16


# --- validate ------------------------------------------------------------------------------------------------


def _edited(edit: Any) -> str:
    program = _layers()
    edit(program, {node.name: node for node in program.graph.nodes})
    with pytest.raises(tintype.errors.VerificationError) as caught:
        program.validate()
    return str(caught.value)


def test_validate_sees_what_an_edit_broke() -> None:
    def other_operator(program: Any, nodes: Any) -> None:
        nodes["relu"].target = aten.isnan.default

    assert "'relu' says that it is f32[batch, 4], but aten.isnan.default gives b8[batch, 4]" in _edited(
        other_operator
    )

    def other_shape(program: Any, nodes: Any) -> None:
        nodes["linear_1"].args = (nodes["relu"], nodes["p_0_weight"], nodes["p_0_bias"])

    assert "aten.linear.default can't be called so" in _edited(other_shape)

    def wrong_value(program: Any, nodes: Any) -> None:
        nodes["relu"].meta["val"] = nodes["input"].meta["val"]

    assert "'relu' says that it is f32[batch, 3]" in _edited(wrong_value)

    def missing_value(program: Any, nodes: Any) -> None:
        del nodes["relu"].meta["val"]

    assert "'relu' does not say what its value is" in _edited(missing_value)

    def unknown_weight(program: Any, nodes: Any) -> None:
        with program.graph.inserting_before(nodes["relu"]):
            new = program.graph.create_node("get_attr", "somewhere.weight")
        nodes["linear"].replace_input_with(nodes["p_0_weight"], new)
        program.graph._root._next.prepend(new)

    assert "somewhere" in _edited(unknown_weight)

    def other_weight(program: Any, nodes: Any) -> None:
        program.state_dict["0.weight"] = torch.ones(4, 4)

    assert "the graph takes 0.weight as f32[4, 3], but the program has f32[4, 4]" in _edited(other_weight)

    def no_weight(program: Any, nodes: Any) -> None:
        del program.state_dict["0.weight"]

    assert "no value for its state 0.weight" in _edited(no_weight)


def test_validate_is_content_with_every_stage() -> None:
    program = _layers()
    for made in (program, program.run_decompositions(), program.rewrite(aten.relu.default, torch.sigmoid)):
        made.validate()


@pytest.mark.parametrize(
    "pattern",
    [
        torch.relu,
        torch.Tensor.relu,
        functional.relu,
        torch.nn.ReLU(),
        torch.nn.ReLU(inplace=True),
        lambda x: functional.relu(x),
        lambda x: functional.relu(x, inplace=True),
    ],
)
def test_functions_of_torch_are_patterns(pattern: Any) -> None:
    x = torch.randn(5, 3)
    program = _program()
    made = program.rewrite(pattern, lambda x, *_: x.clamp(min=0) + 1)
    assert torch.equal(made.module()(x), program.module()(x) + 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.silu(x),
        lambda x: functional.softmax(x, dim=-1),
        lambda x: functional.leaky_relu(x, 0.2),
        lambda x: functional.relu6(x),
        lambda x: functional.gelu(x, approximate="tanh"),
    ],
)
def test_functions_with_arguments_of_pythons_own_are_found(function: Any) -> None:
    x = torch.randn(3)
    made = tintype.export(function, (x,)).rewrite(function, lambda x: x * 100)
    assert torch.equal(made.module()(x), x * 100)


def test_branches_and_steps_are_searched() -> None:
    def branching(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2 if x.sum() > 0 else torch.relu(-x)

    made = tintype.export(branching, (torch.ones(2),)).rewrite(torch.relu, lambda x: x * 100).module()
    for x in (torch.tensor([3.0, -1.0]), torch.tensor([-3.0, 1.0])):
        assert torch.equal(made(x), x * 200 if x.sum() > 0 else -x * 100)


def test_what_is_no_pattern_and_no_replacement() -> None:
    program = _program()
    with pytest.raises(InvalidRequestError, match=r"the replacement returned a NoneType, where aten\.relu\.default"):
        program.rewrite(aten.relu.default, lambda x: None)
    with pytest.raises(InvalidRequestError, match=r"no \*args or \*\*kwargs"):
        program.rewrite(lambda *args: torch.relu(*args), functional.gelu)
    with pytest.raises(InvalidRequestError, match=r"occurs nowhere in the program; it ends with aten.tanh"):
        program.rewrite(torch.tanh, functional.gelu)
