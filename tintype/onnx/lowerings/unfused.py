"""ONNX operators that ONNX Runtime's optimizer combines with others into something that torch does not compute.
They are built otherwise where one of those patterns would arise."""

from __future__ import annotations

from typing import Any

from tintype.onnx.builder import Builder, form_of

# What the optimizer moves other nodes past, or leaves out.
_PASSED_OVER = frozenset(
    {"Dropout", "Flatten", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
# Results that are never -inf, whatever they were made of: which images mostly come from.
_BOUNDED_BELOW = frozenset({"Relu", "Sigmoid", "Softmax", "Abs", "Exp", "Softplus", "HardSigmoid", "Tanh"})


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
    """Zeros round an image become padding of the windows, which no window takes for its greatest; and where windows
    reach over the edge or are far apart, the greatest of -inf is the smallest finite number."""
    image = values[0]
    if not image.dtype.is_floating_point() or "storage_order" in attributes:  # which only this function asks for
        return None
    source = _source(image)
    kind = None if source is None else source.op_type
    if kind == "Pad":
        image = _apart(op, image)
    elif kind in _BOUNDED_BELOW or not (
        any(attributes.get("pads", ())) or attributes.get("ceil_mode") or max(attributes.get("strides", (1,))) > 2
    ):
        return None
    result, places = op.emit(operation, image, **attributes, storage_order=0)
    if kind == "Pad":
        return result, places
    infinite = op.constant(float("-inf"), image.dtype)
    more = op.cast(op.Not(op.Equal(image, infinite)), image.dtype)
    any_more = op.emit(operation, more, **attributes, storage_order=0)[0]
    return op.Where(op.Greater(any_more, op.constant(0, image.dtype)), result, infinite), places


@form_of("QuantizeLinear")
def quantize(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """Of two quantizations in a row the first is left out, with its rounding."""
    source = _source(values[0])
    if source is None or source.op_type != "DequantizeLinear":
        return None
    if all(mine is other for mine, other in zip(values[1:], source.inputs[1:], strict=True)):
        return None  # rounded already
    return op.emit(operation, _apart(op, values[0]), *values[1:], **attributes)
