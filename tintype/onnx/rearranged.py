"""The shapes of tensors whose dimensions were moved, added or dropped; known where the target's arguments are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tintype.onnx.libraries import ir


def _axes(values: Sequence[Any], rank: int) -> set[int] | None:
    array = getattr(values[1], "array", None) if len(values) > 1 else None
    return None if array is None else {int(axis) % rank for axis in array.reshape(-1)}


def _unsqueezed(sizes: list[Any], values: Sequence[Any], attributes: dict[str, Any]) -> ir.Shape | None:
    array = getattr(values[1], "array", None)
    if array is None:
        return None
    rank = len(sizes) + array.size
    new = _axes(values, rank)
    left = iter(sizes)
    return ir.Shape([1 if new is None or axis in new else next(left) for axis in range(rank)])


def _squeezed(sizes: list[Any], values: Sequence[Any], attributes: dict[str, Any]) -> ir.Shape | None:
    axes = _axes(values, max(len(sizes), 1))
    return None if axes is None else ir.Shape([size for axis, size in enumerate(sizes) if axis not in axes])


def _transposed(sizes: list[Any], values: Sequence[Any], attributes: dict[str, Any]) -> ir.Shape | None:
    order = attributes.get("perm") or list(reversed(range(len(sizes))))
    return ir.Shape([sizes[axis] for axis in order])


SHAPES: dict[str, Callable[..., ir.Shape | None]] = {
    "Unsqueeze": _unsqueezed,
    "Squeeze": _squeezed,
    "Transpose": _transposed,
}
