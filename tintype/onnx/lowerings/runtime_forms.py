"""ONNX operators that ONNX Runtime computes otherwise than torch does: of nothing, of integers above 2**53, of
infinite numbers. They are built otherwise wherever they are asked for, by torchlib's lowerings too."""

from __future__ import annotations

from typing import Any

import numpy as np

from tintype.onnx.builder import Builder, form_of
from tintype.onnx.libraries import ir
from tintype.onnx.subgraphs import scanned

DataType = ir.DataType
_INT64 = DataType.INT64
_HALF = 1 << 32
# Sums of so small numbers are right, up to some million of them.
_NARROW = frozenset(
    {DataType.BOOL, DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16, DataType.INT32, DataType.UINT32}
)

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMin", "ReduceSumSquare",
)  # fmt: skip


def _counted_from_the_front(op: Builder, values: list[Any]) -> bool:
    """Let the axes of a reduction count from the front: of no elements, ONNX Runtime takes no others. Says whether
    something changed."""
    tensor, axes = values[0], values[1] if len(values) > 1 else None
    known = getattr(axes, "array", None)
    if known is None or tensor.shape is None or not (known < 0).any():
        return False
    values[1] = op.constant([int(axis) % len(tensor.shape) for axis in known], _INT64)
    return True


@form_of(*_REDUCTIONS)
def reduction(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    changed = _counted_from_the_front(op, values)
    return op.emit(operation, *values, **attributes) if changed else None


def _axes(values: list[Any], attributes: dict[str, Any]) -> list[int] | None:
    """The axes that are reduced; None if only a run can tell."""
    tensor, axes = values[0], values[1] if len(values) > 1 else None
    if tensor.shape is None:
        return None
    if axes is None:
        return [] if attributes.get("noop_with_empty_axes") else list(range(len(tensor.shape)))
    known = getattr(axes, "array", None)
    return None if known is None else [int(axis) for axis in known]


@form_of("ReduceMean")
def mean(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """Of nothing it is nan, for ONNX Runtime 0."""
    if _counted_from_the_front(op, values):
        return op.emit(operation, *values, **attributes)
    tensor, axes = values[0], _axes(values, attributes)
    if not tensor.dtype.is_floating_point():
        return None
    if axes:
        sizes = [op.size(tensor, axis) for axis in axes]
        if all(isinstance(size, int) and size > 0 for size in sizes):
            return None
        number: Any = 1
        for size in sizes:
            known = isinstance(number, int) and isinstance(size, int)
            number = number * size if known else op.Mul(op.cast(number, _INT64), op.cast(size, _INT64))
    elif axes is None and len(values) == 1 and not attributes.get("noop_with_empty_axes"):
        number = op.Size(tensor)
    else:
        return None
    return op.Div(op.emit("ReduceSum", *values, **attributes), op.cast(number, tensor.dtype))


@form_of("ReduceSum")
def total(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """ONNX Runtime adds integers as float64: both halves of them are added by themselves."""
    if _counted_from_the_front(op, values):
        return op.emit(operation, *values, **attributes)
    tensor = values[0]
    if tensor.dtype is not _INT64 or _is_narrow(tensor):
        return None
    low = op.BitwiseAnd(tensor, op.constant(_HALF - 1, _INT64))
    high = op.Div(op.Sub(tensor, low), op.constant(_HALF, _INT64))
    sums = [
        op.cast(op.emit(operation, op.cast(half, DataType.DOUBLE), *values[1:], **attributes), _INT64)
        for half in (low, high)
    ]
    return op.Add(op.Mul(sums[1], op.constant(_HALF, _INT64)), sums[0])


def _is_narrow(value: Any) -> bool:
    """Whether integers came from smaller ones, or from truth values."""
    made = value.producer()
    return made is not None and made.op_type == "Cast" and made.inputs[0].dtype in _NARROW


@form_of("ReduceProd")
def product(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """ONNX Runtime multiplies integers as float64: they are multiplied step by step."""
    if _counted_from_the_front(op, values):
        return op.emit(operation, *values, **attributes)
    tensor, axes = values[0], _axes(values, attributes)
    if tensor.dtype is not _INT64 or not axes or not len(tensor.shape):
        return None

    def step(inner: Builder, state: Any, row: Any) -> Any:
        result = inner.Mul(state, row)
        return result, result

    result = tensor
    for axis in sorted(axes):  # which stay with size 1 meanwhile
        others = [1 if each in axes and each < axis else op.size(tensor, each) for each in range(len(tensor.shape))]
        row = [size for each, size in enumerate(others) if each != axis]
        one = op.Expand(op.constant(1, _INT64), op.vector(row))
        # a row of ones in front: there may be no other
        rows = op.Concat(op.Unsqueeze(one, [axis]), result, axis=axis)
        rows.shape = ir.Shape([None] * len(others))
        result = op.Unsqueeze(scanned(op, step, [one], [rows], axis)[0], [axis])
    return result if attributes.get("keepdims", 1) else op.Squeeze(result, list(axes))


@form_of("Clip")
def clip(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """With one bound only, the other one is the largest finite number to ONNX Runtime; nan is no bound to it."""
    tensor, low, high = (*values, None, None)[:3]
    if not tensor.dtype.is_floating_point():
        return None
    for bound in (low, high):
        if bound is not None and bound.array is not None and np.isnan(bound.array.astype(np.float64)).any():
            return op.Expand(bound, op.Shape(tensor))
    if (low is None) is (high is None):
        return None
    bound, beyond = (low, op.Less) if high is None else (high, op.Greater)
    return op.Where(beyond(tensor, bound), bound, tensor)


@form_of("Mul")
def integer_multiple(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """ONNX Runtime's optimizer makes ``y / x`` of ``(1 / x) * y``, of integers too, which round in between: the
    quotient has its sign turned on the way in, and the product on the way out."""
    if values[0].dtype not in (DataType.INT32, _INT64):
        return None
    for place, value in enumerate(values):
        if _may_divide_one(value):
            values[place] = op.Neg(value)
            return op.Neg(op.Mul(*values))
    return None


def _may_divide_one(value: Any) -> bool:
    """Whether a value is a quotient whose dividend the optimizer may find to be 1: weights, and what follows from
    them, are not known here."""
    made = value.producer()
    if made is None or made.op_type != "Div":
        return False
    known = getattr(made.inputs[0], "array", None)
    return known is None or bool((known == 1).any())


@form_of("Softplus", "HardSigmoid", "HardSwish", "Mish")
def activation_in_double_precision(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """There are no kernels for it."""
    tensor = values[0]
    if tensor.dtype is not DataType.DOUBLE:
        return None

    def number(value: float) -> Any:
        return op.constant(value, DataType.DOUBLE)

    if operation in ("HardSigmoid", "HardSwish"):
        slope = 1 / 6 if operation == "HardSwish" else attributes.get("alpha", 0.2)
        line = op.Add(op.Mul(tensor, number(slope)), number(attributes.get("beta", 0.5)))
        gate = op.Clip(line, number(0.0), number(1.0))
        return gate if operation == "HardSigmoid" else op.Mul(tensor, gate)
    soft = op.Add(op.Relu(tensor), op.Log(op.Add(op.Exp(op.Neg(op.Abs(tensor))), number(1.0))))
    return soft if operation == "Softplus" else op.Mul(tensor, op.Tanh(soft))
