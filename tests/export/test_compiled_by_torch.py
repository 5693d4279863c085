"""Modules of programs under other people's tools: torch.compile, deepcopy, counters, parametrizations."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.flop_counter import FlopCounterMode

import tintype

X = torch.linspace(-1, 1, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dynamo warns of what it does not look into
        yield
    torch._dynamo.reset()


def layers() -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    return tintype.export(model, (X,), dynamic_shapes={"input": {0: tintype.Dim("batch")}})


def test_the_operators_of_a_program_are_compiled() -> None:
    seen: list[str] = []

    def backend(graph_module: Any, example_inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph_module.graph.nodes if node.op == "call_function")
        return graph_module

    program = layers()
    compiled = torch.compile(program.module(), backend=backend)
    assert torch.equal(compiled(X), program.module()(X))
    assert [name for name in seen if "linear" in name] and [name for name in seen if "relu" in name]


def test_a_compiled_program_takes_other_sizes_and_gives_gradients() -> None:
    program = layers()
    compiled = torch.compile(program.module(), backend="aot_eager")
    for size in (3, 3, 5):
        x = torch.randn(size, 4)
        assert torch.equal(compiled(x), program.module()(x))
    compiled(X).sum().backward()
    assert program.state_dict["0.weight"].grad is not None


def test_a_program_that_writes_to_its_state() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> Any:
            self.count.add_(1)
            return {"y": x * self.count}

    program = tintype.export(Counting(), (X,))
    module, compiled = program.module(), torch.compile(program.module(), backend="aot_eager")
    for _ in range(3):
        assert torch.equal(compiled(X)["y"], module(X)["y"])


def test_a_program_inside_of_a_model_that_is_compiled() -> None:
    class Outer(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x * 2) + 1

    program = layers()
    compiled = torch.compile(Outer(program.module()), backend="aot_eager")
    for size in (3, 4):  # the entry of the program is made in the first call
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x), program.module()(x * 2) + 1)


def test_inputs_are_still_checked() -> None:
    compiled = torch.compile(layers().module(), backend="eager")
    compiled(X)
    with pytest.raises(tintype.InputMismatchError):
        compiled(torch.ones(3, 5))


def test_copies_counters_and_parametrizations() -> None:
    module = layers().module()
    copied = copy.deepcopy(module)
    assert torch.equal(copied(X), module(X))
    with FlopCounterMode(display=False) as counter:
        module(X)
    assert counter.get_total_flops() == 2 * 3 * 4 * 4

    class Doubled(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight * 2

    before = module(X)
    parametrize.register_parametrization(module.get_submodule("0"), "weight", Doubled())
    assert not torch.equal(module(X), before)
    with torch.profiler.profile() as profile:
        module(X)
    assert any("linear" in event.key or "addmm" in event.key for event in profile.key_averages())
