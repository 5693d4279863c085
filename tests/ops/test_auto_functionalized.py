"""auto_functionalized: custom operators that write to their arguments."""

from __future__ import annotations

import operator as operator_module
from typing import Any

import pytest
import torch

import tintype
from tests.ops.programs import STAGES, assert_like_eager, at_stage
from tintype import Dim
from tintype.ops.auto_functionalized import auto_functionalized

target = torch.ops.higher_order.auto_functionalized


@torch.library.custom_op("tests_auto_functionalized::fill", mutates_args={"x", "y"})
def fill(x: torch.Tensor, y: torch.Tensor | None, value: float) -> None:
    x.fill_(value)
    if y is not None:
        y.add_(value)


@torch.library.custom_op("tests_auto_functionalized::count", mutates_args={"total"})
def count(x: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total.add_(x.sum())
    return x * 2, x + total


@count.register_fake
def _(x: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        y = x + 1
        fill(y[0], x, 3.0)
        fill(y[1], None, 4.0)
        first, second = count(y, self.total)
        return first, second * self.total, y


X = torch.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize("stage", STAGES)
def test_like_eager(stage: str) -> None:
    assert_like_eager(Model(), [(X,), (X * 2,)], stages=(stage,), gradients=False)


def test_sizes_that_vary() -> None:
    examples = [(X,), (torch.arange(10.0).reshape(5, 2),)]
    assert_like_eager(Model(), examples, gradients=False, dynamic_shapes={"x": {0: Dim("n", min=2)}})


def called(program: tintype.ExportedProgram) -> list[Any]:
    return [node for node in program.graph.nodes if node.target is target]


def test_results_stand_where_torch_has_them() -> None:
    """An operator without results has a None in the first place; torch's operator gives the same."""
    program = tintype.export(lambda x: fill(x, None, 2.0), (X.clone(),))
    (call,) = called(program)
    assert call.args == (torch.ops.tests_auto_functionalized.fill.default,)
    assert [type(value) for value in call.meta["val"]] == [type(None), tintype.fake.tensor.FakeTensor, type(None)]
    assert program.graph.find_nodes(op="output")[0].args[0][0].args == (call, 1)
    operator = torch.ops.tests_auto_functionalized.fill.default
    theirs = target(operator, x=X, y=None, value=2.0)
    ours = tintype.ops.auto_functionalized.run(operator, x=X, y=None, value=2.0)
    torch.testing.assert_close(ours, theirs)


def test_a_program_that_is_captured_again_is_the_same() -> None:
    program = at_stage("export", Model(), (X.clone(),))
    again = tintype.export(program.module(), (X.clone(),))
    targets = [str(node.target) for node in again.graph.nodes if node.op == "call_function"]
    assert len(called(again)) == len(called(program)) == 3
    assert not any("tests_auto_functionalized" in name for name in targets)


def test_programs_of_earlier_versions() -> None:
    """They call a function of ours, which has no place for the results of an operator without any."""
    operator = torch.ops.tests_auto_functionalized.fill.default
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    call = graph.call_function(auto_functionalized, (operator,), {"x": x, "y": None, "value": 5.0})
    graph.output(graph.call_function(operator_module.getitem, (call, 0)))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    assert module(X).eq(5).all()
    assert tintype.export(module, (X,)).module()(X).eq(5).all()


# --- lists that are written to -------------------------------------------------------------------------------------


@torch.library.custom_op("tests_auto_functionalized::add_to_all", mutates_args={"xs"})
def add_to_all(xs: list[torch.Tensor], value: float) -> None:
    for x in xs:
        x.add_(value)


class Lists(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> Any:
        y, z = x + 1, x * 2
        add_to_all([y[0], z, x, self.total], 3.0)
        add_to_all([z[1]], 1.0)
        return y, z + self.total


@pytest.mark.parametrize("stage", STAGES)
def test_lists_that_are_written_to(stage: str) -> None:
    assert_like_eager(Lists(), [(X,), (X * 2,)], stages=(stage,), gradients=False)


@pytest.mark.parametrize("stage", STAGES)
def test_an_empty_list_is_written_to(stage: str) -> None:
    def nothing_to_write(x: torch.Tensor) -> torch.Tensor:
        add_to_all([], 3.0)
        return x + 1

    program = at_stage(stage, nothing_to_write, (X,))
    assert torch.equal(program.module()(X), X + 1)


def test_a_list_whose_tensors_share_memory_is_refused() -> None:
    def overlapping(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        add_to_all([y[0], y[1]], 2.0)
        return y

    with pytest.raises(tintype.CaptureError, match="that share memory, which can't be captured"):
        tintype.export(overlapping, (X,))


@torch.library.custom_op("tintype_tests::doubled_and_added", mutates_args={"x"})
def doubled_and_added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x + y


@doubled_and_added.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("tintype_tests::doubled_in_lists", mutates_args={"ys"})
def doubled_in_lists(xs: list[torch.Tensor], ys: list[torch.Tensor]) -> tuple[torch.Tensor, int, list[torch.Tensor]]:
    ys[0].mul_(2)
    return xs[0] + ys[0], 3, [x + 1 for x in xs]


@doubled_in_lists.register_fake
def _(xs: list[torch.Tensor], ys: list[torch.Tensor]) -> tuple[torch.Tensor, int, list[torch.Tensor]]:
    return torch.empty_like(xs[0]), 3, [torch.empty_like(x) for x in xs]


def sum_of_results(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    total, number, others = doubled_in_lists([x, w * 1], [w])
    return total * number + others[0] + others[1]


@pytest.mark.parametrize(
    "model",
    [
        lambda w: doubled_and_added(w, w),
        lambda w: doubled_and_added(w, w.view(-1)),
        lambda w: doubled_and_added(w[:2], w[1:]),
        lambda w: doubled_and_added(w.clone().add_(1), w) + doubled_and_added(w, w),
        lambda w: sum_of_results(w, w),
        lambda w: sum_of_results(w, w[:]),
    ],
    ids=["the same", "a view of it", "in part", "in the second call", "several results", "a view, several results"],
)
def test_what_is_read_through_another_argument_is_no_old_value(model) -> None:
    w = torch.tensor([1.0, 2.0, 3.0])
    with pytest.raises(tintype.MutationError, match="reads through another view"):
        tintype.export(model, (w.clone(),))
    with pytest.raises(tintype.MutationError, match="reads through another view"):
        tintype.aot.function(model)(w.clone())
    expected = model(w.clone())
    torch.testing.assert_close(tintype.export_for_training(model, (w.clone(),)).module()(w.clone()), expected)


@pytest.mark.parametrize(
    "model",
    [
        lambda w: doubled_and_added(w[:1], w[2:]),
        lambda w: doubled_and_added(w, w.clone()),
        lambda w: doubled_and_added(w, torch.ones(3)) + doubled_and_added(w, w + 1),
        lambda w: sum_of_results(w[:1], w[2:]),
    ],
    ids=["apart", "a copy", "twice", "of several results"],
)
def test_memory_that_is_apart_may_be_read(model) -> None:
    w = torch.tensor([1.0, 2.0, 3.0])
    given, wanted = w.clone(), w.clone()
    torch.testing.assert_close(tintype.export(model, (w.clone(),)).module()(given), model(wanted))
    torch.testing.assert_close(given, wanted)


@torch.library.custom_op("tests_auto_functionalized::sum_into", mutates_args={"total"})
def sum_into(x: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
    if total is not None:
        total.copy_(x.sum())
    return x * 3


@sum_into.register_fake
def _(x: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
    return torch.empty_like(x)


def test_torchs_programs_leave_out_what_would_be_written_to() -> None:
    """Torch's operator asks for all that would be written to by name."""

    def both(x: torch.Tensor, total: torch.Tensor) -> Any:
        return sum_into(x), sum_into(x, total), total + 1

    program = tintype.export(both, (X, torch.zeros(())))
    nodes = program.graph.find_nodes(op="call_function", target=target)
    for node in nodes:  # as programs have it that were made elsewhere
        node.kwargs = {name: value for name, value in node.kwargs.items() if value is not None}
    theirs = tintype.interop.to_torch(program).module()
    totals = torch.zeros(()), torch.zeros(())
    torch.testing.assert_close(theirs(X, totals[0]), both(X, totals[1]))
    assert torch.equal(*totals)
