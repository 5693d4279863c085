"""The programs that interop is tested on: each a module, example inputs, varying sizes and inputs of other sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import tintype


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return torch.nn.functional.gelu(self.norm(self.linear(x))) + x


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x, y):
        return self.second(self.first(self.first(x))) + y[:, :1]


class State(nn.Module):
    """Buffers that are written to, persistent and not, tied weights and constants."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.linear.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)
        self.table = torch.arange(4.0)

    def forward(self, x, y):
        self.count.add_(1)
        z = self.norm(self.tied(self.linear(x))) * self.scale + self.table
        return {"z": z + torch.tensor([1.0, 2.0, 3.0, 4.0]), "count": self.count.clone(), "y": (y, None, 3)}


class Writes(nn.Module):
    """An input that is written to, also through a view."""

    def forward(self, x, y):
        y.mul_(2)
        y[0].add_(x[0])
        return x + y, y[1:]


class Data(nn.Module):
    """Sizes and numbers that only the data decide."""

    def forward(self, x, y):
        places = (x > 0).nonzero()
        count = y.sum().to(torch.int64).item()
        torch._check(count >= 0)
        torch._check(count <= 1000)
        return places, x.new_zeros(count), x[x > 0], x.shape[0] * 2, x.shape[0] // 2


class Containers(nn.Module):
    def forward(self, x, *, extra, factor=2):
        return [x * factor, {"sum": extra["a"] + x, "flag": True}], extra["b"][0]


class Cond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Chooses()

    def forward(self, x, y):
        return self.inner(x, y) + 1


class Chooses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, y):
        return torch.cond(y.sum() > 0, lambda x: self.first(x) + 1, lambda x: self.second(x).relu(), (x,)) * 2


def loop(x, n):
    return tintype.while_loop(lambda i, x: i.sum() > 0, lambda i, x: (i - 1, x * 2), (n, x))


def mapped(x, y):
    return tintype.map(lambda row, y: row * 2 + y, x, y)


def scanned(x):
    return tintype.scan(lambda carry, row: (carry + row, carry * row), torch.zeros(4), x)


@torch.library.custom_op("tintype_interop::scale_in_place", mutates_args={"x"})
def scale_in_place(x: torch.Tensor, factor: float) -> None:
    x.mul_(factor)


@torch.library.custom_op("tintype_interop::add_in_place", mutates_args={"x"})
def add_in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    return x + 1


@add_in_place.register_fake
def _(x, y):
    return torch.empty_like(x)


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(4))

    def forward(self, x, y):
        z = x * 1
        torch.ops.tintype_interop.scale_in_place(z, 3.0)
        return torch.ops.tintype_interop.add_in_place(self.total, z[0]) + y[0], z


@dataclasses.dataclass
class Case:
    model: Callable[[], Any]
    inputs: Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]
    shapes: Any = None


def tensors(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, 4, generator=generator), torch.rand(rows, 4, generator=generator)


BATCH = {0: tintype.Dim("batch", min=3, max=50)}
BOTH = {"x": BATCH, "y": BATCH}

CASES = {
    "plain": Case(Plain, lambda rows: (tensors(rows), {}), BOTH),
    "state": Case(State, lambda rows: (tensors(rows), {}), BOTH),
    "writes": Case(Writes, lambda rows: (tensors(rows), {}), BOTH),
    "data": Case(Data, lambda rows: (tensors(rows), {}), BOTH),
    "containers": Case(
        Containers,
        lambda rows: ((tensors(rows)[0],), {"extra": {"a": tensors(rows)[1], "b": [torch.ones(3)]}, "factor": 3}),
        {"x": BATCH, "extra": {"a": BATCH, "b": [None]}, "factor": None},
    ),
    "cond": Case(Cond, lambda rows: (tensors(rows), {}), BOTH),
    "while_loop": Case(
        lambda: loop, lambda rows: ((tensors(rows)[0], torch.tensor(rows)), {}), {"x": BATCH, "n": None}
    ),
    "map": Case(lambda: mapped, lambda rows: ((tensors(rows)[0], torch.ones(4)), {}), {"x": BATCH, "y": None}),
    "scan": Case(lambda: scanned, lambda rows: ((tensors(rows)[0],), {}), {"x": BATCH}),
    "custom": Case(Custom, lambda rows: (tensors(rows), {}), BOTH),
}
STAGES = ("training", "functional", "core")


def exported(stage: str, model: Any, inputs: Any, **options: Any) -> tintype.ExportedProgram:
    if stage == "training":
        return tintype.export_for_training(model, *inputs, **options)
    program = tintype.export(model, *inputs, **options)
    return program.run_decompositions() if stage == "core" else program
