"""Models that torch.compile made, and that have compiled parts, are captured as they were written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tintype

X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="eager")


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()


class InnerModule(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.layer = compiled(self.layer)


class InnerFunction(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.activation = compiled(torch.relu)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.layer(x))


class BesideABranchOnData(InnerModule):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = -x
        return self.layer(x)


def in_place() -> torch.nn.Module:
    model = Plain()
    model.compile(backend="eager")
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "whole": lambda: compiled(Plain()),
    "in place": in_place,
    "inner module": InnerModule,
    "inner function": InnerFunction,
    "branch": BesideABranchOnData,
    "function": lambda: compiled(lambda x: x.sin() + 1),
}


@pytest.mark.parametrize("called_before", [False, True])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_compiled_models_are_captured(name: str, strict: bool, called_before: bool) -> None:
    model = MODELS[name]()
    if called_before:
        model(X)
    program = tintype.export(model, (X,), strict=strict)
    for value in (X, X + 1):
        assert torch.allclose(program.module()(value), model(value))
    operators = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert all(
        isinstance(operator, torch._ops.OperatorBase) or operator.__name__ == "getitem" for operator in operators
    )


def test_a_compiled_model_has_the_names_of_the_model() -> None:
    assert list(tintype.export(compiled(Plain()), (X,)).state_dict) == ["layer.weight", "layer.bias"]


def test_what_is_compiled_is_compiled_again_afterwards() -> None:
    graphs = []

    def backend(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return module

    function = torch.compile(lambda x: x.sin() + 1, backend=backend)
    tintype.export(function, (X,))
    assert not graphs
    function(X)
    assert len(graphs) == 1
