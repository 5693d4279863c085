"""Modules of TorchScript inside of models of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.interop.torchscript.comparing import from_file
from tintype import Dim

X = torch.linspace(-2.0, 3.0, 12).reshape(3, 4)
ROWS = {"x": {0: Dim("rows", min=1)}}


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))
        self.calls = 0
        self.factor = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.total += x.sum(0)
        if x.sum() > 0:
            return self.layer(x) + self.calls
        return x - self.total

    @torch.jit.export
    def both(self, x: torch.Tensor, scale: float = 2.0) -> list[torch.Tensor]:
        return [self.layer(x) * scale, x]


def once(inner: Any, x: torch.Tensor) -> Any:
    return inner(x)


def by_name(inner: Any, x: torch.Tensor) -> Any:
    return inner(x=x) + 1


def twice(inner: Any, x: torch.Tensor) -> Any:
    return inner(inner(x) * 2)


def another_method(inner: Any, x: torch.Tensor) -> Any:
    return inner.both(x, scale=3.0)


def a_layer_of_it(inner: Any, x: torch.Tensor) -> Any:
    return inner.layer(x) + inner.layer.weight.sum()


def its_attributes(inner: Any, x: torch.Tensor) -> Any:
    return inner(x) * inner.factor + inner.calls


class Outer(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module, use: Callable[..., Any] = once) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.inner = inner
        self.use = use

    def forward(self, x: torch.Tensor) -> Any:
        return self.use(self.inner, self.first(x))


@pytest.mark.parametrize("use", [once, by_name, twice, another_method, a_layer_of_it, its_attributes])
@pytest.mark.parametrize("source", [lambda script: script, from_file], ids=["scripted", "loaded"])
@pytest.mark.parametrize("strict", [False, True])
def test_a_script_in_a_model(use: Any, source: Any, strict: bool) -> None:
    model = Outer(source(torch.jit.script(Inner())), use)
    kinds = [type(module) for module in model.modules()]
    program = tintype.export(model, (X,), dynamic_shapes=ROWS, strict=strict)
    assert [type(module) for module in model.modules()] == kinds
    assert model.inner.calls == 0 and not model.inner.total.any()
    assert {"inner.layer.weight", "first.weight"} <= set(program.graph_signature.parameters)
    module = program.module()
    for x in (X, -X, X[:1], torch.cat([X, X])):
        torch.testing.assert_close(module(x), model(x))
    assert module.get_buffer("inner.calls").item() == model.inner.calls
    torch.testing.assert_close(module.get_buffer("inner.total"), model.inner.total)


def test_gradients_and_modules_of_the_tree() -> None:
    model = Outer(from_file(torch.jit.script(Inner())))
    program = tintype.export(model, (X,))
    module = program.module()
    model(X).sum().backward()
    module(X).sum().backward()
    found = {name: parameter.grad for name, parameter in module.named_parameters()}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)
    assert "inner.layer" in [entry.fqn for entry in program.module_call_graph]


def test_a_script_that_is_there_twice_and_one_that_fails() -> None:
    script = torch.jit.script(Inner())
    model = torch.nn.Sequential(script, torch.nn.ReLU(), script)
    module = tintype.export(model, (X,)).module()
    for x in (X, -X):
        torch.testing.assert_close(module(x), model(x))

    def fails(inner: Any, x: torch.Tensor) -> Any:
        inner(x)
        raise ValueError("the user's")

    failing = Outer(script, fails)
    with pytest.raises(ValueError, match="the user's"):
        tintype.export(failing, (X,))
    assert failing.inner is script


def test_a_script_that_is_no_submodule_is_refused_by_name() -> None:
    script = torch.jit.script(Inner())

    def elsewhere(x: torch.Tensor) -> Any:
        return script(x) * 2  # the call

    with pytest.raises(
        tintype.CaptureError, match="calls Inner, a module of TorchScript that is no submodule"
    ) as refused:
        tintype.export(elsewhere, (X,))
    assert refused.value.location is not None
    assert refused.value.location.line == elsewhere.__code__.co_firstlineno + 1
