"""Weights that hooks compute before a call, features that hooks collect, tensors that a model keeps in attributes."""

from __future__ import annotations

import copy
import functools
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

import tintype


def pruned_twice() -> nn.Module:
    layer = nn.Linear(4, 3)
    prune.l1_unstructured(layer, "weight", 0.3)
    prune.random_unstructured(layer, "bias", 0.3)
    return prune.l1_unstructured(layer, "weight", 0.3)


def pruned_together() -> nn.Module:
    layers = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    weights = [(layers[0], "weight"), (layers[2], "weight")]
    prune.global_unstructured(weights, pruning_method=prune.L1Unstructured, amount=0.3)
    return layers


class OfPictures(nn.Module):
    def __init__(self, norm: Callable[..., Any]) -> None:
        super().__init__()
        self.conv = norm(nn.Conv2d(1, 2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x[:, None, None].expand(-1, -1, 3, -1)).relu()


class OfSequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = weight_norm(nn.LSTM(4, 3), "weight_hh_l0")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x[:, None])[0]


WEIGHTS: dict[str, Callable[[], nn.Module]] = {
    "weight norm": lambda: weight_norm(nn.Linear(4, 3)),
    "weight norm of all": lambda: weight_norm(nn.Linear(4, 3), dim=None),
    "weight norm, convolution": lambda: OfPictures(weight_norm),
    "weight norm, recurrent": OfSequences,
    "spectral norm": lambda: spectral_norm(nn.Linear(4, 3)),
    "spectral norm, evaluated": lambda: spectral_norm(nn.Linear(4, 3)).eval(),
    "spectral norm, three steps": lambda: spectral_norm(nn.Linear(4, 3), n_power_iterations=3),
    "spectral norm, convolution": lambda: OfPictures(spectral_norm),
    "parametrized weight norm": lambda: parametrizations.weight_norm(nn.Linear(4, 3)),
    "parametrized spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(4, 3)),
    "parametrized, orthogonal": lambda: parametrizations.orthogonal(nn.Linear(4, 4)),
    "pruned at random": lambda: prune.random_unstructured(nn.Linear(4, 3), "weight", 0.4),
    "pruned by size": lambda: prune.l1_unstructured(nn.Linear(4, 3), "weight", 0.4),
    "pruned rows": lambda: prune.ln_structured(nn.Linear(4, 3), "weight", 0.4, n=2, dim=0),
    "pruned, nothing": lambda: prune.identity(nn.Linear(4, 3), "bias"),
    "pruned by a mask": lambda: prune.custom_from_mask(nn.Linear(4, 3), "weight", torch.ones(3, 4).tril()),
    "pruned twice": pruned_twice,
    "pruned together": pruned_together,
}


class Cached(nn.Module):
    """Makes a tensor in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.positions = nn.Linear(4, 4), None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.positions is None:
            self.positions = torch.arange(4.0)
        return self.layer(x) + self.positions


class Grown(nn.Module):
    """Makes a longer table where the one that it has is too short."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.length = None, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > self.length:
            self.length = x.shape[0]
            self.table = torch.cos(torch.arange(self.length).float())[:, None]
        return x * self.table[: x.shape[0]]


class Features(nn.Module):
    """Hooks collect by name; the model returns what they have."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.features = nn.Linear(4, 4), nn.Linear(4, 4), {}
        for name in ("first", "second"):
            getattr(self, name).register_forward_hook(self.collecting(name))

    def collecting(self, name: str) -> Any:
        def hook(module: nn.Module, args: Any, result: torch.Tensor) -> None:
            self.features[name] = result

        return hook

    def forward(self, x: torch.Tensor) -> Any:
        result = self.second(self.first(x).relu())
        return result, dict(self.features)


class Shared(nn.Module):
    """A hook has the table of the model, not the model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.features = nn.Linear(4, 4), {}
        features = self.features
        self.layer.register_forward_hook(lambda module, args, result: features.update(result=result))

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x), self.features["result"]


class Listed(nn.Module):
    """Hooks append to a list that is begun anew with every call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.features = nn.Linear(4, 4), []
        self.layer.register_forward_hook(lambda module, args, result: self.features.append(result))

    def forward(self, x: torch.Tensor) -> Any:
        self.features.clear()
        result = self.layer(self.layer(x))
        return result, list(self.features)


class Assigning(nn.Module):
    """Keeps what it computes where users look for it, in submodules too."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
            layer.penalty = x.square().mean()
        self.hidden = x
        return self.hidden * 2, sum(layer.penalty for layer in self.layers)


class Given(nn.Module):
    """A weight that forward computes and assigns."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.raw = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 4))
        del self.layer._parameters["weight"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layer.weight = torch.tanh(self.raw)
        return self.layer(x)


class Changing(nn.Module):
    """Hooks that change arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        self.layer.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)
        self.layer.register_forward_hook(lambda module, args, result: result + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Deciding(nn.Module):
    """A hook whose code the data decide about."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.layer.register_forward_hook(lambda module, args, result: -result if result.sum() > 0 else result * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


KEPT: dict[str, Callable[[], nn.Module]] = {
    kind.__name__: kind for kind in (Cached, Grown, Features, Shared, Listed, Assigning, Given, Changing, Deciding)
}
MODELS = {**WEIGHTS, **KEPT}
INPUTS = [torch.randn(3, 4) * scale for scale in (1, 2, -3)]


def saved(program: tintype.ExportedProgram) -> Any:
    file = io.BytesIO()
    tintype.save(program, file)
    return tintype.load(file).module()


FORMS: dict[str, Callable[[tintype.ExportedProgram], Any]] = {
    "exported": lambda program: program.module(),
    "saved": saved,
    "decomposed": lambda program: program.run_decompositions().module(),
    "unflattened": tintype.unflatten,
}


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]()


@pytest.mark.filterwarnings("ignore::tintype.LostStateWarning")
@pytest.mark.parametrize(
    "export", [tintype.export, tintype.export_for_training, functools.partial(tintype.export, strict=True)]
)
@pytest.mark.parametrize("name", MODELS)
def test_calls_are_those_of_eager_mode(name: str, export: Any) -> None:
    model = made(name)
    before = copy.deepcopy(model.state_dict())
    program = export(model, (INPUTS[0],))
    torch.testing.assert_close(dict(model.state_dict()), dict(before))
    for form, make in FORMS.items():
        eager, module = made(name), make(program)
        for x in INPUTS:
            torch.testing.assert_close(module(x), eager(x), msg=lambda text, form=form: f"{form}: {text}")
        found = module.state_dict()
        torch.testing.assert_close({key: found[key] for key in before}, dict(eager.state_dict()))


# a branch on data is torch's to refuse
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in MODELS if name != "Deciding"])
def test_torch_gives_the_same(name: str) -> None:
    theirs = torch.export.export(made(name), (INPUTS[0],)).module()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = tintype.export(made(name), (INPUTS[0],)).module()
    torch.testing.assert_close(ours(INPUTS[1]), theirs(INPUTS[1]))


def loss_of(result: Any) -> torch.Tensor:
    return torch.utils._pytree.tree_leaves(result)[0].square().mean()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in WEIGHTS if "evaluated" not in name])
def test_gradients_of_what_weights_are_computed_from(name: str) -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = made(name)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return loss_of(self.model(x))

    joint, model = tintype.export_joint(Loss(), (INPUTS[0],)), Loss()
    _, found, *_ = joint.module()(INPUTS[1])
    model(INPUTS[1]).backward()
    torch.testing.assert_close(found, {key: value.grad for key, value in model.named_parameters()})
