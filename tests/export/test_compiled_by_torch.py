"""Modules of programs under other people's tools: torch.compile, deepcopy, counters, parametrizations."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.flop_counter import FlopCounterMode

import tintype

X = torch.linspace(-1, 1, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dynamo warns of what it does not look into
        yield
    torch._dynamo.reset()


def layers() -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    return tintype.export(model, (X,), dynamic_shapes={"input": {0: tintype.Dim("batch")}})


def test_the_operators_of_a_program_are_compiled() -> None:
    seen: list[str] = []

    def backend(graph_module: Any, example_inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph_module.graph.nodes if node.op == "call_function")
        return graph_module

    program = layers()
    compiled = torch.compile(program.module(), backend=backend)
    assert torch.equal(compiled(X), program.module()(X))
    assert [name for name in seen if "linear" in name] and [name for name in seen if "relu" in name]


def test_a_compiled_program_takes_other_sizes_and_gives_gradients() -> None:
    program = layers()
    compiled = torch.compile(program.module(), backend="aot_eager")
    for size in (3, 3, 5):
        x = torch.randn(size, 4)
        assert torch.equal(compiled(x), program.module()(x))
    compiled(X).sum().backward()
    assert program.state_dict["0.weight"].grad is not None


def test_a_program_that_writes_to_its_state() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> Any:
            self.count.add_(1)
            return {"y": x * self.count}

    program = tintype.export(Counting(), (X,))
    module, compiled = program.module(), torch.compile(program.module(), backend="aot_eager")
    for _ in range(3):
        assert torch.equal(compiled(X)["y"], module(X)["y"])


def test_a_program_inside_of_a_model_that_is_compiled() -> None:
    class Outer(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x * 2) + 1

    program = layers()
    compiled = torch.compile(Outer(program.module()), backend="aot_eager")
    for size in (3, 4):  # the entry of the program is made in the first call
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x), program.module()(x * 2) + 1)


def test_inputs_are_still_checked() -> None:
    compiled = torch.compile(layers().module(), backend="eager")
    compiled(X)
    for wrong in (torch.ones(3, 5), torch.ones(3, 4, dtype=torch.float64), 3):
        with pytest.raises(tintype.InputMismatchError):
            compiled(wrong)
    with pytest.raises(tintype.InputStructureError, match="input is missing"):
        compiled()
    whole = torch.compile(layers().module(), backend="eager", fullgraph=True)
    whole(X)
    with pytest.raises(RuntimeError, match="the program refuses this call; its error says why, without fullgraph"):
        whole(torch.ones(3, 5))


def test_copies_counters_and_parametrizations() -> None:
    module = layers().module()
    copied = copy.deepcopy(module)
    assert torch.equal(copied(X), module(X))
    with FlopCounterMode(display=False) as counter:
        module(X)
    assert counter.get_total_flops() == 2 * 3 * 4 * 4

    class Doubled(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight * 2

    before = module(X)
    parametrize.register_parametrization(module.get_submodule("0"), "weight", Doubled())
    assert not torch.equal(module(X), before)
    with torch.profiler.profile() as profile:
        module(X)
    assert any("linear" in event.key or "addmm" in event.key for event in profile.key_averages())


# --- in one graph ----------------------------------------------------------------------------------------------


class Branches(nn.Module):
    """Python's own control flow, data-dependent sizes and numbers that the data decide."""

    def forward(self, x: torch.Tensor, count: torch.Tensor) -> Any:
        x = x + 1 if x.sum() > 0 else x - 1
        while x.sum() < 10:
            x = x + 1
        rows = count.item()
        torch._check(rows >= 0)
        torch._check(rows <= 2)
        return {"few": x[:rows], "some": x[x > 0].sum()}


class Counted(nn.Module):
    """State and an input that are written to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        seen.add_(x.sum(0))
        return self.norm(x) * self.count


class Scans(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        rows = tintype.map(torch.sin, x)
        last, every = tintype.scan(lambda carry, row: (carry + row, carry * row), torch.zeros(4), rows)
        return last, tintype.associative_scan(torch.add, every, dim=0)


class Mixed(nn.Module):
    """Containers, keywords, values that are part of the program and such that vary."""

    def forward(self, taken: Any, *, number: int, mode: str) -> Any:
        images = taken["images"].reshape(-1, 2, 4)
        normalized = nn.functional.group_norm(images, 2, taken["weight"])
        return [normalized * number, (images.sum(0) if mode == "sum" else images,)]


BATCH = tintype.Dim("batch")
MIXED = {"images": {0: 2 * BATCH}, "weight": None}
IN_ONE_GRAPH: dict[str, tuple[nn.Module, Any, Any]] = {
    "layers": (
        nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
        [((torch.randn(n, 4),), {}) for n in (3, 5, 1)],
        ({0: BATCH},),
    ),
    "branches": (
        Branches(),
        [((torch.ones(n, 4) * sign, torch.tensor(n % 3)), {}) for n, sign in ((2, 1), (3, -1), (6, 1))],
        {"x": {0: BATCH}, "count": None},
    ),
    "written": (
        Counted(),
        [((torch.randn(n, 4), torch.zeros(4)), {}) for n in (3, 5, 5)],
        {"x": {0: tintype.Dim("batch", min=2)}, "seen": None},
    ),
    "scans": (Scans(), [((torch.randn(3, 4),), {}) for _ in range(2)], None),
    "mixed": (
        Mixed(),
        [
            (({"images": torch.randn(n, 4), "weight": torch.randn(2, 2)[:, 0]},), {"number": n, "mode": "sum"})
            for n in (4, 6, 10)
        ],
        {"taken": MIXED, "number": tintype.Dim.DYNAMIC, "mode": None},
    ),
    "attention": (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
        [((torch.randn(n, n + 2, 8),), {}) for n in (2, 3)],
        {"src": {0: BATCH, 1: tintype.Dim("length")}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", IN_ONE_GRAPH)
def test_a_program_is_compiled_in_one_graph(name: str, backend: str) -> None:
    model, calls, sizes = IN_ONE_GRAPH[name]
    args, kwargs = copy.deepcopy(calls[0])
    program = tintype.export(model, args, kwargs, dynamic_shapes=sizes)
    module, compiled = program.module(), torch.compile(program.module(), fullgraph=True, backend=backend)
    for call in calls:
        (args, kwargs), (others, named) = copy.deepcopy(call), copy.deepcopy(call)
        torch.testing.assert_close(compiled(*others, **named), module(*args, **kwargs))
        torch.testing.assert_close(others, args)


def test_a_compiled_module_that_is_converted_or_edited_is_compiled_again() -> None:
    module = layers().module()
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    before = compiled(X)
    module.requires_grad_(False).half().float()
    assert not torch.equal(compiled(X), before)
    for node in module.graph.nodes:
        if "relu" in str(node.target):
            node.target = torch.ops.aten.neg.default
    module.recompile()
    torch.testing.assert_close(compiled(X), -nn.functional.linear(X, *module.parameters()))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_memory_that_inputs_share_is_refused_in_a_compiled_program_too(backend: str) -> None:
    class Writing(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return x * y

    program = tintype.export(Writing(), (X.clone(), X.clone()))
    compiled = torch.compile(program.module(), fullgraph=True, backend=backend)
    compiled(X.clone(), X.clone())
    shared = torch.zeros(15)
    with pytest.raises(tintype.InputMismatchError, match=r"args\[0\] and .*args\[1\] to have memory of their own"):
        compiled(shared[:12].view(3, 4), shared[3:].view(3, 4))
