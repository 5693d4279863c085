"""ONNX operators that ONNX Runtime's optimizer combines with others into something that torch does not compute.
They are built otherwise where one of those patterns would arise."""

from __future__ import annotations

import math
from typing import Any

from tintype.onnx.builder import Builder, form_of

# What the optimizer moves other nodes past, or leaves out.
_PASSED_OVER = frozenset(
    {"Dropout", "Flatten", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
# Activations, which are never -inf, whatever they were made of: images mostly come from them.
_ACTIVATIONS = frozenset(
    {
        "Relu", "Sigmoid", "Softmax", "Abs", "Exp", "Softplus", "HardSigmoid", "HardSwish", "Tanh", "Gelu", "Mish",
        "Elu",
    }
)  # fmt: skip


def _is_activation(source: Any) -> bool:
    """Whether a node is one, or the product of something with its own sigmoid."""
    if source is None or source.op_type != "Mul":
        return source is not None and source.op_type in _ACTIVATIONS
    made = [value.producer() for value in source.inputs]
    return any(
        node is not None and node.op_type == "Sigmoid" and node.inputs[0] is other
        for node, other in zip(made, reversed(source.inputs))
    )


def _source(value: Any) -> Any:
    """The node that computed a value's elements, before they were arranged; None for inputs and weights."""
    made = value.producer()
    while made is not None and made.op_type in _PASSED_OVER:
        made = made.inputs[0].producer()
    return made


def _apart(op: Builder, value: Any) -> Any:
    """The same elements behind a node that the optimizer sees nothing in: the greatest of one number."""
    result = op.Max(value)
    result.shape = value.shape
    return result


@form_of("MatMul")
def matrix_and_vector(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """A Transpose is taken into a product with a vector as if the vector were a matrix: it is made one."""
    left, right = values
    if left.shape is None or right.shape is None or len(left.shape) < 2 or len(right.shape) != 1:
        return None
    return op.Squeeze(op.MatMul(left, op.Unsqueeze(right, [1])), [-1])


@form_of("MaxPool")
def max_pool(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """Zeros round an image become padding of the windows, which no window takes for its greatest; nan is passed over;
    and where windows reach over the edge or are far apart, the greatest of -inf is the smallest finite number. What a
    model computes inside of it has neither, and is taken as it is."""
    image = values[0]
    if not image.dtype.is_floating_point() or "storage_order" in attributes:  # which only this function asks for
        return None
    source = _source(image)
    if _is_activation(source):
        return None
    if source is not None and source.op_type == "Pad":
        image = _apart(op, image)
    result, places = op.emit(operation, image, **attributes, storage_order=0)
    # the greatest of a window is nan (2), or some number (1), or -inf (0)
    ranks = op.cast(op.Not(op.Equal(image, op.constant(-math.inf, image.dtype))), image.dtype)
    ranks = op.Where(op.IsNaN(image), op.constant(2.0, image.dtype), ranks)
    greatest = op.emit(operation, ranks, **attributes, storage_order=0)[0]
    some = op.Greater(greatest, op.constant(0.0, image.dtype))
    known = op.Where(some, result, op.constant(-math.inf, image.dtype))
    unknown = op.Greater(greatest, op.constant(1.0, image.dtype))
    return op.Where(unknown, op.constant(math.nan, image.dtype), known), places


@form_of("QuantizeLinear")
def quantize(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """Of two quantizations in a row the first is left out, with its rounding."""
    source = _source(values[0])
    if source is None or source.op_type != "DequantizeLinear":
        return None
    if all(mine is other for mine, other in zip(values[1:], source.inputs[1:], strict=True)):
        return None  # rounded already
    return op.emit(operation, _apart(op, values[0]), *values[1:], **attributes)
