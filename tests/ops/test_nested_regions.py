"""torch.compiler.nested_compile_region: marked functions are recorded once, as invoke_subgraph."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.compiler import nested_compile_region

import tintype
from tests.ops.programs import STAGES, assert_like_eager, at_stage
from tintype import Dim
from tintype.trace.recorder import Recorder

X = torch.linspace(-1.0, 2.0, 12).reshape(3, 4).requires_grad_()


class Layer(torch.nn.Module):
    def __init__(self, log: list[str], scale: float = 2.0) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))
        self.scale = scale
        self.log = log

    @nested_compile_region
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.log.append("called")
        self.total.add_(x.detach().sum(0))
        y = self.linear(x)
        return y.mul_(self.scale).relu_() + self.total


class Stack(torch.nn.Module):
    def __init__(self, *scales: float) -> None:
        super().__init__()
        self.__dict__["log"] = log = Quiet()
        self.layers = torch.nn.ModuleList(Layer(log, scale) for scale in scales)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Quiet:
    """Counts calls, outside of what a capture puts back."""

    count = 0

    def append(self, text: str) -> None:
        Quiet.count += 1


def calls(program: tintype.ExportedProgram) -> list[Any]:
    return [node for node in program.graph.nodes if node.target is torch.ops.higher_order.invoke_subgraph]


def graphs(program: tintype.ExportedProgram) -> list[str]:
    return [name for name, _ in program.graph_module.named_children()]


@pytest.mark.parametrize("stage", STAGES)
def test_alike_layers_are_one_graph(stage: str) -> None:
    model = Stack(2.0, 2.0, 2.0)
    program = at_stage(stage, model, (X,))
    assert len(calls(program)) == 3
    assert graphs(program) == ["repeated_subgraph0"]
    assert {node.args[1] for node in calls(program)} == {"subgraph_0"}
    assert_like_eager(model, [(X,), (X * 2,)], stages=(stage,))


@pytest.mark.direct("the model notes how often it is called")
def test_alike_layers_are_run_once() -> None:
    Quiet.count = 0
    tintype.export(Stack(*[2.0] * 10), (X,))
    assert Quiet.count == 1


def test_other_attributes_make_another_graph() -> None:
    model = Stack(2.0, 3.0, 2.0)
    assert graphs(tintype.export(model, (X,))) == ["repeated_subgraph0", "repeated_subgraph1"]
    assert_like_eager(model, [(X,)])


def test_other_sizes_make_another_graph() -> None:
    @nested_compile_region
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * x.shape[0]

    def f(x: torch.Tensor) -> Any:
        return double(x), double(x[1:]), double(x + 1), double(x.int())

    assert len(graphs(tintype.export(f, (X,)))) == 3
    assert_like_eager(f, [(X,)])
    examples = [(X,), (torch.ones(5, 4),), (torch.ones(2, 4),)]
    assert_like_eager(f, examples, dynamic_shapes={"x": {0: Dim("n", min=2)}})


def test_arguments_in_containers_and_numbers() -> None:
    @nested_compile_region
    def combine(pair: Any, *, factor: float, names: Any = ("a", "b")) -> Any:
        return {names[0]: pair["x"] * factor, names[1]: (pair["y"][0] + pair["x"],)}

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        first = combine({"x": x, "y": [y]}, factor=2.0)
        second = combine({"x": y, "y": [x]}, factor=2.0)
        third = combine({"x": y, "y": [x]}, factor=3.0)
        return first, second, third

    y = X.detach() + 1
    assert_like_eager(f, [(X, y.requires_grad_())])
    assert len(graphs(tintype.export(f, (X, y)))) == 2


def test_functions_use_what_is_around_them() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = y * 2

        @nested_compile_region
        def add(x: torch.Tensor) -> torch.Tensor:
            return x + z

        first = add(add(x))
        z = y * 3
        return first + add(x)

    assert_like_eager(f, [(X, X.detach() + 1)])


def test_the_same_tensor_twice_is_another_call() -> None:
    @nested_compile_region
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * y

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        x, y = x * 1, y * 1
        return write(x, y), write(y, x), write(x, x), x, y

    assert len(graphs(tintype.export(f, (X.detach(), X.detach() + 1)))) == 2
    assert_like_eager(f, [(X.detach(), X.detach() + 1)])


def test_a_function_that_changes_its_arguments_is_run_again() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        @nested_compile_region
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x + self.calls

    counter = Counter()

    def f(x: torch.Tensor) -> torch.Tensor:
        counter.calls = 0
        return counter(counter(counter(x)))

    torch.testing.assert_close(tintype.export(f, (X,)).module()(X), X + 6)


def test_numbers_from_data_are_others_in_every_call() -> None:
    @nested_compile_region
    def first_rows(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        count = n.item()
        torch._check(count >= 0)
        torch._check(count <= 3)
        return x[:count] * 2

    def f(x: torch.Tensor, n: torch.Tensor, m: torch.Tensor) -> Any:
        return first_rows(x, n), first_rows(x, m)

    example = (X, torch.tensor(1), torch.tensor(2))
    assert_like_eager(f, [example, (X, torch.tensor(3), torch.tensor(0))])


def test_results_that_share_memory() -> None:
    @nested_compile_region
    def both(x: torch.Tensor) -> Any:
        y = x * 2
        return y, y[0], x

    def f(x: torch.Tensor) -> Any:
        first, row, same = both(x)
        return both(first), row, same

    assert_like_eager(f, [(X,)])

    def write(x: torch.Tensor) -> Any:
        y, row, _ = both(x)
        y.add_(1)
        return row

    with pytest.raises(tintype.CaptureError, match="frozen"):
        tintype.export(write, (X.detach(),))


def test_regions_in_regions_and_branches() -> None:
    @nested_compile_region
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @nested_compile_region
    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(inner(x)) + 1

    def f(x: torch.Tensor) -> torch.Tensor:
        y = tintype.cond(x.sum() > 0, lambda x: outer(outer(x)), lambda x: outer(x), (x,))
        return outer(outer(y))

    assert_like_eager(f, [(X,), (-X,)])
    program = tintype.export(f, (X,))
    assert graphs(program) == ["true_graph_0", "false_graph_0", "repeated_subgraph0"]
    assert [name for name, _ in program.graph_module.repeated_subgraph0.named_children()] == ["repeated_subgraph0"]


def test_what_a_region_needs_of_sizes_the_program_needs() -> None:
    @nested_compile_region
    def halves(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, -1)

    with pytest.raises(tintype.ConstraintViolationError):
        tintype.export(lambda x: halves(x), (torch.ones(4),), dynamic_shapes={"x": {0: Dim("n")}})
    program = tintype.export(lambda x: halves(x), (torch.ones(4),), dynamic_shapes={"x": {0: 2 * Dim("half")}})
    assert program.module()(torch.ones(10)).shape == (2, 5)


def test_no_memory_is_kept() -> None:
    def recorders() -> int:
        gc.collect()
        return sum(issubclass(type(thing), Recorder) for thing in gc.get_objects())

    before = recorders()
    tintype.export(Stack(1.0, 1.0), (X,))
    tintype.export_joint(lambda x: doubled(doubled(x)).sum(), (X,))
    assert recorders() <= before


def test_no_trace_is_left() -> None:
    module = sys.modules["torch._higher_order_ops.invoke_subgraph"]
    before: Callable[..., Any] = module.invoke_subgraph_placeholder
    tintype.export(Stack(1.0), (X,))
    assert module.invoke_subgraph_placeholder is before
    with pytest.raises(RuntimeError, match="wrong"):
        tintype.export(failing, (X,))
    assert module.invoke_subgraph_placeholder is before


@nested_compile_region
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@nested_compile_region
def failing(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("wrong")


def test_a_region_in_another_mode_is_another_graph() -> None:
    """Under autocast it computes in another dtype, without gradients it has none."""

    @nested_compile_region
    def product(x: torch.Tensor) -> torch.Tensor:
        return x @ x.mT

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            first = product(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                second = product(x)
            with torch.no_grad():
                third = product(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                again = product(x)
            return first, second, third, again

    program = tintype.export(Model(), (X,))
    for found, expected in zip(program.module()(X), Model()(X), strict=True):
        assert found.dtype is expected.dtype and found.requires_grad is expected.requires_grad
        torch.testing.assert_close(found, expected)
    graphs = [call.args[0].target for call in calls(program)]
    assert len(set(graphs)) == 3 and graphs[1] == graphs[3]


def test_numbers_of_a_region_count_bit_for_bit() -> None:
    @nested_compile_region
    def angle(x: torch.Tensor, number: complex) -> torch.Tensor:
        return torch.atan2(x * number.imag, x * number.real)

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [angle(x, complex(-1.0, 0.0)), angle(x, complex(-1.0, -0.0))]

    found = tintype.export(Model(), (torch.ones(2),)).module()(torch.ones(2))
    torch.testing.assert_close(found, Model()(torch.ones(2)))
