"""Backends by name: results, gradients and effects are eager mode's, whoever runs the graphs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


def taking_apart(graph_module: Any, example_inputs: list[Any], options: Any = None, mode: Any = None) -> Any:
    taking_apart.seen.append((len(example_inputs), options, mode))  # type: ignore[attr-defined]
    return graph_module.forward


def test_options_and_mode_are_handed_to_the_backend() -> None:
    taking_apart.seen = []  # type: ignore[attr-defined]
    compiled = tintype.compile(torch.sin, backend=taking_apart, options={"level": 3}, mode="fast")
    x = torch.ones(2)
    assert torch.equal(compiled(x), x.sin()) and torch.equal(compiled(x), x.sin())
    assert taking_apart.seen == [(1, {"level": 3}, "fast")]  # type: ignore[attr-defined]


def test_names_that_nobody_knows_are_refused() -> None:
    with pytest.raises(tintype.TintypeError, match=r"there is no backend .no such.(.|\n)*aot_eager, .*inductor"):
        tintype.compile(torch.sin, backend="no such")
    with pytest.raises(tintype.TintypeError, match="has no options"):
        tintype.compile(torch.sin, backend="eager", options={"level": 1})
    with pytest.raises(tintype.TintypeError, match="is a name or a function"):
        tintype.compile(torch.sin, backend=3)
    with pytest.raises(tintype.TintypeError, match="there is a backend 'eager' already"):
        tintype.compile.register_backend(taking_apart, name="eager")


def test_onnxruntime_runs_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    compiled = tintype.compile(model, backend="onnxruntime")
    from tintype.onnx.runtime import Session

    runs = []
    real = Session.run
    monkeypatch.setattr(Session, "run", lambda self, *given: runs.append(1) or real(self, *given))
    with torch.no_grad():
        for size in (2, 2, 2, 5, 5, 5):
            x = torch.randn(size, 3)
            torch.testing.assert_close(compiled(x), model(x))
    assert len(runs) == 2  # the first call is eager mode's, the second one is looked at, the third is ONNX Runtime's


def test_what_onnxruntime_can_not_do_is_not_given_to_it() -> None:
    pytest.importorskip("onnxruntime")

    @tintype.compile(backend="onnxruntime")
    def drawing(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(2)

    @tintype.compile(backend="onnxruntime")
    def writing(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    @tintype.compile(backend="onnxruntime")
    def viewing(x: torch.Tensor) -> torch.Tensor:
        return x[0]

    for _ in range(4):
        torch.manual_seed(0)
        expected = torch.rand(2)
        torch.manual_seed(0)
        assert torch.equal(drawing(torch.zeros(2)), expected)
        x = torch.zeros(2, 2)
        assert writing(x) is x and torch.equal(x, torch.ones(2, 2))
        viewing(x).add_(1)
        assert x[0, 0] == 2
    unused = tintype.compile(lambda x: (x.sin(), x)[1], backend="onnxruntime")  # a model without outputs
    for _ in range(4):
        x = torch.zeros(2)
        assert unused(x) is x
    parameter = torch.ones(2, requires_grad=True)
    twice = tintype.compile(lambda x: x * 2, backend="onnxruntime")
    twice(parameter)
    with pytest.raises(tintype.TintypeError, match="ONNX Runtime computes no gradients"):
        twice(parameter)


def test_inductor_gives_results_gradients_and_writes() -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return (x * w).relu().sum()

    compiled = tintype.compile(step, backend="inductor")
    for _ in range(4):
        results = []
        for function in (step, compiled):
            x, w = torch.arange(4.0), torch.full((4,), 2.0, requires_grad=True)
            y = function(x, w)
            y.backward()
            results.append((y.detach(), x, w.grad))
        torch.testing.assert_close(*results)


def test_torchs_backends_see_writes_that_show_in_other_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that was compiled for inputs apart is not used where they share memory."""
    from tintype.interop import compile_backends

    made = []

    def compiler(graph_module: Any, inputs: list[Any]) -> Any:
        made.append(len(inputs))
        return lambda *given: graph_module(*[value.clone() for value in given])  # loses writes

    monkeypatch.setattr(compile_backends, "compiler_of_torch", lambda *options: compiler)
    compiled = tintype.compile(lambda x, y: x.add_(1) + y, backend="inductor")
    base = torch.zeros(4)
    for x, y in ((torch.zeros(2), torch.zeros(2)), (torch.zeros(2), torch.zeros(2)), (base[:2], base[1:3])):
        expected = [1.0, 1.0] if x.storage_offset() == y.storage_offset() else [2.0, 1.0]
        assert compiled(x, y).tolist() == expected
    assert not made  # each was the first that looked, or shares memory
    assert compiled(torch.zeros(2), torch.zeros(2)).tolist() == [1.0, 1.0] and made == [2]


def test_inputs_that_steps_gave_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from tintype.interop import compile_backends

    shapes = []

    def compiler(graph_module: Any, inputs: list[Any]) -> Any:
        shapes.append([tuple(value.shape) for value in inputs])
        return graph_module

    monkeypatch.setattr(compile_backends, "compiler_of_torch", lambda *options: compiler)

    @tintype.compile(backend="inductor")
    def positive(x: torch.Tensor) -> torch.Tensor:
        first = x[x > 0]
        tintype.compile.graph_break()
        return first.sin() + 1

    @tintype.compile(backend="inductor")
    def stacked(x: torch.Tensor) -> torch.Tensor:
        parts = torch.unbind(x[x > 0])
        tintype.compile.graph_break()
        return torch.stack(parts).sin() + 1  # a tuple goes into a graph

    rows = [torch.tensor([1.0, -1.0, 2.0, -2.0]), torch.tensor([1.0, 1.0, 2.0, -2.0])]
    for _ in range(3):
        for x in rows:
            assert torch.equal(positive(x), x[x > 0].sin() + 1)
            assert torch.equal(stacked(x), x[x > 0].sin() + 1)
    assert shapes.count([(2,)]) == 1 and shapes.count([(3,)]) == 1


def test_numbers_and_tuples_are_constants_of_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    from tintype.interop import compile_backends

    inputs_of: list[list[Any]] = []

    def compiler(graph_module: Any, inputs: list[Any]) -> Any:
        inputs_of.append(inputs)
        return graph_module

    monkeypatch.setattr(compile_backends, "compiler_of_torch", lambda *options: compiler)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
    compiled = tintype.compile(model, backend="inductor")
    for _ in range(3):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(x), model(x))
    assert len(inputs_of) == 1 and all(isinstance(value, torch.Tensor) for value in inputs_of[0])
    model[1] = torch.nn.LayerNorm((2, 4))
    for _ in range(3):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(x), model(x))


def test_a_backend_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from tintype.interop import compile_backends

    def compiler(graph_module: Any, inputs: list[Any]) -> Any:
        raise ValueError("no such kernel")

    monkeypatch.setattr(compile_backends, "compiler_of_torch", lambda *options: compiler)
    compiled = tintype.compile(torch.sin, backend="inductor")
    compiled(torch.ones(2))
    with pytest.raises(tintype.TintypeError, match="'inductor' failed on a graph: ValueError: no such kernel"):
        compiled(torch.ones(2))


def test_inductor_finds_graphs_in_its_caches() -> None:
    """What was compiled before, by another process say, is not compiled again."""
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    x = torch.arange(6.0)
    with fresh_cache(), torch.no_grad():
        found = []
        for scale in (3.0, 3.0, 4.0):
            before = counters["inductor"]["fxgraph_cache_hit"]
            compiled = tintype.compile(lambda x, scale=scale: (x.sin() * scale).cos(), backend="inductor")
            for _ in range(3):
                torch.testing.assert_close(compiled(x), (x.sin() * scale).cos())
            found.append(counters["inductor"]["fxgraph_cache_hit"] - before)
    assert found == [0, 1, 0]


def test_inductor_is_given_inputs_without_data() -> None:
    from tintype.interop.compile_backends import as_dynamo_calls

    def compiler(graph_module: Any, inputs: list[Any]) -> Any:
        given.extend(inputs)
        assert torch._guards.TracingContext.get().fake_mode is inputs[0].fake_mode
        return graph_module

    given: list[Any] = []
    base = torch.randn(4, 4)
    tensors = [base.t(), base[1:], torch.nn.Parameter(torch.ones(2)), base.t()]
    as_dynamo_calls(compiler, torch.fx.symbolic_trace(torch.nn.Identity()), tensors)
    for tensor, fake in zip(tensors, given, strict=True):
        assert (fake.shape, fake.stride(), fake.storage_offset()) == (
            tensor.shape,
            tensor.stride(),
            tensor.storage_offset(),
        )
        assert fake.requires_grad == tensor.requires_grad
        assert all(type(size) is int for size in fake.shape)
    assert given[0].untyped_storage()._cdata == given[1].untyped_storage()._cdata  # as theirs is one
    # in the fake mode of somebody else they are given as they are
    given_before, given[:] = list(given), []
    as_dynamo_calls(
        lambda graph_module, inputs: given.extend(inputs), torch.fx.symbolic_trace(torch.nn.Identity()), given_before
    )
    assert all(one is other for one, other in zip(given, given_before, strict=True))


def test_inductor_is_told_which_inputs_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from tintype.interop import compile_backends

    told: list[list[bool]] = []

    def seen(_: Any, graph_module: Any, inputs: Any) -> Any:
        marks = [node.meta["tensor_dict"] for node in graph_module.graph.find_nodes(op="placeholder")]
        told.append([bool(mark) for mark in marks])
        state = [model.sums, *model.parameters()]
        assert told[-1] == [any(value is tensor for tensor in state) for value in inputs]
        return graph_module

    class Summed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.register_buffer("sums", torch.zeros(3))

        def forward(self, x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
            y = torch.nn.functional.layer_norm(self.linear(x), (3,)) * by
            self.sums += y.sum(0)
            return y

    monkeypatch.setattr(compile_backends, "as_dynamo_calls", seen)
    model = Summed()
    compiled = tintype.compile(model, backend="inductor")
    with torch.no_grad():
        for _ in range(4):
            compiled(torch.randn(2, 3), torch.randn(3))
    assert told and all(sum(marks) == 3 and len(marks) == 5 for marks in told)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_graphs_are_replayed() -> None:
    from tintype.compiler import cuda_graphs

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).cuda()
    compiled = tintype.compile(model, backend="cudagraphs")
    replays = []
    real = cuda_graphs.Recorded.replay

    def counted(self: Any, inputs: Any) -> Any:
        replays.append(len(inputs))
        return real(self, inputs)

    cuda_graphs.Recorded.replay = counted  # type: ignore[method-assign]
    try:
        kept = []
        for _ in range(6):
            x = torch.randn(4, 8, device="cuda")
            kept.append((compiled(x), model(x)))
            kept[-1][0].sum().backward()
            mine = [parameter.grad for parameter in model.parameters()]
            model.zero_grad()
            kept[-1][1].sum().backward()
            torch.testing.assert_close(mine, [parameter.grad for parameter in model.parameters()])
            model.zero_grad()
            with torch.no_grad():
                model[0].weight.mul_(1.1)
        for got, expected in kept:  # results are not written to by later replays
            torch.testing.assert_close(got, expected)
        drop = tintype.compile(lambda x: torch.nn.functional.dropout(x, 0.5), backend="cudagraphs")
        x = torch.ones(64, device="cuda")
        for _ in range(5):
            torch.manual_seed(0)
            expected = torch.nn.functional.dropout(x, 0.5)
            torch.manual_seed(0)
            torch.testing.assert_close(drop(x), expected)
        bools = tintype.compile(lambda x: x[x > 0] * 2, backend="cudagraphs")  # waits for the GPU
        for _ in range(4):
            x = torch.randn(8, device="cuda")
            torch.testing.assert_close(bools(x), x[x > 0] * 2)
    finally:
        cuda_graphs.Recorded.replay = real  # type: ignore[method-assign]
    assert replays


def test_cuda_graphs_on_the_cpu_are_graphs_as_they_are() -> None:
    compiled = tintype.compile(lambda x: (x * 2).relu(), backend="cudagraphs")
    for _ in range(3):
        x = torch.randn(3, requires_grad=True)
        torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], (x > 0) * 2.0)


def test_the_adapter_of_the_conformance_suite_loads() -> None:
    # in a process of its own: it gives programs the methods of torch's of then
    code = (
        "from tests import conformance_adapter as a; print(a.NAMES['torch._dynamo.backends.registry.lookup_backend'])"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2], capture_output=True)
