"""What elementwise kernels make of strides where a size is one: any number counts as contiguous there."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import tintype
from tintype.fake.info import TensorInfo
from tintype.fake.rules import RULES

aten = torch.ops.aten

OPERATORS: list[tuple[Any, int, tuple[Any, ...]]] = [
    *[(operator.default, 1, ()) for operator in (aten.tanh, aten.neg, aten.relu, aten.isnan, aten.gelu, aten.exp)],
    *[(operator.default, 1, ()) for operator in (aten.hardtanh, aten.relu6, aten.leaky_relu, aten.nan_to_num)],
    *[(operator.Scalar, 1, (2,)) for operator in (aten.add, aten.mul, aten.div, aten.lt, aten.fmod, aten.fill)],
    (aten.pow.Tensor_Scalar, 1, (2,)),
    *[(operator.Tensor, 2, ()) for operator in (aten.add, aten.div, aten.eq)],
    *[(operator.default, 2, ()) for operator in (aten.maximum, aten.atan2)],
    (aten.where.self, 3, ()),
]


def _tensor(choose: random.Random, sizes: list[int]) -> torch.Tensor:
    order = choose.choice([sorted(range(len(sizes))), choose.sample(range(len(sizes)), len(sizes))])
    strides, step = [0] * len(sizes), 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= sizes[dimension] * choose.choice([1, 1, 1, 2])
    strides = [choose.choice([stride, 0, 2, 7]) if size == 1 else stride for size, stride in zip(sizes, strides)]
    return torch.zeros(4096).as_strided(sizes, strides)


@pytest.mark.parametrize(("operator", "count", "others"), OPERATORS, ids=lambda value: str(value))
def test_strides_are_those_of_eager_mode(operator: Any, count: int, others: tuple[Any, ...]) -> None:
    choose = random.Random(str(operator))
    for _ in range(300):
        sizes = [choose.choice([1, 1, 2, 3]) for _ in range(choose.randrange(1, 5))]
        smaller = [choose.choice([size, size, size, 1]) for size in sizes]
        given = [_tensor(choose, shape) for shape in [sizes, smaller, sizes][:count]]
        if operator is aten.where.self:
            given[0] = given[0] > 0
        infos = [TensorInfo(tuple(one.shape), one.stride(), one.dtype, one.device) for one in given]
        strides = RULES[operator](*infos, *others).strides
        assert strides == operator(*given, *others).stride(), [(one.shape, one.stride()) for one in given]


def test_a_program_that_asks_for_strides() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.tanh()
        return y * y.stride(0)

    x = torch.randn(2)[::2]
    for called in (tintype.export(function, (x,)).module(), tintype.aot.function(function)):
        assert torch.equal(called(x), function(x))
