"""The table of decompositions that leads to core ATen: torch's own, and ours where those are wrong or hold for fewer
sizes than the operator does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tintype.ir.operator_facts import KEPT_WHOLE, facts_of
from tintype.transforms.attention import with_right_statistics
from tintype.transforms.checked_decompositions import COMPOSITES, with_checks

aten = torch.ops.aten


def core_table() -> dict[Any, Callable[..., Any]]:
    """The decompositions that lead to core ATen."""
    global _core
    if _core is None:
        table = with_checks(with_right_statistics(torch._decomp._core_aten_decompositions_post_autograd()))
        _core = {**table, **_OWN_DECOMPOSITIONS}
    return _core


_core: dict[Any, Callable[..., Any]] | None = None


class CompositeKernel:
    """The decomposition of a composite operator into what its kernel calls."""

    __slots__ = ("operator",)

    def __init__(self, operator: Any) -> None:
        self.operator = operator

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (COMPOSITES.get(self.operator) or self.operator.decompose)(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<what {self.operator} consists of>"


def composite_kernel(operator: Any) -> CompositeKernel:
    """The decomposition of a composite operator: the same object each time, which is known again in a table."""
    if operator not in _kernels:
        _kernels[operator] = CompositeKernel(operator)
    return _kernels[operator]


_kernels: dict[Any, CompositeKernel] = {}


def default_decompositions() -> dict[Any, Callable[..., Any]]:
    """The table that ``run_decompositions()`` works with, as a dictionary that can be edited.

    It leads to core ATen. An operator that is taken out stays as it is; composite operators are in it too, custom
    ones among them, if they were registered before.

    >>> import torch, tintype
    >>> table = tintype.default_decompositions()
    >>> del table[torch.ops.aten.linear.default]
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softplus(), torch.nn.LayerNorm(2))
    >>> ep = tintype.export(model, (torch.ones(4, 3),)).run_decompositions(table)
    >>> str(next(node.target for node in ep.graph.nodes if node.op == "call_function"))
    'aten.linear.default'
    """
    table = {operator: decomposition for operator, decomposition in core_table().items() if operator not in _STAYING}
    for operator in _composite_operators():
        if operator not in table and operator not in _STAYING and torch.Tag.core not in operator.tags:
            table[operator] = composite_kernel(operator)
    return table


# What gradients flow through survives decomposition, and layers that would be written out step by step.
_STAYING = frozenset({aten.detach.default, *KEPT_WHOLE})


def _composite_operators() -> list[Any]:
    """The composite operators of this process that a functional program can have whole."""
    found = []
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"):
        namespace, _, rest = name.partition("::")
        packet_name, _, overload = rest.partition(".")
        packet = getattr(getattr(torch.ops, namespace), packet_name, None)
        operator = getattr(packet, overload or "default", None)
        if operator is not None and facts_of(operator).may_stay_composite:
            found.append(operator)
    return found


def _copy_decomposition(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``aten.copy`` in terms of operators that gradients flow through."""
    value = aten._to_copy.default(source, dtype=target.dtype, device=target.device)
    if value.shape == target.shape:
        return value
    return aten.clone.default(aten.expand.default(value, target.shape), memory_format=torch.contiguous_format)


def _masked_fill_decomposition(tensor: torch.Tensor, mask: torch.Tensor, value: Any) -> Any:
    """As in eager mode, a complex value without an imaginary part fits into real tensors."""
    if isinstance(value, complex) and not tensor.dtype.is_complex and value.imag == 0:
        value = value.real
    return torch._decomp.decomposition_table[aten.masked_fill.Scalar](tensor, mask, value)


_OWN_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.copy.default: _copy_decomposition,
    aten.masked_fill.Scalar: _masked_fill_decomposition,
}
