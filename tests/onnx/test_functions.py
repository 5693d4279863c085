"""Modules as ONNX functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tests.onnx.comparing import compared

BATCH = tintype.Dim("batch", max=64)


class Block(torch.nn.Module):
    def __init__(self, size: int, wide: bool = False) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(size)
        self.first = torch.nn.Linear(size, size * 2)
        self.second = torch.nn.Linear(size * 2, size)
        self.wide = wide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(torch.nn.functional.gelu(self.first(self.norm(x))))
        return x + y * 2 if self.wide else x + y


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(10, 4)
        self.blocks = torch.nn.ModuleList([Block(4), Block(4), Block(4), Block(4, wide=True)])
        self.head = torch.nn.Linear(4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.embed(x)
        for block in self.blocks:
            y = block(y)
        return self.head(y)


def functions_of(program: Any) -> dict[str, Any]:
    return {function.name: function for function in program.model.functions.values()}


@pytest.mark.parametrize("optimize", [True, "full"])
def test_layers_share_functions(optimize: Any) -> None:
    torch.manual_seed(0)
    example, other = torch.randint(0, 10, (2, 3)), torch.randint(0, 10, (5, 3))
    options: dict[str, Any] = {"functions": True, "dynamic_shapes": ({0: BATCH},), "optimize": optimize}
    program = compared(Model(), (example,), (other,), **options)
    found = functions_of(program)
    assert {name for name in found if name.startswith("Block")} == {"Block", "Block_2"}
    calls = {node.name: node.op_type for node in program.model.graph}
    assert [calls[f"blocks.{number}"] for number in range(4)] == ["Block", "Block", "Block", "Block_2"]
    assert {node.op_type for node in found["Block"]} >= {"LayerNorm", "Linear"}
    assert found["Block"].domain == __name__ and found["LayerNorm"].domain.startswith("torch.nn.modules")


def test_a_function_file_is_read_again(tmp_path: Any) -> None:
    model, example = Model(), torch.randint(0, 10, (2, 3))
    tintype.onnx.export(model, (example,), functions=True).save(tmp_path / "model.onnx")
    torch.testing.assert_close(tintype.onnx.load(tmp_path / "model.onnx")(example), model(example).detach())


class Branching(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        z = self.linear(x)
        return torch.cond(z.sum() > 0, lambda a: a + y, lambda a: a - y * 2, (z,)), y.cumprod(0)


class Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Branching(), Branching()
        self.count: torch.Tensor
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> Any:
        self.count.add_(1)
        a, b = self.first(x, x * 2)
        c, d = self.second(a, b + self.count)
        return a, c, d, x


def test_branches_and_loops_inside_of_functions() -> None:
    torch.manual_seed(1)
    program = compared(Outer(), (torch.randn(2, 3),), (torch.randn(2, 3),), functions=True)
    assert functions_of(program).keys() == {"Branching", "Linear"}


def test_a_module_called_twice_and_one_that_is_shared() -> None:
    class Shared(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.again = torch.nn.Sequential(self.linear, torch.nn.ReLU())

        def forward(self, x: torch.Tensor) -> Any:
            return self.linear(self.again(self.linear(x)))

    program = compared(Shared(), (torch.randn(2, 3),), functions=True)
    assert functions_of(program).keys() == {"Linear", "Sequential", "ReLU"}


def test_what_differs_is_named_by_its_operator() -> None:
    def wrong(op: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        return op.Neg(x)

    with pytest.raises(tintype.onnx.OnnxVerificationError, match=r"aten\.gelu\.default"):
        table = {torch.ops.aten.gelu.default: wrong}
        tintype.onnx.export(Model(), (torch.randint(0, 10, (2, 3)),), functions=True, translations=table)


class _Scores(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(8, width), torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.linear(x))
        return torch.einsum("bij,bkj->bik", y, y) @ y


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_of_other_sizes_share_functions_where_these_are_written_out(dtype: torch.dtype) -> None:
    """As they are for tensors without elements, and for bfloat16 on the processor."""
    torch.manual_seed(0)
    layers = (_Scores(8), torch.nn.Linear(8, 6), torch.nn.Linear(6, 8), _Scores(4))
    model = torch.nn.Sequential(*layers).eval().to(dtype)
    given = [(torch.randn(*sizes, 8).to(dtype),) for sizes in ((2, 3), (0, 3), (2, 0), (1, 1), (4, 5))]
    sizes = ({0: tintype.Dim("batch", min=0), 1: tintype.Dim("length", min=0)},)
    tolerance = 1e-4 if dtype is torch.float32 else 3e-1
    compared(model, *given, dynamic_shapes=sizes, functions=True, tolerance=tolerance)
