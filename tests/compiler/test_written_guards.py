"""The code that asks guards and does calls: what is written once, and what is noticed all the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tintype


class Layer(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = 2.0
        self.number = number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) * self.scale
        return y.relu() if self.training else y


def layers(count: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer(number) for number in range(count)))


def scale(model: Any) -> None:
    model[2].scale = 3.0


def other_parameter(model: Any) -> None:
    model[2].linear.weight = nn.Parameter(torch.ones(3, 3))


def other_module(model: Any) -> None:
    model[2].linear = nn.Sequential(nn.Linear(3, 3), nn.Tanh())


def hook(model: Any) -> None:
    model[2].linear.register_forward_hook(lambda module, args, result: result + 1)


def mode(model: Any) -> None:
    model[2].eval()


def removal(model: Any) -> None:
    del model[2].linear
    model[2].linear = torch.tanh


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("change", [scale, other_parameter, other_module, hook, mode, removal])
def test_what_is_asked_of_all_layers_is_written_once_and_asked_of_each(change: Any, backend: str) -> None:
    model = layers()
    compiled = tintype.compile(lambda x: model(x), backend=backend)
    x = torch.randn(2, 3)
    for _ in range(2):
        assert torch.equal(compiled(x), model(x))
    assert compiled.engine.captures == 1
    assert compiled.engine.program.functions, "no guards of the layers are written once"
    change(model)
    for _ in range(2):
        assert torch.equal(compiled(x), model(x))
    assert compiled.engine.captures == (1 if change is other_parameter else 2)


def test_the_code_of_many_layers_grows_by_their_calls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from tintype.compiler import program

    lengths = []
    real = compile

    def measured(source: str, *args: Any) -> Any:
        lengths.append(len(source))
        return real(source, *args)

    monkeypatch.setattr(program, "compile", measured, raising=False)
    x = torch.randn(2, 3)
    for count in (8, 16):
        tintype.compile(layers(count))(x)
    few, many = lengths[0] + lengths[1], lengths[2] + lengths[3]
    assert (many - few) / 8 < 700, (few, many)


def fails_late(x: torch.Tensor, rows: int) -> torch.Tensor:
    try:
        y = (x + 1).sin() * 2
        z = y.view(rows, -1)
    except RuntimeError:
        return x - 1
    return z.cos()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_call_among_others_that_raises_what_the_program_catches(backend: str) -> None:
    compiled = tintype.compile(lambda x: fails_late(x, 4), backend=backend)
    fits, fits_not = torch.randn(2, 4), torch.randn(3, 3)
    for x in (fits, fits, fits_not, fits_not, fits):
        assert torch.equal(compiled(x), fails_late(x, 4))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_call_among_others_that_raises_what_nobody_catches(backend: str) -> None:
    def taken(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        try:
            return (x * 2).sin().index_select(0, index + 1) + 1
        finally:
            done.append(1)

    done: list[int] = []
    compiled = tintype.compile(taken, backend=backend)
    x, good, bad = torch.randn(3), torch.tensor([0, 1]), torch.tensor([7])
    for _ in range(2):
        assert torch.equal(compiled(x, good), taken(x, good))
    for _ in range(3):
        with pytest.raises(IndexError):
            compiled(x, bad)
        compiled(x, good)
    assert len(done) == 4 + 6


class FailsAtFirst:
    """A backend whose graphs fail once they are used, but for the first time."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, graph_module: Any, example_inputs: Any) -> Any:
        def run(*inputs: Any) -> Any:
            self.calls += 1
            raise RuntimeError("no memory for the graph")

        return run


def test_a_graph_of_a_backend_that_fails_is_done_call_by_call() -> None:
    backend = FailsAtFirst()
    names = [f"t{number}" for number in range(12)]

    def total(**tensors: torch.Tensor) -> torch.Tensor:
        result = tensors["t0"] * 2
        for name in names[1:]:
            result = result + tensors[name].sin()
        return result * 2

    compiled = tintype.compile(total, backend=backend)
    tensors = {name: torch.randn(3) for name in names}
    for _ in range(3):
        assert torch.equal(compiled(**tensors), total(**tensors))
    assert backend.calls == 2 and compiled.engine.captures == 1
