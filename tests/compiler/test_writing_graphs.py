"""Graphs that write to what they are given: without asking again, with memory of their own, recorded and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

import tintype
from tintype.compiler import cuda_graphs, fast_runs

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


class Cache(torch.nn.Module):
    keys: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(4, 4)
        self.register_buffer("keys", torch.zeros(6, 4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(0, position, self.project(x))
        self.count.add_(1)
        return (self.keys.sum(0) * self.count).sin()


class Rerun:
    """Stands in for a CUDA graph: does again what was recorded, with the same memory."""

    def __init__(self, run: Callable[..., Any], inputs: Sequence[torch.Tensor], results: Sequence[Any]) -> None:
        self.run, self.inputs, self.results = run, [tensor.view_as(tensor) for tensor in inputs], results

    def replay(self) -> None:
        for result, new in zip(self.results, self.run(*self.inputs), strict=True):
            result.copy_(new)


def recorded_again(run: Callable[..., Any], inputs: Sequence[torch.Tensor], written: Sequence[int]) -> Any:
    plan = cuda_graphs.first_run(run, inputs, written)
    shortened = plan.applied(run)
    results = shortened(*[tensor.clone() if place in written else tensor for place, tensor in enumerate(inputs)])
    return Rerun(shortened, inputs, results), results, plan


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """CUDA graphs on the CPU: what is recorded is done again."""
    made: list[Any] = []

    def record(*arguments: Any) -> Any:
        made.append(arguments)
        return recorded_again(*arguments)

    monkeypatch.setattr(cuda_graphs, "DEVICE", "cpu")
    monkeypatch.setattr(cuda_graphs, "record", record)
    monkeypatch.setattr(cuda_graphs, "is_being_recorded", lambda: False)
    yield made


def assert_decodes(compiled: Any, model: Cache, other: Cache, steps: int = 6) -> None:
    """Both give and leave the same."""
    for step in range(steps):
        x, position = torch.randn(1, 4), torch.tensor([step % 6])
        assert torch.equal(compiled(x, position), other(x, position))
        assert torch.equal(model.keys, other.keys) and torch.equal(model.count, other.count)


def pair() -> tuple[Cache, Cache]:
    model, other = Cache(), Cache()
    other.load_state_dict(model.state_dict())
    return model, other


def fast_runs_of(compiled: Any) -> list[Any]:
    engine: Any = compiled._tintype_engine
    graphs = [item.graph for node in engine.program.nodes for item in node.items if getattr(item, "graph", None)]
    return [graph.run._only for graph in graphs]


@pytest.mark.parametrize("backend", ["aot_eager", "cudagraphs"])
def test_state_is_written_without_asking_again(backend: str) -> None:
    model, other = pair()
    compiled = tintype.compile(model, backend=backend)
    with torch.no_grad():
        assert_decodes(compiled, model, other)
    assert [type(run) for run in fast_runs_of(compiled)] == [fast_runs.WritingRun]


def test_replayed_graphs_write_and_tell_autograd(recordings: list[Any]) -> None:
    model, other = pair()
    compiled = tintype.compile(model, backend="cudagraphs")
    with torch.no_grad():
        assert_decodes(compiled, model, other, 5)
        assert len(recordings) == 1 and len(recordings[0][2]) == 2
        version = model.keys._version
        assert_decodes(compiled, model, other, 1)
        assert model.keys._version > version
        model.keys = model.keys.clone()  # at another place from now on
        other.keys = other.keys.clone()
        assert_decodes(compiled, model, other, 4)
        model.keys = model.keys.clone()
        other.keys = other.keys.clone()
        assert_decodes(compiled, model, other, 4)
    assert len(recordings) == 2


@pytest.mark.parametrize("backend", ["aot_eager", "cudagraphs"])
def test_memory_that_is_shared_at_one_call_only(backend: str, recordings: list[Any]) -> None:
    def program(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        c.mul_(2)
        return a * 2 + b

    def arguments(kind: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        whole = torch.arange(12.0)
        a, b, c = whole[:4].clone(), whole[4:8].clone(), whole[8:].clone()
        return [(a, b, c), (whole[:4], whole[2:6], c), (a, b, b), (a, a, c), (whole[:4], whole[4:8], whole[8:])][kind]

    compiled = tintype.compile(program, backend=backend)
    for kind in (0, 0, 0, 1, 0, 2, 3, 4, 0, 4, 1, 1, 2, 2, 3, 3, 0):
        given, expected = arguments(kind), arguments(kind)
        assert torch.equal(compiled(*given), program(*expected)), kind
        assert all(map(torch.equal, given, expected)), kind


@pytest.mark.parametrize("size", [0, 1, 3])
def test_other_sizes(size: int) -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a.copy_(b * 2)
        return a + 1, b - 1

    compiled = tintype.compile(program, backend="aot_eager")
    for _ in range(3):
        a, b = torch.zeros(size), torch.ones(size)
        results = compiled(a, b)
        assert torch.equal(a, b * 2) and torch.equal(results[0], b * 3 - b + 1) and torch.equal(results[1], b - 1)


def test_a_graph_of_what_is_detached_has_no_history() -> None:
    compiled = tintype.compile(lambda x: x.detach() * 2, backend="aot_eager")
    for _ in range(3):
        assert not compiled(torch.ones(3, requires_grad=True)).requires_grad


class Normalizing(Cache):
    """Layers hold the sizes that they normalize over, which are no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm((4,))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return super().forward(self.norm(x), position)


@pytest.mark.parametrize("backend", ["aot_eager", "cudagraphs"])
def test_tuples_of_numbers_are_part_of_graphs(backend: str, recordings: list[Any]) -> None:
    model, other = Normalizing(), Normalizing()
    other.load_state_dict(model.state_dict())
    compiled = tintype.compile(model, backend=backend)
    with torch.no_grad():
        assert_decodes(compiled, model, other)
    assert [type(run) for run in fast_runs_of(compiled)] == [fast_runs.WritingRun]


def test_what_is_recorded_writes_where_the_program_writes(recordings: list[Any]) -> None:
    model, other = pair()
    compiled = tintype.compile(model, backend="cudagraphs")
    operators: list[str] = []

    class Noting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            operators.append(function._overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    with torch.no_grad():
        assert_decodes(compiled, model, other, 2)
        for _ in range(3):
            with Noting():
                compiled(torch.randn(1, 4), torch.tensor([0]))
    assert len(recordings) == 1
    assert "index_copy_" in operators and "index_copy" not in operators


class Attending(Normalizing):
    """Attends to its cache twice, with one mask."""

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = super().forward(x[:1], position)
        keys, mask = self.keys[None, None], (torch.arange(6, device=x.device) <= position)[None, None, None]
        for _ in range(2):
            attended = torch.nn.functional.scaled_dot_product_attention(x[None, None, None], keys, keys, mask)
            x = attended.flatten() + 1
        return x


def attending(device: str) -> tuple[Attending, Attending]:
    model, other = Attending().to(device), Attending().to(device)
    other.load_state_dict(model.state_dict())
    return model, other


def assert_attends(compiled: Any, model: Cache, other: Cache, device: str) -> list[tuple[Any, Any]]:
    results = []
    for step in range(6):
        x, position = torch.randn(1, 4, device=device), torch.tensor([step], device=device)
        results.append((compiled(x, position), other(x, position)))
        torch.testing.assert_close((model.keys, model.count), (other.keys, other.count))
    for found, expected in results:  # what later replays write to is no result
        torch.testing.assert_close(found, expected)
    return results


def test_a_mask_is_turned_into_numbers_once(recordings: list[Any]) -> None:
    model, other = attending("cpu")
    compiled = tintype.compile(model, backend="cudagraphs")
    with torch.no_grad():
        assert_attends(compiled, model, other, "cpu")
    assert len(recordings) == 1
    (run,) = fast_runs_of(compiled)
    assert run.replay.recorded.plan.left_out >= 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    model, other = attending("cuda")
    compiled = tintype.compile(model, backend="cudagraphs")
    with torch.no_grad():
        assert_attends(compiled, model, other, "cuda")
        (run,) = fast_runs_of(compiled)
        assert run.replay.reason is None and run.replay.recorded.plan.left_out >= 4
        version = model.keys._version
        assert_attends(compiled, model, other, "cuda")
        assert model.keys._version > version
        model.keys, other.keys = model.keys.clone(), other.keys.clone()  # at other places from now on
        assert_attends(compiled, model, other, "cuda")
        whole = torch.zeros(12, 4, device="cuda")  # one call with memory that is shared
        model.keys, other.keys = whole[:6], whole[6:].clone()
        compiled(whole[2:3], torch.tensor([2], device="cuda"))
        assert torch.isfinite(model.keys).all()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_tuples_that_vary(backend: str) -> None:
    compiled = tintype.compile(lambda x, shape: x.reshape(shape).sin(), backend=backend)
    x = torch.randn(6)
    for shape in [(2, 3), (2, 3), (3, 2), (6,), (1, 6), (6, 1), (2, 3)]:
        assert torch.equal(compiled(x, shape), x.reshape(shape).sin())
    engine: Any = compiled.engine
    assert engine.captures <= 2


METADATA: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[], list[torch.Tensor]]]] = {
    "storage_offset": (torch.Tensor.storage_offset, lambda: [torch.ones(6)[:3], torch.ones(6)[3:]]),
    "is_inference": (torch.Tensor.is_inference, lambda: [torch.ones(3), in_inference_mode()]),
    "is_leaf": (lambda x: x.is_leaf, lambda: [parameter(), parameter() * 1]),
    "retains_grad": (lambda x: x.retains_grad, lambda: [parameter() * 1, retaining()]),
    "is_shared": (torch.Tensor.is_shared, lambda: [torch.ones(3), torch.ones(3).share_memory_()]),
}


def parameter() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def retaining() -> torch.Tensor:
    made = parameter() * 1
    made.retain_grad()
    return made


def in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", list(METADATA))
def test_metadata_that_no_description_tells(name: str, backend: str) -> None:
    read, examples = METADATA[name]

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if read(x) else x * 3

    compiled = tintype.compile(program, backend=backend)
    first, second = examples()
    assert not torch.equal(program(first), program(second))
    for x in (first, first, second, second, first):
        assert torch.equal(compiled(x), program(x))


def test_writes_to_what_nothing_uses_later() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        lost = x.clone()
        lost.mul_(2).add_(1)
        return x + 1

    compiled = tintype.compile(program, backend="aot_eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_memory_that_is_set_anew(backend: str) -> None:
    """``set_`` of a tensor with a history tells torch's modes of a part of what it does alone."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        doubled.set_(y)  # type: ignore[call-overload]
        return doubled + 1

    compiled = tintype.compile(program, backend=backend)
    for _ in range(3):
        x, y = torch.ones(3, requires_grad=True), torch.ones(2)
        assert torch.equal(compiled(x, y), program(x, y))


@pytest.mark.parametrize("dynamic", [None, True])
def test_an_index_out_of_bounds_of_an_empty_tensor(dynamic: bool | None) -> None:
    """There is nothing to write to, and eager mode raises all the same."""

    def program(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.index_put_((index,), torch.ones(1))

    compiled = tintype.compile(program, backend="aot_eager", dynamic=dynamic)
    for rows in (4, 4, 3):
        x, index = torch.zeros(rows, 2), torch.tensor([2])
        assert torch.equal(compiled(x.clone(), index), program(x, index))
    for _ in range(2):
        with pytest.raises(IndexError, match="out of bounds"):
            compiled(torch.zeros(0, 2), torch.tensor([0]))


@pytest.mark.parametrize("writes", [False, True])
def test_what_raises_prints_nothing(writes: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if writes:
            x.mul_(2)
        return (x.cos() + y).sin()

    compiled = tintype.compile(program, backend="aot_eager")
    for x, y in [(2, 2), (2, 2), (3, 2), (3, 2)]:
        if x == y:
            compiled(torch.ones(x), torch.ones(y))
        else:
            with pytest.raises(RuntimeError, match="must match"):
                compiled(torch.ones(x), torch.ones(y))
    assert not capsys.readouterr().err
