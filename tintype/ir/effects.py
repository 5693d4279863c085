"""Which operators do something besides returning results: they stay in a program although nobody uses those."""

from __future__ import annotations

from typing import Any

import torch
from torch._library.simple_registry import singleton as _registrations

aten = torch.ops.aten

# Operators that assert, and those that write to arguments without saying so in their schema.
_EFFECTFUL = frozenset(
    getattr(packet, name)
    for packet in (
        aten._assert_async,
        aten._assert_scalar,
        aten._assert_tensor_metadata,
        aten._functional_assert_async,
        aten._functional_assert_scalar,
        aten._functional_sym_constrain_range,
        aten._functional_sym_constrain_range_for_size,
        aten.sym_constrain_range,
        aten.sym_constrain_range_for_size,
        aten.batch_norm,
        aten.native_batch_norm,
        aten.instance_norm,
        aten.cudnn_batch_norm,
        aten.miopen_batch_norm,
    )
    for name in packet.overloads()
)

# Namespaces whose operators are known to compute results and nothing else, but for those that say so. What an
# operator of anybody else does when it runs (count, log, talk to other processes) can't be seen from outside.
_COMPUTING = frozenset(
    {"aten", "prims", "quantized", "quantized_decomposed", "mkldnn", "mkl", "onednn", "torchvision", "torchaudio"}
)

# Operators that are called to look whether data are as they should be: matrices that can be factorized, classes that
# exist. They raise what eager mode raises also where nobody uses their results. Others that refuse some data (an
# index out of range) are not run if nobody needs their results.
_CHECKING = frozenset(
    getattr(packet, name)
    for packet in (
        aten.linalg_cholesky,
        aten.linalg_cholesky_ex,
        aten.cholesky,
        aten.linalg_inv,
        aten.linalg_inv_ex,
        aten.inverse,
        aten.linalg_solve,
        aten.linalg_solve_ex,
        aten.linalg_lu_factor,
        aten.linalg_ldl_factor,
        aten.linalg_eigh,
        aten.linalg_svd,
        aten.one_hot,
        aten.bincount,
        aten.binary_cross_entropy,
    )
    for name in packet.overloads()
)

_KNOWN: dict[Any, bool] = {}


def has_effect(operator: torch._ops.OpOverload) -> bool:
    """Whether an operator does something besides computing results and writing to the arguments that it says.

    >>> import torch
    >>> [has_effect(operator) for operator in (torch.ops.aten.rand.default, torch.ops.aten.relu.default)]
    [True, False]
    """
    known = _KNOWN.get(operator)
    if known is None:
        known = _KNOWN[operator] = (
            not operator._schema.returns
            or operator in _EFFECTFUL
            or torch.Tag.nondeterministic_seeded in operator.tags
            or not only_computes(operator)
            or declares_effect(operator)
        )
    return known


def only_computes(operator: torch._ops.OpOverload) -> bool:
    """Whether an operator is known to compute its results from its arguments, unless it says otherwise."""
    return operator.namespace in _COMPUTING


def declares_effect(operator: torch._ops.OpOverload) -> bool:
    """Whether the author of an operator registered that it has an effect."""
    return _registrations.find(operator._schema.name).effect.effect is not None


def checks_data(operator: Any) -> bool:
    """Whether an operator is there to refuse some data, besides what it computes."""
    return operator in _CHECKING


def starts_anew(target: Any) -> bool:
    """Whether an operator only looks at the size and kind of its arguments: ``zeros_like``, ``new_ones``, ..."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name = target.overloadpacket.__name__
    return name.startswith("new_") or name.endswith("_like")
