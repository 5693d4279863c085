"""Shape rules of torch's functional collectives: results that all processes of a group make together.

They are entered into the table when the first collective is met, since few programs have one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tintype.fake.info import TensorInfo, preserved_strides
from tintype.fake.rules.registry import RULES
from tintype.symbolic import Size

_BY_NAME: dict[str, Callable[..., TensorInfo]] = {}


def register() -> list[Any]:
    """Enter the rules into the table; returns the operators that they are of."""
    operators = [getattr(torch.ops._c10d_functional, name).default for name in _BY_NAME]
    RULES.update(zip(operators, _BY_NAME.values(), strict=True))
    return operators


def _rule(function: Any) -> Any:
    _BY_NAME[function.__name__] = function
    return function


def _like(info: TensorInfo) -> TensorInfo:
    return TensorInfo(info.sizes, preserved_strides(info.sizes, info.strides), info.dtype, info.device)


@_rule
def all_reduce(input: TensorInfo, reduce_op: str, group_name: str) -> TensorInfo:
    return input.fresh()


@_rule
def broadcast(input: TensorInfo, src: int, group_name: str) -> TensorInfo:
    return input.fresh()


@_rule
def wait_tensor(tensor: TensorInfo) -> TensorInfo:
    return _like(tensor)


@_rule
def all_gather_into_tensor(input: TensorInfo, group_size: int, group_name: str) -> TensorInfo:
    sizes = input.sizes or (1,)
    return input.fresh((sizes[0] * group_size, *sizes[1:]))


@_rule
def reduce_scatter_tensor(input: TensorInfo, reduce_op: str, group_size: int, group_name: str) -> TensorInfo:
    return input.fresh((input.sizes[0] // group_size, *input.sizes[1:]))


@_rule
def all_to_all_single(
    input: TensorInfo, output_split_sizes: list[Size], input_split_sizes: list[Size], group_name: str
) -> TensorInfo:
    total: Size = 0
    for size in output_split_sizes:
        total = total + size
    return input.fresh((total, *input.sizes[1:]))
