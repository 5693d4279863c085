"""Parameters, buffers and constants: what becomes an input of the graph, under which name, how often."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import tintype
from tests.export.modes import MODES, capture, compare, keeps_tensors
from tintype import InputKind
from tintype.errors import StateChangedError


def x(*sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (3, 4)), requires_grad=True)


class AllKinds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.register_buffer("saved", torch.randn(4))
        self.register_buffer("unsaved", torch.randn(4), persistent=False)
        self.plain = torch.randn(4)
        self.layer = nn.Linear(4, 4)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        literal = torch.tensor([1.0, 2.0, 3.0, 4.0])
        return self.layer(value) * self.weight + self.saved - self.unsaved * self.plain + literal


def test_kinds_of_state(mode: str) -> None:
    program = compare(mode, AllKinds(), (x(),))
    signature = program.graph_signature
    assert signature.parameters == ("weight", "layer.weight", "layer.bias")
    assert signature.buffers == ("saved", "unsaved")
    assert signature.non_persistent_buffers == ("unsaved",)
    assert set(program.state_dict) == {"weight", "saved", "layer.weight", "layer.bias"}
    assert {"unsaved", "plain"} <= set(program.constants)
    assert len(signature.lifted_tensor_constants) == 2
    assert not set(program.state_dict) & set(program.constants)


def test_names_of_placeholders(mode: str) -> None:
    program = capture(mode, AllKinds(), (x(),))
    names = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    expected = ["p_weight", "p_layer_weight", "p_layer_bias", "b_saved", "b_unsaved", "c_plain", "c_lifted_tensor_0"]
    assert sorted(names[:-1]) == sorted(expected)
    assert names[-1] == "value"
    assert names[:5] == expected[:5]


@pytest.mark.direct("the program holds the model's own tensors")
def test_state_is_the_models_own(mode: str) -> None:
    model = AllKinds()
    program = capture(mode, model, (x(),))
    for name, tensor in model.state_dict(keep_vars=True).items():
        if mode.endswith("retraced") or not keeps_tensors(mode):
            assert torch.equal(program.state_dict[name], tensor)
        else:
            assert program.state_dict[name] is tensor
    assert torch.equal(program.constants["plain"], model.plain)


# --- state under several names -------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(ids))


def test_tied_weights_are_lifted_once(mode: str) -> None:
    program = compare(mode, Tied(), (torch.tensor([[1, 2, 3]]),))
    assert program.graph_signature.parameters == ("embedding.weight",)
    assert set(program.state_dict) == {"embedding.weight", "head.weight"}
    assert program.state_dict["embedding.weight"] is program.state_dict["head.weight"]


def test_tied_weights_stay_tied_in_the_module(mode: str) -> None:
    module = capture(mode, Tied(), (torch.tensor([[1, 2, 3]]),)).module()
    assert len(list(module.parameters())) == 1
    state = module.state_dict()
    assert state["embedding.weight"].data_ptr() == state["head.weight"].data_ptr()


class TiedBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        shared = torch.zeros(4)
        self.register_buffer("one", shared)
        self.register_buffer("two", shared)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.one += 1
        return value + self.two


def test_one_buffer_under_two_names(mode: str) -> None:
    program = compare(mode, TiedBuffers(), (x(),))
    assert program.graph_signature.buffers == ("one",)
    assert set(program.state_dict) == {"one", "two"}
    module = program.module()
    module(x())
    assert torch.equal(module.state_dict()["two"], torch.ones(4))


class Views(nn.Module):
    """Two buffers that are views of one tensor: writing to one is seen in the other."""

    def __init__(self) -> None:
        super().__init__()
        base = torch.zeros(2, 4)
        self.register_buffer("base", base)
        self.register_buffer("first", base[0])
        self.register_buffer("second", base[1])

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.first += 1
        self.base[1] += 2
        return value + self.base.sum(0) + self.second


def test_written_buffers_that_are_views_of_one_tensor_are_refused_or_right(mode: str) -> None:
    try:
        compare(mode, Views(), (x(),))
    except tintype.CaptureError as error:
        assert "share memory" in str(error)


def test_frozen_views_of_one_tensor(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            base = torch.randn(2, 4)
            self.register_buffer("first", base[0])
            self.register_buffer("second", base.t()[:, 1])

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return value * self.first + self.second

    compare(mode, Model(), (x(),))


def test_buffer_that_is_a_parameter_of_another_module(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("copy", self.layer.weight.detach())

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.layer(value) @ self.copy

    compare(mode, Model(), (x(),))


# --- special parameters --------------------------------------------------------------------------------------


def test_none_parameters_and_buffers(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4, bias=False)
            self.register_parameter("nothing", None)
            self.register_buffer("none", None)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            assert self.nothing is None
            assert self.none is None
            return self.layer(value)

    program = compare(mode, Model(), (x(),))
    assert set(program.state_dict) == {"layer.weight"}


def test_state_that_nobody_uses_is_kept(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(4, 4)
            self.unused = nn.Linear(5, 5)
            self.register_buffer("spare", torch.ones(2))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.used(value)

    model = Model()
    program = compare(mode, model, (x(),))
    assert set(program.state_dict) == set(model.state_dict())
    assert "unused.weight" in program.graph_signature.parameters
    assert program.graph_signature.buffers == ("spare",)
    assert set(program.module().state_dict()) == set(model.state_dict())


def test_frozen_parameters(mode: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    program = compare(mode, model, (x(),))
    assert [p.requires_grad for p in program.module().parameters()] == [False, False, True, True]


def test_lists_and_dictionaries_of_parameters(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items = nn.ParameterList([torch.randn(4), torch.randn(4)])
            self.table = nn.ParameterDict({"scale": torch.randn(4), "shift": nn.Parameter(torch.randn(4))})

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            for item in self.items:
                value = value + item
            return value * self.table["scale"] + self.table["shift"]

    program = compare(mode, Model(), (x(),))
    assert program.graph_signature.parameters == ("items.0", "items.1", "table.scale", "table.shift")


def test_parameters_of_several_dtypes(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.short = nn.Parameter(torch.randn(4).bfloat16())
            self.long_ = nn.Parameter(torch.randn(4).double())
            self.integers = nn.Parameter(torch.arange(4), requires_grad=False)

        def forward(self, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return value.bfloat16() * self.short, value.double() * self.long_, value + self.integers

    compare(mode, Model(), (x(),))


def test_scalar_and_empty_parameters(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))
            self.empty = nn.Parameter(torch.empty(0, 4))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return torch.cat([value * self.scale, self.empty])

    compare(mode, Model(), (x(),))


# --- parametrizations ------------------------------------------------------------------------------------------


class Symmetric(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).transpose(-1, -2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
        lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
        lambda: parametrizations.spectral_norm(nn.Linear(4, 4)).eval(),
        lambda: parametrizations.orthogonal(nn.Linear(4, 4)),
        lambda: parametrizations.weight_norm(nn.Conv1d(4, 4, 2)),
    ],
    ids=["weight_norm", "spectral_norm", "spectral_norm-eval", "orthogonal", "conv"],
)
def test_parametrizations(mode: str, make: Any) -> None:
    model = make()
    value = x(2, 4, 5) if isinstance(model, nn.Conv1d) else x()
    compare(mode, model, (value,))


def test_own_parametrization(mode: str) -> None:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    program = compare(mode, nn.Sequential(layer), (x(),))
    assert "0.parametrizations.weight.original" in program.graph_signature.parameters


def test_old_weight_norm(mode: str) -> None:
    """The deprecated one computes the weight in a hook and assigns it to an attribute."""
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(nn.Linear(4, 4))
    value = x()
    try:
        module = capture(mode, layer, (value,)).module()
    except tintype.CaptureError as error:
        assert "'weight'" in str(error)
        return
    torch.testing.assert_close(module(value), layer(value))
    with torch.no_grad():
        layer.weight_g.mul_(2)
        module.weight_g.copy_(layer.weight_g)
    torch.testing.assert_close(module(value), layer(value))


def test_cached_parametrization(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = parametrizations.weight_norm(nn.Linear(4, 4))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            with parametrize.cached():
                return self.layer(self.layer(value))

    compare(mode, Model(), (x(),))
    assert not parametrize._cache


# --- names ---------------------------------------------------------------------------------------------------


def test_names_with_dots_and_colons(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleDict({"a:b": nn.Linear(4, 4), "c d": nn.Linear(4, 4), "2": nn.Linear(4, 4)})
            self.register_buffer("x:y", torch.ones(4))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            for layer in self.layers.values():
                value = layer(value)
            return value + getattr(self, "x:y")

    program = compare(mode, Model(), (x(),))
    assert "layers.a:b.weight" in program.state_dict
    assert all(node.name.isidentifier() for node in program.graph.nodes)
    assert "x:y" in program.graph_signature.buffers


def test_names_that_are_the_same_as_identifiers(mode: str) -> None:
    """``a_b`` and ``a.b`` both want the placeholder p_a_b."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Module()
            self.a.b = nn.Parameter(torch.randn(4))
            self.a_b = nn.Parameter(torch.randn(4))

        def forward(self, p_a_b: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            return p_a_b * self.a.b + self.a_b - value

    program = compare(mode, Model(), (x(), x()))
    names = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    assert len(set(names)) == 4
    assert names[2:] == ["p_a_b", "value"]
    assert set(program.graph_signature.parameters) == {"a.b", "a_b"}


def test_inputs_named_like_operators(mode: str) -> None:
    def function(add: torch.Tensor, mul: torch.Tensor, self_: torch.Tensor, forward: torch.Tensor) -> torch.Tensor:
        return (add + mul) * self_ - forward

    program = compare(mode, function, (x(), x(), x(), x()))
    assert program.graph_signature.user_inputs == ("add", "mul", "self_", "forward")


def test_attributes_named_like_those_of_modules(mode: str) -> None:
    """The module of a program must not trip over its own attributes."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.graph = nn.Linear(4, 4)
            self.code = nn.Parameter(torch.randn(4))
            self.register_buffer("meta", torch.randn(4))
            self.argument_names = nn.Linear(4, 4)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.argument_names(self.graph(value)) * self.code + self.meta

    compare(mode, Model(), (x(),))


def test_constant_named_like_a_lifted_one(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lifted_tensor_0 = torch.randn(4)
            self.register_buffer("lifted_tensor_1", torch.randn(4))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return value * torch.tensor([2.0]) + self.lifted_tensor_0 - torch.tensor([3.0]) * self.lifted_tensor_1

    compare(mode, Model(), (x(),))


def test_constant_below_a_layer_that_has_none_else(mode: str) -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.randn(4)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return value + self.table

    program = compare(mode, nn.Sequential(nn.ReLU(), Inner()), (x(),))
    assert "1.table" in program.constants


# --- mutation of state -----------------------------------------------------------------------------------------


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4), persistent=False)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.mean.lerp_(value.detach().mean(0), 0.5)
        return value - self.mean * self.count


def test_mutated_buffers(mode: str) -> None:
    program = compare(mode, Counter(), (x(),))
    if not mode.endswith("training"):
        assert set(program.graph_signature.buffers_to_mutate.values()) == {"count", "mean"}


def test_assigned_buffer(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.zeros(4))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            self.state = self.state * 0.5 + value.detach().mean(0)
            return value + self.state

    program = compare(mode, Model(), (x(),))
    if not mode.endswith("training"):
        assert list(program.graph_signature.buffers_to_mutate.values()) == ["state"]


def test_two_assigned_buffers_that_swap(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("one", torch.zeros(4))
            self.register_buffer("two", torch.ones(4))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            self.one, self.two = self.two, self.one
            return value * self.one

    compare(mode, Model(), (x(),))


def test_mutated_parameter(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.weight.mul_(0.5)
            return value * self.weight

    model = Model()
    program = tintype.export(model, (x(),)) if mode == "export" else capture(mode, model, (x(),))
    module = program.module()
    value = torch.ones(3, 4)
    torch.testing.assert_close(module(value), torch.full((3, 4), 0.5))
    torch.testing.assert_close(module(value), torch.full((3, 4), 0.25))
    assert torch.equal(model.weight, torch.ones(4))
    assert torch.equal(program.state_dict["weight"], torch.ones(4))


def test_mutated_constant_is_refused_or_kept_in_the_module(mode: str) -> None:
    """A plain tensor attribute that the program writes to: eager keeps the new values."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = torch.zeros(4)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            self.total.add_(value.detach().sum(0))
            return value + self.total

    model = Model()
    try:
        program = capture(mode, model, (x(),))
    except tintype.CaptureError as error:
        assert "total" in str(error)
        return
    module, value = program.module(), torch.ones(3, 4)
    torch.testing.assert_close(module(value), torch.full((3, 4), 4.0))
    torch.testing.assert_close(module(value), torch.full((3, 4), 7.0))
    assert torch.equal(model.total, torch.zeros(4))


# --- fakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_model_on_the_meta_device(mode: str) -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
        value = torch.randn(3, 4)
    program = capture(mode, model, (value,))
    assert all(tensor.device.type == "meta" for tensor in program.state_dict.values())
    assert program.module()(value).shape == (3, 2)


def test_kinds_of_inputs_in_order() -> None:
    kinds = [spec.kind for spec in tintype.export(AllKinds(), (x(),)).graph_signature.input_specs]
    assert kinds == sorted(kinds, key=[
        InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.USER_INPUT
    ].index)  # fmt: skip


class Cumulative(nn.Module):
    """Running statistics that are the average over all batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4, momentum=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x)).relu()


@pytest.mark.parametrize("how", [*MODES, "aot"])
def test_a_cumulative_average_of_statistics(how: str) -> None:
    torch.manual_seed(0)
    model = Cumulative()
    expected = copy.deepcopy(model)
    module: Any = tintype.aot.module(model) if how == "aot" else capture(how, model, (torch.randn(5, 3),)).module()
    for _ in range(3):
        x = torch.randn(5, 3)
        torch.testing.assert_close(module(x), expected(x))
    module(x).square().sum().backward()
    expected(x).square().sum().backward()
    state, gradients = module.state_dict(), dict(module.named_parameters())
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(state[name], value)
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(gradients[name].grad, parameter.grad)


def test_numbers_in_buffers_vary() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.tensor(2.0))
            self.register_buffer("count", torch.tensor(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * float(self.scale) + int(self.count)

    model = Model()
    module = tintype.export(model, (torch.ones(2),)).module()
    model.scale.fill_(5.0)
    model.count.fill_(7)
    torch.testing.assert_close(module(torch.ones(2)), model(torch.ones(2)))


class Normalized(nn.Module):
    """Running statistics that batch norm reads and, behind autograd's back, writes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x)).relu()


@pytest.mark.parametrize("decomposed", [False, True])
def test_batch_norm_captured_again_for_training(decomposed: bool) -> None:
    torch.manual_seed(0)
    model = Normalized()
    expected, x = copy.deepcopy(model), torch.randn(5, 3)
    program = tintype.export(model, (x,))
    program = program.run_decompositions() if decomposed else program
    module = tintype.export_for_training(program.module(), (x,)).module()
    for _ in range(2):
        x = torch.randn(5, 3)
        for run in (module, expected):
            run.zero_grad()
            run(x).square().sum().backward()
    state, parameters = module.state_dict(), dict(module.named_parameters())
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(state[name], value)
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(parameters[name].grad, parameter.grad, rtol=1e-4, atol=1e-5)


def test_buffers_that_share_memory_which_is_written_to_are_called_by_their_names() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = torch.zeros(4)
            self.register_buffer("whole", whole)
            self.register_buffer("part", whole[:2])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.whole.add_(x)
            return self.part * 2

    with pytest.raises(tintype.CaptureError, match="'whole' of the model and 'part' of the model") as caught:
        tintype.export(Model(), (torch.ones(4),))
    assert "register" in str(caught.value.remedy) and caught.value.location is not None


class TwoNames(nn.Module):
    """One buffer under two names, the other one being a buffer of a child, a part of it, or a plain attribute."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2))
        self.child = nn.Module()
        if kind == "attribute":
            self.child.other = self.a
        else:
            self.child.register_buffer("other", self.a if kind == "buffer" else self.a[:1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a = self.a + x
        return self.child.other * 1  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["buffer", "part", "attribute"])
@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
def test_a_buffer_that_has_another_name_can_not_be_assigned(export: Any, kind: str) -> None:
    with pytest.raises(StateChangedError, match=r"'child.other'.* keeps the old one") as caught:
        export(TwoNames(kind), (torch.ones(2),))
    assert caught.value.location is not None and caught.value.location.function == "forward"


def test_all_names_of_a_buffer_can_be_assigned_the_same(mode: str) -> None:
    class Model(TwoNames):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.a = self.child.other = self.a + x
            return self.child.other * 1

    model, module = Model("buffer"), capture(mode, Model("buffer"), (torch.ones(2),)).module()
    for _ in range(3):
        torch.testing.assert_close(module(torch.ones(2)), model(torch.ones(2)))


def test_compiled_modules_assign_one_of_two_names() -> None:
    model, compiled = TwoNames("buffer"), tintype.aot.module(TwoNames("buffer"))
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(2)), model(torch.ones(2)))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(
    "norm",
    [
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    ],
    ids=["weight_norm", "spectral_norm", "pruning"],
)
def test_weights_that_hooks_of_torch_compute_before_every_call(norm: Any, train: bool) -> None:
    layer, value = norm(nn.Linear(4, 3)).train(train), torch.randn(2, 4)
    weight = layer.weight
    module = tintype.export(layer, (value,)).module()
    assert layer.weight is weight
    results = [module(value) for _ in range(3)]
    torch.testing.assert_close(results, [layer(value) for _ in range(3)])
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(2)
    torch.testing.assert_close(module(value), layer(value))
