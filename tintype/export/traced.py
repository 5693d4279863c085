"""Code of a program for ``torch.compile``, which looks into a program's module where it meets one.

It follows Python and operators, and ends its graph at what lies below them: the quicker ways to call operators, looks
at addresses and at who else looks on. So its code calls the operators as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tintype.export.codegen import Writer, function_of_graph
from tintype.export.owned_state import (
    write_behind_autograd,
    write_beside_autograd,
    write_to_input,
    write_untracked,
)
from tintype.ir.operators import OPERATORS
from tintype.ir.writing import spell
from tintype.transforms.general_decompositions import general_kron

aten = torch.ops.aten
higher_order = torch.ops.higher_order


class TracedWriter(Writer):
    """Writes code that ``torch.compile`` can follow."""

    is_traced = True

    def bind_graph(self, module: Any, node: Node) -> str:
        """A graph as torch's own operators take it: conditions of loops give their one result as it is, and scans
        take modules."""
        if any(user.target is higher_order.scan for user in node.users):
            return self.bind(GraphModule(module, module.graph))
        is_condition = any(user.target is higher_order.while_loop and user.args[0] is node for user in node.users)
        key = module, is_condition
        if key not in self._graphs:
            self._graphs[key] = function_of_graph(module, TracedWriter(), is_condition)
        return self.bind(self._graphs[key])

    def function_of(self, node: Node) -> Any:
        """Operators themselves, which it knows."""
        target: Any = node.target
        if target in _WRITTEN_OUT:
            return OPERATORS[target].run
        return _INSTEAD.get(target, target)

    def expression_of(self, node: Node) -> str | None:
        """What it follows where it does not take the operator."""
        arguments = [spell(self, argument) for argument in node.args]
        if node.target in _METHODS:
            return f"{arguments[0]}.{_METHODS[node.target]}({', '.join(arguments[1:])})"
        check = self.bind(torch._check)
        if node.target is aten._assert_scalar.default:
            message = f", lambda: {arguments[1]}" if len(arguments) > 1 else ""
            return f"{check}({arguments[0]}{message})"
        if node.target is aten.sym_constrain_range.default:
            limits = ((">=", node.kwargs.get("min")), ("<=", node.kwargs.get("max")))
            checks = [f"{check}({arguments[0]} {sign} {limit!r}), " for sign, limit in limits if limit is not None]
            return f"({''.join(checks)})"
        if node.target is higher_order.associative_scan:  # its function gives a tuple, so it is given one
            function, columns, *rest = node.args
            arguments = [spell(self, argument) for argument in (function, tuple(columns), *rest)]  # type: ignore[arg-type]
            return f"{self.bind(node.target)}({', '.join(arguments)})"
        return None


_METHODS = {aten.sym_numel.default: "numel", aten.sym_size.int: "size", aten.sym_stride.int: "stride"}

# operators that it takes from torch's own functions alone
_WRITTEN_OUT = frozenset(
    {higher_order.flex_attention, higher_order.flex_attention_backward, higher_order.invoke_subgraph}
)


def _group_norm(tensor: torch.Tensor, weight: Any, bias: Any, *options: Any) -> Any:
    return aten.native_group_norm.default(tensor, _contiguous(weight), _contiguous(bias), *options)


def _group_norm_backward(
    gradient: torch.Tensor, tensor: torch.Tensor, mean: Any, deviation: Any, weight: Any, *options: Any
) -> Any:
    return aten.native_group_norm_backward.default(gradient, tensor, mean, deviation, _contiguous(weight), *options)


def _contiguous(weight: Any) -> Any:
    return None if weight is None else weight.contiguous()


# as in RUN_INSTEAD, for what matters here too
_INSTEAD: dict[Any, Callable[..., Any]] = {
    aten.native_group_norm.default: _group_norm,
    aten.native_group_norm_backward.default: _group_norm_backward,
    aten.kron.default: general_kron,
    write_untracked: write_behind_autograd,
    write_to_input: write_beside_autograd,
}
