"""Type promotion: the dtype of a result, exactly as eager mode computes it."""

from __future__ import annotations

import functools
from typing import Any

import torch

from tintype.fake.info import TensorInfo
from tintype.symbolic.expression import Expr

_default_dtype = torch.get_default_dtype  # as it is while no capture listens to who asks
_SCALAR_RANK = {bool: 0, int: 1, float: 2, complex: 3}


def result_type(*operands: Any) -> torch.dtype:
    """The promoted dtype of tensors (as infos) and Python scalars; ``None`` operands don't count."""
    kinds: list[tuple[Any, bool | None]] = []
    for operand in operands:
        if type(operand) is TensorInfo:
            kinds.append((operand.dtype, not operand.sizes))
        elif operand is not None:
            kinds.append((_scalar_kind(operand), None))
    if len(kinds) == 1 and kinds[0][1] is not None:
        return kinds[0][0]
    return _combine(tuple(kinds), _default_dtype())


def _scalar_kind(value: Any) -> type:
    kind = type(value)
    if kind in _SCALAR_RANK:
        return kind
    if isinstance(value, Expr):
        return {"int": int, "float": float, "bool": bool}[value.kind]
    return next(base for base in (bool, int, float, complex) if isinstance(value, base))


@functools.lru_cache(maxsize=4096)
def _combine(kinds: tuple[tuple[Any, bool | None], ...], default: torch.dtype) -> torch.dtype:
    # Tensors with dimensions win over tensors without, which win over Python numbers, unless the weaker
    # operand is of a higher category (bool < int < float < complex).
    dimensioned = _promote_all(dtype for dtype, scalar in kinds if scalar is False)
    zero_dimensional = _promote_all(dtype for dtype, scalar in kinds if scalar is True)
    ranks = [_SCALAR_RANK[kind] for kind, scalar in kinds if scalar is None]
    number = _number_dtype(max(ranks), default) if ranks else None
    result = _stronger(dimensioned, zero_dimensional)
    result = _stronger(result, number)
    if result is None:
        raise RuntimeError("no operand has a type")
    return result


def _promote_all(dtypes: Any) -> torch.dtype | None:
    result = None
    for dtype in dtypes:
        result = dtype if result is None else torch.promote_types(result, dtype)
    return result


def _number_dtype(rank: int, default: torch.dtype) -> torch.dtype:
    return (torch.bool, torch.int64, default, default.to_complex())[rank]


def category(dtype: torch.dtype) -> int:
    """0 for bool, 1 for integers, 2 for floats, 3 for complex numbers."""
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype is torch.bool else 1


def _stronger(high: torch.dtype | None, low: torch.dtype | None) -> torch.dtype | None:
    if high is None or low is None:
        return high or low
    if category(low) > category(high):
        # a weaker complex operand only makes the stronger float complex, it does not widen it
        return high.to_complex() if category(low) == 3 and category(high) == 2 else low
    return high


def to_float(dtype: torch.dtype) -> torch.dtype:
    """Integers and booleans become the default float, as in ``sin`` or true division."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def real_of(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the absolute value or real part."""
    return dtype.to_real() if dtype.is_complex else dtype
