"""The table of decompositions that leads to core ATen: torch's own, and ours where those are wrong or hold for fewer
sizes than the operator does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tintype.transforms.attention import with_right_statistics
from tintype.transforms.checked_decompositions import with_checks

aten = torch.ops.aten


def core_table() -> dict[Any, Callable[..., Any]]:
    """The decompositions that lead to core ATen."""
    global _core
    if _core is None:
        table = with_checks(with_right_statistics(torch._decomp._core_aten_decompositions_post_autograd()))
        _core = {**table, **_OWN_DECOMPOSITIONS}
    return _core


_core: dict[Any, Callable[..., Any]] | None = None


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
