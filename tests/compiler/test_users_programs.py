"""Programs as users write them, against eager mode."""

from __future__ import annotations

import asyncio
import pickle
import warnings

import pytest
import torch

import tintype


def through(graph_module, example_inputs):
    return graph_module.forward


BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", through])


@BACKENDS
def test_warnings_are_given_by_every_call(backend):
    def warns(x):
        y = x * 2
        warnings.warn("seen", stacklevel=1)
        return y if y.sum() > 0 else -y

    fast = tintype.compile(warns, backend=backend)
    for value in (1.0, 1.0, -1.0, 1.0, -1.0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert torch.equal(fast(torch.full((2,), value)), torch.full((2,), 2.0))
        assert [(str(w.message), w.filename, w.lineno) for w in caught] == [
            ("seen", __file__, warns.__code__.co_firstlineno + 2)
        ]
    assert "break: a warning" not in fast.explain()


@BACKENDS
def test_warnings_about_callers_name_the_line_of_each_caller(backend):
    def warns(x):
        warnings.warn(UserWarning("objects", "too"), stacklevel=2)
        return x + 1

    fast, found = tintype.compile(warns, backend=backend), []
    for _ in range(3):
        for function in (fast, warns):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                function(torch.ones(2))
            (warning,) = caught
            found.append((warning.filename, warning.lineno, warning.message.args))
    assert found == [found[0]] * 6 and found[0][0] == __file__ and found[0][2] == ("objects", "too")
    assert "eagerly" not in fast.explain()


def test_a_warning_that_is_an_error_can_be_caught():
    def warns(x):
        try:
            warnings.warn("seen", stacklevel=1)
        except UserWarning:
            return x * 2
        return x + 1

    fast = tintype.compile(warns)
    for action in ("error", "ignore", "error", "ignore"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            assert torch.equal(fast(torch.ones(2) * 3), warns(torch.ones(2) * 3))


def warns_and_doubles(x):
    warnings.warn("saved", stacklevel=1)
    return x * 2


def test_warnings_are_given_by_saved_runs(tmp_path):
    fast = tintype.compile(warns_and_doubles, fullgraph=True)
    with pytest.warns(UserWarning, match="saved"):
        fast(torch.ones(2))
    fast.save(tmp_path / "runs")
    loaded = tintype.compile.load(tmp_path / "runs", warns_and_doubles)
    with pytest.warns(UserWarning, match="saved") as caught:
        assert torch.equal(loaded(torch.ones(2)), torch.full((2,), 2.0))
    assert [warning.lineno for warning in caught] == [warns_and_doubles.__code__.co_firstlineno + 1]
    assert "0 captures" in loaded.explain()


@BACKENDS
def test_an_async_function_runs_as_it_is(backend):
    async def doubled(x):
        await asyncio.sleep(0)
        return x * 2

    fast = tintype.compile(doubled, backend=backend)
    for size in (1, 2, 0):
        assert torch.equal(asyncio.run(fast(torch.ones(size))), torch.full((size,), 2.0))


def test_an_async_function_is_no_single_graph():
    async def doubled(x):
        return x * 2

    fast = tintype.compile(doubled, fullgraph=True)
    with pytest.raises(tintype.CaptureError, match="async def"):
        fast(torch.ones(2))
    with tintype.set_stance("force_eager"):
        assert torch.equal(asyncio.run(fast(torch.ones(1))), torch.full((1,), 2.0))


@pytest.mark.parametrize(
    "operation", [lambda x: x**3, lambda x: 2**x, lambda x: 1 - x, lambda x: 1 / x, lambda x: x.norm()]
)
def test_graphs_name_methods_that_are_written_in_python_so_that_their_code_runs(operation):
    def from_its_code(graph_module, example_inputs):
        return pickle.loads(pickle.dumps(graph_module)).forward

    fast = tintype.compile(lambda x: operation(x).sum(), backend=from_its_code)
    for size in (2, 2, 3, 1):
        x = torch.full((size,), 3.0)
        assert torch.equal(fast(x), operation(x).sum())


@pytest.mark.parametrize(
    "make",
    [
        torch.zeros_like,
        torch.rand_like,
        lambda x: torch.ones(3),
        lambda x: torch.zeros(3).add_(x.detach()),
        lambda x: (x * 2, torch.zeros_like(x))[1],
    ],
)
@pytest.mark.parametrize("requires_grad", [False, True])
@BACKENDS
def test_results_that_are_made_of_nothing_may_be_written_to(make, requires_grad, backend):
    weight = torch.nn.Parameter(torch.full((3,), 2.0))
    fast = tintype.compile(make, backend=backend)
    for _ in range(3):
        x = torch.ones(3, requires_grad=requires_grad)
        torch.manual_seed(0)
        made = fast(x)
        torch.manual_seed(0)
        expected = make(x)
        assert made._is_view() is expected._is_view() is False
        with torch.no_grad():
            other = fast(x)
        made.mul_(weight)
        assert not other._is_view() and made.grad_fn is not None


def test_graphs_that_write_and_cannot_be_recorded_raise_what_eager_mode_raises():
    def written(x, y):
        x.add_(1)
        return x @ y

    fast = tintype.compile(written, backend="aot_eager", dynamic=True)
    x, other = torch.ones(3), torch.ones(3)
    for size in (3, 4, 3, 5, 4, 3):
        outcomes = []
        for function, tensor in ((fast, x), (written, other)):
            try:
                outcomes.append(float(function(tensor, torch.ones(size))))
            except Exception as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]
        assert torch.equal(x, other)


def test_writes_before_an_exception_of_a_graph_are_done():
    def written(x, index):
        x.add_(1)
        return x.gather(0, index) * 2

    fast = tintype.compile(written, backend="aot_eager")
    x, other = torch.ones(3), torch.ones(3)
    for value in (1, 7, 2, 9):
        outcomes = []
        for function, tensor in ((fast, x), (written, other)):
            try:
                outcomes.append(float(function(tensor, torch.tensor([value]))))
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
        assert torch.equal(x, other)
