"""Programs that compute gradients themselves."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import tintype


class Forces(nn.Module):
    """What a model of energies gives: energies, and forces as their gradients."""

    def __init__(self, create_graph: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.energy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        self.register_buffer("calls", torch.zeros(()))
        self.create_graph = create_graph

    def forward(self, x: torch.Tensor) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            energy = self.energy(x).square()
            (force,) = torch.autograd.grad(energy.sum(), x, create_graph=self.create_graph)
        self.calls.add_(1)
        return energy, -force


class PerSample(nn.Module):
    """Gradients of each row by itself, of parameters that are given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> Any:
        def loss(parameters: Any, row: torch.Tensor) -> torch.Tensor:
            return functional_call(self.linear, parameters, (row.unsqueeze(0),)).square().sum()

        parameters = {name: value.detach() for name, value in self.linear.named_parameters()}
        return vmap(grad(loss), in_dims=(None, 0))(parameters, x)


def smooth(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x).tanh()


PROGRAMS: dict[str, Any] = {
    "autograd.grad": Forces,
    "autograd.grad with a graph": lambda: Forces(create_graph=True),
    "of each row": PerSample,
    "grad": lambda: lambda x: grad(lambda v: smooth(v).sum())(x),
    "grad of grad": lambda: lambda x: grad(lambda v: grad(lambda w: smooth(w).sum())(v).sum())(x),
    "jacrev": lambda: lambda x: jacrev(smooth)(x[:, 0]),
    "jacfwd": lambda: lambda x: jacfwd(smooth)(x[0]),
    "hessian": lambda: lambda x: hessian(lambda v: smooth(v).sum())(x[0]),
    "vjp": lambda: lambda x: vjp(smooth, x)[1](x.cos()),
    "jvp": lambda: lambda x: jvp(smooth, (x,), (x.cos(),)),
}


_OF_A_ROW = ("jacfwd", "hessian", "jvp")  # eager mode needs one, or the program asks whether there are rows


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_inside_of_a_program_are_operators(name: str, varies: bool) -> None:
    model = PROGRAMS[name]()
    shapes = ({0: tintype.Dim("n")},) if varies else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tintype.LostGradientWarning)
        program = tintype.export(model, (torch.randn(4, 3),), dynamic_shapes=shapes)
    program.validate()
    file = io.BytesIO()
    tintype.save(program, file)
    for module in (program.module(), program.run_decompositions().module(), tintype.load(file).module()):
        eager = copy.deepcopy(model)
        for size in (1, 6, *([] if name in _OF_A_ROW else [0])) if varies else (4, 4):
            x = torch.randn(size, 3)
            got, wanted = module(x.clone()), eager(x.clone())
            torch.testing.assert_close(torch.utils._pytree.tree_map(_plain, got), wanted, check_stride=False)
            assert x.grad is None
        if isinstance(model, Forces):
            assert module.calls == eager.calls


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def test_results_that_lost_their_gradients_are_named_and_have_none() -> None:
    with pytest.warns(tintype.LostGradientWarning, match="computes gradients itself"):
        program = tintype.export(Forces(create_graph=True), (torch.randn(4, 3),))
    assert not any(value.requires_grad for value in program.module()(torch.randn(4, 3, requires_grad=True)))


def test_the_model_is_as_it_was() -> None:
    model = Forces()
    flags = {name: (value.requires_grad, value.grad) for name, value in model.named_parameters()}
    tintype.export(model, (torch.randn(4, 3),))
    assert flags == {name: (value.requires_grad, value.grad) for name, value in model.named_parameters()}


def test_what_writes_gradients_is_refused() -> None:
    def backward(x: torch.Tensor) -> torch.Tensor:
        y = x.detach().requires_grad_()
        (y * y).sum().backward()
        assert y.grad is not None
        return y.grad

    with pytest.raises(tintype.CaptureError, match="computes gradients itself"):
        tintype.export(lambda x: backward(x), (torch.randn(3),))
    with pytest.raises(tintype.CaptureError, match="computes gradients itself"):
        tintype.export_for_training(Forces(), (torch.randn(4, 3),))
