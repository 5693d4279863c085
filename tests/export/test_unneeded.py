"""Calls that a module leaves out when it runs: nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import tintype
from tintype.export.unneeded import unneeded_calls

aten = torch.ops.aten


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found.append(operator)
        return operator(*args, **(kwargs or {}))


def operators_of(module: Any, *args: Any) -> list[Any]:
    with Operators() as operators, torch.no_grad():
        module(*args)
    return operators.found


def test_conversions_that_change_nothing_and_whole_slices_are_not_run() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).to(torch.float32)
        return y[:].relu() + y.unsqueeze(0).sin() + y.unsqueeze(0).cos()

    program = tintype.export(function, (torch.ones(2, 3),), dynamic_shapes="auto")
    names = {node.target for node in program.graph.nodes}
    assert aten._to_copy.default in names
    found = operators_of(program.module(), torch.ones(2, 3))
    assert aten._to_copy.default not in found and aten.slice.Tensor not in found
    assert found.count(aten.unsqueeze.default) == 1
    x = torch.randn(4, 5)
    assert torch.equal(program.module()(x), function(x))


def test_what_is_returned_has_memory_of_its_own() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.arange(6.0).reshape(2, 3))

        def forward(self, x: torch.Tensor) -> Any:
            y = x + 1
            return y, y.to(torch.float32).reshape(-1), self.rows.to(torch.float32).t(), self.rows[:] * 1

    program = tintype.export(Model(), (torch.ones(2, 3),))
    module = program.module()
    results = module(torch.ones(2, 3))
    memories = [result.untyped_storage().data_ptr() for result in (*results, module.rows)]
    assert len(set(memories)) == len(memories)


def test_what_is_read_before_it_is_written_stays_what_it_was() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("one", torch.zeros(3))
            self.register_buffer("other", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            before = self.one.to(torch.float32) if x.shape[0] == 3 else self.one
            kept = self.one * 1
            self.one.add_(x)
            self.other.copy_(kept.to(torch.float32)[:])
            return before * 1 + self.other

    model, x = Model(), torch.ones(3)
    module = tintype.export(model, (x,)).module()
    for _ in range(3):
        assert torch.equal(module(x), model(x))
        assert torch.equal(module.one, model.one) and torch.equal(module.other, model.other)


def test_a_module_that_was_converted_converts() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.weight.to(torch.float32) * x

    module = tintype.export(Model(), (torch.ones(3),)).module()
    assert module.double()(torch.ones(3)).dtype is torch.float32
    assert module.weight.dtype is torch.float64


@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
def test_nothing_is_left_out_of_a_graph_that_writes(export: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2)[:]
        z = y.to(torch.float32).relu()
        y.add_(1) if export is tintype.export_for_training else None
        return z + y

    module = export(function, (torch.ones(2),)).module()
    if export is tintype.export:
        assert unneeded_calls(module.graph.nodes)
        first = next(node for node in module.graph.nodes if node.target is aten.mul.Tensor)
        with module.graph.inserting_after(first):  # somebody edits the graph
            module.graph.call_function(aten.add_.Tensor, (first, 0))
        module.recompile()
    assert not unneeded_calls(module.graph.nodes)
    assert torch.equal(module(torch.ones(2)), function(torch.ones(2)))


def test_gradients() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x * x).to(torch.float32)
        return (y[:] * y.unsqueeze(0) * y.unsqueeze(0)).sum()

    x = torch.randn(3, requires_grad=True)
    module = tintype.export(function, (x,)).module()
    (found,), (expected,) = (torch.autograd.grad(call(x), [x]) for call in (module, function))
    torch.testing.assert_close(found, expected)


def test_slices_of_everything_of_what_is_returned_are_not_run() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        return y, y[:, None].sin(), y[:].contiguous(), y[:].view(-1), y[:].relu()

    module = tintype.export(function, (torch.ones(2, 3),), dynamic_shapes="auto").module()
    assert operators_of(module, torch.ones(2, 3)).count(aten.slice.Tensor) == 1  # the one that may be returned itself
    x = torch.randn(4, 5)
    results, expected = module(x), function(x)
    for found, wanted in zip(results, expected, strict=True):
        assert torch.equal(found, wanted)
    same = [result.untyped_storage().data_ptr() == results[0].untyped_storage().data_ptr() for result in results]
    assert same == [True, False, True, True, False]
    assert results[2] is not results[0]


def test_views_that_are_returned_are_objects_of_their_own() -> None:
    def function(x: torch.Tensor) -> Any:
        return x[:], x.unsqueeze(0), x.unsqueeze(0), (x * 2)[:]

    x = torch.ones(2, 3)
    results = tintype.export(function, (x,)).module()(x)
    assert len({id(value) for value in (x, *results)}) == 5
