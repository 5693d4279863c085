"""Gradients of a program don't depend on what the example required gradients for."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import capture, targets


class Model(nn.Module):
    """Some state, and a function that gets it."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.randn(4))
        self.register_buffer("average", torch.ones(4))
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def mean(model: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        factor = x.mean()
    return x * factor


def frozen_layer(model: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        hidden = model.layer(x)
    return hidden * model.scale + x


def running_average(model: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        model.average.lerp_(x.mean(0), 0.1)
    return x - model.average


def average_in_steps(model: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        model.average.mul_(0.9)
        model.average.add_(0.1 * x.mean(0))
    return (x - model.average) * model.scale


def history_in_a_buffer(model: Any, x: torch.Tensor) -> Any:
    model.average.copy_(x.mean(0))
    with torch.no_grad():
        factor = model.average * 2
    return x * factor


def enabled_inside(model: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        hidden = model.layer(x)
        with torch.enable_grad():
            inner = x.sin() * model.scale
        hidden = hidden * 2
    return hidden + inner


def written_without_gradients(model: Any, x: torch.Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        y.clamp_(-0.5, 0.5)
    return y * x


def view_written_without_gradients(model: Any, x: torch.Tensor) -> Any:
    y = x * model.scale
    with torch.no_grad():
        y[0].mul_(3)
    return y * x


def detached_and_written(model: Any, x: torch.Tensor) -> Any:
    y = x * 1
    y.detach().add_(1)
    return y * x


def data_written(model: Any, x: torch.Tensor) -> Any:
    y = x * model.scale
    y.data.mul_(2)
    return y * x


def one_of_several(model: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        values, order = x.sort(dim=0)
    return x * values + order


def branch(model: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,))
    return y * x


def returned(model: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        return model.layer(x), x * 1


def switched(model: Any, x: torch.Tensor) -> Any:
    torch.set_grad_enabled(False)
    total = x.sum()
    torch.set_grad_enabled(True)
    return x * total * model.scale


def detached(model: Any, x: torch.Tensor) -> Any:
    return x.detach() * x + model.scale.detach() * model.layer(x)


def detached_in_place(model: Any, x: torch.Tensor) -> Any:
    y = x * model.scale
    before = y + 1
    y.detach_()
    y.add_(model.scale)
    return y * x, before


def masks(model: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        positive, large = x > 0, x.abs().max() > 0.5
    return torch.where(positive, x, -x) * 2 + large


FUNCTIONS = [
    mean, frozen_layer, running_average, average_in_steps, history_in_a_buffer, enabled_inside,
    written_without_gradients, view_written_without_gradients, detached_and_written, data_written, one_of_several,
    branch, returned, switched, detached, detached_in_place, masks,
]  # fmt: skip
FLAGS = list(itertools.product((False, True), repeat=2))


def results(module: nn.Module, x: torch.Tensor) -> Any:
    """What a call gives: results, whether they have a history, the gradients of everything."""
    found = module(x)
    found = found if isinstance(found, tuple) else (found,)
    tracked = [result for result in found if result.requires_grad]
    if tracked:
        sum((result * torch.arange(result.numel()).view_as(result)).sum() for result in tracked).backward()
    parameters = dict(sorted(module.named_parameters()))
    gradients = [leaf.grad for leaf in (x, *parameters.values())]
    return [result.detach() for result in found], [result.requires_grad for result in found], gradients


@pytest.mark.parametrize("function", FUNCTIONS)
def test_flags_of_the_example_don_t_matter(mode: str, function: Any) -> None:
    model = Model(function)
    for example_flags in FLAGS:
        example = copy.deepcopy(model)
        example.requires_grad_(example_flags[0])
        program = capture(mode, example, (torch.randn(3, 4, requires_grad=example_flags[1]),))
        for flags in FLAGS:
            eager = copy.deepcopy(model)
            module = tintype.unflatten(program) if mode == "unflattened" else copy.deepcopy(program.module())
            for parameter in (*eager.parameters(), *module.parameters()):
                parameter.requires_grad_(flags[0])
                parameter.grad = None
            x = torch.randn(3, 4)
            expected = results(eager, x.clone().requires_grad_(flags[1]))
            got = results(module, x.clone().requires_grad_(flags[1]))
            torch.testing.assert_close(got[0], expected[0])
            assert got[1] == expected[1], (example_flags, flags)
            for mine, theirs in zip(got[2], expected[2], strict=True):
                nothing = torch.zeros(())
                same = torch.allclose(nothing if mine is None else mine, nothing if theirs is None else theirs)
                assert same, (example_flags, flags)


def rotary(model: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        angles = torch.outer(torch.arange(3).to(x.dtype), model.average)
        cosine, sine = angles.cos(), angles.sin()
    return x * cosine + x * sine


def order_alone(model: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        _, order = x.sort(dim=0)
    return x.gather(0, order)


def filled(model: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        ones = x.new_ones(4)
        ones[0] = 2.0
    return x * ones


@pytest.mark.parametrize(("function", "count"), [(masks, 0), (order_alone, 0), (filled, 0), (mean, 1), (rotary, 1)])
def test_only_what_carries_a_gradient_out_is_cut(function: Any, count: int) -> None:
    program = tintype.export(Model(function), (torch.randn(3, 4),))
    cuts = [node for node in program.graph.nodes if node.target is torch.ops.aten.detach.default]
    floating = [node for node in cuts if node.args[0].meta["val"].dtype.is_floating_point]
    assert len(floating) == count, targets(program)


class Questions(nn.Module):
    """Answers in numbers whether something of it requires a gradient."""

    def __init__(self, ask: Any) -> None:
        super().__init__()
        self.ask = ask
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("average", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tensor = self.ask(self, torch.zeros(3), x)
        return x + (2 * tensor.requires_grad + tensor.is_leaf)


def after(tensor: torch.Tensor, *steps: Any) -> torch.Tensor:
    return tensor


ASKED: dict[str, Any] = {
    "written to": lambda m, y, x: y.copy_(m.weight),
    "a view written to": lambda m, y, x: after(y, y[1:].add_(m.weight[1:])),
    "written to before it is a view": lambda m, y, x: after(y[1:], y.copy_(m.weight)),
    "computed from what was written to": lambda m, y, x: after(y, y[1:].copy_(m.weight[1:])) * 2,
    "a buffer": lambda m, y, x: after(m.average, m.average.copy_(m.weight)),
    "a view of a buffer": lambda m, y, x: after(m.average[1:], m.average.mul_(m.weight)),
    "an input": lambda m, y, x: after(x, x[1:].add_(m.weight[1:])),
    "written to without gradients": lambda m, y, x: after(y, torch.no_grad()(lambda: y.copy_(m.weight))()),
    "written to with the data": lambda m, y, x: after(y, y.copy_(m.weight.detach())),
    "apart from what is written to": lambda m, y, x: after(y.detach(), y.copy_(m.weight)),
    "overwritten": lambda m, y, x: (m.weight * 2).zero_(),
    "detached": lambda m, y, x: m.weight.detach(),
    "computed from what is detached": lambda m, y, x: m.weight.detach() * 2,
    "detached in place": lambda m, y, x: (m.weight * 2).detach_(),
    "counted": lambda m, y, x: torch.histc(m.weight, 3),
    "a view made without gradients": lambda m, y, x: torch.no_grad()(lambda: m.weight[1:])(),
    "a view of a view made without gradients": lambda m, y, x: torch.no_grad()(lambda: m.weight[1:])()[1:],
    "a view made without gradients of what is computed": lambda m, y, x: torch.no_grad()((m.weight * 2).view)(3, 1),
    "a view made without gradients, written to": lambda m, y, x: torch.no_grad()(lambda: y.copy_(m.weight)[1:])(),
    "detached in place, made by a conversion": lambda m, y, x: after(z := m.weight * 2, z.float().detach_()),
    "detached in place, given to a conversion": lambda m, y, x: after((z := m.weight * 2).float(), z.detach_()),
    "detached in place, made by an idle dropout": lambda m, y, x: after(
        z := m.weight * 2, torch.nn.functional.dropout(z, training=False).detach_()
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_who_requires_a_gradient_after_a_write(name: str, mode: str) -> None:
    program = capture(mode, Questions(ASKED[name]), (torch.ones(3),))
    module = tintype.unflatten(program) if mode == "unflattened" else program.module()
    torch.testing.assert_close(module(torch.ones(3)), Questions(ASKED[name])(torch.ones(3)))


def test_the_history_of_a_view_that_eager_mode_does_not_tell_is_refused() -> None:
    def ask(model: Any, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        z = model.weight * 2
        with torch.no_grad():
            view = z[1:]
        return after(view, z.mul_(2))

    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        Questions(ask)(torch.ones(3))
    with pytest.raises(tintype.errors.TintypeError, match="a view that was made without gradients"):
        tintype.export(Questions(ask), (torch.ones(3),))


def test_what_was_written_through_a_view_is_held_to_be_like_the_example() -> None:
    model = Questions(lambda m, y, x: after(y, y[1:].copy_(x[1:])))
    module = tintype.export(model, (torch.ones(3),)).module()
    torch.testing.assert_close(module(torch.ones(3)), model(torch.ones(3)))
    with pytest.raises(tintype.errors.InputMismatchError, match="requires_grad to be False, but got True"):
        module(torch.ones(3).requires_grad_())
