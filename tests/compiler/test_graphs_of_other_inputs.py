"""Graphs of inputs that are of another kind in a later call: shared memory, other ranks, tensors of transforms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype
from tintype import aot

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


def test_inputs_that_share_memory_after_sizes_have_changed() -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        a.add_(1)
        b.mul_(3)
        return a + b * 2, a.sum()

    compiled = tintype.compile(function, backend="aot_eager")

    def inputs(case: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = torch.ones(8), torch.ones(4)
        square = x[:4].view(2, 2)
        return ((y, y.clone()), (x, x.clone()), (y, y), (x[:4], x[4:]), (x[:4], x[2:6]), (square, square.t()))[case]

    for case in (0, 1, 2, 3, 4, 5, 0, 5, 4):
        given, expected = inputs(case), inputs(case)
        for found, wanted in zip(compiled(*given), function(*expected), strict=True):
            assert torch.equal(found, wanted)
        assert all(map(torch.equal, given, expected))


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_ranks_that_change(dynamic: bool | None) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        return a * b + (a + 1).sum(-1, keepdim=True)

    compiled = tintype.compile(function, backend="aot_eager", dynamic=dynamic)
    for shape in ((4,), (5,), (2, 3), (3, 3), (4, 3), (2, 2, 2), (3, 2, 2), (1,), (0,), (0, 3)):
        a = torch.rand(shape)
        torch.testing.assert_close(compiled(a, a + 1), function(a, a + 1))
        torch.testing.assert_close(compiled(a, torch.ones(())), function(a, torch.ones(())))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_transforms_of_compiled_functions(backend: str) -> None:
    """Tensors of vmap and grad say that they are like those of a call before, and are not."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * x).sin().sum()

    compiled = tintype.compile(function, backend=backend)
    x, rows = torch.linspace(0, 1, 3), torch.rand(2, 3)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), function(x))
        torch.testing.assert_close(torch.vmap(compiled)(rows), torch.vmap(function)(rows))
        torch.testing.assert_close(torch.func.grad(compiled)(x), torch.func.grad(function)(x))
        torch.testing.assert_close(torch.func.hessian(compiled)(x), torch.func.hessian(function)(x))
        tangents = torch.func.jvp(compiled, (x,), (x,)), torch.func.jvp(function, (x,), (x,))
        torch.testing.assert_close(*tangents)


@pytest.mark.parametrize("gradients", [False, True])
def test_graphs_of_a_function_of_torchs_that_is_wrapped(gradients: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    original, called = F.relu, []

    def wrapper(x: torch.Tensor, **options: Any) -> torch.Tensor:
        called.append(1)
        return original(x, **options) * 2

    monkeypatch.setattr(F, "relu", wrapper)
    x = torch.linspace(-1, 1, 4).requires_grad_(gradients)
    function = aot.function(lambda x: F.relu(x) + 1)
    for _ in range(2):
        torch.testing.assert_close(function(x), original(x) * 2 + 1)
    program = tintype.export(
        lambda x: F.relu(x) * x.shape[0], (torch.ones(3),), dynamic_shapes=({0: tintype.Dim.DYNAMIC},)
    )
    assert torch.equal(program.module()(torch.ones(5)), torch.full((5,), 10.0))
    assert len(called) == 2
