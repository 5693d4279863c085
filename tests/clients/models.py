"""Six small models of different kinds, each with inputs of any size and the sizes that may vary."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

# Limits that tools which plan memory ahead ask for.
BATCH, LENGTH = 8, 16


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.dropout, self.second = nn.Linear(8, 16), nn.Dropout(), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(self.dropout(torch.relu(self.first(x))))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.block = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.stem(x))), 2)
        x = torch.relu(self.block(x) + x)
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Encoder(nn.Module):
    """A transformer in the manner of BERT: positions by arange, a mask from the identifiers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(30, 16), nn.Embedding(LENGTH, 16)
        self.norm, self.dropout = nn.LayerNorm(16), nn.Dropout(0.1)
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, ids):
        batch, length = ids.shape
        x = self.dropout(self.norm(self.words(ids) + self.positions(torch.arange(length))))
        mask = (ids != 0)[:, None, None, :]
        query, key, value = (
            layer(x).view(batch, length, 2, 8).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        seen = nn.functional.scaled_dot_product_attention(query, key, value, mask)
        x = x + self.dropout(self.out(seen.transpose(1, 2).reshape(batch, length, 16)))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.layers(x)[0])


class Classifier(nn.Module):
    """The mean of words that are not padding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(30, 16, padding_idx=0), nn.Linear(16, 4)

    def forward(self, ids):
        weights = (ids != 0).float().unsqueeze(-1)
        mean = (self.words(ids) * weights).sum(1) / weights.sum(1).clamp(min=1)
        return self.head(torch.tanh(mean)).softmax(-1)


class Patches(nn.Module):
    """A vision transformer: patches by a convolution, a token that stands for all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.positions = nn.Parameter(torch.randn(1, 5, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        patches = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), patches], 1) + self.positions
        return self.head(self.layer(x)[:, 0])


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, its input at a batch size and a length, and which dimensions these are."""

    model: Callable[[], nn.Module]
    input: Callable[[int, int], torch.Tensor]
    dimensions: dict[int, str]

    def dynamic_shapes(self, dim: Any) -> Any:
        """What may vary, in terms of tintype's ``Dim`` or torch's."""
        limits = {"batch": BATCH, "length": LENGTH}
        return ({where: dim(name, min=1, max=limits[name]) for where, name in self.dimensions.items()},)


def _words(batch: int, length: int) -> torch.Tensor:
    return torch.randint(1, 30, (batch, length))


def _image(batch: int, length: int) -> torch.Tensor:
    return torch.randn(batch, 3, 8, 8)


CASES = {
    "perceptron": Case(Perceptron, lambda batch, length: torch.randn(batch, 8), {0: "batch"}),
    "convolutions": Case(Convolutions, _image, {0: "batch"}),
    "encoder": Case(Encoder, _words, {0: "batch", 1: "length"}),
    "tagger": Case(Tagger, lambda batch, length: torch.randn(batch, length, 8), {0: "batch", 1: "length"}),
    "classifier": Case(Classifier, _words, {0: "batch", 1: "length"}),
    "patches": Case(Patches, _image, {0: "batch"}),
}
