"""Graphs of "aot_eager" for several sizes: captured once for those that vary, gradients included."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")

Function = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The graphs that ``aot`` records."""
    functions = importlib.import_module("tintype.aot.function")
    made: list[Any] = []
    real = functions.CompiledFunction._compile

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        made.append(args)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(functions.CompiledFunction, "_compile", counted)
    yield made


COUNTED: dict[str, Function] = {
    "len": lambda x: x * len(x),
    "length of a result": lambda x: x * len(x @ x.t()),
    "rows": lambda x: torch.stack([row * number for number, row in enumerate(x)]) if len(x) else x,
    "unbind": lambda x: sum(x.unbind(0), x.new_zeros(3)),
    "split": lambda x: torch.cat([part * number for number, part in enumerate(x.split(2))]),
    "chunk": lambda x: torch.cat([part * number for number, part in enumerate(x.chunk(2))]),
    "tolist": lambda x: x * len(x.tolist()),
    "text": lambda x: x * int(f"{x.shape[0]}") * int(str(len(x))),
    "range": lambda x: sum([x * number for number in range(len(x))], x),
    "strides": lambda x: x * x.t().stride(1) * x.nbytes,
    "where": lambda x: torch.stack(torch.where(x > 4)).sum(1),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", list(COUNTED))
def test_what_is_counted_by_a_size_that_varies(name: str, dynamic: bool | None, backend: str) -> None:
    function = COUNTED[name]
    compiled = tintype.compile(function, backend=backend, dynamic=dynamic)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tintype.RecompileWarning)
        for rows in (5, 5, 7, 7, 9, 2, 1, 1, 0, 12, 5):
            x = torch.arange(rows * 3.0).reshape(rows, 3) + 1
            assert torch.equal(compiled(x), function(x)), rows


def engine_of(compiled: Any) -> Any:
    return compiled._tintype_engine if isinstance(compiled, nn.Module) else compiled.engine


def assert_same(compiled: Any, function: Function, x: torch.Tensor, parameters: list[nn.Parameter]) -> None:
    """Values, layout and gradients as in eager mode."""
    mine, other = x.requires_grad_(), x.detach().clone().requires_grad_()
    got, expected = compiled(mine), function(other)
    torch.testing.assert_close(got, expected, check_stride=True)
    gradients = [
        torch.autograd.grad((result * result).sum(), [given, *parameters], allow_unused=True)
        for result, given in ((got, mine), (expected, other))
    ]
    for one, another in zip(*gradients, strict=True):
        torch.testing.assert_close(one, another)


def asks_for_sizes(x: torch.Tensor) -> torch.Tensor:
    rows = x.shape[0]
    scaled = x.view(rows, 3, 1) * rows
    return scaled.sum(-1).softmax(-1) + scaled.shape[0]


def looks_at_data(x: torch.Tensor) -> torch.Tensor:
    positive = (x * 2).relu()
    if positive.sum().item() > 1e9:
        return positive
    return positive.cumsum(0) @ torch.ones(3, 2)


def treats_few_rows_otherwise(x: torch.Tensor) -> torch.Tensor:
    return x.sin() if x.size(0) > 6 else x.cos()


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t().exp().contiguous() * len(x)


MODELS: dict[str, Function] = {
    "mlp": nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2)),
    "asks for sizes": asks_for_sizes,
    "looks at data": looks_at_data,
    "few rows": treats_few_rows_otherwise,
    "transposed": transposed,
    "sliced": lambda x: x[1:] * x[:-1],
    "squeezed": lambda x: x.squeeze().sum(-1) * 2,
}


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_other_sizes_are_as_in_eager_mode(name: str, dynamic: bool | None) -> None:
    function = MODELS[name]
    parameters = list(function.parameters()) if isinstance(function, nn.Module) else []
    compiled = tintype.compile(function, backend="aot_eager", dynamic=dynamic)
    for rows in (5, 5, 7, 7, 9, 4, 1, 1, 0, 0, 2, 11, 1):
        assert_same(compiled, function, torch.randn(rows, 3), parameters)


@pytest.mark.parametrize("name", ["mlp", "asks for sizes", "transposed", "looks at data"])
def test_a_third_size_is_neither_captured_nor_recorded(name: str, recordings: list[Any]) -> None:
    function = MODELS[name]
    compiled = tintype.compile(function, backend="aot_eager")
    for rows in (5, 5, 7, 7):
        assert_same(compiled, function, torch.randn(rows, 3), [])
    captures, recorded = engine_of(compiled).captures, len(recordings)
    assert captures == 2 and recorded
    for rows in (9, 4, 11, 128):
        assert_same(compiled, function, torch.randn(rows, 3), [])
    assert engine_of(compiled).captures == captures and len(recordings) == recorded


def test_a_training_loop_with_batches_of_several_sizes() -> None:
    torch.manual_seed(0)
    batches = [torch.randn(rows, 3) for rows in (4, 6, 5, 3, 4, 1, 6, 2)]
    losses = []
    for is_compiled in (False, True):
        torch.manual_seed(1)
        model = nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Tanh(), nn.Linear(8, 1)
        )
        model = model if not is_compiled else tintype.compile(model, backend="aot_eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in batches:
            if len(batch) == 1:
                continue  # batch norm refuses it
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
    assert losses[: len(losses) // 2] == pytest.approx(losses[len(losses) // 2 :], rel=1e-5)


def test_sizes_that_lie_otherwise_in_memory_are_no_part_of_it() -> None:
    compiled = tintype.compile(lambda x: x.relu() * 2, backend="aot_eager")
    for rows in (5, 5, 7, 7, 9):
        for x in (torch.randn(3, rows).t(), torch.randn(rows, 3), torch.randn(rows, 6)[:, ::2]):
            torch.testing.assert_close(compiled(x), x.relu() * 2, check_stride=True)


def test_two_arguments_that_are_of_one_size_at_first() -> None:
    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y).sin()

    compiled = tintype.compile(added, backend="aot_eager")
    for first, second in [(4, 4), (4, 4), (5, 5), (5, 5), (6, 6), (6, 1), (1, 6), (1, 1), (7, 7), (0, 0), (0, 1)]:
        x, y = torch.randn(first, 2), torch.randn(second, 2)
        torch.testing.assert_close(compiled(x, y), added(x, y), check_stride=True)
    with pytest.raises(RuntimeError, match="must match the size"):
        compiled(torch.ones(3, 2), torch.ones(2, 2))


def test_saved_compilations_keep_sizes_that_vary(tmp_path: Any) -> None:
    compiled = tintype.compile(transposed, backend="aot_eager")
    for rows in (5, 5, 7, 7):
        compiled(torch.randn(rows, 3))
    engine_of(compiled).save(tmp_path / "sizes.ttc")
    loaded = tintype.compile.load(tmp_path / "sizes.ttc", transposed)
    for rows in (9, 5, 1, 0, 12, 12):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(loaded(x), transposed(x), check_stride=True)
    assert engine_of(loaded).captures == 0


# --- marks ---------------------------------------------------------------------------------------------------------


def marked(rows: int, low: int | None = None, high: int | None = None) -> torch.Tensor:
    x = torch.ones(rows, 3)
    tintype.compile.mark_dynamic(x, 0, min=low, max=high)
    return x


def marked_by_torch(rows: int, low: int | None = None, high: int | None = None) -> torch.Tensor:
    x = torch.ones(rows, 3)
    torch._dynamo.mark_dynamic(x, 0, min=low, max=high)
    return x


@pytest.mark.parametrize("mark", [marked, marked_by_torch])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sizes_beyond_the_range_of_a_mark(backend: str, mark: Callable[..., torch.Tensor]) -> None:
    compiled = tintype.compile(lambda x: x * x.shape[0], backend=backend)
    with pytest.raises(tintype.ConstraintViolationError, match="is 10, which is not in the range"):
        compiled(mark(10, 2, 8))
    assert torch.equal(compiled(mark(5, 2, 8)), torch.full((5, 3), 5.0)) and compiled.engine.captures == 1
    for rows in (2, 8, 7):
        assert torch.equal(compiled(torch.ones(rows, 3)), torch.full((rows, 3), float(rows)))
    assert compiled.engine.captures == 1
    with pytest.raises(tintype.ConstraintViolationError, match="2 <= size <= 8"):
        compiled(mark(1, 2, 8))
    for rows in (9, 9, 12, 1, 0):  # those that promise nothing are another capture
        assert torch.equal(compiled(torch.ones(rows, 3)), torch.full((rows, 3), float(rows)))
    assert compiled.engine.captures <= 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_promised_size_that_the_program_fixes(backend: str) -> None:
    def fixing(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == 5 else x

    compiled = tintype.compile(fixing, backend=backend)
    for _ in range(2):
        with pytest.raises(tintype.ConstraintViolationError, match="rests on its being 5") as caught:
            compiled(marked(5))
        assert "maybe_mark_dynamic" in str(caught.value)
    x = torch.ones(5, 3)
    tintype.compile.maybe_mark_dynamic(x, 0)
    assert torch.equal(compiled(x), x * 2) and torch.equal(compiled(torch.ones(6, 3)), torch.ones(6, 3))


def test_marks_that_make_no_sense_are_refused() -> None:
    x: Any = torch.ones(2, 3)
    with pytest.raises(tintype.InvalidRequestError, match="no dimension 7"):
        tintype.compile.mark_dynamic(x, 7)
    with pytest.raises(tintype.InvalidRequestError, match="no size from 8 to 2"):
        tintype.compile.mark_dynamic(x, 0, min=8, max=2)
    with pytest.raises(tintype.InvalidRequestError, match="not of a int"):
        tintype.compile.mark_static(3, 0)
    assert not x.__dict__


def test_marks_win_over_dynamic_false() -> None:
    compiled = tintype.compile(lambda x: x * x.shape[0], dynamic=False)
    compiled(marked(5))
    assert torch.equal(compiled(torch.ones(6, 3)), torch.full((6, 3), 6.0)) and compiled.engine.captures == 1
