"""Programs as stages, one after the other, against the whole model; tests/trace/distributed_programs.py runs them in
processes."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tintype.errors import InvalidRequestError


def run(stages: list[Any], *args: Any, **kwargs: Any) -> Any:
    """One stage after the other."""
    values = stages[0](*args, **kwargs)
    for stage in stages[1:]:
        values = stage(*values) if isinstance(values, tuple) else stage(values)
    return values


class Skipping(nn.Module):
    """Layers that need what was given to the first, sizes, a frozen table that several use, and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("table", torch.randn(4), persistent=False)

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor | None = None) -> Any:
        y = x
        for layer in self.layers:
            y = torch.tanh(layer(y)) * x.shape[0] + self.table
        y = self.norm(y)
        first, _ = y.split(2, dim=1)
        return (y if mask is None else y.masked_fill(mask, 0.0)).reshape(x.shape[0] * 2, 2), first


FORMS: dict[str, Callable[[Any], Any]] = {
    "functional": lambda program: program,
    "core": lambda program: program.run_decompositions(),
}


@pytest.mark.parametrize("capture", [tintype.export, tintype.export_for_training], ids=["export", "training"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("varies", [False, True])
def test_stages_do_what_the_model_does(capture: Any, form: str, varies: bool) -> None:
    torch.manual_seed(0)
    model = Skipping()
    shapes = {"x": {0: tintype.Dim("n")}, "mask": {0: tintype.Dim("n")}} if varies else None
    mask = torch.rand(5, 1) > 0.5
    program = FORMS[form](capture(model, (torch.randn(5, 4),), {"mask": mask}, dynamic_shapes=shapes))
    stages = tintype.split(program, at=["layers.1", "layers.3", "norm"])
    assert len(stages) == 4
    for size in (5, 2, 9) if varies else (5, 5):
        x, mask = torch.randn(size, 4), torch.rand(size, 1) > 0.5
        got, wanted = run(stages, x, mask=mask), model(x, mask=mask)
        torch.testing.assert_close(got, wanted)
        gradients = []
        for modules, results in ((stages, got), ([model], wanted)):
            sum(result.square().sum() for result in results).backward()
            gradients.append({n: p.grad for module in modules for n, p in module.named_parameters()})
            for module in modules:
                module.zero_grad()
        torch.testing.assert_close(*gradients)
    state = {name: value for stage in stages for name, value in stage.state_dict().items()}
    torch.testing.assert_close(state, dict(model.state_dict()))  # statistics too
    assert [list(stage.state_dict()) for stage in stages[:2]] == [
        ["layers.0.weight", "layers.0.bias"],
        ["layers.1.weight", "layers.1.bias", "layers.2.weight", "layers.2.bias"],
    ]


def test_stages_of_a_loaded_program(tmp_path: Any) -> None:
    model, x = Skipping().eval(), torch.randn(5, 4)
    tintype.save(tintype.export(model, (x,)), tmp_path / "program.tt")
    stages = tintype.split(tintype.load(tmp_path / "program.tt"), at=["layers.2"])
    torch.testing.assert_close(run(stages, x), model(x))
    torch.testing.assert_close(run([copy.deepcopy(stage) for stage in stages], x), model(x))
    with pytest.raises(tintype.InputMismatchError):
        stages[0](torch.randn(6, 4))


def test_control_flow_in_stages() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            y = tintype.cond(y.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (y,))
            y = self.second(y)
            return tintype.cond(y.sum() > 0, lambda v: v + 1, lambda v: v - 1, (y,))

    model = Branching()
    stages = tintype.split(tintype.export(model, (torch.randn(2, 3),)), at=["second"])
    for _ in range(4):
        x = torch.randn(2, 3)
        torch.testing.assert_close(run(stages, x), model(x))


def test_other_containers_are_tuples_at_the_end() -> None:
    class Named(nn.Sequential):
        def forward(self, x: torch.Tensor) -> Any:
            y = super().forward(x)
            return {"y": y, "more": [x]}

    model, x = Named(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)), torch.randn(4, 3)
    got = run(tintype.split(tintype.export(model, (x,)), at=["1"]), x)
    torch.testing.assert_close(got, (model(x)["y"], x))


def test_one_stage_is_the_program() -> None:
    (stage,) = tintype.split(tintype.export(nn.ReLU(), (torch.ones(3),)), at=[])
    assert torch.equal(stage(torch.tensor([-1.0, 0.0, 1.0])), torch.tensor([0.0, 0.0, 1.0]))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.middle = nn.Embedding(5, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.middle(self.embedding(x)) @ self.embedding.weight.t()


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.ReLU(), nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        number = int(self.first(x).sum().item())
        return self.second(x) + number


REFUSED: dict[str, tuple[Any, Any, Any]] = {
    r"calls no module 'nowhere'.*name modules that it calls: '0', '1'": (
        nn.Sequential(nn.ReLU(), nn.Tanh()),
        torch.ones(2),
        ["nowhere"],
    ),
    "'0' does not begin after '1'": (nn.Sequential(nn.ReLU(), nn.Tanh()), torch.ones(2), ["1", "0"]),
    "'embedding.weight' is used by stages 0 and 1, and is trained": (Tied(), torch.tensor([1]), ["middle"]),
    "is no tensor, and a later stage needs it": (Counting(), torch.ones(2), ["second"]),
    "at is a list of names": (nn.ReLU(), torch.ones(2), "0"),
    "writes to its input 'x'": (nn.Sequential(nn.ReLU(inplace=True), nn.Tanh()), torch.ones(2), ["1"]),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_cut_is_refused(text: str) -> None:
    model, x, at = REFUSED[text]
    program = tintype.export(model, (x,))
    with pytest.raises(InvalidRequestError, match=re.compile(text.replace("'x'", "'(x|input)'"), re.DOTALL)):
        tintype.split(program, at=at)


def test_a_weight_that_is_not_trained_may_be_in_several_stages() -> None:
    model, x = Tied().requires_grad_(False), torch.tensor([1, 4])
    torch.testing.assert_close(run(tintype.split(tintype.export(model, (x,)), at=["middle"]), x), model(x))


def test_only_programs_are_cut() -> None:
    with pytest.raises(InvalidRequestError, match="split takes an ExportedProgram, but got a ReLU"):
        tintype.split(nn.ReLU(), at=[])  # type: ignore[arg-type]
