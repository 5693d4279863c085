"""What ``contract()`` says of compiled functions, and ``fullgraph=True`` of graphs that can't be made."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


def halves(x: torch.Tensor, n: int = 2) -> torch.Tensor:
    rows = x.shape[0]
    return x[: rows // n] if rows % 2 == 0 else x


def test_sizes_that_vary_and_numbers_that_are_compared() -> None:
    compiled = tintype.compile(halves, dynamic=True)
    assert compiled.contract() == "halves has not been called: its first call is captured"
    compiled(torch.ones(4, 3))
    lines = compiled.contract().splitlines()
    assert lines[0] == "halves takes any call; these need no other capture:"
    assert "    1 positional argument" in lines
    assert "    argument 0: a Tensor; 2 dimensions; size 0 varies; size 1 varies; (size 0 % 2) == 0" in lines
    for rows in (0, 2, 8):
        compiled(torch.ones(rows, 5))
    assert compiled.engine.captures == 1
    compiled(torch.ones(5, 5))
    assert compiled.engine.captures == 2 and "not ((size 0 % 2) == 0)" in compiled.contract()


def test_values_dictionaries_and_what_is_around() -> None:
    def program(x: torch.Tensor, table: dict[str, Any], **named: Any) -> torch.Tensor:
        return x * table["a"] + named["q"]

    compiled = tintype.compile(program)
    compiled(torch.ones(2), {"a": 1}, q=3)
    text = compiled.contract()
    assert "2 positional arguments and q" in text and "argument 'q': 3" in text
    assert "argument 1: a dict; argument 1['a'] is 1" in text


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_modules(backend: str) -> None:
    compiled = tintype.compile(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()), backend=backend)
    compiled(torch.ones(2, 3))
    text = compiled.contract()
    assert "rests on: Sequential.0 has no hooks" in text
    shape = "a Tensor of torch.float32 (2, 3) with strides (3, 1) on cpu"
    assert (shape in text) == (backend == "aot_eager")


def test_functions_that_run_eagerly_say_so() -> None:
    compiled = tintype.compile(lambda x: [value for value in x if value])
    compiled(iter([1]))
    assert "run 1, eagerly: a list_iterator that was there before is looked into" in compiled.contract()


def test_one_or_two_objects() -> None:
    def program(a: list[int], b: list[int]) -> int:
        a.append(1)
        return len(b)

    compiled = tintype.compile(program)
    compiled([], [])
    assert "argument 0 is another object than argument 1" in compiled.contract()
    one: list[int] = []
    compiled(one, one)
    assert "argument 1 is argument 0" in compiled.contract()


def test_a_graph_that_cannot_be_made() -> None:
    class Reading(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            gradient.data_ptr()
            return gradient.clone()

    def program(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = Reading.apply(x) * 2
        return result

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="data pointer"):
        tintype.compile(program, backend="aot_eager", fullgraph=True)(x)
    compiled = tintype.compile(program, backend="aot_eager")
    for _ in range(3):
        x.grad = None
        compiled(x).sum().backward()
        assert x.grad is not None and torch.equal(x.grad, torch.full((3,), 2.0))
