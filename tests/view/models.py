"""Small models whose pages tests look at."""

from __future__ import annotations

import torch

import tintype


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.wide = torch.nn.Linear(8, 16)
        self.narrow = torch.nn.Linear(16, 8)

    def forward(self, x):
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.norm(x))))


class Encoder(torch.nn.Module):
    """An embedding, layers that are alike, and a layer that is called twice."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 8)
        self.layers = torch.nn.ModuleList(Block() for _ in range(layers))
        self.shared = torch.nn.Linear(8, 8, bias=False)

    def forward(self, tokens, scale=1.0):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        x = self.shared(self.shared(x)) * scale
        return {"hidden": x, "mean": [x.mean(1)]}


def encoder_program(layers: int = 3) -> tintype.ExportedProgram:
    batch, half = tintype.Dim("batch", min=1, max=64), tintype.Dim("half", min=2, max=50)
    shapes = {"tokens": {0: batch, 1: 2 * half}, "scale": None}
    example = (torch.randint(0, 10, (2, 6)), 1.0)
    return tintype.export(Encoder(layers).eval(), example, dynamic_shapes=shapes)


def asserting_program() -> tintype.ExportedProgram:
    """Two sizes that vary by themselves, with conditions that only the graph asserts."""

    def forward(x, y):
        if x.shape[0] * y.shape[0] % 6 == 0 and x.shape[0] + y.shape[0] < 20:
            return x.sum() + y.sum()
        return x.sum() - y.sum()

    dynamic = {"x": {0: tintype.Dim("a", min=2, max=40)}, "y": {0: tintype.Dim("b", min=2, max=40)}}
    return tintype.export(
        forward,
        (torch.ones(4), torch.ones(3)),
        dynamic_shapes=dynamic,
        prefer_deferred_runtime_asserts_over_guards=True,
    )


class WithLoss(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x).square().mean()


def joint_program() -> tintype.ExportedProgram:
    return tintype.export_joint(WithLoss(), (torch.ones(3, 8),))
