"""Operators that take graphs as arguments: what all parts of tintype need to know of them.

One declaration each, made by the operator's own file in ``tintype/ops``. Naming, verification, functionalization,
decomposition and execution work from the declaration; none of them knows an operator by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch.fx import Node


@dataclasses.dataclass(frozen=True)
class HigherOrderOperator:
    """An operator some of whose arguments are graphs.

    ``graphs`` has the positions of those arguments, each with the stem of the names its graphs get.
    ``shared(node)`` gives, for the inputs that every graph of a call has, the value outside of it whose memory the
    input is; None for an input with memory of its own, such as one row of a tensor.
    ``run`` computes the operator on tensors with data; graphs are callables then.
    """

    target: Any
    graphs: Mapping[int, str]
    shared: Callable[[Node], list[Any]]
    run: Callable[..., Any]


OPERATORS: dict[Any, HigherOrderOperator] = {}


def declare(operator: HigherOrderOperator) -> HigherOrderOperator:
    """Make an operator known."""
    OPERATORS[operator.target] = operator
    return operator


def declaration_of(node: Node) -> HigherOrderOperator | None:
    """What is declared of the operator that a node calls, if it takes graphs."""
    return OPERATORS.get(node.target) if node.op == "call_function" else None
