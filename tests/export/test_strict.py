"""strict=True: the program's code is interpreted, and the program is the same."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tests.conftest import export_strictly
from tintype.trace import watching


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(8, 4) for _ in range(2))
        self.out = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.1))

    @property
    def scale(self) -> float:
        return 4**-0.5

    def split(self, x: torch.Tensor, *, extra: float = 0.0) -> list[torch.Tensor]:
        return [head(x) * self.scale + extra for head in self.heads]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.cat(self.split(x, extra=1.0), -1))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"a": Attention(), "b": Attention()})
        self.register_buffer("calls", torch.zeros(()))

    @contextlib.contextmanager
    def noted(self):
        self.calls.add_(1)
        yield self.calls

    @torch.no_grad()
    def mask(self, x: torch.Tensor) -> torch.Tensor:
        return (x > 0).to(x.dtype)

    def forward(self, x: torch.Tensor, options: dict[str, Any] | None = None) -> dict[str, torch.Tensor]:
        with self.noted() as count:
            for name, layer in self.layers.items():
                residual = x
                x = layer(x) + residual
                if name == "a" and x.shape[0] > 1:
                    x = x * self.mask(x)
        total = sum(part.sum() for part in x.unbind(0)) if x.shape[1] == 8 else x
        return {"x": x, "total": total, "count": count + 0}


@pytest.fixture(params=[tintype.export, tintype.export_for_training], ids=["export", "training"])
def strictly(request):
    return functools.partial(export_strictly, request.param)


def test_the_same_program(strictly):
    model = Model().eval()
    program = strictly(model, (torch.randn(3, 8),))
    value = torch.randn(3, 8)
    expected = model(value)
    model.calls.sub_(1)
    torch.testing.assert_close(program.module()(value)["x"], expected["x"])


def test_sizes_that_vary(strictly):
    batch = tintype.Dim("batch", min=2)
    program = strictly(Attention(), (torch.randn(3, 8),), dynamic_shapes={"x": {0: batch}})
    assert program.module()(torch.randn(7, 8)).shape == (7, 8)


def test_functions_methods_partials_and_objects(strictly):
    class Scaler:
        def __call__(self, x):
            return x * 2

    def function(x, scale=3.0):
        return x * scale

    x = torch.randn(2, 8)
    for program in (function, functools.partial(function, scale=2.0), Scaler(), Attention().split, torch.sin):
        strictly(program, (x,))


def test_hooks_are_interpreted_too(strictly):
    model = Attention()
    model.out.register_forward_hook(lambda module, args, result: result * 2)
    model.heads[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    strictly(model, (torch.randn(2, 8),))


def test_joint_graphs():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 1)

        def forward(self, x, target):
            return nn.functional.mse_loss(self.linear(x), target)

    arguments = (torch.randn(4, 8), torch.randn(4, 1))
    model = Loss()
    strict = tintype.export_joint(model, arguments, strict=True)
    assert strict.code == tintype.export_joint(model, arguments).code


def test_every_line_of_the_users_is_interpreted(monkeypatch):
    """And what isn't the user's is not, but for what stands between the user's code."""
    asked = {}

    class Noting(watching.StrictPolicy):
        def interprets(self, function):
            asked[function.__qualname__] = super().interprets(function)
            return asked[function.__qualname__]

    monkeypatch.setattr(watching, "StrictPolicy", Noting)
    tintype.export(Model(), (torch.randn(3, 8),), strict=True)
    seen = {name.rpartition(".")[2] for name, is_seen in asked.items() if is_seen and "Sequential" not in name}
    assert {"forward", "split", "scale", "noted", "mask", "<genexpr>"} <= seen
    assert asked["Model.forward"] and asked["Attention.forward"] and asked["Sequential.forward"]
    assert not asked["Linear.forward"] and not asked["Module.__getattr__"]


def test_questions_and_branches_on_sizes_have_their_lines(strictly):
    def function(x):
        if x.is_contiguous() and x.requires_grad is False:
            return x + 1
        return x

    program = strictly(function, (torch.randn(3, 8),))
    assert "is_contiguous" in str(program.contract())

    def on_sizes(x):
        if x.shape[0] > 5:
            raise ValueError("too long")
        return x * 2

    strictly(on_sizes, (torch.randn(3, 8),), dynamic_shapes="auto")


def test_what_the_program_raises_is_its_own():
    def function(x):
        return {}["missing"]

    with pytest.raises(KeyError, match="missing") as caught:
        tintype.export(function, (torch.ones(2),), strict=True)
    assert caught.traceback[-1].name == "function"

    def decides(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(tintype.CaptureError) as refused:
        tintype.export(decides, (torch.ones(2),), strict=True, control_flow="refuse")
    assert refused.value.location is not None
    assert refused.value.location.line == decides.__code__.co_firstlineno + 1


def test_the_model_is_left_as_it_was():
    from tintype.symbolic import location

    model = Model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tintype.export(model, (torch.randn(3, 8),), strict=True)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert location._stack is location.NATIVE
