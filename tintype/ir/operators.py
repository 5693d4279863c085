"""Operators that take graphs or operators as arguments: what all parts of tintype need to know of them.

One declaration each, made by the operator's own file in ``tintype/ops``. Naming, verification, functionalization,
decomposition and execution work from the declaration; none of them knows an operator by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch._ops import OpOverload
from torch.fx import Node

from tintype.ir.regions import Setting

# Where a graph stands among the arguments of a call; (4, -1) is the last item of the argument 4.
Position = int | tuple[int, int]


@dataclasses.dataclass(frozen=True)
class HigherOrderOperator:
    """An operator some of whose arguments are graphs, or operators.

    ``graphs`` has the positions of the graphs, each with the stem of the names its graphs get.
    ``shared(node)`` gives, for the inputs that every graph of a call has, the value outside of it whose memory the
    input is; None for an input with memory of its own, such as one row of a tensor. Where the graphs of a call have
    different inputs it gives a dictionary of such lists, by position.
    ``run`` computes the operator on tensors with data; graphs are callables then.
    ``call`` is what to call where the operator may be captured: the operator itself would run torch's rules for it.
    ``setting(node)`` is given for an operator that does nothing but call its one graph, on the values in ``shared``,
    in another of torch's modes: it says in which.
    ``copies``: whether results have memory of their own, even where a graph returns what it was given.
    ``has_effect``: whether a call changes something besides, so that it is never dropped.
    ``repeats``: whether graphs are called again with what they returned; the position of the argument that has what
    they are called with first, which as many first results are if they are never called.
    """

    target: Any
    graphs: Mapping[Any, str]  # by position
    shared: Callable[[Node], list[Any] | Mapping[Position, list[Any]]]
    run: Callable[..., Any]
    call: Callable[..., Any] | None = None
    setting: Callable[[Node], Setting] | None = None
    copies: bool = False
    has_effect: bool = False
    repeats: int | None = None

    def carried_by(self, node: Node) -> int:
        """How many of the first results may be what was given, with its history."""
        return 0 if self.repeats is None else len(node.args[self.repeats])  # type: ignore[arg-type]

    def shared_with(self, node: Node, position: Position) -> list[Any]:
        """What the inputs of one graph of a call share memory with."""
        shared = self.shared(node)
        return shared[position] if isinstance(shared, Mapping) else shared


OPERATORS: dict[Any, HigherOrderOperator] = {}


def declare(operator: HigherOrderOperator) -> HigherOrderOperator:
    """Make an operator known."""
    OPERATORS[operator.target] = operator
    return operator


def callable_of(target: Any) -> Callable[..., Any]:
    """What to call in place of an operator while a program may be being captured."""
    declaration = OPERATORS.get(target)
    return target if declaration is None or declaration.call is None else declaration.call


def declaration_of(node: Node) -> HigherOrderOperator | None:
    """What is declared of the operator that a node calls, if it takes graphs or operators."""
    target = node.target
    # most nodes call operators of torch's dispatcher, none of which is declared; to hash one is a call of Python code
    if node.op != "call_function" or type(target) is OpOverload:
        return None
    return OPERATORS.get(target)


def argument_at(node: Node, position: Position) -> Any:
    """The argument of a call at a position."""
    if isinstance(position, int):
        return node.args[position]
    outer: Any = node.args[position[0]]
    return outer[position[1]]
