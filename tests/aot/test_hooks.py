"""Hooks on gradients, gradients that are kept, and leaves that a function makes: as in eager mode, or refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tests.aot.comparison import check
from tintype.errors import CaptureError, MutationError, StateChangedError


def trained(model: nn.Module, compiled: bool, prepare: Callable[[nn.Module], Any]) -> list[Any]:
    """Gradients after each of three calls, and what ``prepare`` returned."""
    model = copy.deepcopy(model)
    noted = prepare(model)
    run = tintype.aot.module(model) if compiled else model
    gradients = []
    for _ in range(3):
        run(torch.arange(6.0).view(2, 3)).sin().sum().backward()
        gradients += [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return [*gradients, noted]


def doubling(model: nn.Module) -> list[str]:
    calls: list[str] = []

    def double(gradient: torch.Tensor) -> torch.Tensor:
        calls.append("double")
        return gradient * 2

    def more(gradient: torch.Tensor) -> torch.Tensor:
        calls.append("more")
        return gradient + 1

    model.weight.register_hook(double)  # type: ignore[union-attr, operator]
    model.weight.register_hook(more)  # type: ignore[union-attr, operator]
    return calls


def stepping(model: nn.Module) -> None:
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: (optimizers[p].step(), None)[1])


def gathering(model: nn.Module) -> list[int]:
    seen: list[int] = []
    torch.autograd.graph.register_multi_grad_hook(list(model.parameters()), lambda found: seen.append(len(found)))
    return seen


@pytest.mark.parametrize("prepare", [doubling, stepping, gathering])
def test_hooks_of_parameters_act_once(prepare: Any) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    found, expected = trained(model, True, prepare), trained(model, False, prepare)
    assert found.pop() == expected.pop()
    torch.testing.assert_close(found, expected)


def test_hooks_that_come_and_go_between_calls() -> None:
    model = nn.Linear(3, 1)
    compiled = tintype.aot.module(model)
    seen = []
    for number in range(4):
        handle = model.weight.register_hook(lambda gradient: gradient * 10) if number % 2 else None
        model.zero_grad()
        compiled(torch.ones(1, 3)).sum().backward()
        assert model.weight.grad is not None
        seen.append(model.weight.grad[0, 0].item())
        if handle is not None:
            handle.remove()
    assert seen == [1, 10, 1, 10]


def test_hooks_of_arguments_and_of_tensors_in_closures() -> None:
    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(lambda gradient: gradient * 3)
    compiled = tintype.aot.function(lambda x: x * weight)
    leaf = torch.ones(3, requires_grad=True)
    x = leaf * 1
    x.register_hook(lambda gradient: gradient * 5)
    compiled(x).sum().backward()
    assert (weight.grad, leaf.grad) == (pytest.approx([3] * 3), pytest.approx([5] * 3))


PUT_ON_WHAT_IS_GIVEN: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "a parameter": lambda model, x: model.weight.register_hook(lambda gradient: gradient * 2),
    "a parameter, accumulated": lambda model, x: model.weight.register_post_accumulate_grad_hook(lambda p: None),
    "an argument": lambda model, x: x.register_hook(lambda gradient: gradient * 2),
}


@pytest.mark.parametrize("where", PUT_ON_WHAT_IS_GIVEN)
def test_hooks_that_a_function_leaves_on_what_it_was_given_are_refused(where: str) -> None:
    class Model(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            PUT_ON_WHAT_IS_GIVEN[where](self, x)
            return super().forward(x)

    model, x = Model(3, 2), torch.ones(2, 3, requires_grad=True)
    model.weight.register_hook(lambda gradient: gradient)
    for _ in range(2):
        with pytest.raises(MutationError, match="puts a hook"):
            tintype.aot.module(model)(x)
    assert len(model.weight._backward_hooks or {}) == 1  # type: ignore[arg-type]
    assert not getattr(model.weight, "_post_accumulate_grad_hooks", None) and not x._backward_hooks


def test_a_hook_that_a_function_removes_again() -> None:
    model = nn.Linear(3, 2)

    def call(x: torch.Tensor) -> torch.Tensor:
        handle = model.weight.register_hook(lambda gradient: gradient * 2)
        handle.remove()
        return model(x)

    tintype.aot.function(call)(torch.ones(1, 3)).sum().backward()
    torch.testing.assert_close(model.weight.grad, torch.ones(2, 3))


def test_gradients_inside_of_a_function_of_tensors_with_hooks() -> None:
    def penalty(x: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
        return gradient.sum()

    compiled = tintype.aot.function(penalty)
    for derived in (False, True):
        x = torch.ones(3, requires_grad=True)
        given = x * 1 if derived else x
        torch.testing.assert_close(compiled(given), penalty(given))
        given.register_hook(lambda gradient: gradient * 2)
        with pytest.raises(CaptureError, match="has hooks"):
            compiled(given)


def test_gradients_inside_of_a_function_of_parameters_that_get_hooks_later() -> None:
    class Penalty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            (gradient,) = torch.autograd.grad((x * self.weight).pow(2).sum(), self.weight, create_graph=True)
            return gradient.sum()

    model, x = Penalty(), torch.ones(3)
    compiled = tintype.aot.module(model)
    torch.testing.assert_close(compiled(x), model(x))
    model.weight.register_hook(lambda gradient: gradient * 2)
    with pytest.raises(CaptureError, match="has hooks"):
        compiled(x)


def views_with_hooks(x: torch.Tensor) -> Any:
    whole = x * 2
    row = whole[0]
    row.register_hook(lambda gradient: gradient * 5)
    return row, row[1:], whole


def arguments() -> Any:
    x = torch.arange(6.0).view(2, 3).requires_grad_()
    return [x], [x]


def test_hooks_of_views_that_are_returned() -> None:
    compiled = tintype.aot.function(views_with_hooks)
    for number in range(3):
        gradients = []
        for function in (compiled, views_with_hooks):
            (x,), _ = arguments()
            function(x)[number].sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)


def test_gradients_that_are_kept() -> None:
    def of_argument(x: torch.Tensor) -> torch.Tensor:
        x.retain_grad()
        return x.sin()

    def of_result(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        y.retain_grad()
        return y

    leaf = torch.ones(3, requires_grad=True)
    x = leaf * 2
    tintype.aot.function(of_argument)(x).sum().backward()
    torch.testing.assert_close(x.grad, x.cos())
    y = tintype.aot.function(of_result)(leaf)
    (y * 3).sum().backward()
    torch.testing.assert_close(y.grad, torch.full((3,), 3.0))


def keeps_a_gradient(x: torch.Tensor) -> Any:
    y = x * 2
    y.retain_grad()
    return y, y.sin()


def makes_a_leaf(x: torch.Tensor) -> Any:
    leaf = x.detach().requires_grad_()
    return leaf, leaf.sin()


def makes_a_leaf_with_a_hook(x: torch.Tensor) -> Any:
    leaf = x.detach().requires_grad_()
    leaf.register_hook(lambda gradient: gradient * 2)
    return leaf


@pytest.mark.parametrize("function", [keeps_a_gradient, makes_a_leaf, makes_a_leaf_with_a_hook])
def test_gradients_of_one_result_by_another_are_refused_where_somebody_waits_for_them(function: Any) -> None:
    with pytest.raises(
        (CaptureError, MutationError), match=r"a tensor whose gradient|puts a hook on a tensor that it r"
    ):
        tintype.aot.function(function)(torch.ones(3, requires_grad=True))


def test_leaves_that_nothing_is_computed_from() -> None:
    check(lambda x: (x.detach().requires_grad_(), x * 2), arguments)


class Tells(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return torch.full((3,), float(sum(gradient is not None for gradient in gradients)))


def test_gradient_rules_that_ask_which_gradients_are_there() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(CaptureError, match="which gradients are there"):
        tintype.aot.function(Tells.apply)(x)
    tintype.aot.function(lambda x: Tells.apply(x)[0])(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(3))
    compiled = tintype.compile(Tells.apply, backend="aot_eager")
    for number in (0, 1, 0):
        y = torch.ones(3, requires_grad=True)
        compiled(y)[number].sum().backward()
        torch.testing.assert_close(y.grad, torch.ones(3))


def test_numbers_that_only_data_decide_are_not_kept() -> None:
    seen: list[Any] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.sum().item())
        return x * 2

    with pytest.raises(StateChangedError, match="keeps a tensor that it computed"):
        tintype.aot.function(call)(torch.ones(2))
    assert seen == []
