"""Compiled functions give eager mode's results, effects and exceptions, and are repeated by what they read."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from typing import Any

import pytest
import torch

import tintype
from tests.compiler.programs import check

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")

SCALE = 2


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    problem, _ = check(seed)
    assert problem is None, problem


def captures(compiled: Any) -> int:
    engine = compiled.engine if hasattr(compiled, "engine") else compiled._tintype_engine
    assert not engine.is_eager and not engine.given_up, compiled.explain()
    count: int = engine.captures
    return count


def test_a_run_is_repeated_for_other_sizes_dtypes_and_devices_that_nobody_asked_for() -> None:
    compiled = tintype.compile(lambda x: (x * 2).relu())
    for x in (torch.ones(2), torch.ones(3, 4), torch.ones(1, dtype=torch.float64), torch.ones(2, requires_grad=True)):
        assert torch.equal(compiled(x), (x * 2).relu())
    assert captures(compiled) == 1


def test_what_was_read_is_checked() -> None:
    global SCALE

    @tintype.compile
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * SCALE

    x = torch.ones(2)
    assert scaled(x)[0] == 2 and scaled(x)[0] == 2 and captures(scaled) == 1
    SCALE = 3
    try:
        assert scaled(x)[0] == 3 and captures(scaled) == 2
    finally:
        SCALE = 2
    assert scaled(x)[0] == 2 and captures(scaled) == 2


class Layer(torch.nn.Module):
    factor = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.drop = torch.nn.Dropout(0.5)
        self.calls = 0
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        return self.drop(self.norm(self.linear(x))) * self.factor


def test_modules_notice_what_happens_to_them() -> None:
    model = Layer()
    compiled = tintype.compile(model)
    x = torch.randn(4, 3)

    def same() -> None:
        expected = copy.deepcopy(model)
        torch.manual_seed(0)
        y = compiled(x.to(model.linear.weight.dtype))
        torch.manual_seed(0)
        torch.testing.assert_close(y, expected(x.to(model.linear.weight.dtype)), rtol=0, atol=0)

    same()
    same()
    assert captures(compiled) == 1
    compiled.eval()
    assert not model.training
    same()
    Layer.factor = 3.0
    try:
        same()
    finally:
        Layer.factor = 2.0
    model.linear.weight.data = torch.zeros(3, 3)
    same()
    model.linear = torch.nn.Linear(3, 3)
    same()
    model.double()
    same()
    handle = model.linear.register_forward_hook(lambda module, args, output: output + 1)
    same()
    handle.remove()
    same()
    assert len(model.seen) == 9


def test_variables_of_enclosing_functions_are_read_by_methods() -> None:
    factor, tensor = 2, torch.ones(2)

    class Scaled(torch.nn.Module):
        def __len__(self) -> int:
            return factor

        @staticmethod
        def times(x: torch.Tensor) -> torch.Tensor:
            return x * factor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.times(x) + factor * tensor + len(self)

    compiled = tintype.compile(Scaled())
    for value in (2, 2, 3):
        factor, tensor = value, torch.ones(2) * value
        assert compiled(torch.ones(2))[0] == value + value * value + value
    assert captures(compiled) == 2


def test_a_compiled_module_is_the_module() -> None:
    model = Layer()
    compiled = tintype.compile(model)
    assert isinstance(compiled, Layer) and list(compiled.state_dict()) == list(model.state_dict())
    compiled.calls = 7
    assert model.calls == 7 and compiled.linear is model.linear
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert type(other) is type(compiled) and other.linear is not model.linear
        assert other.eval()(torch.ones(1, 3)).shape == (1, 3)


def test_effects_and_breaks_happen_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    log: list[Any] = []

    @tintype.compile
    def noisy(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        print("sum", float(y.sum()) > 3)
        log.append(y)
        if y.sum() > 3:
            return y
        return -y

    for value in (0.0, 0.0, 5.0, 5.0, 0.0):
        x = torch.full((2,), value)
        result = noisy(x)
        assert torch.equal(result, (x + 1) if value else -(x + 1)) and torch.equal(log[-1], x + 1)
    assert len(log) == 5 and capsys.readouterr().out.count("sum") == 5
    assert captures(noisy) == 2 and "print is called for real" in noisy.explain()


def test_exceptions_are_the_programs() -> None:
    seen: list[str] = []

    @tintype.compile
    def guarded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        try:
            with torch.no_grad():
                return x + y
        except RuntimeError:
            seen.append("caught")
            return x

    x = torch.ones(2)
    for other in (2, 3, 2, 3):
        assert guarded(x, torch.ones(other)).shape == (2,) and torch.is_grad_enabled()
    assert seen == ["caught", "caught"] and captures(guarded) == 2

    @tintype.compile
    def raising(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return x + y

    raising(x, x)
    with pytest.raises(RuntimeError, match="must match"):
        raising(x, torch.ones(3))
    assert torch.is_grad_enabled()


def test_random_numbers_are_drawn_as_in_eager_mode() -> None:
    def noise(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(2) * random.random()

    compiled = tintype.compile(noise)
    for seed in range(3):
        random.seed(seed), torch.manual_seed(seed)
        found = compiled(torch.ones(2))
        random.seed(seed), torch.manual_seed(seed)
        assert torch.equal(found, noise(torch.ones(2)))


def test_inputs_that_are_one_tensor_or_share_memory() -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x if x is y else y * 2

    compiled = tintype.compile(write)
    for one in (False, True, False, True):
        x, z = torch.ones(4), torch.ones(4)
        expected = write(z, z if one else z[:2])
        assert torch.equal(compiled(x, x if one else x[:2]), expected) and torch.equal(x, z)


def test_what_cannot_be_captured_runs_eagerly_and_is_named() -> None:
    class Odd:
        def __format__(self, how: str) -> str:
            return str(SCALE)

    compiled = tintype.compile(lambda x, odd: x + float(f"{odd}"))
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2), Odd()), torch.ones(2) + SCALE)
    assert "Odd" in compiled.explain() and compiled.engine.captures == 1


def test_fullgraph_names_all_breaks() -> None:
    @tintype.compile(fullgraph=True)
    def broken(x: torch.Tensor) -> torch.Tensor:
        print("here")
        return x * x.sum().item()

    with pytest.raises(tintype.CaptureError, match=r"2 breaks(.|\n)*print(.|\n)*item"):
        broken(torch.ones(2))
    assert torch.equal(tintype.compile(lambda x: x + 1, fullgraph=True)(torch.ones(1)), torch.full((1,), 2.0))


@pytest.mark.parametrize("seed", range(100, 112))
def test_random_programs_with_gradients_as_graphs(seed: int) -> None:
    problem, _ = check(seed, "aot_eager")
    assert problem is None, problem


def test_backends_get_graphs_and_run_them() -> None:
    graphs: list[Any] = []
    runs: list[int] = []

    def backend(module: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        graphs.append([node.target for node in module.graph.nodes if node.op.startswith("call")])
        number = len(graphs)

        def run(*inputs: Any) -> Any:
            assert [tensor.shape for tensor in inputs] == [tensor.shape for tensor in example_inputs]
            runs.append(number)
            return module(*inputs)

        return run

    weight = torch.ones(2, requires_grad=True)

    @tintype.compile(backend=backend)
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.relu(x * weight) + x.T
        if y.sum() > 100:
            return y
        return y.sin()[0]

    for _ in range(3):
        x = torch.ones(2, 2)
        assert torch.equal(broken(x), (torch.relu(x * weight) + x.T).sin()[0])
    broken(torch.ones(2, 2)).sum().backward()
    assert weight.grad is not None and torch.allclose(weight.grad, torch.tensor([2.0, 2.0]).cos())
    assert [len(graph) for graph in graphs] == [6, 2] and runs == [1, 2] * 3 and captures(broken) == 1
    broken(torch.ones(2, 2).requires_grad_())
    assert captures(broken) == 2 and "requires_grad is True, not False" in broken.explain()


def test_other_backends_are_refused() -> None:
    with pytest.raises(tintype.TintypeError, match="backend"):
        tintype.compile(lambda x: x, backend="nonsense")


def test_functions_in_functions_and_marks() -> None:
    inner = tintype.compile(lambda x: x.sin())
    seen: list[int] = []

    @tintype.compile.disable
    def aside(x: torch.Tensor) -> torch.Tensor:
        seen.append(len(seen))
        return x * len(seen)

    @tintype.compile(backend="eager")
    def outer(x: torch.Tensor) -> torch.Tensor:
        tintype.compile.graph_break()
        return aside(inner(x)) + 1

    x = torch.ones(2)
    for number in (1, 2, 3):
        torch.testing.assert_close(outer(x), x.sin() * number + 1)
    assert seen == [0, 1, 2] and captures(outer) == 1 and inner.engine.captures == 0


def test_two_threads_call_one_function() -> None:
    compiled = tintype.compile(lambda x, k: (x * k).sum(), backend="eager")
    wrong: list[Any] = []

    def work(k: int) -> None:
        wrong.extend(k for _ in range(20) if compiled(torch.ones(3), k).item() != 3 * k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_keeps_tensors_alive() -> None:
    import gc
    import weakref

    compiled = tintype.compile(lambda x: [x * 2, x + 1])
    x = torch.ones(3)
    compiled(x), compiled(x)
    reference = weakref.ref(x)
    del x
    gc.collect()
    assert reference() is None
