"""Embeddings whose gradients are sparse, in joint programs and compiled ones, against eager mode."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import tintype


class Model(nn.Module):
    def __init__(self, embedding: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = embedding
        self.out = nn.Linear(3, 2)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return self.out(self.embedding(indices)).sin().sum()


class Tied(nn.Module):
    """One table twice; and once where its gradient is dense."""

    def __init__(self, dense: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.dense = nn.Embedding(10, 3, sparse=True), dense

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        x = self.embedding(indices) * self.embedding(indices + 1)
        return (x @ self.embedding.weight.t() if self.dense else x).sin().sum()


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bags = nn.EmbeddingBag(10, 3, sparse=True, mode="sum")
        self.weights = nn.Parameter(torch.rand(2, 3))

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return self.bags(indices, per_sample_weights=self.weights).sin().sum()


MODELS: dict[str, Any] = {
    "embedding": lambda: Model(nn.Embedding(10, 3, sparse=True)),
    "padding": lambda: Model(nn.Embedding(10, 3, sparse=True, padding_idx=2)),
    "sums": lambda: Model(nn.EmbeddingBag(10, 3, sparse=True, mode="sum")),
    "means": lambda: Model(nn.EmbeddingBag(10, 3, sparse=True, mode="mean")),
    "means with padding": lambda: Model(nn.EmbeddingBag(10, 3, sparse=True, mode="mean", padding_idx=2)),
    "weighted sums": Weighted,
    "twice": lambda: Tied(False),
    "dense too": lambda: Tied(True),
}
INDICES = [
    torch.tensor([[1, 2, 2], [5, 1, 0]]),
    torch.tensor([[2, 2, 2], [2, 2, 2]]),
    torch.tensor([[0, 8, 3], [3, 3, 8]]),
]


def gradients(model: nn.Module) -> dict[str, Any]:
    return {name: shown(parameter.grad) for name, parameter in model.named_parameters()}


def shown(gradient: Any) -> Any:
    return {str(gradient.layout): (gradient.to_dense(), gradient.shape)}


@pytest.mark.parametrize("name", MODELS)
def test_compiled_models_have_gradients_as_eager_ones(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    eager = copy.deepcopy(model)
    compiled = tintype.aot.module(model)
    for indices in INDICES:
        compiled.zero_grad()
        eager.zero_grad()
        loss, wanted = compiled(indices), eager(indices)
        torch.testing.assert_close(loss, wanted)
        loss.backward()
        wanted.backward()
        torch.testing.assert_close(gradients(model), gradients(eager))


@pytest.mark.parametrize("name", MODELS)
def test_joint_programs_return_such_gradients(name: str, tmp_path: Any) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    programs = {"of the model": tintype.export_joint(model, (INDICES[0],))}
    programs["of a program"] = tintype.export_joint(tintype.export_for_training(model, (INDICES[0],)))
    programs["decomposed"] = programs["of the model"].run_decompositions()
    tintype.save(programs["of the model"], tmp_path / "joint.tt")
    programs["saved"] = tintype.load(tmp_path / "joint.tt")
    for program in programs.values():
        module = program.module()
        for indices in INDICES:
            model.zero_grad()
            wanted = model(indices)
            wanted.backward()
            loss, found, _ = module(indices)
            torch.testing.assert_close(loss, wanted)
            torch.testing.assert_close({name: shown(value) for name, value in found.items()}, gradients(model))


def test_a_sparse_optimizer_takes_them() -> None:
    model = Model(nn.Embedding(10, 3, sparse=True))
    eager = copy.deepcopy(model)
    for each in (model, eager):
        run = tintype.aot.module(each) if each is model else each
        optimizer = torch.optim.SparseAdam(each.embedding.parameters(), lr=0.1)
        for indices in INDICES:
            optimizer.zero_grad()
            run(indices).backward()
            optimizer.step()
    torch.testing.assert_close(model.embedding.weight, eager.embedding.weight)
