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
    ``call`` is what to call where the operator may be captured: the operator itself would run torch's rules for it.
    """

    target: Any
    graphs: Mapping[int, str]
    shared: Callable[[Node], list[Any]]
    run: Callable[..., Any]
    call: Callable[..., Any]


OPERATORS: dict[Any, HigherOrderOperator] = {}


def declare(operator: HigherOrderOperator) -> HigherOrderOperator:
    """Make an operator known."""
    OPERATORS[operator.target] = operator
    return operator


def callable_of(target: Any) -> Callable[..., Any]:
    """What to call in place of an operator while a program may be being captured."""
    declaration = OPERATORS.get(target)
    return target if declaration is None else declaration.call


def declaration_of(node: Node) -> HigherOrderOperator | None:
    """What is declared of the operator that a node calls, if it takes graphs."""
    return OPERATORS.get(node.target) if node.op == "call_function" else None
