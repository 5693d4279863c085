"""Gradients by tensors that the function makes itself, inside of it and outside."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype


def by_a_result(x: torch.Tensor) -> Any:
    y = x * 2
    return torch.autograd.grad((y * y).sum(), y)[0]


def kept_gradient(x: torch.Tensor) -> Any:
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad, x.grad


def backward_to_inputs(x: torch.Tensor) -> Any:
    y = x.exp()
    (y * 2).sum().backward(inputs=[y])
    return y.grad


def hooked(x: torch.Tensor) -> Any:
    y = x * 2
    y.register_hook(lambda gradient: gradient * 5)
    (y * y).sum().backward()
    return x.grad


def hooked_leaf(x: torch.Tensor) -> Any:
    y = x.detach().requires_grad_()
    y.register_hook(lambda gradient: gradient * 5)
    (y * y).sum().backward()
    return y.grad


def detached(x: torch.Tensor) -> Any:
    y = x.detach().requires_grad_()
    (y * y).sum().backward()
    return y.grad


def detached_twice(x: torch.Tensor) -> Any:
    y = x.detach()
    y.requires_grad_(False)
    z = y.requires_grad_()
    (z * z).sum().backward()
    return y.grad


def detached_inplace(x: torch.Tensor) -> Any:
    y = (x * 1).detach_().requires_grad_()
    (y * x).sum().backward()
    return y.grad, x.grad


def by_keyword(x: torch.Tensor) -> Any:
    y = torch.ones(2, requires_grad=True)
    z = torch.zeros_like(x, requires_grad=True)
    u = x.new_ones(2, requires_grad=True)
    v = torch.tensor([1.0, 2.0], requires_grad=True)
    ((y + z) * u * v * x).sum().backward()
    return y.grad, z.grad, u.grad, v.grad, x.grad


def by_attribute(x: torch.Tensor) -> Any:
    y = x.detach().clone()
    y.requires_grad = True
    (y * x).sum().backward()
    return y.grad


def new_parameter(x: torch.Tensor) -> Any:
    y = torch.nn.Parameter(x.detach().clone())
    (y * x).sum().backward()
    return y.grad


def without_gradients_first(x: torch.Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        z = (y * 3).requires_grad_()
    (z.sin() * y).sum().backward()
    return z.grad, x.grad


def by_both(x: torch.Tensor) -> Any:
    y = x * 2
    z = y.detach().requires_grad_()
    return torch.autograd.grad((z.sin() * y).sum(), [z, y])


def list_of_leaves(x: torch.Tensor) -> Any:
    leaves = [x.detach()[position].requires_grad_() for position in range(2)]
    return torch.autograd.grad(torch.stack([leaf * leaf for leaf in leaves]).sum(), leaves)


def penalty(x: torch.Tensor) -> Any:
    y = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad((y * y * y * x).sum(), y, create_graph=True)
    return (gradient * gradient).sum()


def penalty_by_position(x: torch.Tensor) -> Any:
    y = x.detach().requires_grad_()
    loss = (y * y * y).sum()
    gradient = torch.autograd.grad(loss, y, None, True, True)[0]
    (gradient.norm() - 1).pow(2).backward()
    return y.grad


def written_leaf(x: torch.Tensor) -> Any:
    y = x.detach().clone().requires_grad_()
    for _ in range(2):
        y.grad = None
        (y * y).sum().backward()
        with torch.no_grad():
            y -= 0.1 * y.grad  # type: ignore[operator]
    return y.detach()


def adversarial(x: torch.Tensor) -> Any:
    weight = torch.linspace(-1, 1, 2)
    y = (x * 1.0).detach().requires_grad_()
    loss = ((y * weight).tanh() ** 2).sum()
    loss.backward()
    assert y.grad is not None
    return (y + 0.1 * y.grad.sign()).detach()


def returned_leaf(x: torch.Tensor) -> Any:
    y = x.clone().detach().requires_grad_(True)
    return y, (y * y).sum()


def returned_result(x: torch.Tensor) -> Any:
    y = x * 2
    return y, (y * y).sum()


def returned_with_a_write(x: torch.Tensor) -> Any:
    y = x * 2
    z = (y + 1).sum()
    y.mul_(3)
    return y, z + (y * y).sum()


def returned_view(x: torch.Tensor) -> Any:
    y = (x * 2).view(1, 2)
    return y, (y * y).sum() + (y.exp()).sum()


def returned_in_a_dictionary(x: torch.Tensor) -> Any:
    states = []
    for _ in range(3):
        x = (x * 1.5).sin()
        states.append(x)
    return {"states": states, "loss": x.sum()}


PROGRAMS = [
    *(
        by_a_result,
        kept_gradient,
        backward_to_inputs,
        hooked,
        hooked_leaf,
        detached,
        detached_twice,
        detached_inplace,
    ),
    *(by_keyword, by_attribute, new_parameter, without_gradients_first, by_both, list_of_leaves, penalty),
    *(penalty_by_position, written_leaf, adversarial, returned_leaf, returned_result, returned_with_a_write),
    *(returned_view, returned_in_a_dictionary),
]


def outcome(function: Callable[..., Any], call: int, *, requires_grad: bool) -> str:
    """What a call gives, and the gradients by what it returns."""
    torch.manual_seed(call)
    x = torch.randn(2).requires_grad_(requires_grad)
    try:
        result = function(x)
    except RuntimeError as error:
        return str(error)
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    gradients: list[Any] = []
    if len(tensors) > 1 and tensors[-1].requires_grad:
        for tensor in tensors[:-1]:
            if tensor.requires_grad and not tensor.is_leaf:
                tensor.retain_grad()
        tensors[-1].backward()
        gradients = [tensor.grad for tensor in tensors[:-1]]
    return re.sub(r"grad_fn=<\w+>", "grad_fn", str((result, x.grad, gradients)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "custom"])
@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_gradients_are_eager_modes(function: Callable[..., Any], requires_grad: bool, backend: str) -> None:
    def custom(module: Any, examples: Any) -> Any:
        return tintype.aot.function(module.forward)

    compiled = tintype.compile(function, backend=custom if backend == "custom" else backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in range(3):
            expected = outcome(function, call, requires_grad=requires_grad)
            assert outcome(compiled, call, requires_grad=requires_grad) == expected


def test_graphs_end_only_where_others_get_a_tensor_with_its_history() -> None:
    def program(x: torch.Tensor) -> Any:
        hidden = (x * 2).sin()
        return hidden.exp().sum(), hidden

    graphs: list[int] = []

    def counting(module: Any, examples: Any) -> Any:
        graphs.append(len(module.graph.find_nodes(op="output")))
        return module.forward

    tintype.compile(program, backend=counting)(torch.ones(2))
    assert len(graphs) == 1
    tintype.compile(program, backend=counting)(torch.ones(2, requires_grad=True))
    assert len(graphs) == 3
