"""Random numbers: drawn in float32, which every runtime does, and converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering

aten = torch.ops.aten
_FLOAT = ir.DataType.FLOAT


def _drawn(op: Builder, operation: str, shape: Any, **attributes: Any) -> Any:
    room = op.Expand(op.constant(0.0, _FLOAT), shape)
    return op.emit(operation, room, dtype=int(_FLOAT), **attributes)


@lowering(aten.randn.default)
def randn(op: Builder, sizes: Sequence[Any], **kwargs: Any) -> Any:
    return _drawn(op, "RandomNormalLike", op.vector(list(sizes)))


@lowering(aten.rand.default)
def rand(op: Builder, sizes: Sequence[Any], **kwargs: Any) -> Any:
    return _drawn(op, "RandomUniformLike", op.vector(list(sizes)))


@lowering(aten.rand_like.default)
def rand_like(op: Builder, tensor: Any, **kwargs: Any) -> Any:
    return _drawn(op, "RandomUniformLike", op.Shape(tensor))


@lowering(aten.randn_like.default)
def randn_like(op: Builder, tensor: Any, **kwargs: Any) -> Any:
    return _drawn(op, "RandomNormalLike", op.Shape(tensor))


@lowering(aten.bernoulli.default)
def bernoulli(op: Builder, probabilities: Any, *, generator: Any = None) -> Any:
    """ONNX Runtime's own operator draws the other way round."""
    drawn = _drawn(op, "RandomUniformLike", op.Shape(probabilities))
    return op.cast(op.Less(drawn, op.cast(probabilities, _FLOAT)), probabilities.dtype)


def _dropped(op: Builder, tensor: Any, p: float) -> tuple[Any, Any]:
    """A tensor some of whose elements are zeros, and which are not. ONNX Runtime's own operator does nothing where it
    follows another one."""
    kept = op.GreaterOrEqual(_drawn(op, "RandomUniformLike", op.Shape(tensor)), op.constant(p, _FLOAT))
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return op.Mul(op.Mul(tensor, op.cast(kept, tensor.dtype)), op.constant(scale, tensor.dtype)), kept


@lowering(aten.dropout.default)
def dropout(op: Builder, tensor: Any, p: float, train: bool) -> Any:
    return _dropped(op, tensor, p)[0] if train and p else tensor


@lowering(aten.native_dropout.default)
def native_dropout(op: Builder, tensor: Any, p: float, train: bool | None) -> Any:
    if train is False or not p:
        return tensor, op.Expand(op.constant(True), op.Shape(tensor))
    return _dropped(op, tensor, p)


def _number(value: Any) -> bool:
    return not isinstance(value, ir.Value)


@lowering(torch.ops.prims.uniform.default)
def uniform(op: Builder, sizes: Sequence[Any], *, low: Any, high: Any, **kwargs: Any) -> Any:
    drawn = _drawn(op, "RandomUniformLike", op.vector(list(sizes)))
    if _number(low) and _number(high) and low == 0 and high == 1:
        return drawn
    low, high = op.cast(low, _FLOAT), op.cast(high, _FLOAT)
    return op.Add(op.Mul(drawn, op.Sub(high, low)), low)


def rrelu_with_noise(
    op: Builder,
    tensor: Any,
    noise: Any,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """The result, and the noise that it was multiplied by."""
    below = op.Less(tensor, op.constant(0.0, tensor.dtype))
    if not training:
        slope = op.constant((lower + upper) / 2, tensor.dtype)
        return op.Where(below, op.Mul(tensor, slope), tensor), noise
    drawn = op.cast(_drawn(op, "RandomUniformLike", op.Shape(tensor), low=lower, high=upper), tensor.dtype)
    made = op.Where(below, drawn, op.constant(1.0, tensor.dtype))
    return op.Mul(tensor, made), made


@lowering(aten.multinomial.default)
def multinomial(op: Builder, weights: Any, count: int, replacement: bool = False, *, generator: Any = None) -> Any:
    """Without replacement the largest of weights divided by exponential numbers, which is how torch draws."""
    weights = op.cast(weights, _FLOAT)
    one_row = len(weights.shape) == 1
    rows = op.Unsqueeze(weights, [0]) if one_row else weights
    if replacement or count == 1:
        drawn = op.Multinomial(op.Log(rows), dtype=int(ir.DataType.INT64), sample_size=count)
    else:
        waits = op.Neg(op.Log(_drawn(op, "RandomUniformLike", op.Shape(rows))))
        drawn = op.TopK(op.Div(rows, waits), op.vector([count]), axis=-1)[1]
    return op.Squeeze(drawn, [0]) if one_row else drawn
