"""``out_dtype``: an operator whose result has another dtype than its arguments.

``out_dtype(operator, dtype, *arguments)`` computes as if the arguments were converted before, which a kernel need not
do.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from tintype import tree
from tintype.fake.tensor import make_fake
from tintype.ir.graph import append_call, base_name
from tintype.ir.node_info import NodeMeta
from tintype.ir.operators import HigherOrderOperator, declare
from tintype.ops.gradients import differentiable
from tintype.ops.subgraphs import captured
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder

target = torch.ops.higher_order.out_dtype


def run(operator: torch._ops.OpOverload, dtype: torch.dtype, *arguments: Any) -> torch.Tensor:
    """The operator on tensors with data.

    >>> import torch
    >>> x = torch.full((2, 2), 100, dtype=torch.int8)
    >>> run(torch.ops.aten.mm.default, torch.int32, x, x)
    tensor([[20000, 20000],
            [20000, 20000]], dtype=torch.int32)
    """
    if _is_integer_product(operator, dtype, arguments):
        return torch._int_mm(*arguments)
    example = torch.ones(1, dtype=dtype)
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    working, _ = elementwise_dtypes(*tree.leaves(arguments), example, type_promotion_kind=kind)
    converted = [value.to(working) if isinstance(value, torch.Tensor) else value for value in arguments]
    return operator(*converted).to(dtype)


def _is_integer_product(operator: Any, dtype: torch.dtype, arguments: Any) -> bool:
    """Whether there is a kernel that does it without converting."""
    return (
        operator is torch.ops.aten.mm.default
        and dtype is torch.int32
        and all(argument.dtype is torch.int8 and argument.is_cuda for argument in arguments)
    )


@captures(target)
def capture(recorder: Recorder, operator: torch._ops.OpOverload, dtype: torch.dtype, *arguments: Any) -> Any:
    if any(differentiable(recorder, tree.leaves(arguments))):
        return recorder.resumed(
            lambda: run(operator, dtype, *arguments)
        )  # autograd has the gradients of what it does
    example, _ = recorder.unrecorded(lambda: run(operator, dtype, *arguments))
    result = make_fake(example.info.with_storage(None), recorder.context)
    _, nodes = recorder.convert(arguments)
    name = base_name(target)
    meta = NodeMeta({"val": result}, recorder.origin_of(name))
    result.node = append_call(recorder.graph, target, (operator, dtype, *nodes), {}, name, meta)
    return result


declare(HigherOrderOperator(target, {}, lambda node: [], run, functools.partial(captured, capture, run)))
