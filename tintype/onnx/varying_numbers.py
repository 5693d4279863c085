"""Operators that are given a number that varies where ONNX, as torch, wants one that is known beforehand.

Pooling over windows as large as the input is a reduction, and the one such call that models make; others are refused.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.fx import Node

from tintype.onnx.errors import LoweringError
from tintype.onnx.registry import own_lowering
from tintype.symbolic import Expr
from tintype.symbolic.bridge import from_torch

aten = torch.ops.aten

_REDUCTIONS: dict[Any, Any] = {
    **dict.fromkeys((aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default), aten.mean.dim),
    **dict.fromkeys((aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool3d.default), aten.amax.default),
}
# lowerings of ours that compute with the number
_TAKE_VALUES = frozenset({aten.one_hot.default, aten.bincount.default})


@functools.cache
def _plain_parameters(target: Any) -> tuple[tuple[int, str], ...]:
    if not isinstance(target, torch._ops.OpOverload) or target in _TAKE_VALUES:
        return ()
    parameters = enumerate(target._schema.arguments)
    return tuple((position, parameter.name) for position, parameter in parameters if _is_plain(parameter.real_type))


def _is_plain(kind: Any) -> bool:
    while kind.kind() in ("ListType", "OptionalType"):
        kind = kind.getElementType()
    return bool(kind.kind() == "IntType")


def reduced(builder: Any, node: Node, tensor: Any) -> Any:
    """A reduction in the place of a call with numbers that vary; None for calls without any. Others are refused."""
    given = _plain_parameters(node.target)
    varying = [name for position, name in given if position < len(node.args) and _varies(node.args[position])]
    if not varying:
        return None
    reduction = _REDUCTIONS.get(node.target)
    if reduction is None or not _covers_all(node):
        raise LoweringError(_reason(varying[0]))
    lowering = own_lowering(reduction, builder.opset)
    assert lowering is not None
    windows: Any = node.args[1]
    return lowering(builder, tensor, list(range(-len(windows), 0)), True)


def reason_of(node: Node, error: Exception) -> str | None:
    """Why a lowering of ours failed that was given a number which varies and takes none: many torch operators do."""
    if not isinstance(error, TypeError) or not isinstance(node.target, torch._ops.OpOverload):
        return None
    parameters = node.target._schema.arguments
    given = {**dict(zip((parameter.name for parameter in parameters), node.args)), **node.kwargs}
    numbers = [name for name, value in given.items() if isinstance(value, Node) and _is_number(value.meta.get("val"))]
    return _reason(numbers[0]) if numbers else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat))


def _reason(name: str) -> str:
    return f"its {name} varies, and ONNX takes a number there that is known beforehand"


def _varies(argument: Any) -> bool:
    return any(map(_varies, argument)) if isinstance(argument, (list, tuple)) else isinstance(argument, Node)


def _covers_all(node: Node) -> bool:
    """Whether the only window of a pooling is its whole input."""
    names = [parameter.name for parameter in node.target._schema.arguments]  # type: ignore[union-attr]
    given: dict[str, Any] = dict(zip(names, node.args)) | dict(node.kwargs)
    windows = given["kernel_size"]
    sizes = given["self"].meta["val"].info.sizes[-len(windows) :]
    usual = {"padding": 0, "dilation": 1, "divisor_override": None}
    return all(_is_usual(given.get(name, value), value) for name, value in usual.items()) and all(
        _number(window) == size for window, size in zip(windows, sizes, strict=True)
    )


def _is_usual(argument: Any, value: Any) -> bool:
    return all(entry == value for entry in (argument if isinstance(argument, (list, tuple)) else (argument,)))


def _number(argument: Any) -> int | Expr:
    return from_torch(argument.meta["val"]) if isinstance(argument, Node) else argument
