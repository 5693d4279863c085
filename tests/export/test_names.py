"""Names of arguments, state, submodules, containers' keys and graphs never meet."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tintype
from tests.export.named_programs import IDENTIFIERS, KEYS, STATE_NAMES, Plan, check_all_ways
from tintype.errors import InvalidRequestError


def some(names: tuple[str, ...], most: int) -> Any:
    return st.lists(st.sampled_from(names), max_size=most, unique=True).map(tuple)


@st.composite
def plans(draw: Any) -> Plan:
    arguments = draw(some(IDENTIFIERS, 3))
    # nn.Module itself takes no keyword of this name
    keywords = [name for name in draw(some(KEYS, 2)) if name not in arguments and name != "self"]
    return Plan(
        arguments,
        keywords,
        draw(some(KEYS, 2)),
        draw(some(STATE_NAMES, 3)),
        draw(some(STATE_NAMES, 3)),
        draw(some(STATE_NAMES, 2)),
        draw(some(STATE_NAMES, 2)),
        draw(some(STATE_NAMES, 2)),
        draw(some(KEYS, 2)) or ("y",),
        draw(st.sampled_from(STATE_NAMES)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
    )


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(plans())
def test_a_program_is_what_the_model_is_whatever_things_are_called(tmp_path_factory: Any, plan: Plan) -> None:
    check_all_ways(plan, tmp_path_factory.mktemp("named"))


@pytest.mark.parametrize(
    "plan",
    [
        Plan(("x",), buffers=("x",), written_inputs=True),
        Plan(("x", "b_x"), buffers=("x",), written_inputs=True),
        Plan(("x", "x_shape"), varying=True),
        Plan(("x_shape", "x", "s0", "_s_s0", "_shape1"), varying=True),
        Plan(parameters=("_entry",), buffers=("_text",), constants=("_constants", "_checks")),
        Plan(buffers=("_graph", "graph"), constants=("code", "meta", "_in_spec"), submodules=("_out_spec",)),
        Plan(submodules=("graph", "_tree_root"), child="_tree_root", buffers=("argument_names",)),
        Plan(submodules=("a", "a_b"), child="b_weight", parameters=("a_b_weight",)),
        Plan(submodules=("true_graph_0",), branch=True, buffers=("false_graph_0",)),
        Plan(constants=("true_graph_0", "false_graph_0"), branch=True),
        Plan(("torch", "aten", "operator", "math", "inf", "nan", "device"), written_inputs=True),
        Plan(("self", "tintype", "float", "slice", "pytree"), varying=True),
        Plan(("größe", "层", "_", "__"), buffers=("größe", "层", "a b", "0"), submodules=("äöü",), child="ñ"),
        Plan(keywords=("class", "a-b", "", "\n", "_self", "_args"), keys=("a", "a.b", "lambda"), results=("for", "")),
        Plan(("len", "input"), written_inputs=True, buffers=("len", "input")),
        Plan(("args_0", "args"), keywords=("args_1",), keys=("x",)),
        Plan(("add", "mul", "clone"), buffers=("add", "add_1", "mul"), submodules=("add_2",), child="add_3"),
        Plan(parameters=("lifted_tensor_0",), constants=("lifted_tensor_1",), buffers=("decomposed_tensor_0",)),
    ],
    ids=lambda plan: "-".join(dict.fromkeys((*plan.arguments, *plan.buffers, *plan.constants, *plan.submodules))),
)
def test_names_that_were_in_the_way(plan: Plan, tmp_path: Path) -> None:
    check_all_ways(plan, tmp_path)


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("x", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.x.add_(1)
        return x + self.x


def test_a_buffer_that_is_called_like_an_input_is_what_is_written_to() -> None:
    program = tintype.export(Counter(), (torch.zeros(2),))
    module = program.module()
    x = torch.zeros(2)
    module(x)
    assert x.tolist() == [0, 0] and module.state_dict()["x"].tolist() == [1, 1]
    torchs = tintype.interop.to_torch(program).module()
    torchs(x)
    assert x.tolist() == [0, 0] and torchs.state_dict()["x"].tolist() == [1, 1]


def test_two_buffers_that_get_one_value_are_both_the_modules_own() -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(2))
            self.register_buffer("b", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            self.a = y
            self.b = y
            return y

    model = Two()
    program = tintype.export(model, (torch.ones(2),))
    module = program.module()
    module(torch.ones(2))
    assert module.state_dict()["a"].tolist() == module.state_dict()["b"].tolist() == [2, 2]
    assert program.state_dict["a"].tolist() == program.state_dict["b"].tolist() == [0, 0]


def test_an_attribute_with_a_dot_in_its_name_is_not_the_state_of_a_submodule() -> None:
    class Dotted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)
            setattr(self, "layer.weight", torch.full((2,), 5.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + self.__dict__["layer.weight"]

    model, x = Dotted(), torch.ones(1, 2)
    for made in (tintype.export(model, (x,)).module(), tintype.unflatten(tintype.export(model, (x,)))):
        torch.testing.assert_close(made(x), model(x))


def test_a_keyword_of_kwargs_may_be_called_like_the_variadic_arguments() -> None:
    def add(*xs: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        return sum(xs) + sum(value.sum() for value in more.values())

    args, kwargs = (torch.ones(3), torch.ones(3)), {"xs": torch.ones(4), "xs_0": torch.ones(5)}
    shapes = {"xs": ({0: tintype.Dim("n")},) * 2, "more": {"xs": {0: tintype.Dim("m")}, "xs_0": None}}
    program = tintype.export(add, args, kwargs, dynamic_shapes=shapes)
    for made in (program.module(), tintype.unflatten(program), tintype.interop.to_torch(program).module()):
        n, m = torch.ones(6), torch.ones(7)
        torch.testing.assert_close(made(n, n, xs=m, xs_0=torch.ones(5)), add(n, n, xs=m, xs_0=torch.ones(5)))


def test_text_among_the_inputs_is_not_taken_for_the_name_of_one() -> None:
    """Constants that a decomposition makes stand between state and inputs."""
    layer = torch.nn.Linear(3, 3)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, mode: str, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.relu(self.layer(x))

    table = {torch.ops.aten.relu.default: lambda x: x * torch.tensor([1.0, 0.0, 2.0])}
    program = tintype.export(Model(), ("p_layer_weight", torch.ones(2, 3))).run_decompositions(table)
    program.validate()
    expected = layer(torch.ones(2, 3)) * torch.tensor([1.0, 0.0, 2.0])
    torch.testing.assert_close(program.module()("p_layer_weight", torch.ones(2, 3)), expected)


def test_preserved_signatures_speak_of_the_programs_own_nodes() -> None:
    """State called like an operator takes the name of the operator's node in the graph with state."""

    class Add(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x + y) * 2

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("add", torch.full((2,), 7.0))
            self.register_buffer("mul", torch.full((2,), 5.0))
            self.inner = Add()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x + self.add, x + self.mul) - self.mul

    model, x = Model(), torch.randn(2)
    program = tintype.export(model, (x,), preserve_module_call_signature=("inner",))
    torch.testing.assert_close(tintype.unflatten(program)(x), model(x))


def test_a_decomposition_that_branches_names_its_graphs_anew() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return tintype.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x.relu(),))

    def relu(x: torch.Tensor) -> torch.Tensor:
        return tintype.cond(x.sum() > 2, lambda v: v * 3, lambda v: v * 5, (x,))

    program = tintype.export(model, (torch.ones(3),)).run_decompositions({torch.ops.aten.relu.default: relu})
    program.validate()
    for x in (torch.ones(3), torch.full((3,), -1.0), torch.full((3,), 0.1)):
        expected = tintype.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (relu(x),))
        torch.testing.assert_close(program.module()(x), expected)


class Unregistered(torch.nn.Module):
    """Its layers are in a list and a dictionary, where torch does not see them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)]
        self.named = {"last": torch.nn.Linear(3, 3)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.named["last"](x)


def test_parameters_of_modules_that_are_not_registered_keep_their_gradients() -> None:
    model, x = Unregistered(), torch.randn(2, 3)
    model(x).sum().backward()
    expected = model.layers[0].weight.grad.clone()
    program = tintype.export(model, (x,))
    for made in (program.module(), tintype.unflatten(program), tintype.aot.module(model)):
        model.layers[0].weight.grad = None
        found = made(x)
        torch.testing.assert_close(found, model(x))
        found.sum().backward()
        torch.testing.assert_close(model.layers[0].weight.grad, expected)
    model.layers[0].weight.grad = None
    torchs = tintype.interop.to_torch(program).module()
    torchs(x).sum().backward()
    torch.testing.assert_close(torchs.lifted_tensor_0.grad, expected)


@pytest.mark.parametrize("from_program", [False, True])
def test_a_joint_program_has_the_gradients_of_parameters_that_are_not_registered(from_program: bool) -> None:
    model, x = Unregistered(), torch.randn(2, 3)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return model(x).square().sum()

    joint = tintype.export_joint(tintype.export(loss, (x,))) if from_program else tintype.export_joint(loss, (x,))
    joint.validate()
    loss(x).backward()
    _, gradients, _ = joint.module()(x)
    expected = [p.grad for layer in (*model.layers, model.named["last"]) for p in layer.parameters()]
    torch.testing.assert_close(list(gradients.values()), expected)


def test_a_module_with_an_at_in_its_name_is_refused_by_unflatten() -> None:
    model = torch.nn.ModuleDict({"a@1": torch.nn.Linear(2, 2)})
    program = tintype.export(lambda x: model["a@1"](x), (torch.ones(2),))
    tintype.unflatten(program)(torch.ones(2))  # a function has no modules
    model.forward = lambda x: model["a@1"](x)
    with pytest.raises(InvalidRequestError, match="'a@1' has an @ in its name"):
        tintype.unflatten(tintype.export(model, (torch.ones(2),)))


def test_a_keyword_called_self_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no keyword argument called 'self'"):
        tintype.export(lambda self: self + 1, (), {"self": torch.ones(2)})
    assert tintype.aot.function(lambda self: self + 1)(self=torch.ones(2)).tolist() == [2, 2]


def test_a_module_with_odd_state_can_be_edited_moved_and_copied() -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("_entry", torch.ones(2))
            self.register_buffer("graph", torch.ones(2))
            self._constants = torch.full((2,), 3.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self._entry * self.graph - self._constants

    x = torch.ones(2)
    for module in (tintype.export(Odd(), (x,)).module(), tintype.unflatten(tintype.export(Odd(), (x,)))):
        for made in (module, copy.deepcopy(module)):
            torch.testing.assert_close(made(x), torch.full((2,), -1.0))
            made.recompile()
            made.graph = made.graph
            torch.testing.assert_close(made(x), torch.full((2,), -1.0))
        assert {name: value.dtype for name, value in module.double().state_dict().items()} == {
            "_entry": torch.float64,
            "graph": torch.float64,
        }
