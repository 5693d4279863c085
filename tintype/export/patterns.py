"""Patterns of operators, and where they occur in a graph.

A pattern is written as a function of tensors. It is called on stand-ins that note which operators take them;
no example is needed, since nothing is computed. A function of torch's or a method stands for every overload of the
operator of its name, an operator for itself. What the function takes stands for anything.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any

import torch
from torch.fx import Node

from tintype.errors import InvalidRequestError

aten = torch.ops.aten

# Python's operators by the operators of ATen that they call
_METHODS = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul", "__truediv__": "div",
    "__matmul__": "matmul", "__neg__": "neg", "__pow__": "pow",
}  # fmt: skip


class StandIn:
    """Stands for a tensor while a pattern is read: ``operator`` and arguments, or nothing for a parameter."""

    def __init__(self, function: Any = None, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> None:
        self.operator = function
        self.args = tuple(args)
        self.kwargs = kwargs or {}

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, torch._ops.OpOverload):
            return StandIn(func, args, kwargs)
        return StandIn(_packet(func.__name__), args, _for_operator(kwargs or {}))

    def __getitem__(self, index: int) -> StandIn:  # one of the results of an operator
        return StandIn(operator.getitem, (self, index))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        packet = _packet(name)
        return lambda *args, **kwargs: StandIn(packet, (self, *args), kwargs)


def _add_method(method: str, name: str) -> None:
    setattr(StandIn, method, lambda self, *args: StandIn(_packet(name), (self, *args)))


for _method, _name in _METHODS.items():
    _add_method(_method, _name)


def _packet(name: str) -> Any:
    packet = getattr(aten, name.strip("_") if name.startswith("__") else name, None)
    if packet is None:
        raise InvalidRequestError(
            f"a pattern calls {name}, which is no operator",
            remedy="write it with operators: torch.ops.aten.relu.default(x), torch.relu(x), x.relu()",
        )
    return packet


def _for_operator(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a function of torch.nn.functional, as its operator has them: that knows no ``inplace``."""
    return {name: value for name, value in kwargs.items() if name not in _OF_PYTHON}


_OF_PYTHON = frozenset({"inplace", "_stacklevel"})
_RENAMED = {"training": "train", "input": "self"}


def _operator_of(pattern: Any) -> Any:
    """The operator that a function of torch's stands for when it is a pattern itself; None for other patterns."""
    if isinstance(pattern, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return pattern
    is_torchs = isinstance(pattern, FunctionType) and pattern.__module__ == torch.nn.functional.__name__
    if is_torchs or isinstance(pattern, (BuiltinFunctionType, MethodDescriptorType)):
        return _packet(pattern.__name__)
    return None


def _read(function: Any) -> tuple[list[StandIn], Any]:
    """What a function takes, and what it returns for it."""
    is_module = isinstance(function, torch.nn.Module)
    parameters = inspect.signature(function.forward if is_module else function).parameters.values()
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters):
        raise InvalidRequestError(
            "a pattern takes tensors one by one, and no *args or **kwargs", remedy="lambda x, y: torch.add(x, y)"
        )
    taken = [StandIn() for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
    return taken, (function.forward if is_module else function)(*taken)


class Pattern:
    """What is looked for: one operator, or what a function of tensors calls."""

    def __init__(self, pattern: Any) -> None:
        operator = _operator_of(pattern)
        if operator is not None:
            self.parameters: list[StandIn] | None = None  # all arguments of the operator, as they are
            self.result = StandIn(operator)
            return
        if not callable(pattern):
            raise InvalidRequestError(
                f"a pattern is an operator or a function of tensors, but got {type(pattern).__name__}",
                remedy="torch.ops.aten.relu.default, or lambda x: torch.relu(x)",
            )
        self.parameters, self.result = _read(pattern)
        if not isinstance(self.result, StandIn) or self.result.operator is None:
            raise InvalidRequestError(
                "a pattern returns one tensor, which operators computed from what it was given",
                remedy="lambda x, weight, bias: torch.relu(torch.nn.functional.linear(x, weight, bias))",
            )

    def __str__(self) -> str:
        return str(self.result.operator)

    def match(self, node: Node) -> Match | None:
        """Where the pattern ends at a node: which nodes it is, and what its parameters stand for."""
        if self.parameters is None:
            if not _calls(node, self.result.operator):
                return None
            return Match([node], node.args, dict(node.kwargs))
        found: dict[StandIn, Any] = {}
        if not _fits(self.result, node, found):
            return None
        nodes = [value for stand_in, value in found.items() if stand_in.operator is not None]
        return Match(nodes, tuple(found.get(parameter) for parameter in self.parameters), {})


class Match:
    """One occurrence: its nodes, the last one first, and the arguments of what takes its place."""

    def __init__(self, nodes: list[Node], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.nodes = nodes
        self.args = args
        self.kwargs = kwargs


def _calls(node: Any, wanted: Any) -> bool:
    target = node.target if isinstance(node, Node) and node.op == "call_function" else None
    if isinstance(wanted, torch._ops.OpOverloadPacket):
        return isinstance(target, torch._ops.OpOverload) and target.overloadpacket is wanted
    return target is wanted


def _fits(wanted: Any, value: Any, found: dict[StandIn, Any]) -> bool:
    """Whether a value of the graph is what the pattern has in its place; what its parameters stand for is noted."""
    if not isinstance(wanted, StandIn):
        if isinstance(wanted, (list, tuple)):
            same_length = isinstance(value, (list, tuple)) and len(wanted) == len(value)
            return same_length and all(_fits(item, other, found) for item, other in zip(wanted, value))
        return not isinstance(value, Node) and type(wanted) is type(value) and bool(wanted == value)
    if wanted in found:
        known = found[wanted]
        return known is value or (not isinstance(known, Node) and not isinstance(value, Node) and known == value)
    if wanted.operator is None:
        found[wanted] = value
        return True
    if not _calls(value, wanted.operator):
        return False
    found[wanted] = value
    if wanted.operator is operator.getitem:
        return _fits(wanted.args, value.args, found)
    arguments = value.target._schema.arguments
    has = _by_name(arguments, value.args, value.kwargs)
    asked = _by_name(arguments, wanted.args, wanted.kwargs)
    if asked is None or has is None:
        return False
    return all(_fits(asked[argument.name], has[argument.name], found) for argument in arguments)


def _by_name(arguments: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """All arguments of a call, defaults included; None where they are not those of the operator."""
    if len(args) > len(arguments):
        return None
    known = {argument.name: argument.default_value for argument in arguments}
    named = {name if name in known else _RENAMED.get(name, name): value for name, value in kwargs.items()}
    given = {argument.name: value for argument, value in zip(arguments, args)} | named
    return None if given.keys() - known.keys() else known | given


def matches(nodes: Sequence[Node], looked_for: Pattern, wanted: Callable[[Node], bool]) -> list[Match]:
    """The occurrences of a pattern that have no node in common, from the end of a graph to its beginning."""
    taken: set[Node] = set()
    found = []
    for node in reversed(nodes):
        match = looked_for.match(node) if node not in taken else None
        if match is not None and taken.isdisjoint(match.nodes) and wanted(node):
            taken.update(match.nodes)
            found.append(match)
    return found
