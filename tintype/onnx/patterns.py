"""Operators of newer opsets that models write out: RMSNormalization and RotaryEmbedding.

A pattern is looked for at its last node, from there backwards; the nodes before it that nobody else uses are dropped
with all other dead code. So the cost is a few steps for each addition and product.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.fx import Node

from tintype.fake.tensor import FakeTensor
from tintype.onnx.builder import Builder

aten = torch.ops.aten
FIRST_OPSET = 23

_CASTS = frozenset({aten._to_copy.default, aten.to.dtype})
_SAME_SHAPE = _CASTS | {aten.cos.default, aten.sin.default, aten.contiguous.default, aten.clone.default}
_ROTATIONS = frozenset({aten.cat.default, aten.stack.default, aten.neg.default, aten.slice.Tensor, aten.add.Tensor})
_MEANS = frozenset({aten.mean.dim, aten.rsqrt.default, aten.sqrt.default, aten.add.Tensor, aten.pow.Tensor_Scalar})
_MOST_STEPS = 8


def replaced(op: Builder, node: Node, value_of: Callable[[Any], Any], translations: Collection[Any]) -> Any:
    """The value of a node that ends a pattern, as one operator; None for others.

    ``value_of`` gives the ONNX values of nodes before it. Where the user translates a part, that stays.
    """
    if op.opset < FIRST_OPSET:
        return None
    if node.target is aten.mul.Tensor and not _MEANS & set(translations):
        return _rms_norm(op, node, value_of)
    if node.target is aten.add.Tensor and not (_ROTATIONS | {aten.mul.Tensor}) & set(translations):
        return _rotary_embedding(op, node, value_of)
    return None


def _is(node: Any, *targets: Any) -> bool:
    return isinstance(node, Node) and node.target in targets


def _info(node: Any) -> Any:
    """What is known of the tensor that a node gives; None where it gives none."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value.info if type(value) is FakeTensor else None


def _pairs(node: Any) -> tuple[tuple[Any, Any], ...]:
    """Both orders of the operands of a sum or product."""
    left, right = node.args[:2]
    return (left, right), (right, left)


# --- root mean square normalization -----------------------------------------------------------------------------


def _rms_norm(op: Builder, node: Node, value_of: Callable[[Any], Any]) -> Any:
    for normal, scale in _pairs(node):
        found = _normalized(normal)
        if found is None:
            continue
        tensor, eps = found
        info, other = _info(tensor), _info(scale)
        if other is not None and other.dtype is info.dtype and tuple(other.sizes) == tuple(info.sizes[-1:]):
            return op.RMSNormalization(value_of(tensor), value_of(scale), axis=-1, epsilon=eps)
    return None


def _normalized(node: Any) -> tuple[Node, float] | None:
    """The tensor that a node divides by its root mean square along the last dimension, and what is added to it."""
    inner = node.args[0] if _is(node, *_CASTS) else node
    if _is(inner, aten.mul.Tensor):
        choices = [(left, right.args[0]) for left, right in _pairs(inner) if _is(right, aten.rsqrt.default)]
    elif _is(inner, aten.div.Tensor) and _is(inner.args[1], aten.sqrt.default):
        choices = [(inner.args[0], inner.args[1].args[0])]
    else:
        return None
    for tensor, square in choices:
        eps = _added_to_mean_square(square, tensor)
        if eps is None or _info(tensor).dtype is not torch.float32:
            continue
        if inner is node:
            return tensor, eps
        source = tensor.args[0] if _is(tensor, *_CASTS) else None
        # computed in float32 and rounded before it is scaled, which is what the operator does in half precision
        if source is not None and _info(source).dtype is _info(node).dtype:
            return source, eps
        if _info(node).dtype is torch.float32:
            return tensor, eps
    return None


def _added_to_mean_square(node: Any, tensor: Any) -> float | None:
    """The number that is added to the mean of a tensor's squares; None for anything else."""
    if not _is(node, aten.add.Tensor) or node.kwargs:
        return None
    for mean, eps in _pairs(node):
        if type(eps) is not float or not _is(mean, aten.mean.dim) or mean.kwargs or len(mean.args) != 3:
            continue
        square, dimensions, keeps = mean.args
        info = _info(square)
        if not keeps or list(dimensions) not in ([-1], [len(info.sizes) - 1]):
            continue
        if _is(square, aten.pow.Tensor_Scalar) and square.args == (tensor, 2):
            return eps
        if _is(square, aten.mul.Tensor) and square.args == (tensor, tensor):
            return eps
        if _is(square, aten.square.default) and square.args == (tensor,):
            return eps
    return None


# --- rotary embedding ------------------------------------------------------------------------------------------


def _rotary_embedding(op: Builder, node: Node, value_of: Callable[[Any], Any]) -> Any:
    if node.kwargs or not all(_is(operand, aten.mul.Tensor) for operand in node.args):
        return None
    for straight, turned in _pairs(node):
        for tensor, cosine in _pairs(straight):
            for rotated, sine in _pairs(turned):
                interleaved = _turned_by_a_quarter(rotated, tensor)
                if interleaved is None:
                    continue
                caches = [_once(op, each, tensor, interleaved, value_of) for each in (cosine, sine)]
                if None in caches:
                    return None
                return op.RotaryEmbedding(value_of(tensor), *caches, interleaved=int(interleaved))
    return None


def _turned_by_a_quarter(node: Any, tensor: Any) -> bool | None:
    """Whether pairs of numbers (a, b) along the last dimension, which become (-b, a), are neighbours; None where a
    node is no such thing."""
    info = _info(tensor)
    if info is None or len(info.sizes) != 4 or not isinstance(info.sizes[3], int) or info.sizes[3] % 2:
        return None
    width = info.sizes[3]
    if _is(node, aten.cat.default) and _along(node, (-1, 3)):
        parts = [(width // 2, width, 1), (0, width // 2, 1)]
        interleaved = False
    elif _is(node, aten.flatten.using_ints) and node.args[1:] in ((-2,), (3,), (-2, -1), (3, 4)):
        node = node.args[0]
        if not _is(node, aten.stack.default) or not _along(node, (-1, 4)):
            return None
        parts = [(1, width, 2), (0, width, 2)]
        interleaved = True
    else:
        return None
    pieces = node.args[0]
    if len(pieces) != 2 or not _is(pieces[0], aten.neg.default):
        return None
    found = [_part(piece, tensor, width) for piece in (pieces[0].args[0], pieces[1])]
    return interleaved if found == parts else None


def _along(node: Node, dimensions: tuple[int, ...]) -> bool:
    """Whether tensors are joined along one of these dimensions, by number from either end."""
    return len(node.args) == 2 and node.args[1] in dimensions


def _part(node: Any, tensor: Any, width: int) -> tuple[int, int, int] | None:
    """Start, end and step of a slice of a tensor's last dimension."""
    if not _is(node, aten.slice.Tensor) or node.kwargs or node.args[0] is not tensor:
        return None
    given = list(node.args[1:])
    dimension, start, end, step = given + [0, None, None, 1][len(given) :]
    return slice(start, end, step).indices(width) if dimension in (3, -1) else None


def _once(op: Builder, node: Any, tensor: Node, interleaved: bool, value_of: Callable[[Any], Any]) -> Any:
    """Cosines or sines of each angle once, by batch and position, where they are there twice; None otherwise."""
    if not _is(node, aten.unsqueeze.default) or node.args[1] not in (1, -3) or not _is_doubled(node, interleaved):
        return None
    source, sizes = node.args[0], _info(tensor).sizes
    info = _info(source)
    batch, length, width = info.sizes
    if length != sizes[2] or width != sizes[3] or info.dtype is not _info(tensor).dtype:
        return None
    if batch not in (1, sizes[0]):
        return None
    start, end, step = (0, width, 2) if interleaved else (0, width // 2, 1)
    value = op.Slice(value_of(source), [start], [end], [2], [step])
    if batch == sizes[0]:
        return value
    batch_size = sizes[0] if isinstance(sizes[0], int) else op.size(value_of(tensor), 0)
    return op.Expand(value, op.vector([batch_size, 1, 1]))


def _is_doubled(node: Any, interleaved: bool) -> bool:
    """Whether each number is there twice along the last dimension: beside itself, or half the dimension further."""
    for _ in range(_MOST_STEPS):
        if _is(node, aten.cat.default) and not interleaved:
            parts = node.args[0]
            return len(parts) == 2 and parts[0] is parts[1] and _along(node, (-1, len(_info(node).sizes) - 1))
        if _is(node, aten.repeat_interleave.self_int) and interleaved:
            return node.args[1:] in ((2, -1), (2, len(_info(node).sizes) - 1))
        scaled = _is(node, aten.mul.Tensor) and not isinstance(node.args[1], Node)
        added = _is(node, aten.unsqueeze.default) and 0 <= node.args[1] < len(_info(node).sizes) - 1
        if not scaled and not added and not _is(node, *_SAME_SHAPE):
            return False
        node = node.args[0]
    return False
