"""Custom gradients and hooks that a program can't keep are named in one warning; joint graphs keep them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import checkpoint

import tintype
from tests.export.modes import assert_same
from tintype import LostGradientWarning


class Rounded(torch.autograd.Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0]


class Reversed(torch.autograd.Function):
    """Gradient reversal, which does nothing but that."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return -gradients[0]


class WithContext(torch.autograd.Function):
    """The newer style."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0] * ctx.saved_tensors[0]


rounded = Rounded.apply


def messages(export: Callable[..., Any], model: Any, *args: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export(model, args)
    found = [warning for warning in caught if warning.category is LostGradientWarning]
    assert all(warning.filename == __file__ for warning in found), "it points at the call of export"
    return [str(warning.message) for warning in found]


X = torch.tensor([0.3, 1.7])
FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "straight through": (lambda x: rounded(x) * 2, "Rounded"),
    "reversal": (lambda x: Reversed.apply(x), "Reversed"),
    "setup_context": (lambda x: WithContext.apply(x) + 1, "WithContext"),
    "in a branch": (lambda x: tintype.cond(x.sum() > 0, lambda y: rounded(y), lambda y: y * 1, (x,)), "Rounded"),
}


@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_named_with_their_line(name: str, requires_grad: bool, export: Any) -> None:
    model, function = FUNCTIONS[name]
    (text,) = messages(export, model, X.clone().requires_grad_(requires_grad))
    assert text.startswith("[lost-gradient]")
    assert f"the backward of {__name__}.{function}  # {__file__}:" in text
    assert "What to do" in text and "export_joint" in text


class Hooked(torch.nn.Module):
    """Hooks of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.layer.register_full_backward_hook(self.after)
        self.layer.register_full_backward_pre_hook(self.before)

    def after(self, module: Any, inputs: Any, outputs: Any) -> None:
        pass

    def before(self, module: Any, outputs: Any) -> None:
        pass

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.layer(x)
        result.register_hook(lambda gradient: gradient * 2)
        return result


def test_hooks_are_named_in_the_same_warning() -> None:
    (text,) = messages(tintype.export, Hooked(), X)
    for hook in (
        "Hooked.after of module 'layer'",
        "Hooked.before of module 'layer'",
        "gradient of a tensor (Hooked.",
    ):
        assert hook in text
    assert text.count(__file__) == 3


def test_nothing_is_said_where_nothing_is_lost() -> None:
    layer = torch.nn.Linear(2, 2)

    def recomputed(x: torch.Tensor) -> torch.Tensor:
        return checkpoint.checkpoint(layer, x, use_reentrant=False)

    assert not messages(tintype.export, recomputed, X.clone().requires_grad_())
    assert not messages(tintype.export, torch.nn.TransformerEncoderLayer(2, 1, 4), torch.ones(3, 1, 2))
    with torch.no_grad():
        assert not messages(tintype.export, FUNCTIONS["straight through"][0], X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = tintype.export(FUNCTIONS["straight through"][0], (X,))
    assert not messages(tintype.export, program.module(), X)


def test_what_the_warning_recommends_keeps_them() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (Reversed.apply(rounded(x)) * torch.tensor([2.0, 3.0])).sum()

    assert not messages(tintype.export_joint, loss, X.clone().requires_grad_())
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostGradientWarning)
        tintype.aot.function(loss)(x).backward()
    loss(y).backward()
    assert_same(x.grad, y.grad)


def test_a_flag_that_the_program_sets() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.detach().requires_grad_() ** 2).sum()

    (text,) = messages(tintype.export, function, X.clone())
    assert "requires_grad_() of a tensor" in text and "in function" in text


class FreezesItself(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.linear.weight.requires_grad_(False)
        return self.linear(x).sum()


@pytest.mark.parametrize("strict", [False, True])
def test_a_parameter_that_the_model_freezes(strict: bool) -> None:
    model = FreezesItself()
    (text,) = messages(lambda *args: tintype.export(*args, strict=strict), model, X.clone())
    assert "sets requires_grad to, of 1 parameters or buffers: 'linear.weight'" in text
    assert model.linear.weight.requires_grad
    model(X)  # frozen from here on
    assert not messages(tintype.export, model, X.clone())


class FreezesItselfForAWhile(FreezesItself):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.switch(False)
        first = self.linear(x)
        self.switch(True)
        return (first + self.linear(x)).sum()

    def switch(self, flag: bool) -> None:
        if self.how == "attribute":
            self.linear.weight.requires_grad = flag
        elif self.how == "method":
            self.linear.weight.requires_grad_(flag)
        else:
            self.linear.requires_grad_(flag)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("how", ["attribute", "method", "module"])
def test_a_parameter_that_the_model_freezes_for_a_while(how: str, strict: bool) -> None:
    model = FreezesItselfForAWhile(how)
    (text,) = messages(lambda *args: tintype.export(*args, strict=strict), model, X.clone())
    assert "sets requires_grad to" in text and "'linear.weight'" in text
    model(X).backward()
    joint = tintype.export_joint(model, (X.clone(),)).module()
    torch.testing.assert_close(joint(X.clone())[1]["linear.weight"], model.linear.weight.grad)


class Tripled(torch.autograd.Function):
    """Writes to what it is given."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0] * 3


class WritesWithAFunction(torch.nn.Module):
    def __init__(self, computed: bool) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(3.0))
        self.computed = computed

    def forward(self, x: torch.Tensor) -> Any:
        y = x * self.weight if self.computed else self.weight
        z = Tripled.apply(y)
        first = z * 2
        z.add_(1)
        return first, y, z is y


def test_a_function_that_writes_to_what_the_program_computed() -> None:
    model, x = WritesWithAFunction(computed=True), torch.ones(3)
    with pytest.warns(LostGradientWarning, match="Tripled"):
        module = tintype.export(model, (x,)).module()
    mine, theirs = module(x), model(x)
    assert_same(mine[:2], theirs[:2])
    assert mine[2] is theirs[2] is True
    for found, wanted in zip(mine[:2], theirs[:2], strict=True):
        gradients = [
            torch.autograd.grad(result.sum(), owner.parameters(), retain_graph=True)
            for result, owner in ((found, module), (wanted, model))
        ]
        torch.testing.assert_close(*gradients)


def test_a_function_that_writes_to_a_parameter_raises_what_eager_mode_raises() -> None:
    model, x = WritesWithAFunction(computed=False), torch.ones(3)
    for run in (lambda: model(x), lambda: tintype.export(model, (x,))):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            run()
