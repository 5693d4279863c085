"""What a model may be made of: hooks, containers, layers made while it runs, functions, methods."""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import capture, compare, targets


def x(*sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (3, 4)), requires_grad=True)


# --- hooks -----------------------------------------------------------------------------------------------


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, value: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.second(self.first(value).relu()) * scale


def test_forward_pre_hook(mode: str) -> None:
    model = TwoLayers()
    model.first.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    compare(mode, model, (x(),))


def test_forward_hook(mode: str) -> None:
    model = TwoLayers()
    model.second.register_forward_hook(lambda module, args, result: result.sin())
    compare(mode, model, (x(),))


def test_forward_pre_hook_with_kwargs(mode: str) -> None:
    model = TwoLayers()
    model.register_forward_pre_hook(
        lambda module, args, kwargs: ((args[0] + 1,), {**kwargs, "scale": 3.0}), with_kwargs=True
    )
    compare(mode, model, (x(),))


def test_forward_hook_with_kwargs(mode: str) -> None:
    model = TwoLayers()
    model.register_forward_hook(lambda module, args, kwargs, result: result * kwargs["scale"], with_kwargs=True)
    compare(mode, model, (x(),), {"scale": 2.0})


def test_hook_that_changes_nothing(mode: str) -> None:
    seen = []
    model = TwoLayers()
    model.first.register_forward_hook(lambda module, args, result: seen.append(tuple(result.shape)))
    program = compare(mode, model, (x(),))
    assert seen
    assert all(shape == (3, 4) for shape in seen)
    assert program.graph_signature.parameters == ("first.weight", "first.bias", "second.weight", "second.bias")


def test_hooks_stay_registered() -> None:
    model = TwoLayers()
    handle = model.first.register_forward_hook(lambda module, args, result: result + 1)
    hooks = dict(model.first._forward_hooks)
    tintype.export(model, (x(),))
    assert dict(model.first._forward_hooks) == hooks
    handle.remove()
    assert not model.first._forward_hooks


def test_removed_hook_is_not_captured(mode: str) -> None:
    model = TwoLayers()
    model.first.register_forward_hook(lambda module, args, result: result + 1).remove()
    assert "aten.add.Tensor" not in targets(compare(mode, model, (x(),)))


# --- containers --------------------------------------------------------------------------------------------


class Lists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            value = layer(value) + index
        return self.layers[-1](value) + len(self.layers)


class Dicts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"one": nn.Linear(4, 4), "two": nn.Sequential(nn.ReLU(), nn.Linear(4, 2))})

    def forward(self, value: torch.Tensor) -> dict[str, torch.Tensor]:
        value = self.layers["one"](value)
        return {name: layer(value) for name, layer in self.layers.items()}


class SharedLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = self.one
        self.block = nn.Sequential(self.one, nn.Tanh(), self.one)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.block(self.two(self.one(value)))


class MadeInForward(nn.Module):
    """A layer made while the program runs: its weights are constants of the program."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return nn.LayerNorm(4)(nn.ReLU()(value)) * nn.Identity()(value)


class Hidden(nn.Module):
    """A layer in a plain list: torch does not know of its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(4, 4).requires_grad_(False)]

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.layers[0](value)


@pytest.mark.parametrize(
    "make",
    [
        Lists,
        Dicts,
        SharedLayer,
        MadeInForward,
        Hidden,
        lambda: nn.Sequential(OrderedDict(a=nn.Linear(4, 4), b=nn.GELU(), c=nn.Linear(4, 1))),
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))),
        nn.Identity,
    ],
    ids=["list", "dict", "shared", "made-in-forward", "hidden", "named-sequential", "nested", "identity"],
)
def test_containers(mode: str, make: Any) -> None:
    compare(mode, make(), (x(),))


def test_shared_layer_is_lifted_once() -> None:
    program = tintype.export(SharedLayer(), (x(),))
    assert program.graph_signature.parameters == ("one.weight", "one.bias")
    assert {"one.weight", "two.weight", "block.0.weight", "block.2.weight"} <= set(program.state_dict)


class Recursive(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.inner = Recursive(depth - 1) if depth else None

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = self.layer(value)
        return value if self.inner is None else self.inner(value)


def test_module_that_holds_its_own_kind(mode: str) -> None:
    program = compare(mode, Recursive(2), (x(),))
    assert "inner.inner.layer.weight" in program.state_dict


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.seen: list[int] = []

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(self.calls)
        return value * 2


def test_python_attributes_are_as_before() -> None:
    model = Counting()
    seen = model.seen
    tintype.export(model, (x(),))
    assert model.calls == 0
    assert model.seen is seen
    assert seen == []


# --- lazy layers -------------------------------------------------------------------------------------------


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LazyLinear(3)
        self.norm = nn.LazyBatchNorm1d()

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(value))


def test_lazy_layers_are_initialized_in_the_program_only() -> None:
    model = Lazy()
    program = tintype.export(model, (x(),))
    assert isinstance(model.layer, nn.LazyLinear)
    assert isinstance(model.layer.weight, nn.parameter.UninitializedParameter)
    assert program.state_dict["layer.weight"].shape == (3, 4)
    assert program.module()(x()).shape == (3, 3)


def test_lazy_layers_draw_the_same_parameters_as_eager() -> None:
    model = Lazy()
    torch.manual_seed(3)
    program = tintype.export(model, (x(),))
    value = x()
    torch.manual_seed(3)
    x()  # the example's numbers
    expected = model(value)
    torch.testing.assert_close(program.module()(value), expected)


def test_a_model_with_lazy_layers_says_so_where_no_first_call_can_be_made() -> None:
    # a tensor subclass was blamed, once for each of its tensors
    with pytest.raises(tintype.UnsupportedInputError, match=r"'layer\.weight' has no size yet") as refused:
        tintype.aot.module(Lazy())(x())
    assert "call the model once" in str(refused.value)


# --- entry points ------------------------------------------------------------------------------------------


class WithMethods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("offset", torch.arange(4.0))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.encode(value) * 100

    def encode(self, value: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return self.layer(value) * scale + self.offset


def test_method_as_entry_point(mode: str) -> None:
    model = WithMethods()
    program = capture(mode, model.encode, (x(),), {"scale": 3.0})
    value = x()
    torch.testing.assert_close(program.module()(value, scale=3.0), model.encode(value, scale=3.0))
    assert set(program.state_dict) == {"layer.weight", "layer.bias", "offset"}
    assert program.graph_signature.parameters == ("layer.weight", "layer.bias")


def test_plain_function(mode: str) -> None:
    def function(a: torch.Tensor, b: torch.Tensor, *, scale: float = 1.0) -> tuple[torch.Tensor, ...]:
        return a @ b * scale, a.sum()

    compare(mode, function, (x(), x(4, 2)), {"scale": 2.0})


def test_lambda(mode: str) -> None:
    compare(mode, lambda a: a.sin() + 1, (x(),))


def test_partial(mode: str) -> None:
    compare(mode, functools.partial(torch.add, alpha=2), (x(), x()))


def test_partial_with_a_tensor(mode: str) -> None:
    compare(mode, functools.partial(torch.mul, torch.full((4,), 3.0)), (x(),))


def test_builtin_function(mode: str) -> None:
    compare(mode, torch.nn.functional.softplus, (x(),))


def test_callable_object(mode: str) -> None:
    class Scaler:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def __call__(self, value: torch.Tensor) -> torch.Tensor:
            return value * self.scale

    compare(mode, Scaler(3.0), (x(),))


def test_static_and_class_methods(mode: str) -> None:
    class Tools:
        factor = 2

        @classmethod
        def scaled(cls, value: torch.Tensor) -> torch.Tensor:
            return value * cls.factor

        @staticmethod
        def shifted(value: torch.Tensor) -> torch.Tensor:
            return value + 1

    compare(mode, Tools.scaled, (x(),))
    compare(mode, Tools.shifted, (x(),))


class Decorated(nn.Module):
    @torch.no_grad()
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value * 2


def test_decorated_forward(mode: str) -> None:
    compare(mode, Decorated(), (x(),), gradients=False)


def test_submodule_of_a_model_is_exported_alone(mode: str) -> None:
    model = TwoLayers()
    program = compare(mode, model.first, (x(),))
    assert set(program.state_dict) == {"weight", "bias"}


# --- what a program learns of being captured ----------------------------------------------------------------


class Asks(nn.Module):
    def forward(self, value: torch.Tensor) -> tuple[torch.Tensor, dict[str, bool]]:
        answers = {
            "compiling": torch.compiler.is_compiling(),
            "exporting": torch.compiler.is_exporting(),
            "jit tracing": torch.jit.is_tracing(),
            "jit scripting": torch.jit.is_scripting(),
        }
        return value + 1, answers


def test_program_knows_that_it_is_captured() -> None:
    model = Asks()
    _, answers = tintype.export(model, (x(),)).module()(x())
    assert answers == {"compiling": True, "exporting": True, "jit tracing": False, "jit scripting": False}
    assert not any(model(x())[1].values())
    assert not torch.compiler.is_compiling()
    assert not torch.compiler.is_exporting()


class Prints(nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        doubled = value * 2
        print("value:", value, f"{doubled}", repr(doubled), str([doubled]))
        print(f"{doubled!r:>60}")
        return doubled


def test_print_while_capturing(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    compare(mode, Prints(), (x(),))
    printed = capsys.readouterr().out
    assert "FakeTensor" in printed
    assert "(3, 4)" in printed


class AsksTypes(nn.Module):
    """Questions that models ask of their inputs."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        assert isinstance(value, torch.Tensor)
        assert torch.is_tensor(value)
        assert not isinstance(value, nn.Parameter)
        assert value.device == torch.device("cpu")
        assert value.device.type == "cpu"
        assert not value.is_cuda
        assert value.is_contiguous()
        assert value.layout is torch.strided
        assert value.shape == (3, 4)
        assert value.size(-1) == 4
        assert value.stride() == (4, 1)
        assert value.numel() == len(value) * 4
        assert value.dim() == value.ndim == 2
        assert value.element_size() == 4
        assert torch.is_floating_point(value)
        assert value.dtype.is_floating_point
        assert value.requires_grad
        assert value.type() == "torch.FloatTensor"
        first, *rest = value
        assert len(rest) == 2
        return first + sum(rest)


def test_questions_about_tensors(mode: str) -> None:
    compare(mode, AsksTypes(), (x(),))
