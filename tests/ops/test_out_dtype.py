"""out_dtype: operators whose result has another dtype than their arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tests.ops.programs import assert_like_eager
from tintype import Dim

aten = torch.ops.aten
out_dtype = torch.ops.higher_order.out_dtype

INT8 = torch.arange(-60, 60, 10, dtype=torch.int8).reshape(3, 4)


@pytest.mark.parametrize(
    ("operator", "dtype", "arguments"),
    [
        (aten.mm.default, torch.int32, (INT8, INT8.t())),
        (aten.mul.Tensor, torch.int16, (INT8, INT8)),
        (aten.mul.Scalar, torch.float64, (INT8, 2.5)),
        (aten.div.Tensor, torch.float16, (INT8, torch.tensor(7))),
        (aten.linear.default, torch.float32, (INT8.half(), INT8.half())),
        (
            aten.convolution.default,
            torch.int32,
            (INT8[None, None], INT8[:1, :2][None, None], None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        ),
    ],
)
def test_operators(operator: Any, dtype: torch.dtype, arguments: tuple[Any, ...]) -> None:
    tensors = tuple(value for value in arguments if isinstance(value, torch.Tensor))
    rest = arguments[len(tensors) :]

    def f(*values: torch.Tensor) -> torch.Tensor:
        return out_dtype(operator, dtype, *values, *rest)

    assert_like_eager(f, [tensors])
    program = tintype.export(f, tensors)
    (call,) = [node for node in program.graph.nodes if node.target is out_dtype]
    assert call.args[:2] == (operator, dtype)
    assert call.meta["val"].dtype is dtype


def test_sizes_that_vary() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return out_dtype(aten.mm.default, torch.int32, x, y) + 1

    examples = [(INT8, INT8.t()), (INT8.repeat(3, 1), INT8.t())]
    assert_like_eager(f, examples, dynamic_shapes={"x": {0: Dim("n")}, "y": None})


def test_a_tensor_that_is_written_to_before() -> None:
    def f(x: torch.Tensor) -> Any:
        y = out_dtype(aten.mul.Tensor, torch.int32, x, x)
        x.add_(1)
        z = out_dtype(aten.mul.Tensor, torch.int32, x, x)
        z.add_(1)
        return y, z

    assert_like_eager(f, [(INT8,)])


def test_what_torch_refuses() -> None:
    with pytest.raises(ValueError, match="functional operator"):
        tintype.export(lambda x: out_dtype(aten.add_.Tensor, torch.int32, x, x), (INT8,))
