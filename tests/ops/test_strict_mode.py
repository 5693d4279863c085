"""strict_mode and mark_strict: functions and modules that are kept as graphs of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tests.ops.programs import assert_like_eager
from tintype import Dim
from tintype.ops.strict_mode import mark_strict, strict_mode

X = torch.linspace(-1.0, 2.0, 12).reshape(3, 4).requires_grad_()


@mark_strict
class Strict(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> Any:
        self.calls.add_(1)
        y = self.linear(x)
        y.add_(4)
        return y, x.sum() + self.calls.sum()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.strict = Strict()

    def forward(self, x: torch.Tensor) -> Any:
        y, total = self.strict(x.sin())
        return {"y": y * self.strict.calls, "total": total}


def test_modules_that_are_marked() -> None:
    model = Model()
    assert_like_eager(model, [(X,), (X * 2,)])
    program = tintype.export(model, (X,))
    (call,) = [node for node in program.graph.nodes if node.target is torch.ops.higher_order.strict_mode]
    assert [node.name for node in call.args[1]] == [
        "sin",
        "b_strict_calls",
        "p_strict_linear_weight",
        "p_strict_linear_bias",
    ]
    assert [name for name, _ in program.graph_module.named_children()] == ["strict_graph_0"]


def test_sizes_that_vary() -> None:
    def f(x: torch.Tensor) -> Any:
        return strict_mode(lambda x: x * x.shape[0], (x,)), strict_mode(lambda x: x[1:], (x,))

    assert_like_eager(f, [(X,), (torch.ones(7, 4),), (torch.ones(2, 4),)], dynamic_shapes={"x": {0: Dim("n")}})


def test_sizes_that_only_the_function_knows() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return strict_mode(lambda x: x[x > 0], (x,)) * 2

    assert_like_eager(f, [(X,), (-X,)])


def test_numbers_as_operands_and_results() -> None:
    def f(x: torch.Tensor) -> Any:
        return strict_mode(lambda x, n, m: (x * n + m, n + 1, None), (x, x.shape[0], 2.5))

    assert_like_eager(f, [(X,)])
    assert_like_eager(f, [(X,), (torch.ones(5, 4),)], dynamic_shapes={"x": {0: Dim("n")}})


def test_torch_s_own_function_is_taken_in() -> None:
    from torch._higher_order_ops.strict_mode import strict_mode as torch_strict_mode

    program = tintype.export(lambda x: torch_strict_mode(lambda x: x.cos(), (x,)), (X,))
    assert [name for name, _ in program.graph_module.named_children()] == ["strict_graph_0"]
    torch.testing.assert_close(program.module()(X), X.cos())


def test_containers_are_refused() -> None:
    @mark_strict
    class Container(torch.nn.Module):
        def forward(self, x: Any) -> torch.Tensor:
            return x[0][0].sum()

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Container()

        def forward(self, x: Any) -> torch.Tensor:
            return self.inner(x)

    with pytest.raises(RuntimeError, match="strict_mode HOO doesn't work unless its operands are tensors") as caught:
        tintype.export(Outer(), (((torch.ones(3),),),))
    assert "operand 0 is ((f32[3]))" in str(caught.value)
    assert "one by one" in str(caught.value)
